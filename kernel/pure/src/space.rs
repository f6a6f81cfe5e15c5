//! An application's address space: four levels of page tables, changed only as a whole or not at all.
//!
//! The tables are the only record of what is mapped. Every operation first checks all it is going to do;
//! an error has changed nothing. A table that becomes empty is given back at once, so mapping and unmapping
//! in a circle loses no frame. Nothing here flushes a translation cache: the caller does, before it lets go
//! of the kernel's lock and so before any frame given back here can be used again.

mod tables;
#[cfg(test)]
mod tests;
mod user;

use crate::frames::Frames;
use crate::machine::{Frame, PhysAddr, PhysicalMemory};
use crate::means::Means;
use crate::paging::{Caching, ENTRIES, Entry, FRAMES_END, Meaning, Privilege, ROOT_LEVEL, leaf_size};
use core::ops::Range;
use nom_abi::error::Result;
use nom_abi::layout::{APPLICATION_END, USER_END, USER_START};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::{Error, PageSize, Protection};
pub(crate) use tables::{Part, entry_address, visit};
pub use user::UserAddr;

/// Most pages that one call concerns, so that it does not keep others waiting.
pub const PAGES_MAX: u64 = 512;

/// A part of user space in which a caller may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    start: u64,
    end: u64,
}

impl Bounds {
    /// What applications manage themselves.
    pub const APPLICATION: Bounds = Bounds { start: USER_START, end: APPLICATION_END };
    /// All of user space, with the windows in which the kernel places things.
    pub const USER: Bounds = Bounds { start: USER_START, end: USER_END };

    /// The range of `length` bytes at `address`. Errors: InvalidArgument (no bytes), Misaligned (either is
    /// not a multiple of 4096), Overflow, OutsideUserSpace.
    pub fn bytes(self, address: u64, length: u64) -> Result<Range<u64>> {
        self.range(address, PageSize::Small, length)
    }

    /// The range of `count` pages of `size` at `address`. Errors: InvalidArgument (no pages), Misaligned,
    /// Overflow, OutsideUserSpace.
    pub fn pages(self, address: u64, size: PageSize, count: u64) -> Result<Range<u64>> {
        let length = count.checked_mul(size.bytes()).ok_or(Error::Overflow)?;
        self.range(address, size, length)
    }

    fn range(self, address: u64, size: PageSize, length: u64) -> Result<Range<u64>> {
        if length == 0 {
            return Err(Error::InvalidArgument);
        }
        if !(address | length).is_multiple_of(size.bytes()) {
            return Err(Error::Misaligned);
        }
        let end = address.checked_add(length).ok_or(Error::Overflow)?;
        if address < self.start || end > self.end {
            return Err(Error::OutsideUserSpace);
        }
        Ok(address..end)
    }
}

/// `count` pages of `size` to be mapped: addresses from `address` on, to frames from `frame` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub address: u64,
    /// First frame; neither it nor the frames after it need be memory.
    pub frame: Frame,
    /// Size of each page.
    pub size: PageSize,
    /// Number of pages.
    pub count: u64,
    /// What user code may do there.
    pub protection: Protection,
    /// How it is cached.
    pub caching: Caching,
}

impl Mapping {
    /// The addresses to be mapped. Errors: those of [`Bounds::pages`], and Misaligned and Overflow for
    /// frames.
    fn range(&self, bounds: Bounds) -> Result<Range<u64>> {
        let range = bounds.pages(self.address, self.size, self.count)?;
        if !self.frame.number().is_multiple_of(self.size.frames()) {
            return Err(Error::Misaligned);
        }
        let frames = (range.end - range.start) / FRAME_BYTES;
        match self.frame.number().checked_add(frames) {
            Some(end) if end <= FRAMES_END => Ok(range),
            _ => Err(Error::Overflow),
        }
    }
}

/// One mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// First address.
    pub address: u64,
    /// First frame.
    pub frame: Frame,
    /// Its size.
    pub size: PageSize,
    /// What user code may do there.
    pub protection: Protection,
    /// How it is cached: uncached pages are device registers, not memory.
    pub caching: Caching,
}

/// An address space.
///
/// There is nothing to destroy: all its frames are page tables of one owner, so [`Frames::release_all`] of
/// that owner ends it, once no processor uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    root: PhysAddr,
}

impl Space {
    /// An address space with nothing mapped but what it shares with the root table in `like`: those entries
    /// of it are copied that `is` says. Errors: those of [`Means::take`].
    pub fn new(by: &mut Means<impl PhysicalMemory>, like: PhysAddr, is: fn(&usize) -> bool) -> Result<Space> {
        let root = by.take(1)?;
        for index in (0..ENTRIES).filter(is) {
            let entry = by.machine.read(entry_address(like, index));
            by.machine.write(entry_address(root, index), entry);
        }
        Ok(Space { root })
    }

    /// The address space whose root was noted, if any was.
    pub(crate) fn noted(root: PhysAddr) -> Option<Space> {
        (root != PhysAddr::default()).then_some(Space { root })
    }

    /// Where the root table is, for CR3.
    pub fn root(self) -> PhysAddr {
        self.root
    }

    /// Maps pages for user code; tables that are missing are taken. That the frames may be mapped is the
    /// caller's to check ([`Frames::reference`]). Errors: InvalidArgument (no pages), Misaligned (address or
    /// frame), Overflow, OutsideUserSpace, AlreadyMapped, OverMemoryCap, OutOfMemory (for the tables).
    pub fn map(self, by: &mut Means<impl PhysicalMemory>, bounds: Bounds, mapping: &Mapping) -> Result<()> {
        let range = mapping.range(bounds)?;
        let needed = tables::count_missing(by.machine, Part::of_space(self.root, &range), mapping.size)?;
        if needed > by.at_most {
            return Err(Error::OverMemoryCap);
        }
        if needed > by.frames.free() {
            return Err(Error::OutOfMemory);
        }
        tables::install(by, Part::of_space(self.root, &range), mapping);
        Ok(())
    }

    /// Changes what user code may do with every page in a range of [`Bounds`]. Errors: InvalidArgument (more
    /// than [`PAGES_MAX`] pages), NotMapped (a page is not mapped, or only a part of it is in the range).
    pub fn protect(self, memory: &mut impl PhysicalMemory, range: Range<u64>, to: Protection) -> Result<()> {
        tables::check_mapped(memory, Part::of_space(self.root, &range), 0)?;
        self.visit(memory, range, |memory, entry, leaf| {
            memory.write(entry, Entry::leaf(leaf.frame, leaf.size, to, leaf.caching, Privilege::User).0);
        });
        Ok(())
    }

    /// Looks at each page that is mapped in `range`, which is not empty, and at its entry.
    pub fn visit<M: PhysicalMemory>(
        self,
        memory: &mut M,
        range: Range<u64>,
        mut act: impl FnMut(&mut M, PhysAddr, Leaf),
    ) {
        tables::visit(memory, Part::of_space(self.root, &range), &mut act);
    }

    /// Unmaps every page in a range of [`Bounds`], calls `on_leaf` for each by ascending address (to
    /// [`Frames::dereference`] it), and gives tables that became empty back. Errors: as of
    /// [`Space::protect`].
    pub fn unmap(
        self,
        by: &mut Means<impl PhysicalMemory>,
        range: Range<u64>,
        mut on_leaf: impl FnMut(&mut Frames<'_>, Leaf),
    ) -> Result<()> {
        tables::check_mapped(by.machine, Part::of_space(self.root, &range), 0)?;
        tables::remove(by, Part::of_space(self.root, &range), &mut on_leaf);
        Ok(())
    }

    /// The page that `address` is mapped in, if it is.
    pub fn translate(self, memory: &impl PhysicalMemory, address: UserAddr) -> Option<Leaf> {
        let (mut table, mut level, address) = (self.root, ROOT_LEVEL, address.word());
        loop {
            let entry = Entry(memory.read(entry_address(table, crate::paging::index(address, level))));
            match entry.meaning(level) {
                Meaning::Empty => return None,
                Meaning::Table(next) => (table, level) = (next, level - 1),
                Meaning::Leaf { frame, protection, caching } => {
                    let size = leaf_size(level)?;
                    let address = address - address % size.bytes();
                    return Some(Leaf { address, frame, size, protection, caching });
                }
            }
        }
    }
}
