//! Memory granted by the kernel.

use crate::raw;
use crate::region::Region;
use crate::start;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_abi::error::Result;
use nom_abi::memory::{ANY_COLOUR, FRAME_BYTES};
use nom_abi::{PageSize, Protection};

/// Bytes that the machine has free and this program may still take.
pub fn obtainable() -> u64 {
    // Looked up once: Linux programs ask before each call.
    let info = start::info();
    let free = start::board_of(info).machine.frames_free.load(Relaxed);
    let own = crate::applications::own_of(info).frames.load(Relaxed);
    let allowed = info.frames_max.saturating_sub(own);
    free.min(allowed) * FRAME_BYTES
}

/// Bytes that the program's heap has taken and nobody uses, in holes of any size.
pub fn idle() -> u64 {
    crate::heap::idle()
}

/// Physically contiguous memory that the program holds, zeroed when granted, released when dropped.
///
/// A grant that is still mapped when it is dropped stays with the program until the program ends.
#[derive(Debug)]
pub struct Grant {
    frame: u64,
    count: u64,
    page_size: PageSize,
}

impl Grant {
    /// Asks for `count` contiguous pages.
    ///
    /// # Errors
    /// As `memory_grant` says: InvalidArgument, OutOfMemory, OverMemoryCap.
    pub fn new(page_size: PageSize, count: u64) -> Result<Grant> {
        Grant::request(page_size, count, ANY_COLOUR)
    }

    /// Asks for one 4 KiB page of a cache colour.
    ///
    /// # Errors
    /// As [`Grant::new`].
    pub fn with_colour(colour: u64) -> Result<Grant> {
        Grant::request(PageSize::Small, 1, colour)
    }

    fn request(page_size: PageSize, count: u64, colour: u64) -> Result<Grant> {
        // SAFETY: a new grant is memory that nothing in this program refers to yet.
        let frame = unsafe { raw::memory_grant(page_size as u64, count, colour) }?;
        Ok(Grant { frame, count, page_size })
    }

    /// Number of its first 4 KiB frame.
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// Physical address of its first byte: what a device is told where no IOMMU translates.
    pub fn physical_address(&self) -> u64 {
        self.frame * FRAME_BYTES
    }

    /// Number of its pages.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Size of its pages.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.count * self.page_size.bytes()
    }

    /// Gives it back at once, and says whether the kernel took it.
    ///
    /// # Errors
    /// `StillMapped`, with the grant staying with the program until it ends.
    pub fn release(self) -> Result<()> {
        let grant = core::mem::ManuallyDrop::new(self);
        grant.give_back()
    }

    fn give_back(&self) -> Result<()> {
        // SAFETY: the kernel refuses while any of it is mapped, so nothing can refer to what it takes.
        unsafe { raw::memory_release(self.frame, self.page_size as u64, self.count) }?;
        Ok(())
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        // What is still mapped stays granted, as documented.
        let _ = self.give_back();
    }
}

/// Memory that is shared with a device, another core or another mapping, as atomic words.
#[derive(Debug)]
pub struct Shared {
    // Dropped in this order: unmapped, then released.
    region: Region,
    grant: Grant,
}

impl Shared {
    /// Asks for `count` contiguous pages and maps them at a new address, readable and writable. More small
    /// pages than a call takes become large ones, rounded up.
    ///
    /// # Errors
    /// As `memory_grant` and `memory_map` say.
    pub fn new(page_size: PageSize, count: u64) -> Result<Shared> {
        let (page_size, count) = in_one_call(page_size, count);
        let grant = Grant::new(page_size, count)?;
        let region = Region::reserve(grant.bytes(), page_size)?;
        region.map(0, &grant, Protection::ReadWrite)?;
        Ok(Shared { region, grant })
    }

    /// The memory.
    pub fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }

    /// The addresses it lies at.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The grant behind it.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }
}

/// Pages for at least as many bytes, of which one call takes so many.
fn in_one_call(page_size: PageSize, count: u64) -> (PageSize, u64) {
    let most = PageSize::Large.frames();
    if page_size == PageSize::Small && count > most {
        (PageSize::Large, count.div_ceil(most))
    } else {
        (page_size, count)
    }
}

/// Unmaps and gives back what was asked for as small pages for a [`Shared`] which was forgotten: `bytes` at
/// `address`, and from `physical_address` on.
///
/// # Errors
/// NotMapped, NotGranted and their like if it was something else.
///
/// # Safety
/// Nothing refers to the memory any more.
pub(crate) unsafe fn release(address: u64, physical_address: u64, bytes: u64) -> Result<()> {
    // SAFETY: nothing refers to what is unmapped, as the caller says; its addresses are never used again.
    unsafe { raw::memory_unmap(address, bytes) }?;
    let (size, count) = in_one_call(PageSize::Small, bytes / FRAME_BYTES);
    // SAFETY: the kernel refuses what is mapped, so nothing can refer to what it takes.
    unsafe { raw::memory_release(physical_address / FRAME_BYTES, size as u64, count) }?;
    Ok(())
}

/// Memory of the program's own, as bytes.
#[derive(Debug)]
pub struct Pages(Shared);

impl Pages {
    /// Asks for `count` contiguous zeroed pages and maps them at a new address, readable and writable.
    ///
    /// # Errors
    /// As `memory_grant` and `memory_map` say.
    pub fn new(page_size: PageSize, count: u64) -> Result<Pages> {
        Shared::new(page_size, count).map(Pages)
    }

    /// The address of its first byte.
    pub fn address(&self) -> u64 {
        self.0.region.address()
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let region = &self.0.region;
        // SAFETY: the whole region is mapped readable and writable for as long as `self` lives, since
        // neither region nor grant are handed out; the grant is mapped nowhere else; the borrow of `self`
        // gives out shared or exclusive access, never both.
        unsafe { core::slice::from_raw_parts(region.address() as *const u8, region.bytes() as usize) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        let region = &self.0.region;
        // SAFETY: as in `deref`.
        unsafe { core::slice::from_raw_parts_mut(region.address() as *mut u8, region.bytes() as usize) }
    }
}
