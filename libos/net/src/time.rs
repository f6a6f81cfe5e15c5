//! The clock as an argument: the stack never reads one.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time, in nanoseconds since a start that the caller chose: [`nom_port::world::Clock`] as a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The point `nanos` nanoseconds after the start.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// The point `micros` microseconds after the start.
    pub const fn from_micros(micros: u64) -> Instant {
        Instant(micros * 1000)
    }

    /// Nanoseconds since the start.
    #[inline]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Microseconds since the start.
    #[inline]
    pub const fn micros(self) -> u64 {
        self.0 / 1000
    }

    /// Milliseconds since the start, wrapping: the unit of RFC 7323's timestamps.
    #[inline]
    pub const fn millis_wrapping(self) -> u32 {
        (self.0 / 1_000_000) as u32
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    #[inline]
    fn add(self, delay: Duration) -> Instant {
        // Three centuries are as good as ever.
        let nanos = delay.as_secs().min(u64::MAX >> 31) * 1_000_000_000 + u64::from(delay.subsec_nanos());
        Instant(self.0.saturating_add(nanos))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Zero if `earlier` is the later of the two.
    #[inline]
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The first of some points in time, if there is any.
#[inline]
pub fn earliest<const N: usize>(points: [Option<Instant>; N]) -> Option<Instant> {
    let never = Instant(u64::MAX);
    let first = points.into_iter().fold(never, |first, point| first.min(point.unwrap_or(never)));
    (first != never).then_some(first)
}
