//! Giving memory back: whole blocks, once all of their places are free.
//!
//! A list whose places are in use here and there gives nothing back. So it has those taken first whose blocks
//! are the fullest, and says of the emptiest that they are sparse: whoever keeps something there may copy it.

use super::{Cut, FreeList, Place, place};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use nom_port::buffer::Trimmed;
use nom_port::device::DmaBlock;

/// Of what is in use, the part that the blocks which are not sparse have room for beyond it: an eighth. What
/// is to move must find room, and blocks are not to become sparse by turns.
const SPARE_PART: usize = 8;

/// How much is given back.
#[derive(Clone, Copy, Debug)]
pub struct TrimBudget {
    /// Bytes of free blocks that stay.
    pub keep_bytes: usize,
    /// Blocks that go, at most.
    pub blocks: usize,
}

impl Cut {
    /// How many of its places are in use; only after they were sorted.
    fn used(&self) -> usize {
        self.places.len() - self.tract.free.load(Relaxed)
    }
}

impl FreeList {
    /// Hands blocks of which nothing is in use to `release`, within `budget`, of which it takes what it
    /// keeps and gives back. What remains is free as before, in another order.
    pub fn trim(&mut self, budget: &mut TrimBudget, mut release: impl FnMut(DmaBlock)) -> Trimmed {
        self.sort();
        let mut trimmed = Trimmed { sparse_bytes: self.mark(), ..Trimmed::default() };
        let first_free = self.cuts.partition_point(|cut| cut.used() > 0);
        let mut stay = Vec::with_capacity(self.cuts.len() - first_free);
        for cut in self.cuts.drain(first_free..) {
            let bytes = cut.block.bytes;
            if budget.keep_bytes >= bytes {
                budget.keep_bytes -= bytes;
                stay.push(cut);
            } else if budget.blocks == 0 {
                trimmed.left_bytes += bytes;
                stay.push(cut);
            } else {
                budget.blocks -= 1;
                trimmed.released_bytes += bytes;
                // All of its places are here (condition 4), so nobody reaches it any more.
                self.bare.push(cut.places);
                release(cut.block);
            }
        }
        self.cuts.append(&mut stay);
        // Whatever is put last is taken first.
        self.cuts.iter().rev().for_each(|cut| self.put_all(cut));
        trimmed
    }

    /// Takes all free places out of the list, to their tracts, and puts the fullest blocks first, of those
    /// that are as full the lowest.
    fn sort(&mut self) {
        for Cut { tract, .. } in &self.cuts {
            tract.first.store(ptr::null_mut(), Relaxed);
            tract.free.store(0, Relaxed);
        }
        for mut free in [self.first.take(), self.returned.take(), self.returned.take_from_elsewhere()] {
            while let Some(place) = place(free) {
                free = place.next.load(Relaxed);
                let tract = place.tract;
                place.next.store(tract.first.load(Relaxed), Relaxed);
                tract.first.store(ptr::from_ref(place).cast_mut(), Relaxed);
                tract.free.store(tract.free.load(Relaxed) + 1, Relaxed);
            }
        }
        // By insertion: since the last time little has changed, or most are empty and stay where they were.
        let rank = |cut: &Cut| (Reverse(cut.used()), cut.block.bus);
        for end in 1..self.cuts.len() {
            let at = self.cuts[..end].partition_point(|cut| rank(cut) < rank(&self.cuts[end]));
            self.cuts[at..=end].rotate_right(1);
        }
    }

    /// Says of each block whether the fuller ones would have room for what is in use there. Returns the bytes
    /// of those that are sparse.
    fn mark(&self) -> usize {
        let used: usize = self.cuts.iter().map(Cut::used).sum();
        let (mut room, mut sparse_bytes) = (0, 0);
        for cut in &self.cuts {
            let is_sparse = cut.used() > 0 && room >= used + used / SPARE_PART;
            cut.tract.is_sparse.store(is_sparse, Relaxed);
            sparse_bytes += if is_sparse { cut.block.bytes } else { 0 };
            room += cut.places.len();
        }
        sparse_bytes
    }

    /// Puts the free places of a block into the list.
    fn put_all(&self, cut: &Cut) {
        let mut free: *mut Place = cut.tract.first.load(Relaxed);
        cut.tract.first.store(ptr::null_mut(), Relaxed);
        while let Some(place) = place(free) {
            free = place.next.load(Relaxed);
            self.put(place);
        }
    }
}
