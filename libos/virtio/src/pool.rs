//! Memory for packets: slots by size, taken from the world in large blocks as they are needed.
//!
//! **Received apart from sent.** An application may keep what it received for ever, and what it sends stays
//! until its peer acknowledges it, for which the device needs something to receive into. So slots to receive
//! into are a list of their own, which sending takes from only where the device can spare them, and a part of
//! the memory is never received into.

use crate::memory::{DmaBuffer, FreeList, Slot, TrimBudget};
use core::array;
use nom_port::buffer::Trimmed;
use nom_port::device::{Dma, DmaBlock};

/// The smallest slot has 2 to this power bytes.
const SMALLEST: u32 = 7;
/// The largest has 2 to this power bytes.
const LARGEST: u32 = 24;
const CLASSES: usize = (LARGEST - SMALLEST + 1) as usize;
/// What is asked of the world at once, unless a slot is larger.
const GROWTH_BYTES: usize = 64 * 1024;
/// What is asked of it where that is too much: it gives whole pages.
const PAGE_BYTES: usize = 4096;

/// Blocks that are given back at once, each by two system calls: so that it takes no longer than some
/// requests do.
const TRIM_BLOCKS: usize = 16;

/// The part of a pool's memory that is not received into: an eighth.
const RESERVED_PART: usize = 8;

/// The slots of one core: each size is twice the one before, from 128 bytes to 16 MiB.
#[derive(Debug)]
pub struct Pool<D> {
    /// To send from, by size.
    free: [FreeList; CLASSES],
    /// To receive into.
    receive: FreeList,
    /// Whether the buffers of `receive` say that there are too few of them.
    is_scarce: bool,
    /// Bytes that are not received into.
    reserved: usize,
    source: Source<D>,
}

/// Where a pool's memory comes from.
#[derive(Debug)]
struct Source<D> {
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
        let source = Source { world, allowance: limit, refused: usize::MAX };
        let (receive, reserved) = (FreeList::default(), limit / RESERVED_PART);
        Pool { free, receive, is_scarce: false, reserved, source }
    }

    /// A slot of at least `bytes` to send from; `None` if memory is exhausted or nothing is that large.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Option<Slot> {
        let class = class(bytes)?;
        self.free[class].take().or_else(|| self.source.grow(class, 0, &mut self.free[class]))
    }

    /// A slot of at least `bytes` to receive into; `None` as for [`Pool::take`]. All that is received into is
    /// of one size: `bytes` is the same in every call.
    #[inline]
    pub fn take_to_receive(&mut self, bytes: usize) -> Option<Slot> {
        let class = class(bytes)?;
        self.receive.take().or_else(|| self.source.grow(class, self.reserved, &mut self.receive))
    }

    /// Says on every buffer that was received into whether there are too few of them.
    #[inline]
    pub fn set_scarce(&mut self, is_scarce: bool) {
        // It changes seldom: looked at, and not written, at each call.
        if self.is_scarce != is_scarce {
            self.is_scarce = is_scarce;
            self.receive.set_scarce(is_scarce);
        }
    }

    /// A handle on a copy of `bytes`; `None` as for [`Pool::take`].
    #[inline]
    pub fn copy(&mut self, bytes: &[u8]) -> Option<DmaBuffer> {
        let mut slot = self.take(bytes.len())?;
        slot.write(0, bytes);
        Some(slot.share(bytes.len() as u32))
    }

    /// The same for bytes that are kept for long: what may be received into, no more, is taken for them.
    pub fn copy_to_keep(&mut self, bytes: &[u8]) -> Option<DmaBuffer> {
        let list = &mut self.free[class(bytes.len())?];
        let slot = list.take().or_else(|| self.source.grow(class(bytes.len())?, self.reserved, list));
        let mut slot = slot?;
        slot.write(0, bytes);
        Some(slot.share(bytes.len() as u32))
    }

    /// A slot to receive into, if one is free and of at least `bytes`.
    pub fn take_received(&mut self, bytes: usize) -> Option<Slot> {
        self.receive.take().filter(|slot| slot.bytes() as usize >= bytes)
    }

    /// Gives blocks of which nothing is in use back to the world, all but `keep_bytes`: a few at a time. From
    /// what remains the fullest blocks are used first, and of the emptiest it is told that they are
    /// [sparse](nom_port::buffer::Buffer::is_sparse). Takes as long as there are free slots.
    pub fn trim(&mut self, keep_bytes: usize) -> Trimmed {
        let mut budget = TrimBudget { keep_bytes, blocks: TRIM_BLOCKS };
        let mut sum = Trimmed::default();
        // Who asks for that has others give back as well: what there was too little of may be there.
        self.source.refused = usize::MAX;
        for list in core::iter::once(&mut self.receive).chain(&mut self.free) {
            let trimmed = list.trim(&mut budget, |block| self.source.take_back(block));
            sum.released_bytes += trimmed.released_bytes;
            sum.left_bytes += trimmed.left_bytes;
            sum.sparse_bytes += trimmed.sparse_bytes;
        }
        sum
    }

    /// Slots of `bytes` to send from that are free now.
    pub fn free(&self, bytes: usize) -> usize {
        class(bytes).map_or(0, |class| self.free[class].count())
    }
}

impl<D: Dma> Source<D> {
    /// Adds slots to `list` and takes one of them, as long as `reserved` bytes are left.
    #[cold]
    fn grow(&mut self, class: usize, reserved: usize, list: &mut FreeList) -> Option<Slot> {
        let bytes = 1usize << (class as u32 + SMALLEST);
        let mut ask = |least: usize| self.ask(bytes.max(least), reserved);
        let block = ask(GROWTH_BYTES).or_else(|| ask(PAGE_BYTES))?;
        list.add(block, bytes as u32);
        list.take()
    }

    fn ask(&mut self, bytes: usize, reserved: usize) -> Option<DmaBlock> {
        let left = self.allowance.checked_sub(bytes).filter(|left| *left >= reserved)?;
        if bytes >= self.refused {
            return None;
        }
        let Some(block) = self.world.allocate(bytes) else {
            self.refused = bytes;
            return None;
        };
        self.allowance = left;
        Some(block)
    }

    /// Gives a block back; maybe others get what they asked for in vain.
    fn take_back(&mut self, block: DmaBlock) {
        self.allowance += block.bytes;
        self.refused = usize::MAX;
        self.world.release(block);
    }
}

/// The smallest class that has room for `bytes`.
#[inline]
fn class(bytes: usize) -> Option<usize> {
    let power = bytes.max(1 << SMALLEST).checked_next_power_of_two()?.trailing_zeros();
    (power <= LARGEST).then_some((power - SMALLEST) as usize)
}
