//! Runs of bytes in flight, of which there is nearly always one at most: then nothing is allocated.

use super::sequence::Seq;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::{Index, IndexMut, Range};

/// What is known of a part of what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing.
    Flying,
    /// The peer has it, and not all before it.
    Arrived,
    /// It has to be sent again.
    Lost,
}

/// Consecutive bytes that were sent at the same time and fared alike; they begin where those before them end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub end: Seq,
    pub at: Instant,
    pub fate: Fate,
    /// Whether it was sent more than once.
    pub is_again: bool,
}

/// Runs in order of sequence.
#[derive(Debug, Default)]
pub(super) enum Runs {
    /// Nothing is in flight.
    #[default]
    None,
    /// All was sent at once, as one answers a question.
    One(Run),
    /// More than that, until all of it has arrived.
    #[expect(clippy::box_collection, reason = "few connections have any, and there is one in each")]
    Many(Box<VecDeque<Run>>),
}

impl Runs {
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Runs::None => 0,
            Runs::One(_) => 1,
            Runs::Many(runs) => runs.len(),
        }
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&Run> {
        match self {
            Runs::One(run) if index == 0 => Some(run),
            Runs::Many(runs) => runs.get(index),
            _ => None,
        }
    }

    #[inline]
    pub fn back(&self) -> Option<&Run> {
        match self {
            Runs::None => None,
            Runs::One(run) => Some(run),
            Runs::Many(runs) => runs.back(),
        }
    }

    #[inline]
    pub fn back_mut(&mut self) -> Option<&mut Run> {
        match self {
            Runs::None => None,
            Runs::One(run) => Some(run),
            Runs::Many(runs) => runs.back_mut(),
        }
    }

    /// The memory of several.
    #[cold]
    fn many(&mut self) -> &mut VecDeque<Run> {
        if !matches!(self, Runs::Many(_)) {
            let mut runs = VecDeque::with_capacity(4);
            runs.extend(self.back());
            *self = Runs::Many(Box::new(runs));
        }
        match self {
            Runs::Many(runs) => runs,
            Runs::None | Runs::One(_) => unreachable!("it has just become many"),
        }
    }

    #[inline]
    pub fn push_back(&mut self, run: Run) {
        match self {
            // There is nothing to drop: neither here nor below need be asked.
            Runs::None => core::mem::forget(core::mem::replace(self, Runs::One(run))),
            _ => self.many().push_back(run),
        }
    }

    pub fn pop_front(&mut self) {
        if self.len() <= 1 {
            return self.clear();
        }
        self.many().pop_front();
    }

    /// Forgets all, with the memory that several took.
    #[inline]
    pub fn clear(&mut self) {
        match self {
            Runs::None => {}
            Runs::One(_) => core::mem::forget(core::mem::take(self)),
            Runs::Many(_) => *self = Runs::None,
        }
    }

    pub fn insert(&mut self, index: usize, run: Run) {
        self.many().insert(index, run);
    }

    /// Makes one of several, which becomes `run`.
    pub fn merge(&mut self, range: Range<usize>, run: Run) {
        let first = range.start;
        let runs = self.many();
        runs.drain(first + 1..range.end);
        runs[first] = run;
    }

    pub fn iter(&self) -> impl Iterator<Item = &Run> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The first of which `is_before` does not hold, where it holds of all before that and of none behind.
    pub fn partition_point(&self, is_before: impl Fn(&Run) -> bool) -> usize {
        match self {
            Runs::None => 0,
            Runs::One(run) => usize::from(is_before(run)),
            Runs::Many(runs) => runs.partition_point(is_before),
        }
    }
}

impl Index<usize> for Runs {
    type Output = Run;

    fn index(&self, index: usize) -> &Run {
        self.get(index).expect("there are so many runs")
    }
}

impl IndexMut<usize> for Runs {
    fn index_mut(&mut self, index: usize) -> &mut Run {
        match self {
            Runs::One(run) if index == 0 => run,
            Runs::Many(runs) => &mut runs[index],
            _ => panic!("there is no run number {index}"),
        }
    }
}
