//! memcached without its machine: protocols and store.
//!
//! [`Server`] holds the items; a [`Connection`] is fed the pieces of one client's stream, however they are
//! cut, and writes its replies into a [`Sink`](nom_port::buffer::Sink). [`udp`] answers datagrams, and
//! [`packet`] most of them in the memory that they came in. There is no clock and no network in here: the
//! time is told, the bytes are given.
//!
//! The wire format, the order of checks and the error lines are those of memcached 1.6 (its
//! `doc/protocol.txt`); where they differ, for a reason, the item says so.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod binary;
mod classes;
mod connection;
mod curve;
mod demand;
mod detail;
mod find;
mod line;
mod meta;
mod number;
mod options;
pub mod packet;
mod roll;
mod server;
mod shard;
mod slab;
mod stats;
mod store;
mod tend;
mod text;
pub mod udp;
mod value;
mod watch;

pub use connection::Connection;
pub use nom_port::options::OptionError;
pub use options::Options;
pub use server::Server;
pub use stats::Stats;
pub use store::Room;

/// Longest key in bytes, as in memcached.
pub const KEY_MAX: usize = 250;

/// What `version` answers: the release whose protocol this is.
pub const VERSION: &str = "1.6.18";
