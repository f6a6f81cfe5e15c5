//! The user side of nom's ABI: everything in ring 3 that needs `unsafe`, and nothing else.
//!
//! [`raw`] has one stub for each system call, made from the ABI's table. On top of it lie small safe types:
//! owned memory ([`memory`], [`region`]), cores ([`cores`]), upcalls ([`upcall`]), devices ([`devices`]),
//! channels ([`channels`]), prices ([`prices`]). [`port`] answers `nom-port`'s traits with them. For bare
//! metal the crate also brings what every program needs to run at all: the entry point, the heap and the
//! panic handler (`runtime`).
//!
//! Applications use `nom-app`, which hands this on under shorter names. The safety argument of the crate
//! is in `docs/safety/sys.md`; each `unsafe` block says which of its conditions it relies on.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    target_os = "none",
    allow(internal_features, reason = "`main!` has to work where unsafe code is forbidden")
)]
#![cfg_attr(target_os = "none", feature(allow_internal_unsafe))]

extern crate alloc;

pub mod applications;
pub mod channels;
pub mod console;
mod contain;
mod copy;
pub mod cores;
pub mod devices;
pub mod events;
mod heap;
mod local;
pub mod memory;
mod pause;
pub mod port;
mod preempt;
pub mod prices;
pub mod program;
pub mod raw;
pub mod region;
#[cfg(target_os = "none")]
mod runtime;
pub mod shutdown;
pub mod stack;
pub mod start;
pub mod sync;
pub mod thread_pointer;
pub mod time;
pub mod upcall;

pub use nom_abi as abi;
pub use nom_abi::{Error, PageSize, Protection};

/// Ends the application with `status` (0 to 255).
pub fn exit(status: u8) -> ! {
    end(status.into())
}

/// The same, after the kernel has shown by which calls the program came here.
pub(crate) fn exit_with_backtrace(status: u8) -> ! {
    end(u64::from(status) | nom_abi::syscall::EXIT_BACKTRACE)
}

fn end(status: u64) -> ! {
    loop {
        // SAFETY: `exit` takes no pointer, and nothing of this program runs afterwards.
        let _ = unsafe { raw::exit(status) };
    }
}

/// Names a function as the program's main function: `nom_app::main!(main);`
///
/// The function takes nothing and returns anything that is a [`start::Termination`].
#[macro_export]
#[cfg_attr(target_os = "none", allow_internal_unsafe)]
macro_rules! main {
    ($main:path) => {
        #[unsafe(no_mangle)]
        fn nom_main() -> u8 {
            $crate::start::Termination::status($main(), $crate::console::print)
        }
    };
}
