//! Numbers that look random and replay from a seed.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::ops::Range;

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): one word of state, so that a fork is cheap and independent.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    /// A sequence of its own, for somebody whose draws must not shift those of others.
    pub fn fork(&mut self) -> Random {
        Random::new(self.word())
    }

    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `range`, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.word() % (range.end - range.start)
    }

    /// Whether something of `ppm` in a million happens now.
    pub fn happens(&mut self, ppm: u64) -> bool {
        ppm > 0 && self.within(0..1_000_000) < ppm
    }

    /// One of `choices`.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.within(0..choices.len() as u64) as usize]
    }

    /// A number below `2^bits`, small ones as likely as large ones.
    pub fn skewed(&mut self, bits: u64) -> u64 {
        let bits = self.within(0..bits + 1);
        self.word() & ((1 << bits) - 1)
    }
}

/// Fills `bytes` with what stands at `position` of the endless text `name`, so that whoever knows both can
/// check any part of it.
pub fn fill(name: u64, position: u64, bytes: &mut [u8]) {
    let mut at = position;
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = Random::new(name ^ Random::new(at / 8).word()).word().to_le_bytes();
        let from = (at % 8) as usize;
        let count = rest.len().min(8 - from);
        let (now, later) = rest.split_at_mut(count);
        now.copy_from_slice(&word[from..from + count]);
        at += count as u64;
        rest = later;
    }
}

/// The `len` bytes at `position` of the text `name`.
pub fn text(name: u64, position: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(name, position, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_text_is_the_text_of_that_part() {
        let whole = text(7, 0, 100);
        for (from, to) in [(0, 100), (3, 9), (8, 16), (50, 51), (99, 100)] {
            assert_eq!(text(7, from, (to - from) as usize), whole[from as usize..to as usize]);
        }
        assert_ne!(text(8, 0, 100), whole);
    }

    #[test]
    fn what_happens_in_a_million_does_so_about_as_often() {
        let mut random = Random::new(1);
        let count = (0..100_000).filter(|_| random.happens(50_000)).count();
        assert!((4_500..5_500).contains(&count), "{count} of 100000 at 5%");
        assert!(!(0..1000).any(|_| random.happens(0)));
    }
}
