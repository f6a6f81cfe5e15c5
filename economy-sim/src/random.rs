//! Randomness from a seed.

use libm::{cos, log, sqrt};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// From a seed; the same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Uniform between 0, included, and 1.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform between the two.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Between the two, its logarithm uniform.
    pub fn log_between(&mut self, low: f64, high: f64) -> f64 {
        libm::exp(self.between(log(low), log(high)))
    }

    /// Standard normal (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = sqrt(-2.0 * log(1.0 - self.unit()));
        radius * cos(core::f64::consts::TAU * self.unit())
    }
}
