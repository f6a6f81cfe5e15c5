//! Sockets over the stack: blocking, non-blocking, and readiness.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
