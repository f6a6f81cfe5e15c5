//! Ranges of sequence numbers.

use super::sequence::Seq;
use alloc::vec::Vec;

/// Ranges in order that neither touch nor overlap.
#[derive(Debug, Default)]
pub struct Ranges {
    ranges: Vec<(Seq, Seq)>,
}

impl Ranges {
    /// All of them.
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.ranges
    }

    /// Adds everything from `from` to `to`.
    pub fn insert(&mut self, mut from: Seq, mut to: Seq) {
        let first = self.ranges.partition_point(|range| range.1.before(from));
        let after = self.ranges.partition_point(|range| range.0.at_most(to));
        if let Some(&(start, end)) = self.ranges.get(first).filter(|_| first < after) {
            let last = self.ranges[after - 1].1;
            (from, to) = (from.min(start), to.max(end).max(last));
            self.ranges.drain(first + 1..after);
            self.ranges[first] = (from, to);
        } else {
            self.ranges.insert(first, (from, to));
        }
    }

    /// Forgets what stands before `at`.
    pub fn forget_before(&mut self, at: Seq) {
        let gone = self.ranges.partition_point(|range| range.1.at_most(at));
        self.ranges.drain(..gone);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_the_set_of_what_was_added(
            cuts in proptest::collection::vec((0u32..500, 1u32..60), 0..30),
            start in any::<u32>(),
            gone in 0u32..600,
        ) {
            let mut ranges = Ranges::default();
            for &(from, len) in &cuts {
                ranges.insert(Seq(start) + from, Seq(start) + (from + len));
            }
            ranges.forget_before(Seq(start) + gone);
            let number = |at: &Seq| at.since(Seq(start));
            let numbers: Vec<(u32, u32)> =
                ranges.as_slice().iter().map(|(from, to)| (number(from), number(to))).collect();
            prop_assert!(numbers.windows(2).all(|two| two[0].1 < two[1].0), "{numbers:?}");
            for at in 0..600 {
                let is_in = at >= gone && cuts.iter().any(|&(from, len)| (from..from + len).contains(&at));
                prop_assert_eq!(numbers.iter().any(|&(from, to)| (from..to).contains(&at)), is_in, "{}", at);
            }
        }
    }
}
