//! The per-core runtime: one event loop, timers, tasks, records. It has no `unsafe` code.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod event_loop;
pub mod handle;
pub mod histogram;
pub mod inbox;
pub mod latency;
pub mod meter;
pub mod poller;
mod queues;
pub mod rest;
pub mod scheduler;
pub mod sleep;
pub mod task;
pub mod threads;
pub mod wheel;
#[cfg(test)]
mod world;
