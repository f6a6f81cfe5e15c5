//! Who has a frame that several processes have: how many they are, so that the last gives it back.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// How many have a frame besides one, of those frames that more than one has.
#[derive(Debug, Default)]
pub struct Holders {
    others: BTreeMap<u64, u32>,
}

impl Holders {
    /// One more has these frames.
    pub fn add(&mut self, frames: Range<u64>) {
        frames.for_each(|frame| *self.others.entry(frame).or_default() += 1);
    }

    /// Whether more than one has it.
    pub fn has_several(&self, frame: u64) -> bool {
        self.others.contains_key(&frame)
    }

    /// One has these frames no more: those that nobody has, in pieces.
    pub fn remove(&mut self, frames: Range<u64>) -> Vec<Range<u64>> {
        if self.others.is_empty() {
            return [frames].into();
        }
        let mut free: Vec<Range<u64>> = Vec::new();
        for frame in frames {
            if let Some(others) = self.others.get_mut(&frame) {
                *others -= 1;
                if *others == 0 {
                    self.others.remove(&frame);
                }
                continue;
            }
            match free.last_mut() {
                Some(last) if last.end == frame => last.end += 1,
                _ => free.push(frame..frame + 1),
            }
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
                for (frame, count) in model.iter().enumerate() {
                    prop_assert_eq!(holders.has_several(frame as u64), *count > 1);
                }
            }
        }
    }
}
