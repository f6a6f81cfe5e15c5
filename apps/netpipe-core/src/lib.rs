//! The server side of NetPIPE's TCP protocol, without its machine.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
