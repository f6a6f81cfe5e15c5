//! Linux's system calls as a library of the application that runs unmodified programs.
//!
//! The kernel sends each `syscall` of a program here ([`nom_sys::program`]): so a call is a function call of
//! one address space. A thread of a program is a thread of the runtime, on whose stack its calls run and may
//! block. What is decided without a machine is in modules of its own, and tested there: [`elf`], [`stack`],
//! [`memory`], [`signals`], [`futex`]; [`table`] has a row for each call, and says of each what of it is
//! there.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod buffers;
mod call;
mod calls;
pub mod descriptors;
pub mod elf;
mod facts;
mod family;
pub mod futex;
mod heaps;
mod held;
mod load;
mod machine;
pub mod memory;
#[cfg(any(test, target_os = "none"))]
mod name_files;
mod pressure;
mod process;
mod processor_time;
mod runners;
pub mod signals;
pub mod stack;
#[cfg(target_os = "none")]
pub mod start;
#[cfg(not(target_os = "none"))]
#[path = "hosted.rs"]
pub mod start;
pub mod stop_request;
mod stops;
pub mod table;
mod task;
mod terminal;
pub mod trace;
mod vdso;

pub use call::Call;
pub use family::{Beginning, FamilyParts, ProcessFamily};
pub use held::HeldDirectory;
pub use load::{LoadError, Opened};
pub use process::{Exit, OwnMemory, Process, RunningProgram, View};
pub use task::Task;
