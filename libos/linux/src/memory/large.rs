//! Large pages: 2 MiB that one entry of the page tables maps, and that come by one touch. Linux calls them
//! transparent huge pages.
//!
//! A program that fills memory in order gets them once it has filled a block of that size; one that touches
//! a page here and there pays for what it touches ([`LargeUse::Filled`]). Where only a part of one is
//! protected otherwise, unmapped or copied, it becomes small pages first. Its frames were granted together
//! and go back together: those that nobody has before that are the next small pages ([`LargeFrames`]).

use super::ranges::{Part, RangeMap};
use super::{MappedRegion, PAGE, PageSource, State};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;
use nom_sys::Protection;
use nom_sys::program::memory::LargePage;

/// Frames of a large page.
pub const LARGE_FRAMES: u64 = LargePage::BYTES / PAGE;

/// Where a region has large pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargeUse {
    /// Beside what has been filled.
    #[default]
    Filled,
    /// Wherever it is touched (`MADV_HUGEPAGE`).
    Everywhere,
    /// Nowhere (`MADV_NOHUGEPAGE`).
    Nowhere,
}

impl State {
    /// Where a large page can be that has `address` in it, which is not there yet, of a region in `range`.
    pub(super) fn large_block(
        &self,
        pages: &dyn PageSource,
        range: &Range<u64>,
        region: &MappedRegion,
        address: u64,
    ) -> Option<Range<u64>> {
        if !region.is_own_zeros() || region.large == LargeUse::Nowhere {
            return None;
        }
        let bytes = pages.large_bytes();
        let start = address - address % bytes;
        let block = start..start.checked_add(bytes)?;
        if block.start < range.start || block.end > range.end || !self.runs.is_free(block.clone()) {
            return None;
        }
        let is_filled = |beside: Range<u64>| self.runs.covers(beside);
        let is_meant = region.large == LargeUse::Everywhere
            || is_filled(block.start.saturating_sub(bytes)..block.start)
            || is_filled(block.end..block.end.saturating_add(bytes));
        is_meant.then_some(block)
    }
}

/// The large pages of an address space.
#[derive(Debug, Default)]
pub struct LargePages {
    /// By address: its first frame, and what may be done with it.
    pages: BTreeMap<u64, (u64, Protection)>,
}

impl LargePages {
    /// One more.
    pub fn add(&mut self, address: u64, frame: u64, protection: Protection) {
        self.pages.insert(address, (frame, protection));
    }

    /// The one that reaches over an address, of so many bytes: where it begins, its first frame, and what may
    /// be done with it.
    pub fn over(&self, address: u64, bytes: u64) -> Option<(u64, u64, Protection)> {
        let (start, (frame, protection)) = self.pages.range(..address).next_back()?;
        (address - start < bytes).then_some((*start, *frame, *protection))
    }

    /// What may be done with those that begin in `range` is that.
    pub fn protect(&mut self, range: Range<u64>, protection: Protection) {
        self.pages.range_mut(range).for_each(|(_, page)| page.1 = protection);
    }

    /// Those that begin in `range` are there no more, or small pages now.
    pub fn remove(&mut self, range: Range<u64>) {
        while let Some((&address, _)) = self.pages.range(range.clone()).next() {
            self.pages.remove(&address);
        }
    }
}

/// A frame that nobody has.
#[derive(Clone, Copy, Debug)]
struct Idle;

impl Part for Idle {
    fn behind(&self, _: u64) -> Idle {
        Idle
    }

    fn goes_on_as(&self, _: u64, _: &Idle) -> bool {
        true
    }
}

/// Frames that nobody has any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freed {
    /// They were granted one by one.
    Small(Range<u64>),
    /// All of those that were granted for a large page, from this one on.
    Large(u64),
}

/// Frames that were granted for large pages: which of them nobody has.
#[derive(Debug, Default)]
pub struct LargeFrames {
    /// The first frame of each grant.
    grants: BTreeSet<u64>,
    /// Of them, by their numbers.
    idle: RangeMap<Idle>,
    idle_count: u64,
}

impl LargeFrames {
    /// Frames from `frame` on were granted for a large page, and somebody has all of them.
    pub fn granted(&mut self, frame: u64) {
        self.grants.insert(frame);
    }

    /// Whether a frame was granted for a large page.
    pub fn has(&self, frame: u64) -> bool {
        self.grants.contains(&(frame - frame % LARGE_FRAMES))
    }

    /// How many grants there are.
    pub fn grants(&self) -> u64 {
        self.grants.len() as u64
    }

    /// How many frames nobody has.
    pub fn idle(&self) -> u64 {
        self.idle_count
    }

    /// Some frames that nobody had, at most `count`, in one piece: whoever asked has them now.
    pub fn take(&mut self, count: u64) -> Option<Range<u64>> {
        let (piece, _) = self.idle.iter().next()?;
        let taken = piece.start..piece.end.min(piece.start + count);
        self.idle.remove(taken.clone());
        self.idle_count -= taken.end - taken.start;
        Some(taken)
    }

    /// Nobody has these any more: what can be given back now.
    pub fn free(&mut self, frames: Range<u64>) -> Vec<Freed> {
        let mut freed = Vec::new();
        let mut next = frames.start;
        while next < frames.end {
            let grant = next - next % LARGE_FRAMES;
            let piece = next..frames.end.min(grant + LARGE_FRAMES);
            next = piece.end;
            if !self.grants.contains(&grant) {
                freed.push(Freed::Small(piece));
                continue;
            }
            self.idle_count += piece.end - piece.start;
            self.idle.insert(piece, Idle);
            let all = grant..grant + LARGE_FRAMES;
            if self.idle.covers(all.clone()) {
                self.idle.remove(all);
                self.idle_count -= LARGE_FRAMES;
                self.grants.remove(&grant);
                freed.push(Freed::Large(grant));
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet as Set;

    const GRANTS: u64 = 3;

    proptest! {
        /// Against a set of the frames that nobody has: a grant goes back when its last frame does, and none
        /// is had by two.
        #[test]
        fn a_grant_goes_back_with_its_last_frame(
            steps in proptest::collection::vec((any::<bool>(), 0..GRANTS * LARGE_FRAMES, 1..700u64), 0..60),
        ) {
            let mut frames = LargeFrames::default();
            let mut had: Set<u64> = (0..GRANTS * LARGE_FRAMES).collect();
            let mut left: Set<u64> = (0..GRANTS).map(|grant| grant * LARGE_FRAMES).collect();
            left.iter().for_each(|grant| frames.granted(*grant));
            for (takes, start, count) in steps {
                if takes {
                    let taken = frames.take(count);
                    prop_assert_eq!(taken.is_none(), frames_idle(&had, &left).is_empty());
                    for frame in taken.into_iter().flatten() {
                        prop_assert!(had.insert(frame), "somebody has {}", frame);
                    }
                } else {
                    let piece = start..(start..start + count).find(|frame| !had.contains(frame))
                        .unwrap_or(start + count);
                    let freed = frames.free(piece.clone());
                    had.retain(|frame| !piece.contains(frame));
                    for freed in freed {
                        let Freed::Large(grant) = freed else { panic!("none is small: {freed:?}") };
                        prop_assert!(left.remove(&grant));
                    }
                }
                prop_assert_eq!(frames.idle(), frames_idle(&had, &left).len() as u64);
                for grant in &left {
                    prop_assert!((*grant..grant + LARGE_FRAMES).any(|frame| had.contains(&frame)));
                }
            }
        }
    }

    /// Frames that nobody has, of grants that have not gone back.
    fn frames_idle(had: &Set<u64>, left: &Set<u64>) -> Set<u64> {
        let of_grants = left.iter().flat_map(|grant| *grant..grant + LARGE_FRAMES);
        of_grants.filter(|frame| !had.contains(frame)).collect()
    }

    #[test]
    fn what_was_granted_one_by_one_goes_back_at_once() {
        let mut frames = LargeFrames::default();
        frames.granted(512);
        let freed = frames.free(500..520);
        assert_eq!((freed, frames.idle()), (std::vec![Freed::Small(500..512)], 8));
        assert_eq!(frames.take(3), Some(512..515));
        assert_eq!(frames.take(100), Some(515..520));
        assert_eq!((frames.take(1), frames.has(1023), frames.has(1024)), (None, true, false));
        assert_eq!(frames.free(512..1023), [], "somebody has the last");
        assert_eq!(frames.free(1023..1024), [Freed::Large(512)]);
        assert_eq!(frames.free(512..1024), [Freed::Small(512..1024)]);
    }
}
