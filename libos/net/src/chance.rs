//! Random numbers for delays and names, from the keys that a stack was given: they replay from a seed.

use crate::table::keyed;
use core::time::Duration;

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Chance {
    key: [u64; 2],
    count: u64,
}

impl Chance {
    /// The sequence of `key`, which nobody else has.
    pub fn new(key: [u64; 2]) -> Chance {
        Chance { key, count: 0 }
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.count += 1;
        keyed(self.key, &self.count)
    }

    /// A time below `most`.
    pub fn below(&mut self, most: Duration) -> Duration {
        most / 1024 * (self.next() % 1024) as u32
    }
}
