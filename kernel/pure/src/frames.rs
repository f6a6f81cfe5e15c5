//! Who holds every frame of memory, and allocation by size, contiguity and cache colour.
//!
//! Memory is seen as 2 MiB blocks. A block is free, one unit (or part of a 1 GiB unit) as a whole, or
//! split into frames with an owner each; only then is what is kept for each frame looked at. So a machine
//! of 64 GiB starts after writing 16 bytes for every 2 MiB, and whatever concerns one owner skips blocks,
//! not frames.
//!
//! A *unit* is a piece of memory as it was allocated: 4 KiB, 2 MiB or 1 GiB. It is given back as such, and
//! it counts the pages that are mapped onto it, so that nothing is given back that can still be reached.

mod metadata;

pub use metadata::{BLOCK_FRAMES, BlockInfo, FrameInfo, Owner};

use core::ops::Range;
use nom_abi::Error;
use nom_abi::error::Result;
use nom_abi::memory::PageSize;

/// One of the sets of frames that compete for the same part of a processor cache: those whose number
/// modulo `count` is `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour {
    /// Which colour.
    pub index: u64,
    /// How many colours there are.
    pub count: u64,
}

/// A piece of memory as it was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Who holds it.
    pub owner: Owner,
    /// First frame.
    pub frame: u64,
    /// Its size; a single frame if it is free or reserved.
    pub size: PageSize,
    /// Pages mapped onto it.
    pub maps: u64,
}

/// All of memory.
#[derive(Debug)]
pub struct Frames<'m> {
    blocks: &'m mut [BlockInfo],
    frames: &'m mut [FrameInfo],
    /// Frames of each owner.
    held: [u64; Owner::COUNT],
    /// Frames that are memory to hand out, whoever holds them.
    total: u64,
}

impl<'m> Frames<'m> {
    /// Blocks needed to describe memory that ends before frame `end`.
    pub const fn blocks_for(end: u64) -> u64 {
        end.div_ceil(BLOCK_FRAMES)
    }

    /// Bytes that [`BlockInfo`]s and [`FrameInfo`]s take for memory that ends before frame `end`: 16 for
    /// each block, then 4 for each of their frames.
    pub const fn metadata_bytes(end: u64) -> u64 {
        Self::blocks_for(end) * (size_of::<BlockInfo>() as u64 + BLOCK_FRAMES * size_of::<FrameInfo>() as u64)
    }

    /// Memory with no frame to hand out yet, described in `blocks` and `frames`, which have 512 entries for
    /// each block. Whatever they contain is ignored; `frames` is not even touched before a block is split.
    ///
    /// # Panics
    /// If the lengths do not agree.
    pub fn new(blocks: &'m mut [BlockInfo], frames: &'m mut [FrameInfo]) -> Frames<'m> {
        assert!(
            blocks.len() as u64 * BLOCK_FRAMES == frames.len() as u64,
            "512 frames to a block"
        );
        blocks.fill(BlockInfo::RESERVED);
        Frames {
            blocks,
            frames,
            held: [0; Owner::COUNT],
            total: 0,
        }
    }

    /// Makes the frames of `range` free that were reserved so far; skips others, and what lies beyond the
    /// metadata. Returns how many became free.
    pub fn add_free(&mut self, range: Range<u64>) -> u64 {
        todo!()
    }

    /// Gives the `count` frames from `frame` on, all free now, to `owner`, as 4 KiB units. Errors:
    /// InvalidArgument, Overflow, NotGranted (one is not free).
    pub fn claim(&mut self, owner: Owner, frame: u64, count: u64) -> Result<()> {
        todo!()
    }

    /// Gives `count` contiguous units of `size` to `owner` and returns their first frame, which is aligned
    /// to `size`. Their contents are as their last holder left them. `colour` restricts a single 4 KiB
    /// unit. Errors: InvalidArgument (no units, no such colour, or a colour for anything but one 4 KiB unit),
    /// OutOfMemory.
    pub fn allocate(
        &mut self,
        owner: Owner,
        size: PageSize,
        count: u64,
        colour: Option<Colour>,
    ) -> Result<u64> {
        todo!()
    }

    /// Takes back `count` units of `size` from `frame` on. Errors: InvalidArgument, Misaligned, Overflow,
    /// NotGranted (one is not a unit of that size that `owner` holds), StillMapped.
    pub fn release(&mut self, owner: Owner, frame: u64, size: PageSize, count: u64) -> Result<()> {
        todo!()
    }

    /// Takes back everything that `owner` holds, mapped or not, and returns the number of frames: for an
    /// application whose page tables are gone with it.
    pub fn release_all(&mut self, owner: Owner) -> u64 {
        todo!()
    }

    /// Counts `count` more pages of `size`, from `frame` on, as mapped onto units of `owner` that are at
    /// least as large. Errors: InvalidArgument, Misaligned, Overflow, NotGranted, TableFull (a unit is mapped
    /// millions of times).
    pub fn reference(&mut self, owner: Owner, frame: u64, size: PageSize, count: u64) -> Result<()> {
        todo!()
    }

    /// Counts `count` pages of `size`, from `frame` on, as no longer mapped. Frames that are not memory to
    /// hand out (device registers, the boot image) count nothing.
    ///
    /// # Panics
    /// If they were not counted before.
    pub fn dereference(&mut self, frame: u64, size: PageSize, count: u64) {
        todo!()
    }

    /// The unit that `frame` is part of. A frame beyond all memory is reserved.
    pub fn unit(&self, frame: u64) -> Unit {
        todo!()
    }

    /// The runs of contiguous frames that `owner` holds, by ascending frame: (first frame, frames).
    pub fn runs(&self, owner: Owner) -> Runs<'_> {
        Runs {
            frames: self,
            owner,
            next: 0,
        }
    }

    /// Frames that `owner` holds.
    pub fn held(&self, owner: Owner) -> u64 {
        self.held[owner.index()]
    }

    /// Frames that nobody holds.
    pub fn free(&self) -> u64 {
        self.held(Owner::FREE)
    }

    /// Frames that are memory to hand out, whoever holds them.
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// See [`Frames::runs`].
#[derive(Debug)]
pub struct Runs<'f> {
    frames: &'f Frames<'f>,
    owner: Owner,
    next: u64,
}

impl Iterator for Runs<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        todo!()
    }
}
