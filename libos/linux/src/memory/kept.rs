//! Frames that are kept though no process may have them any more, by names that say what is in them.

use super::PAGE;
use super::ranges::{Part, RangeMap};
use alloc::vec::Vec;
use core::ops::Range;

/// The frame of the first page of a range of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame(u64);

impl Part for Frame {
    fn behind(&self, bytes: u64) -> Frame {
        Frame(self.0 + bytes / PAGE)
    }

    fn goes_on_as(&self, bytes: u64, next: &Frame) -> bool {
        self.behind(bytes) == *next
    }
}

/// What is kept: names count by [`PAGE`] from one page to the next.
#[derive(Debug, Default)]
pub struct KeptFrames {
    by_name: RangeMap<Frame>,
}

impl KeptFrames {
    /// The frame with this name, and how many behind it have the names behind that, at most `count`.
    pub fn find(&self, name: u64, count: u64) -> Option<(u64, u64)> {
        let (range, first) = self.by_name.find(name)?;
        let Frame(frame) = first.behind(name - range.start);
        Some((frame, count.min((range.end - name) / PAGE)))
    }

    /// Keeps frames under names that have none: those that are kept from now on.
    pub fn keep(&mut self, name: u64, count: u64, frame: u64) -> Vec<Range<u64>> {
        let end = name + count * PAGE;
        let taken: Vec<_> = self.by_name.overlapping(name..end).map(|(range, _)| range).collect();
        let (mut next, mut kept) = (name, Vec::new());
        for range in taken.into_iter().chain(core::iter::once(end..end)) {
            if next < range.start {
                let frames = frame + (next - name) / PAGE..frame + (range.start - name) / PAGE;
                self.by_name.insert(next..range.start, Frame(frames.start));
                kept.push(frames);
            }
            next = range.end;
        }
        kept
    }

    /// Keeps only frames of which `is_used` says so: the others, in pieces.
    pub fn drop_unused(&mut self, is_used: impl Fn(u64) -> bool) -> Vec<Range<u64>> {
        let all: Vec<_> = self.by_name.iter().map(|(range, frame)| (range, *frame)).collect();
        let mut dropped: Vec<Range<u64>> = Vec::new();
        for (range, first) in all {
            for name in range.clone().step_by(PAGE as usize) {
                let Frame(frame) = first.behind(name - range.start);
                if is_used(frame) {
                    continue;
                }
                self.by_name.remove(name..name + PAGE);
                match dropped.last_mut() {
                    Some(last) if last.end == frame => last.end += 1,
                    _ => dropped.push(frame..frame + 1),
                }
            }
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a list of which frame each name has.
        #[test]
        fn a_name_keeps_the_frame_that_it_got_first(
            steps in proptest::collection::vec((any::<bool>(), 0..20u64, 1..8u64), 0..40),
        ) {
            let (mut kept, mut model) = (KeptFrames::default(), BTreeMap::new());
            let mut fresh = 1000;
            for (keeps, first, count) in steps {
                if keeps {
                    let new: Vec<u64> =
                        kept.keep(first * PAGE, count, fresh).into_iter().flatten().collect();
                    let free = (0..count).filter(|page| !model.contains_key(&(first + page)));
                    let expected: Vec<u64> = free.map(|page| fresh + page).collect();
                    prop_assert_eq!(&new, &expected);
                    model.extend(new.iter().map(|frame| (first + frame - fresh, *frame)));
                    fresh += count + first % 2;
                } else {
                    let is_used = |frame: u64| !frame.is_multiple_of(count + 1);
                    let dropped: Vec<u64> = kept.drop_unused(is_used).into_iter().flatten().collect();
                    let all = model.values().copied();
                    let expected: Vec<u64> = all.filter(|frame| !is_used(*frame)).collect();
                    prop_assert_eq!(dropped, expected);
                    model.retain(|_, frame| is_used(*frame));
                }
                for name in 0..30 {
                    let found = kept.find(name * PAGE, 3);
                    prop_assert_eq!(found.map(|(frame, _)| frame), model.get(&name).copied());
                    let Some((frame, count)) = found else { continue };
                    prop_assert!((1..=3).contains(&count));
                    for page in 0..count {
                        prop_assert_eq!(model.get(&(name + page)), Some(&(frame + page)));
                    }
                }
            }
        }
    }
}
