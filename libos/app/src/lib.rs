//! The facade: the only crate that an application imports.
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//! #![forbid(unsafe_code)]
//!
//! nom_app::main!(main);
//!
//! fn main() {
//!     nom_app::println!("Hello from nom!");
//! }
//! ```
//!
//! The function returns nothing, an exit status (`u8`), or a `Result` of either; an error is printed and
//! becomes status 1, a panic is printed with its backtrace and becomes status 101.
#![no_std]
#![forbid(unsafe_code)]

pub extern crate alloc;

pub use nom_sys::abi::board::Board;
pub use nom_sys::abi::{Events, Upcall, ipc};
pub use nom_sys::start::{Termination, application, args, board, seed, var, vars};
pub use nom_sys::{Error, PageSize, Protection, exit, main, print, println};
pub use nom_sys::{applications, channels, cores, devices, events, sync, time, upcall};

pub mod net;
pub mod serve;

/// The world behind `nom-port`'s traits, and the traits.
pub mod port {
    pub use nom_port::{buffer, device, nic, world};
    pub use nom_sys::port::{Clock, Entropy, Idle};
}

/// Memory and addresses: grants, and regions in which to map them.
pub mod memory {
    pub use nom_sys::memory::{Grant, Pages, Shared};
    pub use nom_sys::region::Region;
}
