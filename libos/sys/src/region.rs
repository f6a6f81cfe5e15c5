//! Ranges of address space, and what is mapped there.

use crate::memory::Grant;
use crate::program::memory::{HIGH, LOW};
use crate::raw;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use nom_abi::error::{Error, Result};
use nom_abi::{PageSize, Protection};

/// First address that is still unused, or 0 before the first reservation.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Where regions are, between the places of programs; the first starts in the lower half.
const PLACE: Range<u64> = LOW.end..HIGH.start;

/// An own range of addresses, in which nothing is mapped at first.
///
/// Addresses are handed out once and never again, so an address that outlives its region meets nothing, and
/// two regions never meet. Memory in a region is reached as atomics, or by copying: whatever is mapped
/// there may be mapped elsewhere too, and written by other cores, other applications and devices. An
/// access where nothing is mapped is a page fault, which the program's upcall handler resolves or which
/// ends the program: the access never goes anywhere else.
#[derive(Debug)]
pub struct Region {
    address: u64,
    bytes: u64,
}

impl Region {
    /// Reserves at least `bytes`, rounded up to pages of `align` and aligned to it. The page below and the
    /// page above are never mapped.
    ///
    /// # Errors
    /// [`Error::Overflow`] when the address space has no room left.
    pub fn reserve(bytes: u64, align: PageSize) -> Result<Region> {
        let bytes = bytes.checked_next_multiple_of(align.bytes()).ok_or(Error::Overflow)?;
        let mut next = NEXT.load(Ordering::Relaxed);
        loop {
            let start = if next == 0 { random_start() } else { next };
            let range = place(start, bytes, align).ok_or(Error::Overflow)?;
            match NEXT.compare_exchange_weak(next, range.end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    return Ok(Region { address: range.start, bytes });
                }
                Err(changed) => next = changed,
            }
        }
    }

    /// Its first address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maps all of `grant` at `offset`. It must be unmapped again before the grant can be released.
    ///
    /// # Errors
    /// [`Error::OutsideUserSpace`] if it reaches beyond the region, else as `memory_map` says.
    pub fn map(&self, offset: u64, grant: &Grant, protection: Protection) -> Result<()> {
        let address = self.part(offset, grant.bytes())?;
        // SAFETY: the range is this region's own, where safe code reaches memory only as atomics.
        unsafe {
            raw::memory_map(
                address,
                grant.frame(),
                grant.page_size() as u64,
                grant.count(),
                protection as u64,
            )
        }?;
        Ok(())
    }

    /// Changes what may be done with `bytes` from `offset` on.
    ///
    /// # Errors
    /// [`Error::OutsideUserSpace`] if it reaches beyond the region, else as `memory_protect` says.
    pub fn protect(&self, offset: u64, bytes: u64, protection: Protection) -> Result<()> {
        let address = self.part(offset, bytes)?;
        // SAFETY: as in `map`; an access that the new protection forbids is a page fault.
        unsafe { raw::memory_protect(address, bytes, protection as u64) }?;
        Ok(())
    }

    /// Unmaps `bytes` from `offset` on.
    ///
    /// # Errors
    /// [`Error::OutsideUserSpace`] if it reaches beyond the region, else as `memory_unmap` says.
    pub fn unmap(&self, offset: u64, bytes: u64) -> Result<()> {
        let address = self.part(offset, bytes)?;
        // SAFETY: as in `map`; a later access is a page fault.
        unsafe { raw::memory_unmap(address, bytes) }?;
        Ok(())
    }

    /// The region as words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the range is aligned and this region's own; atomics allow any other writer; where nothing
        // is mapped an access faults, as the type's documentation says.
        unsafe { core::slice::from_raw_parts(self.address as *const AtomicU64, (self.bytes / 8) as usize) }
    }

    /// Address of a part of the region.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Result<u64> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + offset),
            _ => Err(Error::OutsideUserSpace),
        }
    }
}

impl Drop for Region {
    /// Unmaps whatever is mapped, page by page, with the largest pages that fit.
    fn drop(&mut self) {
        let mut offset = 0;
        while offset < self.bytes {
            let unmapped = [PageSize::Huge, PageSize::Large, PageSize::Small].into_iter().find(|size| {
                (self.address + offset).is_multiple_of(size.bytes())
                    && self.unmap(offset, size.bytes()).is_ok()
            });
            offset += unmapped.unwrap_or(PageSize::Small).bytes();
        }
    }
}

/// Where the first region goes: different at each start, so that nothing can know its address in advance.
fn random_start() -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *crate::start::seed();
    PLACE.start + u64::from_le_bytes([a, b, c, d, e, f, g, h]) % ((PLACE.end - PLACE.start) / 2)
}

/// The first aligned range of `bytes` at or after `next`, leaving a page free on both sides; its end
/// includes the page above.
fn place(next: u64, bytes: u64, align: PageSize) -> Option<Range<u64>> {
    let guard = PageSize::Small.bytes();
    let start = next.checked_add(guard)?.checked_next_multiple_of(align.bytes())?;
    let end = start.checked_add(bytes)?.checked_add(guard)?;
    (end <= PLACE.end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_a_free_page_on_both_sides() {
        let first = place(PLACE.start, 8192, PageSize::Small).unwrap();
        let second = place(first.end, 4096, PageSize::Small).unwrap();
        assert_eq!(first.start, PLACE.start + 4096);
        assert!(second.start - (first.start + 8192) >= 4096);
    }

    #[test]
    fn a_region_is_aligned_to_its_pages() {
        let range = place(PLACE.start + 5, PageSize::Huge.bytes(), PageSize::Huge).unwrap();
        assert!(range.start.is_multiple_of(PageSize::Huge.bytes()));
    }

    #[test]
    fn there_is_an_end_to_address_space() {
        assert_eq!(place(PLACE.end - 8192, 8192, PageSize::Small), None);
        assert_eq!(place(u64::MAX, 1, PageSize::Small), None);
        assert_eq!(place(0, u64::MAX, PageSize::Small), None);
    }
}
