//! Cores of the process: the thread that starts it, and further ones.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Builder;

/// Runs `work` on a further core, which is a thread; when it returns or panics, the program ends with its
/// status.
///
/// # Panics
/// If the process may have no more threads.
pub fn spawn(index: usize, work: impl FnOnce() -> u8 + Send + 'static) {
    // Whatever a panic left half done, nobody sees it.
    let body = move || crate::exit(catch_unwind(AssertUnwindSafe(work)).unwrap_or(crate::start::PANICKED));
    Builder::new().name(format!("core {index}")).spawn(body).expect("the process may have threads");
}
