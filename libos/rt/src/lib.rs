//! The per-core runtime: one event loop, on which events, timers, tasks, threads and pollers run. All but
//! the switch between the stacks of threads is without `unsafe` code (docs/safety/libos-rt.md).
//!
//! An [`EventLoop`] belongs to one core and shares nothing with others but an [inbox]. Each event runs to
//! completion; each carries the [`Activity`] that pays for it and for all that it starts. The [meter]
//! charges every nanosecond of the core to an activity, to polling in vain, or to sleep. Which of the
//! request [queues] and [threads] goes on next is the [scheduler]'s decision, whether to [rest] by polling
//! or by sleeping is a policy; both are tested without a machine, as is the timer [wheel].
//!
//! What the loop asks of its world are a clock, a way to sleep and doorbells
//! ([`nom_port::world`]):
//!
//! ```
//! use nom_port::world::{Clock, Doorbell, Idle, Wakeup};
//! use nom_rt::EventLoop;
//! use std::{sync::Arc, thread, time::{Duration, Instant}};
//!
//! struct Host(Instant);
//!
//! impl Clock for Host {
//!     fn now_ns(&self) -> u64 {
//!         self.0.elapsed().as_nanos() as u64
//!     }
//! }
//!
//! impl Idle for Host {
//!     fn sleep(&mut self, deadline_ns: Option<u64>) -> Wakeup {
//!         let until_ns = deadline_ns.expect("this host has no other source of work than timers");
//!         thread::sleep(Duration::from_nanos(until_ns.saturating_sub(self.now_ns())));
//!         Wakeup::default()
//!     }
//! }
//!
//! struct Alone;
//!
//! impl Doorbell for Alone {
//!     fn ring(&self, _core: usize) {}
//! }
//!
//! let start = Instant::now();
//! let mut core = EventLoop::new(0, Host(start), Host(start), Arc::new(Alone));
//! core.handle().after(1_000_000, |handle| {
//!     let handle = handle.clone();
//!     handle.clone().spawn(async move {
//!         handle.sleep(1_000_000).await;
//!         handle.stop(7);
//!     });
//! });
//! assert_eq!(core.run(), 7);
//! let usage = core.handle().usage();
//! assert!(usage.sleeping_ns > 1_000_000);
//! ```
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

pub mod event_loop;
pub mod futex;
pub mod handle;
pub mod histogram;
pub mod inbox;
pub mod latency;
pub mod meter;
pub mod poller;
pub mod queues;
pub mod rest;
mod retired;
pub mod scheduler;
pub mod sleep;
pub mod task;
pub mod threads;
pub mod wait_queue;
mod ward;
pub mod wheel;

pub use event_loop::EventLoop;
pub use handle::Handle;
pub use inbox::Remote;
pub use meter::{Activity, INFRASTRUCTURE};
pub use poller::{Poller, Progress};
pub use rest::Thresholds;
pub use retired::{Sweep, retire};
pub use wait_queue::WaitQueue;

#[cfg(test)]
mod world;
