//! In place of `start` in a process of Linux, where a program's system calls are Linux's own.

use alloc::boxed::Box;

/// Runs no program.
///
/// # Errors
/// Always: what to do instead.
pub fn run() -> Result<u8, Box<dyn core::error::Error>> {
    let instead = "start it by itself, or in a machine, without --host";
    Err(alloc::format!("a program of Linux is a process of Linux without nom: {instead}").into())
}
