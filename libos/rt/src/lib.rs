//! The per-core runtime: one event loop, timers, tasks, records.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
