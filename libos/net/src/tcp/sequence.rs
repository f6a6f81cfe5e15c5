//! Sequence numbers: a circle of 2^32 on which only differences below half of it mean something.

use core::ops::{Add, Sub};

/// A position in a stream of bytes (RFC 9293 section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether this stands before `other`.
    #[inline]
    pub fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether this stands before `other` or is the same.
    #[inline]
    pub fn at_most(self, other: Seq) -> bool {
        !other.before(self)
    }

    /// The later of the two.
    #[inline]
    pub fn max(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    pub fn min(self, other: Seq) -> Seq {
        if self.before(other) { self } else { other }
    }

    /// How far this stands after `earlier`; zero if it stands before it.
    #[inline]
    pub fn since(self, earlier: Seq) -> u32 {
        u32::try_from(self.0.wrapping_sub(earlier.0) as i32).unwrap_or(0)
    }
}

impl Add<u32> for Seq {
    type Output = Seq;

    #[inline]
    fn add(self, count: u32) -> Seq {
        Seq(self.0.wrapping_add(count))
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;

    #[inline]
    fn sub(self, count: u32) -> Seq {
        Seq(self.0.wrapping_sub(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let (a, b) = (Seq(u32::MAX - 1), Seq(3));
        assert!(a.before(b) && !b.before(a) && a.at_most(a));
        assert_eq!((b.since(a), a.since(b)), (5, 0));
        assert_eq!((a.max(b), a.min(b), a + 5, b - 5), (b, a, b, a));
    }
}
