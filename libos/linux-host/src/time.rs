//! Time, read without a system call where Linux offers that.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// When the clock was first read.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Seconds since 1970, UTC.
pub fn unix() -> u64 {
    unix_ns() / 1_000_000_000
}

/// The same in nanoseconds.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Nanoseconds of `CLOCK_MONOTONIC` since the program first asked.
///
/// It is read through the C library, not through rustix, which finds the kernel's own function by the
/// auxiliary vector and so does not run under Valgrind.
#[inline]
pub fn now_ns() -> u64 {
    START.elapsed().as_nanos() as u64
}
