//! Working points: the settings that a controller chooses among.

use crate::units::Seconds;
use alloc::vec::Vec;

/// Settings of a machine's knobs, numbered from 0, with what is known of them before anything is measured.
/// What a neighbour does says something about a point; how much, depends on their distance.
pub trait WorkingPoints {
    /// How many there are; at least 1.
    fn count(&self) -> usize;

    /// How far apart two points are, in units in which responses change gradually: at distance 1 they are alike,
    /// at 10 they say little about each other.
    fn distance(&self, a: usize, b: usize) -> f64;

    /// Latency that the point is expected to add to the least possible; zero where nothing is known.
    fn added_latency(&self, point: usize) -> Seconds;
}

/// Values of the batching delay, dense near 0 and half an octave apart further up.
#[derive(Clone, Debug)]
pub struct BatchingDelays {
    micros: Vec<u32>,
}

impl BatchingDelays {
    /// The longest batching delay.
    pub const MAX_MICROS: u32 = 10_000;

    /// From 0 to `longest` microseconds, at most [`Self::MAX_MICROS`].
    #[must_use]
    pub fn up_to(longest: u32) -> Self {
        let longest = longest.min(Self::MAX_MICROS);
        let mut micros: Vec<u32> = alloc::vec![0];
        let mut exact = 2.0;
        while exact < f64::from(longest) {
            micros.push(libm::round(exact) as u32);
            exact *= core::f64::consts::SQRT_2;
        }
        if longest > 0 {
            micros.push(longest);
        }
        Self { micros }
    }

    /// The batching delay at a point, in microseconds.
    #[must_use]
    pub fn micros(&self, point: usize) -> u32 {
        self.micros[point]
    }

    /// Position on a line that is linear up to about 4 us and logarithmic beyond, in half octaves.
    fn position(&self, point: usize) -> f64 {
        2.0 * libm::log2(1.0 + f64::from(self.micros[point]) / 4.0)
    }
}

impl WorkingPoints for BatchingDelays {
    fn count(&self) -> usize {
        self.micros.len()
    }

    fn distance(&self, a: usize, b: usize) -> f64 {
        (self.position(a) - self.position(b)).abs()
    }

    /// "Each microsecond of batching delay adds approximately another microsecond of latency" (nom, VEE'16,
    /// section 6.6).
    fn added_latency(&self, point: usize) -> Seconds {
        Seconds::from_micros(self.micros[point])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_cover_the_range_once_each_and_in_order() {
        let delays = BatchingDelays::up_to(u32::MAX);
        assert_eq!(delays.micros(0), 0);
        assert_eq!(delays.micros(delays.count() - 1), BatchingDelays::MAX_MICROS);
        assert!(delays.micros.is_sorted_by(|a, b| a < b), "{:?}", delays.micros);
        assert!(delays.count() <= 32);
        assert!((1..delays.count()).all(|point| delays.distance(point - 1, point) < 2.0));
        for longest in [0, 1, 2, 3] {
            let few = BatchingDelays::up_to(longest);
            assert_eq!(few.micros(few.count() - 1), longest);
        }
    }
}
