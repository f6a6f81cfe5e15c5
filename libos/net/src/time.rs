//! The clock as an argument: the stack never reads one.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time, in microseconds since a start that the caller chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The point `micros` microseconds after the start.
    pub const fn from_micros(micros: u64) -> Instant {
        Instant(micros)
    }

    /// Microseconds since the start.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Milliseconds since the start, wrapping: the unit of RFC 7323's timestamps.
    pub const fn millis_wrapping(self) -> u32 {
        (self.0 / 1000) as u32
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, delay: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Zero if `earlier` is the later of the two.
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}
