//! Processors, as the board shows them, and waiting until it does.

use crate::Check;
use alloc::format;
use core::sync::atomic::Ordering::Relaxed;
use nom_sys::{applications, events, start, time};

/// Processors of the machine.
pub fn processors() -> u64 {
    start::board().machine.cores.load(Relaxed).into()
}

/// Cores that the board says this application holds.
pub fn held() -> u64 {
    applications::usage(start::application()).cores.load(Relaxed).into()
}

/// Yields the core until `condition` holds.
///
/// # Errors
/// If that takes longer than `timeout_ns`: says that `what` never happened.
pub fn wait_until(timeout_ns: u64, what: &str, condition: impl Fn() -> bool) -> Check {
    let deadline = time::now_ns() + timeout_ns;
    while !condition() {
        if time::now_ns() > deadline {
            return Err(format!("never: {what}").into());
        }
        events::yield_core();
    }
    Ok(())
}
