//! Time, read in one place.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Steady time of the first reading: large, so that what was confirmed long before has a time, too.
const STEADY_START_NS: u64 = 1 << 60;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since 1970, UTC: for people and ledgers.
    pub unix_ns: u64,
    /// Nanoseconds of a clock that nobody sets: for ages.
    pub steady_ns: u64,
}

impl Moment {
    /// The present one.
    pub fn now() -> Moment {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let steady = START.elapsed();
        Moment { unix_ns: unix.as_nanos() as u64, steady_ns: STEADY_START_NS + steady.as_nanos() as u64 }
    }
}
