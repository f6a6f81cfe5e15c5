//! What the runtime, the drivers and the stack ask of the world they run in: traits and the types in them.
//!
//! `nom-sys` answers in a virtual machine, `nom-linux-host` in a Linux process, `nom-sim` on virtual time.
//! The crates above meet only here, so each runs unchanged in all three.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod buffer;
mod counters;
pub mod device;
pub mod disk;
pub mod nic;
pub mod options;
pub mod root_disk;
pub mod termination;
pub mod world;
