//! Pieces of memory that the shared heap is made of, each by itself granted and given back.

use crate::memory::{Grant, obtainable};
use crate::raw;
use crate::region::Region;
use core::ptr::NonNull;
use nom_abi::error::{Error, Result};
use nom_abi::{PageSize, Protection};

/// Grants behind a small extent: usually one, more where memory is in pieces.
const GRANTS_LEAST: usize = 8;
/// Most grants that have a place in front of an extent, which fits into its first page.
const GRANTS_MOST: usize = (PageSize::Small.bytes() as usize - 2 * size_of::<Head>()) / size_of::<Grant>();

/// What stands in front of an extent, and behind it the list of its grants.
#[derive(Debug)]
struct Head {
    /// Where the allocator's part ends.
    end: NonNull<u8>,
    /// Bytes that are mapped.
    bytes: u64,
    /// Grants behind it, in the order in which they are mapped.
    grants: usize,
    /// The next of those that were seen free.
    next: Option<Extent>,
    is_listed: bool,
}

/// Contiguous addresses with memory of its own. Whoever has the name of one does not own it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent(NonNull<Head>);

// SAFETY: it is a name; what it names is reached under the heap's lock only (condition 8).
unsafe impl Send for Extent {}

impl Extent {
    /// Maps up to `bytes` of new memory at new addresses, in as large pieces as the kernel has; less only if
    /// memory runs out underway, or comes in too many pieces.
    pub fn populate(bytes: u64) -> Result<Extent> {
        let align = if bytes >= PageSize::Large.bytes() { PageSize::Large } else { PageSize::Small };
        let region = Region::reserve(bytes, align)?;
        let most = GRANTS_MOST.min(GRANTS_LEAST + (bytes / PageSize::Large.bytes()) as usize * 2);
        let extent = Extent(NonNull::new(region.address() as *mut Head).ok_or(Error::Overflow)?);
        let (mut filled, mut count) = (0, 0);
        while filled < bytes && count < most {
            let Some(grant) = largest_grant(bytes - filled) else {
                break;
            };
            if region.map(filled, &grant, Protection::ReadWrite).is_err() {
                break;
            }
            filled += grant.bytes();
            // SAFETY: the first page is mapped by now, is nobody else's, and has room for that many.
            unsafe { extent.grants().add(count).write(grant) };
            count += 1;
        }
        // Its addresses are unmapped and its grants released by `give_back`.
        core::mem::forget(region);
        if filled == 0 {
            return Err(Error::OutOfMemory);
        }
        let head = Head { end: extent.0.cast(), bytes: filled, grants: count, next: None, is_listed: false };
        // SAFETY: as above.
        unsafe { extent.0.write(head) };
        Ok(extent)
    }

    /// An extent for one block of `bytes`, which begins at its second page; nothing if there is less.
    pub fn of_block(bytes: usize) -> Option<NonNull<u8>> {
        let pages = (bytes as u64).checked_next_multiple_of(PageSize::Small.bytes())?;
        let whole = pages.checked_add(PageSize::Small.bytes()).filter(|bytes| *bytes <= obtainable())?;
        let extent = Extent::populate(whole).ok()?;
        if extent.bytes() < whole {
            // SAFETY: nobody has a part of it yet.
            unsafe { extent.give_back() };
            return None;
        }
        // SAFETY: its second page is mapped, too.
        Some(unsafe { extent.0.cast().add(PageSize::Small.bytes() as usize) })
    }

    /// The extent of a block.
    ///
    /// # Safety
    /// [`Extent::of_block`] gave it, and it was not given back.
    pub unsafe fn of(block: *mut u8) -> Extent {
        let first = block.wrapping_sub(PageSize::Small.bytes() as usize);
        // SAFETY: there is an extent's first page in front of the block.
        Extent(unsafe { NonNull::new_unchecked(first.cast()) })
    }

    /// Bytes that it took of the machine.
    pub fn bytes(self) -> u64 {
        self.head().bytes
    }

    /// The part for the allocator.
    pub fn room(self) -> (*mut u8, usize) {
        let head = self.head();
        let front = size_of::<Head>() + head.grants * size_of::<Grant>();
        // SAFETY: at least a page is mapped there, and that is longer.
        (unsafe { self.0.cast::<u8>().add(front) }.as_ptr(), head.bytes as usize - front)
    }

    /// The extent whose part for the allocator begins at `base`, but for what the allocator leaves out in
    /// front: both are in the first page.
    ///
    /// # Safety
    /// There is one.
    pub unsafe fn of_base(base: *mut u8) -> Extent {
        let page = base.wrapping_sub(base.addr().wrapping_sub(1) % PageSize::Small.bytes() as usize + 1);
        // SAFETY: it is one's first byte, as the caller says.
        Extent(unsafe { NonNull::new_unchecked(page.cast()) })
    }

    /// Where the allocator's part ends, as the allocator says.
    pub fn end(self) -> NonNull<u8> {
        self.head().end
    }

    /// Notes where the allocator's part ends.
    pub fn set_end(mut self, end: NonNull<u8>) {
        self.head_mut().end = end;
    }

    /// Puts it in front of `list`, unless it is in one.
    pub fn push(mut self, list: &mut Option<Extent>) -> bool {
        let extent = self;
        let head = self.head_mut();
        if core::mem::replace(&mut head.is_listed, true) {
            return false;
        }
        head.next = list.replace(extent);
        true
    }

    /// Takes the first of `list` out.
    pub fn pop(list: &mut Option<Extent>) -> Option<Extent> {
        let mut first = list.take()?;
        let head = first.head_mut();
        head.is_listed = false;
        *list = head.next.take();
        Some(first)
    }

    /// Gives it back to the kernel.
    ///
    /// # Safety
    /// Nobody has a part of it, and it is in no list.
    pub unsafe fn give_back(self) {
        let mut offset = self.bytes();
        for index in (0..self.head().grants).rev() {
            // SAFETY: `populate` wrote it, and its page, the first, is the last to go.
            let grant = unsafe { self.grants().add(index).read() };
            offset -= grant.bytes();
            let address = self.0.as_ptr() as u64 + offset;
            // SAFETY: nobody has a part of it; its addresses are never used again.
            let unmapped = unsafe { raw::memory_unmap(address, grant.bytes()) };
            // A grant that is still mapped stays with the program, as its documentation says.
            debug_assert!(unmapped.is_ok(), "what was mapped whole is unmapped whole");
            drop(grant);
        }
    }

    fn head(&self) -> &Head {
        // SAFETY: condition 8: an extent's first page stays mapped until it is given back, and is reached
        // under the heap's lock only.
        unsafe { self.0.as_ref() }
    }

    fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }

    fn grants(self) -> NonNull<Grant> {
        // SAFETY: behind the head is room for them, in the same page.
        unsafe { self.0.add(1).cast() }
    }
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
