//! A server on one core's queue pair: what stands between a protocol and the stack, the same in every world.
//!
//! A [`Service`] sees streams and datagrams, and writes what it answers into a [`Reply`]. A [`Server`] is a
//! service on a stack, for the core's event loop to poll: a request is received, carried out and answered in
//! one event.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod budget;
mod clients;
pub mod control;
mod crew;
mod front;
pub mod governor;
mod metered;
mod metrics;
pub mod path;
mod peers;
mod plan;
mod reply;
mod roster;
mod server;
mod service;
mod steered;
mod stopwatch;

pub use budget::Budget;
pub use control::Control;
pub use crew::Crew;
pub use governor::{Governor, Setting, Window};
pub use metered::{Metered, Traffic};
pub use metrics::Metrics;
pub use nom_economy::memory::{Curve, Demand};
pub use peers::{Passing, Peers};
pub use reply::Reply;
pub use server::{Closing, Ports, Server};
pub use service::{Flow, Service};
pub use steered::Steered;
