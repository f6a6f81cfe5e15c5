//! RangeMap of addresses, none over another, each with a value: what regions a process has, and what frames
//! are behind them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// What a range of addresses stands for.
pub trait Part: Clone {
    /// What the rest of the range stands for, behind its first `bytes`.
    #[must_use]
    fn behind(&self, bytes: u64) -> Self;

    /// Whether `next`, `bytes` behind this, goes on as this does, so that both are one.
    fn goes_on_as(&self, bytes: u64, next: &Self) -> bool;
}

/// RangeMap with their values, by address.
#[derive(Clone, Debug)]
pub struct RangeMap<V> {
    /// By its first address, where each ends, and its value.
    map: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        RangeMap { map: BTreeMap::new() }
    }
}

impl<V: Part> RangeMap<V> {
    /// The range that an address is in.
    pub fn find(&self, address: u64) -> Option<(Range<u64>, &V)> {
        let (start, (end, value)) = self.map.range(..=address).next_back()?;
        (address < *end).then_some((*start..*end, value))
    }

    /// What is in `within`, as far as it is in there, by ascending address.
    pub fn overlapping(&self, within: Range<u64>) -> impl Iterator<Item = (Range<u64>, V)> {
        let first = self.find(within.start).map_or(within.start, |(range, _)| range.start);
        self.map.range(first..within.end.max(first)).filter_map(move |(start, (end, value))| {
            let part = (*start).max(within.start)..(*end).min(within.end);
            (part.start < part.end).then(|| (part.clone(), value.behind(part.start - start)))
        })
    }

    /// All of them, by ascending address.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, &V)> {
        self.map.iter().map(|(start, (end, value))| (*start..*end, value))
    }

    /// Takes out what is in `within`, as far as it is in there.
    pub fn remove(&mut self, within: Range<u64>) -> Vec<(Range<u64>, V)> {
        let removed: Vec<_> = self.overlapping(within.clone()).collect();
        for (part, value) in &removed {
            let (start, end) = match self.find(part.start) {
                Some((range, _)) => (range.start, range.end),
                None => continue,
            };
            let Some((_, whole)) = self.map.remove(&start) else { continue };
            if part.end < end {
                self.map.insert(part.end, (end, value.behind(part.end - part.start)));
            }
            if start < part.start {
                self.map.insert(start, (part.start, whole));
            }
        }
        removed
    }

    /// Puts a range in the place of whatever is there, which is returned. Neighbours that it goes on with
    /// become one with it.
    pub fn insert(&mut self, range: Range<u64>, value: V) -> Vec<(Range<u64>, V)> {
        if range.is_empty() {
            return Vec::new();
        }
        let replaced = self.remove(range.clone());
        let (mut start, mut end, mut value) = (range.start, range.end, value);
        if let Some((before, (_, earlier))) =
            self.map.range(..start).next_back().filter(|(_, (end, _))| *end == start)
            && earlier.goes_on_as(start - before, &value)
        {
            (start, value) = (*before, earlier.clone());
        }
        if let Some((until, later)) = self.map.get(&end)
            && value.goes_on_as(end - start, later)
        {
            let until = *until;
            self.map.remove(&end);
            end = until;
        }
        self.map.insert(start, (end, value));
        replaced
    }

    /// Whether all of `range` is in some range.
    pub fn covers(&self, range: Range<u64>) -> bool {
        let mut next = range.start;
        for (part, _) in self.overlapping(range.clone()) {
            if part.start != next {
                return false;
            }
            next = part.end;
        }
        next >= range.end
    }

    /// Whether nothing is in `range`.
    pub fn is_free(&self, range: Range<u64>) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// The highest free place for `bytes` within `bounds`, with `gap` bytes free below it and above it.
    pub fn place_below(&self, bounds: Range<u64>, bytes: u64, gap: u64) -> Option<u64> {
        let mut ceiling = bounds.end;
        for (start, (end, _)) in self.map.range(..bounds.end).rev() {
            let candidate = ceiling.checked_sub(gap)?.checked_sub(bytes)?;
            if candidate < bounds.start {
                return None;
            }
            if end.saturating_add(gap) <= candidate {
                return Some(candidate);
            }
            ceiling = ceiling.min(*start);
        }
        ceiling.checked_sub(gap)?.checked_sub(bytes).filter(|place| *place >= bounds.start)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.map.len()
    }

    /// Bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        self.map.iter().map(|(start, (end, _))| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::memory;
    use super::super::{LargeUse, MappedRegion, PAGE, PLACE, REGIONS_MAX, Rights, Where};
    use super::*;
    use nom_fs::Errno;
    use proptest::prelude::*;
    use std::collections::BTreeMap as Model;

    /// A value that counts with its address, as frames do.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Counting(u64);

    impl Part for Counting {
        fn behind(&self, bytes: u64) -> Self {
            Counting(self.0 + bytes)
        }
        fn goes_on_as(&self, bytes: u64, next: &Self) -> bool {
            self.0 + bytes == next.0
        }
    }

    /// Bytes of a small family.
    const END: u64 = 64;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Range<u64>, u64),
        Remove(Range<u64>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = || (0..END, 0..END).prop_map(|(a, b)| a.min(b)..a.max(b));
        let step = prop_oneof![
            (range(), 0..4u64).prop_map(|(range, value)| Step::Insert(range, value * 1000)),
            // One that goes on with what is beside it.
            range().prop_map(|range| Step::Insert(range.clone(), range.start)),
            range().prop_map(Step::Remove),
        ];
        proptest::collection::vec(step, 0..40)
    }

    fn played(steps: &[Step]) -> (RangeMap<Counting>, Model<u64, u64>) {
        let (mut ranges, mut model) = (RangeMap::default(), Model::new());
        for step in steps {
            let (range, value) = match step {
                Step::Insert(range, value) => (range, Some(*value)),
                Step::Remove(range) => (range, None),
            };
            let expected: Vec<_> = model.range(range.clone()).map(|(at, value)| (*at, *value)).collect();
            let out = match value {
                Some(value) => ranges.insert(range.clone(), Counting(value)),
                None => ranges.remove(range.clone()),
            };
            let out: Vec<_> = out
                .into_iter()
                .flat_map(|(part, value)| part.clone().map(move |at| (at, value.0 + at - part.start)))
                .collect();
            assert_eq!(out, expected, "what was there is what is returned");
            for at in range.clone() {
                match value {
                    Some(value) => model.insert(at, value + at - range.start),
                    None => model.remove(&at),
                };
            }
        }
        (ranges, model)
    }

    proptest! {
        #[test]
        fn ranges_are_what_a_map_of_every_address_says(steps in steps()) {
            let (ranges, model) = played(&steps);
            for at in 0..END {
                let found = ranges.find(at).map(|(range, value)| value.0 + at - range.start);
                prop_assert_eq!(found, model.get(&at).copied());
            }
            prop_assert_eq!(ranges.bytes(), model.len() as u64);
            let all: Vec<_> = ranges.iter().map(|(range, value)| (range, value.clone())).collect();
            for pair in all.windows(2) {
                prop_assert!(pair[0].0.end <= pair[1].0.start);
                let touches = pair[0].0.end == pair[1].0.start;
                let bytes = pair[0].0.end - pair[0].0.start;
                prop_assert!(!touches || !pair[0].1.goes_on_as(bytes, &pair[1].1), "neighbours are one");
            }
        }

        #[test]
        fn a_place_is_the_highest_that_is_free(steps in steps(), bytes in 1..20u64, gap in 0..3u64) {
            let (ranges, model) = played(&steps);
            let fits = |at: &u64| {
                let around = at.saturating_sub(gap)..at + bytes + gap;
                at + bytes + gap <= END && model.range(around).next().is_none()
            };
            prop_assert_eq!(ranges.place_below(0..END, bytes, gap), (0..END).rev().find(fits));
        }

        #[test]
        fn what_is_covered_is_covered_address_by_address(steps in steps(), a in 0..END, b in 0..END) {
            let (ranges, model) = played(&steps);
            let range = a.min(b)..a.max(b);
            prop_assert_eq!(ranges.covers(range.clone()), range.clone().all(|at| model.contains_key(&at)));
            prop_assert_eq!(ranges.is_free(range.clone()), !range.clone().any(|at| model.contains_key(&at)));
        }
    }

    #[test]
    fn a_process_has_no_more_regions_than_it_may_however_they_come_about() {
        let (_, memory) = memory(1, 16);
        let pages = 2 * REGIONS_MAX as u64;
        let zeros = MappedRegion::zeros(Rights::READ_WRITE);
        let address = memory.map(Where::At(PLACE.start), pages * PAGE, zeros).expect("room");
        let page = |number: u64| address + number * PAGE;
        // Each makes three of one.
        let made =
            (0..).map_while(|turn| memory.protect(page(2 * turn + 1), PAGE, Rights::READ).ok()).count();
        assert_eq!((made, memory.regions().len()), ((REGIONS_MAX - 1) / 2, REGIONS_MAX - 1));
        assert_eq!(memory.use_large(page(pages - 5), PAGE, LargeUse::Nowhere), Err(Errno::ENOMEM));
        assert_eq!(memory.unmap(page(pages - 5), PAGE), Ok(()), "of one it makes two");
        assert_eq!(memory.unmap(page(pages - 3), PAGE), Err(Errno::ENOMEM));
        let there = Some(Where::At(page(2 * pages)));
        assert_eq!(memory.remap(page(pages - 3), PAGE, 2 * PAGE, there), Err(Errno::ENOMEM));
        assert_eq!(memory.protect(page(pages - 1), PAGE, Rights::READ), Err(Errno::ENOMEM));
        assert_eq!(memory.regions().len(), REGIONS_MAX);
        assert_eq!(memory.unmap(page(pages - 1), PAGE), Ok(()), "its end makes no more");
        assert_eq!(memory.protect(page(0), 3 * PAGE, Rights::READ), Ok(()), "and this makes fewer");
        assert_eq!(memory.remap(page(pages - 3), PAGE, 2 * PAGE, there).map(drop), Ok(()));
    }
}
