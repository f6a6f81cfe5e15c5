//! A server on a queue pair: what stands between a protocol and the stack, the same in every world.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
