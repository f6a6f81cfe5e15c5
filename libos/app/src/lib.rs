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
//!
//! The same source is a program for nom's kernel and a program for Linux. What both worlds have is
//! [`main!`], [`print!`], [`println!`], [`args`], [`var`], [`vars`], [`files()`], [`exit`], [`memory_free`],
//! [`memory_reserve`], [`port`], [`logs`], [`serve`], [`service`], [`shutdown`], [`sockets`], `RawLock` and
//! `Mutex` of [`sync`], `unix`, `unix_ns` and `now_ns` of [`time`], and the types `QueuePair` and `DmaBuffer`
//! of [`net`]; the rest is there only on nom.
#![no_std]
#![forbid(unsafe_code)]

pub extern crate alloc;

// The one place that chooses between the worlds: each has the same names.
#[cfg(target_os = "none")]
#[path = "world/nom/mod.rs"]
mod world;
#[cfg(not(target_os = "none"))]
#[path = "world/linux.rs"]
mod world;

pub use files::{File, files};
pub use world::*;

/// Bytes of memory that a service leaves free for whoever needs some next, such as connections: what is kept
/// for longer is given back before they are used up ([`nom_service::Service::shrink`]).
pub fn memory_reserve() -> u64 {
    (world::memory_max() / RESERVE_PART).min(RESERVE_BYTES)
}

/// Of a machine with little memory a part is kept free, of any other so much.
const RESERVE_PART: u64 = 16;
const RESERVE_BYTES: u64 = 4 << 20;

mod files;
pub mod logs;
pub mod serve;
pub mod service;
pub mod sockets;
