//! Time, read from the processor and the bulletin board without a system call.

use core::arch::x86_64::_rdtsc;

/// The processor's time-stamp counter.
#[inline]
pub fn cycles() -> u64 {
    // SAFETY: the kernel leaves the instruction legal in ring 3; it touches no memory.
    unsafe { _rdtsc() }
}

/// Seconds since 1970, UTC; since the machine started, if it has no calendar.
pub fn unix() -> u64 {
    let start = crate::start::board().clock.unix_start.load(core::sync::atomic::Ordering::Relaxed);
    start + now_ns() / 1_000_000_000
}

/// Nanoseconds since the machine started.
pub fn now_ns() -> u64 {
    crate::start::board().clock.nanoseconds(cycles())
}
