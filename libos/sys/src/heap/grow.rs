//! How the shared heap grows: by grants, as it needs them.

use crate::memory::{Grant, obtainable};
use crate::region::Region;
use core::alloc::Layout;
use nom_abi::error::{Error, Result};
use nom_abi::{PageSize, Protection};
use talc::base::{Talc, binning::Binning};
use talc::source::Source;

/// Growth of a small heap.
const STEP_BYTES: u64 = 64 * 1024;
/// A larger heap grows by this part of itself, so that the number of growths stays logarithmic.
const STEP_FRACTION: u64 = 4;
/// What one allocation may need beyond its own size: the allocator's tables and tags.
const OVERHEAD_BYTES: u64 = 16 * 1024;

/// Grants memory to the heap whenever it is used up.
#[derive(Debug)]
pub(super) struct Grow {
    bytes: u64,
}

impl Grow {
    /// For a heap that has no memory yet.
    pub const NOTHING: Grow = Grow { bytes: 0 };
}

// SAFETY: `acquire` allocates nothing and does not touch the lock around the heap: it only makes system
// calls and claims memory that nothing else refers to.
unsafe impl Source for Grow {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> core::result::Result<(), ()> {
        let wanted = step(talc.source.bytes, layout, obtainable()).ok_or(())?;
        let (address, bytes) = populate(wanted).map_err(|_| ())?;
        talc.source.bytes += bytes;
        // SAFETY: the memory was just mapped readable and writable, for ever, and belongs to nobody else.
        unsafe { talc.claim(address as *mut u8, bytes as usize) }.map(|_| ()).ok_or(())
    }
}

/// By how much a heap of `bytes` grows to satisfy `layout`: by no more than that needs if not more is
/// `obtainable`, and nothing if that is too little, so that a hopeless request takes nothing.
fn step(bytes: u64, layout: Layout, obtainable: u64) -> Option<u64> {
    let needed = (layout.size() as u64).checked_add(layout.align() as u64)?.checked_add(OVERHEAD_BYTES)?;
    let wanted = needed.max(STEP_BYTES).max(bytes / STEP_FRACTION);
    let pages = |bytes: u64| bytes.checked_next_multiple_of(PageSize::Small.bytes());
    [wanted, needed].into_iter().filter_map(pages).find(|bytes| *bytes <= obtainable)
}

/// Maps up to `bytes` of new memory at new contiguous addresses, in as large pieces as the kernel has.
/// Returns address and length; the length is less than asked for only when memory runs out underway.
fn populate(bytes: u64) -> Result<(u64, u64)> {
    let align = if bytes >= PageSize::Large.bytes() { PageSize::Large } else { PageSize::Small };
    let region = Region::reserve(bytes, align)?;
    let mut filled = 0;
    while filled < bytes {
        let Some(grant) = largest_grant(bytes - filled) else {
            break;
        };
        if region.map(filled, &grant, Protection::ReadWrite).is_err() {
            break;
        }
        filled += grant.bytes();
        core::mem::forget(grant);
    }
    if filled == 0 {
        return Err(Error::OutOfMemory);
    }
    // The heap never gives memory back, so neither region nor grants are ever dropped.
    let address = core::mem::ManuallyDrop::new(region).address();
    Ok((address, filled))
}

fn largest_grant(bytes: u64) -> Option<Grant> {
    if bytes >= PageSize::Large.bytes()
        && let Ok(grant) = Grant::new(PageSize::Large, 1)
    {
        return Some(grant);
    }
    let mut count = (bytes / PageSize::Small.bytes()).min(PageSize::Large.frames());
    while count > 0 {
        if let Ok(grant) = Grant::new(PageSize::Small, count) {
            return Some(grant);
        }
        count /= 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_grows_by_what_is_needed_and_by_a_part_of_itself() {
        let word = Layout::new::<u64>();
        assert_eq!(step(0, word, u64::MAX), Some(STEP_BYTES));
        assert_eq!(step(1 << 30, word, u64::MAX), Some(1 << 28));
        let large = Layout::from_size_align(1 << 20, 8).unwrap();
        let step = step(0, large, u64::MAX).unwrap();
        assert!(step >= (1 << 20) + OVERHEAD_BYTES && step.is_multiple_of(4096));
    }

    #[test]
    fn a_heap_takes_what_is_left_when_that_is_enough() {
        let word = Layout::new::<u64>();
        assert_eq!(step(1 << 30, word, 1 << 27), Some(20 << 10));
        assert_eq!(step(1 << 30, word, 20 << 10), Some(20 << 10));
        assert_eq!(step(1 << 30, word, 16 << 10), None);
    }
}
