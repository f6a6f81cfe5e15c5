//! Programs that were made for another kernel, in the addresses that are left to them: their memory, and a
//! way to run one until it wants something.
//!
//! A [`ProgramContext`] is one of a program's threads. [`ProgramContext::run`] goes on with it on the running
//! core and returns when it makes a system call or faults, with all its registers stored; to the caller it is
//! a function call. What the program does with its own memory is its own affair; what it does to the
//! library's, on purpose or not, is not prevented: it is one application, and the kernel guards the others.

mod context;
#[cfg(target_os = "none")]
mod entry;
pub mod memory;
mod space;
pub mod vdso;
#[cfg(target_os = "none")]
mod vectors;

pub use context::{DetachedContext, EXTENDED_AT, ProgramContext, Trap, VECTOR_BYTES};
#[cfg(target_os = "none")]
pub use entry::start;
#[cfg(target_os = "none")]
pub(crate) use entry::{Slots, intercept};
pub use space::{ProgramSpace, SpaceNumber};

/// Programs run on nom's kernel alone.
///
/// # Errors
/// Always: NotPermitted.
#[cfg(not(target_os = "none"))]
pub fn start() -> nom_abi::error::Result<()> {
    Err(nom_abi::error::Error::NotPermitted)
}
