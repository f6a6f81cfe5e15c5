//! Where to find free frames: the lowest that fit, but never in a free block while a split one will do.
//!
//! Taking the lowest keeps the top of memory whole, for units of 1 GiB; filling split blocks first keeps
//! the rest of it in blocks of 2 MiB.

use super::metadata::Block;
use super::{BLOCK_FRAMES, Colour, Frames, HUGE_BLOCKS, Owner, first_frame};
use core::ops::Range;
use nom_abi::memory::PageSize;

/// Blocks below which a search need not look.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// No split block below has a free frame.
    split: usize,
    /// No block below is free.
    free: usize,
    /// No split block below has a free frame of this colour.
    coloured: Option<(Colour, usize)>,
}

impl Hints {
    /// Takes note of a block that came to have free frames.
    pub(super) fn found_free(&mut self, block: usize, state: Block) {
        match state {
            Block::Free => self.free = self.free.min(block),
            Block::Split { free: 1.., .. } => {
                self.split = self.split.min(block);
                self.coloured = self.coloured.map(|(colour, lowest)| (colour, lowest.min(block)));
            }
            _ => {}
        }
    }
}

impl Frames<'_> {
    /// First of `wanted` free frames that can become units of `size`.
    pub(super) fn find(&mut self, size: PageSize, wanted: u64, colour: Option<Colour>) -> Option<u64> {
        match (size, colour) {
            (PageSize::Small, Some(colour)) => self.find_coloured(colour),
            (PageSize::Small, None) if wanted == 1 => self.find_frame(),
            (PageSize::Small, None) => self.find_run(wanted),
            (PageSize::Large, _) => self.find_blocks((wanted / BLOCK_FRAMES) as usize, 1),
            (PageSize::Huge, _) => self.find_blocks((wanted / BLOCK_FRAMES) as usize, HUGE_BLOCKS),
        }
    }

    fn find_frame(&mut self) -> Option<u64> {
        let has_free = |block: &Block| matches!(block, Block::Split { free: 1.., .. });
        self.hints.split = self.first_block(self.hints.split, has_free);
        if self.hints.split == self.blocks.len() {
            return self.find_blocks(1, 1);
        }
        self.free_frames(self.hints.split)?.next()
    }

    fn find_coloured(&mut self, colour: Colour) -> Option<u64> {
        let from = self.hints.coloured.filter(|(hinted, _)| *hinted == colour).map_or(0, |(_, from)| from);
        let found = (from..self.blocks.len()).find_map(|block| {
            let frame = self.free_frames(block)?.find(|frame| frame % colour.count == colour.index)?;
            Some((block, frame))
        });
        let lowest = found.map_or(self.blocks.len(), |(block, _)| block);
        self.hints.coloured = Some((colour, lowest));
        found.map(|(_, frame)| frame).or_else(|| self.find_coloured_in_free_block(colour))
    }

    fn find_coloured_in_free_block(&self, colour: Colour) -> Option<u64> {
        (self.hints.free..self.blocks.len()).filter(|block| self.blocks[*block].0 == Block::Free).find_map(
            |block| (first_frame(block)..first_frame(block + 1)).find(|f| f % colour.count == colour.index),
        )
    }

    fn find_run(&mut self, wanted: u64) -> Option<u64> {
        if wanted > BLOCK_FRAMES {
            return self.find_run_across_blocks(wanted);
        }
        self.find_run_in_split_block(wanted)
            .or_else(|| self.find_blocks(1, 1))
            .or_else(|| self.find_run_across_blocks(wanted))
    }

    fn find_run_in_split_block(&self, wanted: u64) -> Option<u64> {
        (self.hints.split..self.blocks.len()).find_map(|block| match self.blocks[block].0 {
            Block::Split { free, .. } if u64::from(free) >= wanted => {
                let mut run = Run::default();
                self.free_frames(block)?.find_map(|frame| run.extend(frame..frame + 1, wanted))
            }
            _ => None,
        })
    }

    fn find_run_across_blocks(&self, wanted: u64) -> Option<u64> {
        let mut run = Run::default();
        (self.hints.free.min(self.hints.split)..self.blocks.len()).find_map(|block| {
            if self.blocks[block].0 == Block::Free {
                return run.extend(first_frame(block)..first_frame(block + 1), wanted);
            }
            self.free_frames(block)?.find_map(|frame| run.extend(frame..frame + 1, wanted))
        })
    }

    /// First frame of `count` contiguous free blocks, the first of them a multiple of `align`.
    fn find_blocks(&mut self, count: usize, align: usize) -> Option<u64> {
        self.hints.free = self.first_block(self.hints.free, |block| *block == Block::Free);
        let mut start = self.hints.free.next_multiple_of(align);
        while let Some(candidate) = self.blocks.get(start..start + count) {
            match candidate.iter().rposition(|info| info.0 != Block::Free) {
                None => return Some(first_frame(start)),
                Some(obstacle) => start = (start + obstacle + 1).next_multiple_of(align),
            }
        }
        None
    }

    /// Index of the first block from `from` on that `accept`s, or the number of blocks.
    fn first_block(&self, from: usize, accept: impl Fn(&Block) -> bool) -> usize {
        let position = self.blocks[from..].iter().position(|info| accept(&info.0));
        position.map_or(self.blocks.len(), |offset| from + offset)
    }

    /// The free frames of a split block, if it is one and has any.
    fn free_frames(&self, block: usize) -> Option<impl Iterator<Item = u64>> {
        let Block::Split { free: 1.., hint, .. } = self.blocks[block].0 else { return None };
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
