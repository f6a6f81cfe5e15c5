//! An application's address space: four levels of page tables, changed only as a whole or not at all.
//!
//! The tables are the only record of what is mapped. Every operation first checks all it is going to do;
//! an error has changed nothing. A table that becomes empty is given back at once, so mapping and unmapping
//! in a circle loses no frame. Nothing here flushes a translation cache: the caller does, before it lets go
//! of the kernel's lock and so before any frame given back here can be used again.

use crate::frames::{Frames, Owner};
use crate::machine::PhysicalMemory;
use crate::paging::Caching;
use core::ops::Range;
use nom_abi::error::Result;
use nom_abi::layout::{APPLICATION_END, USER_END, USER_START};
use nom_abi::{PageSize, Protection};

/// A part of user space in which a caller may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    start: u64,
    end: u64,
}

impl Bounds {
    /// What applications manage themselves.
    pub const APPLICATION: Bounds = Bounds {
        start: USER_START,
        end: APPLICATION_END,
    };
    /// All of user space, with the windows in which the kernel places things.
    pub const USER: Bounds = Bounds {
        start: USER_START,
        end: USER_END,
    };

    /// The range of `length` bytes at `address`. Errors: InvalidArgument (no bytes), Misaligned (either is
    /// not a multiple of 4096), Overflow, OutsideUserSpace.
    pub fn bytes(self, address: u64, length: u64) -> Result<Range<u64>> {
        todo!()
    }

    /// The range of `count` pages of `size` at `address`. Errors: InvalidArgument (no pages), Misaligned,
    /// Overflow, OutsideUserSpace.
    pub fn pages(self, address: u64, size: PageSize, count: u64) -> Result<Range<u64>> {
        todo!()
    }
}

/// `count` pages of `size` to be mapped: addresses from `address` on, to frames from `frame` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub address: u64,
    /// First frame; neither it nor the frames after it need be memory.
    pub frame: u64,
    /// Size of each page.
    pub size: PageSize,
    /// Number of pages.
    pub count: u64,
    /// What user code may do there.
    pub protection: Protection,
    /// How it is cached.
    pub caching: Caching,
}

/// Who pays for page tables, and how many frames of them it can still pay for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableBudget {
    /// Owner of the frames.
    pub owner: Owner,
    /// Most tables that may be added; `u64::MAX` if there is no cap.
    pub at_most: u64,
}

/// One mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// First address.
    pub address: u64,
    /// First frame.
    pub frame: u64,
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
    root: u64,
}

impl Space {
    /// An address space with nothing mapped but the kernel's half, which it shares with the root table in
    /// frame `kernel_root`: the 256 entries are copied, so the kernel's own never change after boot. The root
    /// is charged to `owner`. Errors: OutOfMemory.
    pub fn new(
        memory: &mut impl PhysicalMemory,
        frames: &mut Frames<'_>,
        owner: Owner,
        kernel_root: u64,
    ) -> Result<Space> {
        todo!()
    }

    /// Frame of the root table, for CR3.
    pub fn root(self) -> u64 {
        self.root
    }

    /// Number of page tables that [`Space::map`] would add. Errors: those of `map`, but for its budget.
    pub fn tables_needed(
        self,
        memory: &impl PhysicalMemory,
        bounds: Bounds,
        mapping: &Mapping,
    ) -> Result<u64> {
        todo!()
    }

    /// Maps pages for user code and returns the number of page tables that it took. That the frames may be
    /// mapped is the caller's to check ([`Frames::reference`]). Errors: InvalidArgument (no pages), Misaligned
    /// (address or frame), Overflow, OutsideUserSpace, AlreadyMapped, OverMemoryCap (more tables than the
    /// budget allows), OutOfMemory.
    pub fn map(
        self,
        memory: &mut impl PhysicalMemory,
        frames: &mut Frames<'_>,
        bounds: Bounds,
        mapping: &Mapping,
        budget: TableBudget,
    ) -> Result<u64> {
        todo!()
    }

    /// Changes what user code may do with every page in `length` bytes at `address`. Errors:
    /// InvalidArgument, Misaligned, Overflow, OutsideUserSpace, NotMapped (a page is not mapped, or only a
    /// part of it is in the range).
    pub fn protect(
        self,
        memory: &mut impl PhysicalMemory,
        bounds: Bounds,
        address: u64,
        length: u64,
        protection: Protection,
    ) -> Result<()> {
        todo!()
    }

    /// Unmaps every page in `length` bytes at `address`, calls `on_leaf` for each by ascending address (to
    /// [`Frames::dereference`] it), and gives tables that became empty back from `owner`. Errors:
    /// InvalidArgument, Misaligned, Overflow, OutsideUserSpace, NotMapped (as for [`Space::protect`]).
    pub fn unmap(
        self,
        memory: &mut impl PhysicalMemory,
        frames: &mut Frames<'_>,
        bounds: Bounds,
        address: u64,
        length: u64,
        owner: Owner,
        on_leaf: impl FnMut(&mut Frames<'_>, Leaf),
    ) -> Result<()> {
        todo!()
    }

    /// The page that `address` is mapped in, if it is in user space and mapped.
    pub fn translate(self, memory: &impl PhysicalMemory, address: u64) -> Option<Leaf> {
        todo!()
    }

    /// Fills `bytes` from user memory at `address`. Errors: BadPointer, unless user code could read every
    /// byte itself and all are in memory rather than a device.
    pub fn read_user(self, memory: &impl PhysicalMemory, address: u64, bytes: &mut [u8]) -> Result<()> {
        todo!()
    }

    /// Copies `bytes` to user memory at `address`. Errors: BadPointer, unless user code could write every
    /// byte itself and all are in memory rather than a device.
    pub fn write_user(self, memory: &mut impl PhysicalMemory, address: u64, bytes: &[u8]) -> Result<()> {
        todo!()
    }

    /// Whether [`Space::write_user`] of `length` bytes at `address` would succeed. Errors: BadPointer.
    pub fn check_writable(self, memory: &impl PhysicalMemory, address: u64, length: u64) -> Result<()> {
        todo!()
    }
}
