//! An HTTP/1.1 file server without its machine.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
