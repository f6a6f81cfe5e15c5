//! Who holds every frame of memory, and allocation by size, contiguity and cache colour.
//!
//! Memory is seen as 2 MiB blocks. A block is free, one unit (or part of a 1 GiB unit) as a whole, or
//! split into frames with an owner each; only then is what is kept for each frame looked at. So a machine
//! of 64 GiB starts after writing 16 bytes for every 2 MiB, and whatever concerns one owner skips blocks,
//! not frames.
//!
//! A *unit* is a piece of memory as it was allocated: 4 KiB, 2 MiB or 1 GiB. It is given back as such, and
//! it counts the pages that are mapped onto it, so that nothing is given back that can still be reached.

mod change;
mod metadata;
mod search;
#[cfg(test)]
mod tests;

pub use metadata::{BLOCK_FRAMES, BlockInfo, FrameInfo, Owner};
pub use search::Search;

use metadata::{Block, HUGE_BLOCKS};
use search::Hints;

use crate::machine::Frame;
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

/// Units in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The first frame.
    pub frame: Frame,
    /// Of each.
    pub size: PageSize,
    /// Units, not frames.
    pub count: u64,
}

impl Pages {
    /// The numbers of their frames.
    pub fn frames(self) -> Range<u64> {
        let first = self.frame.number();
        first..first + self.count * self.size.frames()
    }
}

/// Frames, or whole blocks, at which a search for what somebody holds looks at a time.
const LOOKS: usize = 512;

/// All of memory.
#[derive(Debug)]
pub struct Frames<'m> {
    blocks: &'m mut [BlockInfo],
    frames: &'m mut [FrameInfo],
    /// Frames of each owner.
    held: [u64; Owner::COUNT],
    hints: Hints,
}

impl<'m> Frames<'m> {
    /// Blocks needed to describe memory that ends before frame `end`.
    pub const fn blocks_for(end: u64) -> u64 {
        end.div_ceil(BLOCK_FRAMES)
    }

    /// Memory with no frame to hand out yet, described in `blocks` and `frames`, which have 512 entries for
    /// each block. Whatever they contain is ignored; `frames` is not even touched before a block is split.
    ///
    /// # Panics
    /// If the lengths do not agree.
    pub fn new(blocks: &'m mut [BlockInfo], frames: &'m mut [FrameInfo]) -> Frames<'m> {
        assert!(blocks.len() as u64 * BLOCK_FRAMES == frames.len() as u64, "512 frames to a block");
        blocks.fill(BlockInfo::RESERVED);
        let mut held = [0; Owner::COUNT];
        held[Owner::RESERVED.index()] = frames.len() as u64;
        Frames { blocks, frames, held, hints: Hints::default() }
    }

    /// Makes the frames of `range` free that were reserved so far; skips others, and what lies beyond the
    /// metadata. Returns how many became free.
    pub fn add_free(&mut self, range: Range<u64>) -> u64 {
        let before = self.free();
        let end = range.end.min(self.frames.len() as u64);
        let mut next = range.start;
        while next < end {
            let block = block_of(next);
            let block_end = first_frame(block + 1);
            self.add_free_in_block(block, next..end.min(block_end));
            next = block_end;
        }
        self.free() - before
    }

    fn add_free_in_block(&mut self, block: usize, range: Range<u64>) {
        let whole = range.end - range.start == BLOCK_FRAMES;
        match self.blocks[block].0 {
            Block::Reserved if whole => {
                self.set_block(block, Block::Free);
                self.move_held(Owner::RESERVED, Owner::FREE, BLOCK_FRAMES);
                return;
            }
            Block::Reserved => self.split(block, Owner::RESERVED),
            _ => {}
        }
        for frame in range {
            if self.unit(frame).owner == Owner::RESERVED {
                self.set_owner(frame, Owner::FREE);
            }
        }
    }

    /// Gives the `count` frames from `frame` on, all free now, to `owner`, as 4 KiB units. Errors:
    /// InvalidArgument, Overflow, NotGranted (one is not free).
    pub fn claim(&mut self, owner: Owner, frame: Frame, count: u64) -> Result<()> {
        let range = frame_range(frame, PageSize::Small, count)?;
        if range.clone().any(|frame| self.unit(frame).owner != Owner::FREE) {
            return Err(Error::NotGranted);
        }
        self.take(owner, range, PageSize::Small);
        Ok(())
    }

    /// Gives `count` contiguous units of `size` to somebody and returns their first frame, which is aligned
    /// to `size`. Their contents are as their last holder left them. `colour` restricts a single 4 KiB
    /// unit. Errors: InvalidArgument (no units, no such colour, or a colour for anything but one 4 KiB unit),
    /// OutOfMemory.
    pub fn allocate(&mut self, to: Owner, size: PageSize, count: u64, of: Option<Colour>) -> Result<Frame> {
        let mut search = Search::new(size, count, of)?;
        self.allocate_piece(to, &mut search, u64::MAX)?.ok_or(Error::OutOfMemory)
    }

    /// As [`Frames::allocate`], but of split blocks it looks at `looks` frames at most, and returns `None` if
    /// it is to be called again with the same search. What becomes free where it has looked is not found.
    pub fn allocate_piece(&mut self, owner: Owner, search: &mut Search, looks: u64) -> Result<Option<Frame>> {
        if search.wanted() > self.free() {
            return Err(Error::OutOfMemory);
        }
        search.looks = looks;
        let found = self.find(search)?;
        if let Some(frame) = found {
            self.take(owner, frame..frame + search.wanted(), search.size);
        }
        Ok(found.map(Frame::new))
    }

    /// Takes back `count` units of `size` from `frame` on. Errors: InvalidArgument, Misaligned, Overflow,
    /// NotGranted (one is not a unit of that size that `owner` holds), StillMapped.
    pub fn release(&mut self, owner: Owner, frame: Frame, size: PageSize, count: u64) -> Result<()> {
        let range = frame_range(frame, size, count)?;
        let units = range.clone().step_by(size.frames() as usize);
        for frame in units.clone() {
            let unit = self.unit(frame);
            if (unit.owner, unit.size) != (owner, size) {
                return Err(Error::NotGranted);
            }
            if unit.maps > 0 {
                return Err(Error::StillMapped);
            }
        }
        for frame in units {
            self.put_back(owner, frame, size);
        }
        Ok(())
    }

    /// Gives what `release` would take back from one owner to another. Errors: as of `release`.
    pub fn pass_on(&mut self, from: Owner, to: Owner, pages: Pages) -> Result<()> {
        self.release(from, pages.frame, pages.size, pages.count)?;
        self.take(to, pages.frames(), pages.size);
        Ok(())
    }

    /// Takes back everything that `owner` holds, mapped or not, and returns the number of frames: for an
    /// application whose page tables are gone with it.
    pub fn release_all(&mut self, owner: Owner) -> u64 {
        let before = self.held(owner);
        self.release_some(owner, 0, usize::MAX);
        before
    }

    /// As [`Frames::release_all`], beginning with a block, in so many blocks at most of which the owner holds
    /// single frames, and 512 times as many others. Returns where to go on, if there is more.
    pub fn release_some(&mut self, owner: Owner, mut block: usize, blocks: usize) -> Option<usize> {
        let mut left = blocks.saturating_mul(BLOCK_FRAMES as usize);
        while self.held(owner) > 0 {
            if left == 0 {
                return Some(block);
            }
            left -= 1;
            match self.blocks[block].0 {
                Block::Unit { owner: holder, is_huge, .. } if holder == owner => {
                    self.put_back(owner, first_frame(block), whole(is_huge));
                }
                Block::Split { owners, .. } if owners & owner.bit() != 0 => {
                    self.purge(block, owner);
                    left = left.saturating_sub(BLOCK_FRAMES as usize);
                }
                _ => {}
            }
            block += 1;
        }
        None
    }

    /// Counts `count` more pages of `size`, from `frame` on, as mapped onto units of `owner` that are at
    /// least as large. Errors: InvalidArgument, Misaligned, Overflow, NotGranted, TableFull (a unit is mapped
    /// millions of times).
    pub fn reference(&mut self, owner: Owner, frame: Frame, size: PageSize, count: u64) -> Result<()> {
        let range = frame_range(frame, size, count)?;
        let mut next = range.start;
        while next < range.end {
            let (unit, pages, end) = self.pages_on_unit(next, range.end, size);
            if unit.owner != owner || unit.size < size {
                return Err(Error::NotGranted);
            }
            if unit.maps + pages > unit.maps_max() {
                return Err(Error::TableFull);
            }
            next = end;
        }
        self.count_maps(range, size, |maps, pages| maps + pages);
        Ok(())
    }

    /// Counts `count` pages of `size`, from `frame` on, as no longer mapped. Frames that are not memory to
    /// hand out (device registers, the boot image) count nothing.
    ///
    /// # Panics
    /// If they were not counted before.
    pub fn dereference(&mut self, frame: Frame, size: PageSize, count: u64) {
        let range = frame_range(frame, size, count).expect("pages that were mapped");
        self.count_maps(range, size, |maps, pages| maps.checked_sub(pages).expect("counted as mapped"));
    }

    /// The unit that `frame` is part of. A frame beyond all memory is reserved.
    pub fn unit(&self, frame: u64) -> Unit {
        let single = |owner, maps| Unit { owner, frame, size: PageSize::Small, maps };
        let block = block_of(frame);
        match self.blocks.get(block).map_or(Block::Reserved, |info| info.0) {
            Block::Reserved => single(Owner::RESERVED, 0),
            Block::Free => single(Owner::FREE, 0),
            Block::Split { .. } => {
                let info = self.frames[frame as usize];
                single(info.owner(), info.maps())
            }
            Block::Unit { is_huge, owner, maps } => {
                Unit { owner, frame: first_frame(block), size: whole(is_huge), maps: maps.into() }
            }
            Block::HugeRest => self.unit(first_frame(block - block % HUGE_BLOCKS)),
        }
    }

    /// The first units of one size in a row that `owner` holds, from `frame` on, at most `most` of them: none
    /// if there is none before that frame, which is as far as one look goes. `None`: there are no more.
    pub fn next_units(&self, owner: Owner, mut frame: u64, most: usize) -> Option<Pages> {
        for _ in 0..LOOKS {
            let Unit { owner: holder, frame: start, size, .. } = self.unit(frame);
            let is_within = match self.blocks.get(block_of(frame))?.0 {
                Block::Split { owners, .. } => owners & owner.bit() != 0,
                _ => false,
            };
            if holder == owner && start == frame {
                let alike = |next: &u64| (self.unit(*next).owner, self.unit(*next).size) == (owner, size);
                let units = (frame..).step_by(size.frames() as usize).take(most).take_while(alike);
                return Some(Pages { frame: Frame::new(frame), size, count: units.count() as u64 });
            }
            frame = if is_within { frame + 1 } else { first_frame(block_of(frame) + 1) };
        }
        Some(Pages { frame: Frame::new(frame), size: PageSize::Small, count: 0 })
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
        self.frames.len() as u64 - self.held(Owner::RESERVED)
    }

    /// The unit at `frame`, the number of pages of `size` that lie on it before `end`, and their end.
    fn pages_on_unit(&self, frame: u64, end: u64, size: PageSize) -> (Unit, u64, u64) {
        let unit = self.unit(frame);
        let end = end.min(unit.frame + unit.size.frames().max(size.frames()));
        (unit, (end - frame) / size.frames(), end)
    }
}

impl Unit {
    /// Most pages that can be counted as mapped onto the unit.
    const fn maps_max(&self) -> u64 {
        match self.size {
            PageSize::Small => FrameInfo::MAPS_MAX,
            _ => u32::MAX as u64,
        }
    }
}

/// Size of a unit that is whole blocks.
const fn whole(is_huge: bool) -> PageSize {
    if is_huge { PageSize::Huge } else { PageSize::Large }
}

/// Index of the block that `frame` lies in.
const fn block_of(frame: u64) -> usize {
    (frame / BLOCK_FRAMES) as usize
}

const fn first_frame(block: usize) -> u64 {
    block as u64 * BLOCK_FRAMES
}

/// The frames of `count` units of `size`. Errors: InvalidArgument (no units), Misaligned, Overflow.
fn frame_range(frame: Frame, size: PageSize, count: u64) -> Result<Range<u64>> {
    if count == 0 {
        return Err(Error::InvalidArgument);
    }
    let frame = frame.number();
    if !frame.is_multiple_of(size.frames()) {
        return Err(Error::Misaligned);
    }
    let length = count.checked_mul(size.frames()).ok_or(Error::Overflow)?;
    let end = frame.checked_add(length).ok_or(Error::Overflow)?;
    Ok(frame..end)
}
