//! The network stack of one core: sans-I/O, no lock, no copy.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
