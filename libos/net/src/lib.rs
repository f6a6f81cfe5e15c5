//! The network stack of one core: sans-I/O, no lock, no copy.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod batch;
pub mod chain;
pub mod checksum;
pub mod counters;
pub mod table;
pub mod tcp;
pub mod time;

pub use nom_port::buffer;
