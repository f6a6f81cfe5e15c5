//! Where to find free frames: the lowest that fit, but never in a free block while a split one will do.
//!
//! Taking the lowest keeps the top of memory whole, for units of 1 GiB; filling split blocks first keeps
//! the rest of it in blocks of 2 MiB.

use super::metadata::Block;
use super::{BLOCK_FRAMES, Colour, Frames, HUGE_BLOCKS, Owner, first_frame};
use core::ops::Range;
use nom_abi::error::{Error, Result};
use nom_abi::memory::PageSize;

/// Blocks below which a search need not look.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// No split block below has a free frame.
    split: usize,
    /// No block below is free.
    free: usize,
}

impl Hints {
    /// Takes note of a block that came to have free frames.
    pub(super) fn found_free(&mut self, block: usize, state: Block) {
        match state {
            Block::Free => self.free = self.free.min(block),
            Block::Split { free: 1.., .. } => self.split = self.split.min(block),
            _ => {}
        }
    }
}

/// A search for free frames, and how far it has come.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Of each unit.
    pub size: PageSize,
    /// Units.
    pub count: u64,
    colour: Option<Colour>,
    /// Frames of split blocks, or other blocks, at which it still looks in this piece.
    pub(super) looks: u64,
    /// Block to look at next for single frames, and for whole blocks.
    next: usize,
    next_whole: usize,
}

impl Search {
    /// A search for `count` contiguous units of `size`; `colour`, one of at most 512, restricts a single one
    /// of 4 KiB. Errors: InvalidArgument (no units, no such colour, or a colour for anything but one 4 KiB
    /// unit), OutOfMemory (there is never so much).
    pub fn new(size: PageSize, count: u64, colour: Option<Colour>) -> Result<Search> {
        let single = size == PageSize::Small && count == 1;
        if count == 0 || colour.is_some_and(|colour| !single || colour.index >= colour.count) {
            return Err(Error::InvalidArgument);
        }
        count.checked_mul(size.frames()).ok_or(Error::OutOfMemory)?;
        Ok(Search { size, count, colour, looks: 0, next: 0, next_whole: 0 })
    }

    /// Frames that it is for.
    pub fn wanted(&self) -> u64 {
        self.count * self.size.frames()
    }
}

impl Frames<'_> {
    /// First of the free frames that a search is for, if it comes to them in this piece. Errors: OutOfMemory.
    pub(super) fn find(&mut self, search: &mut Search) -> Result<Option<u64>> {
        let blocks = (search.wanted() / BLOCK_FRAMES) as usize;
        match search.size {
            PageSize::Small if search.count == 1 && search.colour.is_none() => self.find_frame(search),
            PageSize::Small => self.find_frames(search),
            PageSize::Large => self.find_blocks(search, blocks, 1),
            PageSize::Huge => self.find_blocks(search, blocks, HUGE_BLOCKS),
        }
    }

    fn find_frame(&mut self, search: &mut Search) -> Result<Option<u64>> {
        let has_free = |block: &Block| matches!(block, Block::Split { free: 1.., .. });
        self.hints.split = self.first_block(self.hints.split, search, has_free);
        match self.free_frames(self.hints.split).and_then(|mut frames| frames.next()) {
            None if search.looks > 0 => self.find_blocks(search, 1, 1),
            found => Ok(found),
        }
    }

    /// What is wanted from split blocks, one or several in a row; if there is none, from a free one. More
    /// than a block has is taken from both.
    fn find_frames(&mut self, search: &mut Search) -> Result<Option<u64>> {
        let (wanted, mut run, colour) = (search.wanted(), Run::default(), search.colour);
        let takes_blocks = wanted > BLOCK_FRAMES;
        let fits = |frame: &u64| colour.is_none_or(|colour| frame % colour.count == colour.index);
        let lowest = if takes_blocks { self.hints.free.min(self.hints.split) } else { self.hints.split };
        search.next = search.next.max(lowest);
        while let Some(info) = self.blocks.get(search.next) {
            let cost = if matches!(info.0, Block::Split { free: 1.., .. }) { BLOCK_FRAMES } else { 1 };
            let first = first_frame(search.next);
            let Some(looks) = search.looks.checked_sub(cost) else {
                // The end of the block before may be taken meanwhile.
                search.next -= usize::from(search.next > 0 && run.end == first);
                return Ok(None);
            };
            let found = match self.free_frames(search.next) {
                Some(frames) => frames.filter(fits).find_map(|frame| run.extend(frame..frame + 1, wanted)),
                None if takes_blocks && info.0 == Block::Free => {
                    run.extend(first..first + BLOCK_FRAMES, wanted)
                }
                None => None,
            };
            if let Some(frame) = found {
                return Ok(Some(frame));
            }
            (search.looks, search.next) = (looks, search.next + 1);
        }
        let first = if takes_blocks { Err(Error::OutOfMemory) } else { self.find_blocks(search, 1, 1) }?;
        let found = first.map(|first| (first..first + BLOCK_FRAMES).find(fits).ok_or(Error::OutOfMemory));
        found.transpose()
    }

    /// First frame of `count` contiguous free blocks, the first of them a multiple of `align`.
    fn find_blocks(&mut self, search: &mut Search, count: usize, align: usize) -> Result<Option<u64>> {
        self.hints.free = self.first_block(self.hints.free, search, |block| *block == Block::Free);
        while search.looks > 0 {
            let start = search.next_whole.max(self.hints.free).next_multiple_of(align);
            let candidate = self.blocks.get(start..start + count).ok_or(Error::OutOfMemory)?;
            let Some(obstacle) = candidate.iter().rposition(|info| info.0 != Block::Free) else {
                return Ok(Some(first_frame(start)));
            };
            search.next_whole = start + obstacle + 1;
            search.looks = search.looks.saturating_sub(count as u64);
        }
        Ok(None)
    }

    /// Index of the first block from `from` on that `accept`s, or of the one at which no look is left, or the
    /// number of blocks.
    fn first_block(&self, from: usize, search: &mut Search, accept: impl Fn(&Block) -> bool) -> usize {
        let blocks = self.blocks[from..].iter().take(search.looks as usize);
        let (count, passed) = (blocks.len(), blocks.take_while(|info| !accept(&info.0)).count());
        search.looks -= count.min(passed) as u64;
        from + passed
    }

    /// The free frames of a split block, if it is one and has any.
    fn free_frames(&self, block: usize) -> Option<impl Iterator<Item = u64>> {
        let Block::Split { free: 1.., hint, .. } = self.blocks.get(block)?.0 else { return None };
        let frames = first_frame(block) + u64::from(hint)..first_frame(block + 1);
        Some(frames.filter(|frame| self.frames[*frame as usize].owner() == Owner::FREE))
    }
}

/// The contiguous free frames that a search is looking at.
#[derive(Default)]
struct Run {
    start: u64,
    end: u64,
}

impl Run {
    /// Adds free frames that come after all before; the run's start if it is `wanted` frames long now.
    fn extend(&mut self, frames: Range<u64>, wanted: u64) -> Option<u64> {
        if frames.start != self.end {
            self.start = frames.start;
        }
        self.end = frames.end;
        (self.end - self.start >= wanted).then_some(self.start)
    }
}
