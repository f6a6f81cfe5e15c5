//! The contract between nom's kernel and its applications, written once.
//!
//! Everything that crosses the ring-0 border is defined here and nowhere else: the system calls and
//! their errors ([`syscall`], [`error`]), the upcalls ([`upcall`]), the bulletin board ([`board`]), the
//! page an application finds at start ([`start`]), the shared-memory rings ([`ipc`]), the published prices
//! ([`prices`]), the boot image ([`image`]) and where things lie in an address space ([`layout`]). The kernel
//! decodes with the same tables from which user stubs and the documentation page are made.
//!
//! Rules of this crate: `no_std`, no `unsafe`, fixed widths only, offsets instead of pointers, and every
//! shared structure asserts its own layout at compile time.
#![no_std]
#![forbid(unsafe_code)]

pub mod board;
pub mod branches;
pub mod error;
pub mod image;
pub mod ipc;
pub mod layout;
pub mod memory;
pub mod priced;
pub mod prices;
pub mod relocations;
pub mod seqlock;
pub mod start;
pub mod syscall;
#[cfg(test)]
mod tests;
pub mod upcall;

pub use error::Error;
pub use memory::{PageSize, Protection};
pub use syscall::Syscall;
pub use upcall::{Events, Upcall, UpcallFrame};

/// Version of the whole contract; the kernel refuses an image made for another one.
pub const VERSION: u32 = 3;
