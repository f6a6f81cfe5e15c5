//! An HTTP/1.1 file server without its machine: GET and HEAD of files that lie in memory.
//!
//! A [`Site`] is what there is to serve, a [`Server`] adds the time, and a [`Connection`] is fed the pieces
//! of one client's stream, however they are cut; it writes its replies into a
//! [`Sink`](nom_port::buffer::Sink), the files as slices that are not copied. Semantics are those of RFC
//! 9110, messages those of RFC 9112.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod body;
mod condition;
mod connection;
mod date;
mod known;
mod path;
mod places;
mod range;
mod reply;
mod request;
mod server;
mod site;

pub use connection::Connection;
pub use places::Places;
pub use server::{Server, Stats};
pub use site::{File, Site, content_type_of};
