//! The clock as an argument: the stack never reads one.

use core::cmp::Ordering;
use core::num::NonZeroU64;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time, in nanoseconds since a start that the caller chose: [`nom_port::world::Clock`] as a type.
///
/// Kept as what is left until the end of all time, which is never 0: so that there being no point in time
/// takes no room of its own, and is later than all others.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instant(NonZeroU64);

impl Instant {
    /// The point `nanos` nanoseconds after the start.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Instant {
        match NonZeroU64::new(!nanos) {
            Some(left) => Instant(left),
            None => Instant(NonZeroU64::MIN),
        }
    }

    /// The point `micros` microseconds after the start.
    pub const fn from_micros(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// Nanoseconds since the start.
    #[inline]
    pub const fn nanos(self) -> u64 {
        !self.0.get()
    }

    /// Nanoseconds from `earlier` to this point, or none if it is the later of the two. What each segment
    /// needs is counted so: a [`Duration`] takes a division to make and a multiplication to read.
    #[inline]
    pub const fn nanos_since(self, earlier: Instant) -> u64 {
        // What is left grows smaller.
        earlier.0.get().saturating_sub(self.0.get())
    }

    /// The point so many nanoseconds later.
    #[inline]
    pub const fn plus_nanos(self, nanos: u64) -> Instant {
        Instant::from_nanos(self.nanos().saturating_add(nanos))
    }

    /// Microseconds since the start.
    #[inline]
    pub const fn micros(self) -> u64 {
        self.nanos() / 1000
    }

    /// Milliseconds since the start, wrapping: the unit of RFC 7323's timestamps.
    #[inline]
    pub const fn millis_wrapping(self) -> u32 {
        (self.nanos() / 1_000_000) as u32
    }
}

impl Default for Instant {
    /// The start.
    #[inline]
    fn default() -> Instant {
        Instant(NonZeroU64::MAX)
    }
}

impl core::fmt::Debug for Instant {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_tuple("Instant").field(&self.nanos()).finish()
    }
}

impl Ord for Instant {
    #[inline]
    fn cmp(&self, other: &Instant) -> Ordering {
        other.0.cmp(&self.0)
    }
}

impl PartialOrd for Instant {
    #[inline]
    fn partial_cmp(&self, other: &Instant) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn lt(&self, other: &Instant) -> bool {
        other.0 < self.0
    }

    #[inline]
    fn le(&self, other: &Instant) -> bool {
        other.0 <= self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    #[inline]
    fn add(self, delay: Duration) -> Instant {
        // Three centuries are as good as ever.
        let nanos = delay.as_secs().min(u64::MAX >> 31) * 1_000_000_000 + u64::from(delay.subsec_nanos());
        self.plus_nanos(nanos)
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Zero if `earlier` is the later of the two.
    #[inline]
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

/// The sooner of two points in time, if there is any.
#[inline]
pub fn sooner(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    let left = |point: Option<Instant>| point.map_or(0, |point| point.0.get());
    NonZeroU64::new(left(one).max(left(other))).map(Instant)
}

/// The first of some points in time, if there is any.
#[inline]
pub fn earliest<const N: usize>(points: [Option<Instant>; N]) -> Option<Instant> {
    points.into_iter().fold(None, sooner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_number_of_nanoseconds(a in 0..u64::MAX, b in 0..u64::MAX, delay in 0..1u64 << 62) {
            let (first, second) = (Instant::from_nanos(a), Instant::from_nanos(b));
            prop_assert_eq!(first.nanos(), a);
            prop_assert_eq!(first.cmp(&second), a.cmp(&b));
            prop_assert_eq!((first < second, first <= second, first > second), (a < b, a <= b, a > b));
            prop_assert_eq!(first - second, Duration::from_nanos(a.saturating_sub(b)));
            prop_assert_eq!(first.nanos_since(second), a.saturating_sub(b));
            prop_assert_eq!(first.plus_nanos(delay), first + Duration::from_nanos(delay));
            let later = first + Duration::from_nanos(delay);
            prop_assert_eq!(later.nanos(), a.saturating_add(delay).min(u64::MAX - 1));
            prop_assert_eq!(earliest([Some(first), None, Some(second)]).unwrap().nanos(), a.min(b));
        }
    }

    #[test]
    fn no_point_in_time_takes_no_room_and_is_not_the_earliest() {
        assert_eq!(size_of::<Option<Instant>>(), 8);
        assert_eq!(earliest([None, None]), None);
        assert_eq!((Instant::default().nanos(), Instant::from_nanos(u64::MAX).nanos()), (0, u64::MAX - 1));
    }
}
