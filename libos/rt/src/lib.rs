//! The per-core runtime: one event loop, timers, tasks, records. It has no `unsafe` code.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod histogram;
pub mod latency;
pub mod wheel;
