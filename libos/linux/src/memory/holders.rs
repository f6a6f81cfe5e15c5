//! Who has a frame that several processes have: how many they are, so that the last gives it back.

use super::ranges::{Part, RangeMap};
use alloc::vec::Vec;
use core::ops::Range;

/// How many have each frame of a range besides one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Others(u32);

impl Part for Others {
    fn behind(&self, _: u64) -> Others {
        *self
    }

    fn goes_on_as(&self, _: u64, next: &Others) -> bool {
        self == next
    }
}

/// How many have a frame besides one, of those frames that more than one has: by ranges, since a process has
/// most of what it has in few pieces.
#[derive(Debug, Default)]
pub struct Holders {
    others: RangeMap<Others>,
}

impl Holders {
    /// One more has these frames.
    pub fn add(&mut self, frames: Range<u64>) {
        let mut next = frames.start;
        for (part, Others(others)) in self.others.remove(frames.clone()) {
            self.others.insert(next..part.start, Others(1));
            next = part.end;
            self.others.insert(part, Others(others + 1));
        }
        self.others.insert(next..frames.end, Others(1));
    }

    /// Whether more than one has it.
    pub fn has_several(&self, frame: u64) -> bool {
        self.others.find(frame).is_some()
    }

    /// How many of `frames` only one has, up to the first that more than one has.
    pub fn alone(&self, frames: Range<u64>) -> u64 {
        let next = self.others.overlapping(frames.clone()).next();
        next.map_or(frames.end, |(part, _)| part.start) - frames.start
    }

    /// One has these frames no more: those that nobody has, in pieces.
    pub fn remove(&mut self, frames: Range<u64>) -> Vec<Range<u64>> {
        let mut free = Vec::new();
        let mut next = frames.start;
        for (part, Others(others)) in self.others.remove(frames.clone()) {
            if next < part.start {
                free.push(next..part.start);
            }
            next = part.end;
            if others > 1 {
                self.others.insert(part, Others(others - 1));
            }
        }
        if next < frames.end {
            free.push(next..frames.end);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list of who has what.
        #[test]
        fn a_frame_is_free_when_the_last_has_it_no_more(
            steps in proptest::collection::vec((any::<bool>(), 0..12u64, 1..6u64), 0..40),
        ) {
            let (mut holders, mut model) = (Holders::default(), [1_u32; 20]);
            for (adds, start, count) in steps {
                let frames = start..start + count;
                let there = |model: &[u32; 20]| frames.clone().all(|frame| model[frame as usize] > 0);
                if !there(&model) {
                    continue;
                }
                if adds {
                    holders.add(frames.clone());
                    frames.for_each(|frame| model[frame as usize] += 1);
                } else {
                    let free: Vec<u64> = holders.remove(frames.clone()).into_iter().flatten().collect();
                    frames.clone().for_each(|frame| model[frame as usize] -= 1);
                    let expected: Vec<u64> = frames.filter(|frame| model[*frame as usize] == 0).collect();
                    prop_assert_eq!(free, expected);
                }
                let alone = (start..start + count).take_while(|frame| model[*frame as usize] <= 1).count();
                prop_assert_eq!(holders.alone(start..start + count), alone as u64);
                for (frame, count) in model.iter().enumerate() {
                    prop_assert_eq!(holders.has_several(frame as u64), *count > 1);
                }
            }
        }
    }
}
