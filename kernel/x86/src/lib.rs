//! The machine under nom's kernel: x86-64, booted by PVH.
//!
//! The only ring-0 crate with `unsafe` or assembly (allowed here, and argued page by page in
//! `docs/safety/kernel-x86.md`). It gives `nom-kernel-pure` its
//! [`Machine`](nom_kernel_pure::machine::Machine) and turns system calls, faults and interrupts into calls of
//! it; it decides nothing itself.
#![no_std]

mod apic;
mod area;
mod backtrace;
mod boot;
mod calendar;
mod clock;
mod control;
mod cpu;
mod entry;
mod lock;
mod mapping;
mod memory;
mod platform;
mod power;
mod serial;
mod shootdown;
mod smp;
mod start_info;
mod tables;
mod vector_state;

pub use boot::{Boot, enter};
pub use memory::direct;
pub use platform::Platform;
pub use serial::log;
