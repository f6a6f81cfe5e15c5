//! A server on one core's queue pair: what stands between a protocol and the stack, the same in every world.
//!
//! A [`Service`](nom_service::Service) sees streams and datagrams, and writes what it answers into a
//! [`Reply`](nom_service::Reply). A [`Server`] is a service on a stack, for the core's event loop to poll: a
//! request is received, carried out and answered in one event.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod budget;
mod clients;
pub mod control;
mod crowd;

mod front;
mod gate;
mod metered;
pub mod path;
mod payers;
mod reserve;
mod server;
mod shares;
mod steered;
mod steering;
#[cfg(test)]
mod still;
mod stopwatch;
mod yields;

pub use budget::Budget;
pub use clients::Migration;
pub use control::Control;
pub use metered::{Metered, Traffic};
pub use payers::Consumption;
pub use reserve::Free;
pub use server::{Closing, Ports, Server};
pub use steered::{Reception, Steered};
