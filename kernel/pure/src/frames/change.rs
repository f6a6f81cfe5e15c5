//! Changes of who holds what, each already known to be legal; counters and hints follow.

use super::metadata::{Block, FrameInfo, HUGE_BLOCKS};
use super::{BLOCK_FRAMES, Frames, Owner, Unit, block_of, first_frame};
use core::ops::Range;
use nom_abi::memory::PageSize;

impl Frames<'_> {
    /// Hands free frames over: `range` is a whole number of units of `size`.
    pub(super) fn take(&mut self, owner: Owner, range: Range<u64>, size: PageSize) {
        assert!(owner != Owner::FREE && owner != Owner::RESERVED, "memory is given to somebody");
        if size == PageSize::Small {
            return self.take_frames(owner, range);
        }
        self.move_held(Owner::FREE, owner, range.end - range.start);
        for block in block_of(range.start)..block_of(range.end) {
            self.blocks[block].0 = match size {
                PageSize::Huge if block % HUGE_BLOCKS != 0 => Block::HugeRest,
                _ => Block::Unit { is_huge: size == PageSize::Huge, owner, maps: 0 },
            };
        }
    }

    fn take_frames(&mut self, owner: Owner, range: Range<u64>) {
        for frame in range {
            if self.blocks[block_of(frame)].0 == Block::Free {
                self.split(block_of(frame), Owner::FREE);
            }
            self.set_owner(frame, owner);
        }
    }

    /// Frees one unit.
    pub(super) fn put_back(&mut self, owner: Owner, frame: u64, size: PageSize) {
        if size == PageSize::Small {
            return self.set_owner(frame, Owner::FREE);
        }
        self.move_held(owner, Owner::FREE, size.frames());
        for block in block_of(frame)..block_of(frame + size.frames()) {
            self.set_block(block, Block::Free);
        }
    }

    /// Frees what `owner` holds in a split block, which is counted anew: an application with many frames ends
    /// in one go.
    pub(super) fn purge(&mut self, block: usize, owner: Owner) {
        let (mut freed, mut free, mut hint, mut owners) = (0, 0, BLOCK_FRAMES as u16, 0);
        let frames = first_frame(block) as usize..first_frame(block + 1) as usize;
        for (offset, info) in (0..).zip(&mut self.frames[frames]) {
            let mut holder = info.owner();
            if holder == owner {
                (*info, holder) = (FrameInfo::new(Owner::FREE, 0), Owner::FREE);
                freed += 1;
            }
            match holder {
                Owner::FREE => (free, hint) = (free + 1, hint.min(offset)),
                Owner::RESERVED => {}
                other => owners |= other.bit(),
            }
        }
        self.move_held(owner, Owner::FREE, freed);
        self.set_split(block, free, hint, owners);
    }

    /// Starts to keep account of each frame of a block, all of them held by `owner` so far.
    pub(super) fn split(&mut self, block: usize, owner: Owner) {
        let frames = first_frame(block) as usize..first_frame(block + 1) as usize;
        self.frames[frames].fill(FrameInfo::new(owner, 0));
        let (free, hint) = if owner == Owner::FREE { (BLOCK_FRAMES, 0) } else { (0, BLOCK_FRAMES) };
        self.set_block(block, Block::Split { free: free as u16, hint: hint as u16, owners: 0 });
    }

    /// Hands one frame of a split block over, mapped nowhere; a block that is all free then is so as a whole.
    pub(super) fn set_owner(&mut self, frame: u64, owner: Owner) {
        let info = &mut self.frames[frame as usize];
        let from = info.owner();
        *info = FrameInfo::new(owner, 0);
        self.move_held(from, owner, 1);

        let (block, offset) = (block_of(frame), (frame % BLOCK_FRAMES) as u16);
        let Block::Split { mut free, mut hint, mut owners } = self.blocks[block].0 else {
            unreachable!("single frames belong to split blocks");
        };
        if owner == Owner::FREE {
            (free, hint) = (free + 1, hint.min(offset));
        } else {
            free -= u16::from(from == Owner::FREE);
            hint += u16::from(hint == offset);
            owners |= owner.bit();
        }
        self.set_split(block, free, hint, owners);
    }

    /// Writes the state of a split block, which is whole again if it is all free.
    fn set_split(&mut self, block: usize, free: u16, hint: u16, owners: u64) {
        let is_free = u64::from(free) == BLOCK_FRAMES;
        self.set_block(block, if is_free { Block::Free } else { Block::Split { free, hint, owners } });
    }

    /// Writes a block's state in which it may have free frames.
    pub(super) fn set_block(&mut self, block: usize, state: Block) {
        self.blocks[block].0 = state;
        self.hints.found_free(block, state);
    }

    pub(super) fn move_held(&mut self, from: Owner, to: Owner, frames: u64) {
        self.held[from.index()] -= frames;
        self.held[to.index()] += frames;
    }

    /// Sets the map count of every unit in `range` to what `next` makes of it and of the number of pages
    /// of `size` on it.
    pub(super) fn count_maps(&mut self, range: Range<u64>, size: PageSize, next: impl Fn(u64, u64) -> u64) {
        let mut frame = range.start;
        while frame < range.end {
            let (unit, pages, end) = self.pages_on_unit(frame, range.end, size);
            if unit.owner != Owner::RESERVED {
                self.set_maps(&unit, next(unit.maps, pages));
            }
            frame = end;
        }
    }

    fn set_maps(&mut self, unit: &Unit, count: u64) {
        match &mut self.blocks[block_of(unit.frame)].0 {
            Block::Split { .. } => self.frames[unit.frame as usize] = FrameInfo::new(unit.owner, count),
            Block::Unit { maps, .. } => *maps = count as u32,
            Block::Reserved | Block::Free | Block::HugeRest => unreachable!("not a unit that somebody holds"),
        }
    }
}
