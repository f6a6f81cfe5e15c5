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
    unix_start() + now_ns() / 1_000_000_000
}

/// The same in nanoseconds.
pub fn unix_ns() -> u64 {
    unix_start() * 1_000_000_000 + now_ns()
}

/// When the machine started, as [`unix`] has it.
fn unix_start() -> u64 {
    crate::start::board().clock.unix_start.load(core::sync::atomic::Ordering::Relaxed)
}

/// Nanoseconds since the machine started.
#[inline]
pub fn now_ns() -> u64 {
    crate::start::board().clock.nanoseconds(cycles())
}
