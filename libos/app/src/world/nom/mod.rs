//! In a virtual machine, on nom's kernel.

pub use nom_sys::abi::board::Board;
pub use nom_sys::abi::{Events, Upcall, ipc};
pub use nom_sys::start::{Termination, application, args, board, seed, var, vars};
pub use nom_sys::{Error, PageSize, Protection, exit, main, print, println};
pub use nom_sys::{applications, channels, cores, devices, events, prices, shutdown, sync, time, upcall};

pub(crate) use nom_sys::stack::ThreadStack;
pub(crate) use nom_sys::start::archive;

pub mod client;
mod core_pool;
pub(crate) mod market;
pub mod net;
mod waiting_cores;

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

/// What interrupts threads that compute.
pub(crate) fn preemption() -> Option<&'static dyn nom_port::world::Preemption> {
    Some(&nom_sys::port::Interrupter)
}

/// Keeps panics of a loop's tasks within them.
pub(crate) fn contain(handle: &nom_rt::Handle, stack_bytes: usize) {
    handle.contain(&nom_sys::port::Container, move || ThreadStack::new(stack_bytes).ok());
}

/// Bytes of memory that the program may still take.
pub fn memory_free() -> u64 {
    nom_sys::memory::obtainable()
}

/// Bytes of memory that the program's heap has taken and nobody uses.
pub(crate) fn memory_idle() -> u64 {
    nom_sys::memory::idle()
}

/// Bytes of memory that the program may have.
pub(crate) fn memory_max() -> u64 {
    use core::sync::atomic::Ordering::Relaxed;
    let (board, frame) = (board(), nom_sys::abi::memory::FRAME_BYTES);
    let cap = board.applications[application()].frames_max.load(Relaxed);
    cap.min(board.machine.frames_total.load(Relaxed)).saturating_mul(frame)
}
