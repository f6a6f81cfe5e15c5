//! How the shared heap grows, and shrinks: by extents, as it needs them and needs them no more.

use super::extent::Extent;
use crate::memory::obtainable;
use core::alloc::Layout;
use nom_abi::PageSize;
use talc::base::{Talc, binning::Binning};
use talc::source::Source;

/// Growth of a small heap.
const STEP_BYTES: u64 = 64 * 1024;
/// A larger heap grows by this part of itself.
const STEP_FRACTION: u64 = 4;
/// But by no more: an extent goes back only when nothing of it is in use, which of a large one seldom is.
const STEP_MOST: u64 = 256 * 1024;
/// What one allocation may need beyond its own size: the allocator's tables and tags, and the extent's head.
const OVERHEAD_BYTES: u64 = 16 * 1024;

/// Free extents that a heap keeps, so that one that grows and shrinks by turns asks the kernel seldom: so
/// much, or this part of all.
const KEEP_BYTES: u64 = 256 * 1024;
const KEEP_FRACTION: u64 = 16;

/// Where the heap's memory comes from.
#[derive(Debug)]
pub(super) struct Grow {
    /// What all extents take.
    bytes: u64,
    /// Extents that were free when they were last looked at, and what they take.
    free: Option<Extent>,
    free_bytes: u64,
}

impl Grow {
    /// For a heap that has no memory yet.
    pub const NOTHING: Grow = Grow { bytes: 0, free: None, free_bytes: 0 };

    /// Whether more is free than is kept.
    pub fn is_ample(&self) -> bool {
        self.free_bytes > keep(self.bytes)
    }
}

/// Gives extents that are free back to the kernel, but for those that are kept.
#[cold]
pub(super) fn shrink<B: Binning>(talc: &mut Talc<Grow, B>) {
    let mut listed = talc.source.free.take();
    talc.source.free_bytes = 0;
    while let Some(extent) = Extent::pop(&mut listed) {
        // SAFETY: the end is where the allocator said that it is, and nothing moves it.
        let is_free = unsafe { !talc.reserved(extent.end()).any };
        if !is_free {
            continue;
        }
        if talc.source.free_bytes + extent.bytes() <= keep(talc.source.bytes) {
            talc.source.note_free(extent);
            continue;
        }
        talc.source.bytes -= extent.bytes();
        // SAFETY: the end is as above; nothing of it is in use, so that the allocator gives up all of it, and
        // then nobody has a part of it.
        unsafe {
            let left = talc.truncate(extent.end(), core::ptr::null_mut());
            debug_assert!(left.is_none(), "nothing of it is in use");
            extent.give_back();
        }
    }
}

impl Grow {
    fn note_free(&mut self, extent: Extent) {
        if extent.push(&mut self.free) {
            self.free_bytes += extent.bytes();
        }
    }
}

// SAFETY: `acquire` allocates nothing and does not touch the lock around the heap: it only makes system
// calls and claims memory that nothing else refers to. `resize` leaves the heap as it is.
unsafe impl Source for Grow {
    const TRACK_HEAP_END: bool = true;

    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> core::result::Result<(), ()> {
        let wanted = step(talc.source.bytes, layout, obtainable()).ok_or(())?;
        let extent = Extent::populate(wanted).map_err(|_| ())?;
        talc.source.bytes += extent.bytes();
        let (address, bytes) = extent.room();
        // SAFETY: the memory was just mapped readable and writable, until `shrink` takes all of it back from
        // the allocator, and belongs to nobody else.
        let end = unsafe { talc.claim(address, bytes) }.ok_or(())?;
        extent.set_end(end);
        Ok(())
    }

    /// Notes an extent of which nothing is in use any more; [`shrink`] looks at it.
    unsafe fn resize(&mut self, base: *mut u8, end: *mut u8, is_whole: bool) -> *mut u8 {
        if is_whole {
            // SAFETY: what the allocator has as a heap is an extent's room. Its first one, which has the
            // allocator's tables in front, is never whole.
            self.note_free(unsafe { Extent::of_base(base) });
        }
        end
    }
}

/// What of free extents stays in a heap of `bytes`.
fn keep(bytes: u64) -> u64 {
    (bytes / KEEP_FRACTION).max(KEEP_BYTES)
}

/// By how much a heap of `bytes` grows to satisfy `layout`: by no more than that needs if not more is
/// `obtainable`, and nothing if that is too little, so that a hopeless request takes nothing.
fn step(bytes: u64, layout: Layout, obtainable: u64) -> Option<u64> {
    let needed = (layout.size() as u64).checked_add(layout.align() as u64)?.checked_add(OVERHEAD_BYTES)?;
    let wanted = needed.max((bytes / STEP_FRACTION).clamp(STEP_BYTES, STEP_MOST));
    let pages = |bytes: u64| bytes.checked_next_multiple_of(PageSize::Small.bytes());
    [wanted, needed].into_iter().filter_map(pages).find(|bytes| *bytes <= obtainable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_grows_by_what_is_needed_and_by_a_part_of_itself() {
        let word = Layout::new::<u64>();
        assert_eq!(step(0, word, u64::MAX), Some(STEP_BYTES));
        assert_eq!(step(400 << 10, word, u64::MAX), Some(100 << 10));
        assert_eq!(step(1 << 30, word, u64::MAX), Some(STEP_MOST));
        let large = Layout::from_size_align(1 << 20, 8).unwrap();
        let step = step(0, large, u64::MAX).unwrap();
        assert!(step >= (1 << 20) + OVERHEAD_BYTES && step.is_multiple_of(4096));
    }

    #[test]
    fn a_heap_takes_what_is_left_when_that_is_enough() {
        let word = Layout::new::<u64>();
        assert_eq!(step(1 << 30, word, 1 << 17), Some(20 << 10));
        assert_eq!(step(1 << 30, word, 20 << 10), Some(20 << 10));
        assert_eq!(step(1 << 30, word, 16 << 10), None);
    }
}
