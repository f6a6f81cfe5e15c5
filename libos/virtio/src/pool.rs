//! Memory for packets: slots by size, taken from the world in large blocks as they are needed.

use crate::memory::{Carver, DmaBuffer, FreeList, Slot};
use core::array;
use nom_port::device::Dma;

/// The smallest slot has 2 to this power bytes.
const SMALLEST: u32 = 7;
/// The largest has 2 to this power bytes.
const LARGEST: u32 = 24;
const CLASSES: usize = (LARGEST - SMALLEST + 1) as usize;
/// What is asked of the world at once, unless a slot is larger.
const GROWTH_BYTES: usize = 64 * 1024;

/// The slots of one core: each size is twice the one before, from 128 bytes to 16 MiB.
#[derive(Debug)]
pub struct Pool<D> {
    free: [FreeList; CLASSES],
    /// Of which size there were none at the last look, and no memory for more.
    scarce: [bool; CLASSES],
    world: D,
    /// Bytes that it may still ask for.
    allowance: usize,
    /// Least request that the world has refused: it is not asked for as much again.
    refused: usize,
}

impl<D: Dma> Pool<D> {
    /// An empty pool that takes up to `limit` bytes of `world`.
    pub fn new(world: D, limit: usize) -> Pool<D> {
        // Handles may outlive the pool, and the memory stays the program's in any case: see `Dma`.
        let free = array::from_fn(|_| FreeList::default());
        Pool { free, scarce: [false; CLASSES], world, allowance: limit, refused: usize::MAX }
    }

    /// A slot of at least `bytes`; `None` if memory is exhausted or nothing is that large.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Option<Slot> {
        let class = class(bytes)?;
        let slot = self.free[class].take().or_else(|| self.grow(class));
        // It changes seldom: looked at, and not written, for each slot.
        if self.scarce[class] != slot.is_none() {
            self.scarce[class] = slot.is_none();
            self.free[class].set_scarce(slot.is_none());
        }
        slot
    }

    /// A handle on a copy of `bytes`; `None` as for [`Pool::take`].
    pub fn copy(&mut self, bytes: &[u8]) -> Option<DmaBuffer> {
        let mut slot = self.take(bytes.len())?;
        slot.write(0, bytes);
        Some(slot.share(bytes.len() as u32))
    }

    /// Slots of `bytes` that are free now.
    pub fn free(&self, bytes: usize) -> usize {
        class(bytes).map_or(0, |class| self.free[class].count())
    }

    #[cold]
    fn grow(&mut self, class: usize) -> Option<Slot> {
        let bytes = 1usize << (class as u32 + SMALLEST);
        let carver = self.ask(bytes.max(GROWTH_BYTES)).or_else(|| self.ask(bytes))?;
        carver.slots(bytes as u32, &self.free[class]);
        self.free[class].take()
    }

    fn ask(&mut self, bytes: usize) -> Option<Carver> {
        if bytes >= self.refused {
            return None;
        }
        self.allowance = self.allowance.checked_sub(bytes)?;
        match self.world.allocate(bytes) {
            Some(block) => Some(Carver::new(block)),
            None => {
                self.allowance += bytes;
                self.refused = bytes;
                None
            }
        }
    }
}

/// The smallest class that has room for `bytes`.
#[inline]
fn class(bytes: usize) -> Option<usize> {
    let power = bytes.max(1 << SMALLEST).checked_next_power_of_two()?.trailing_zeros();
    (power <= LARGEST).then_some((power - SMALLEST) as usize)
}
