//! What frames ought to be: slow and plain.

use crate::frames::{Colour, Owner, Unit, frame_range};
use crate::machine::Frame;
use core::ops::Range;
use nom_abi::Error;
use nom_abi::error::Result;
use nom_abi::memory::PageSize;
use std::collections::BTreeMap;

/// Units in a map, free memory the gaps between them.
#[derive(Debug, Default)]
pub struct Model {
    pub memory: Vec<Range<u64>>,
    pub units: BTreeMap<u64, Unit>,
    pub mappings: Vec<(u64, PageSize, u64)>,
}

impl Model {
    /// Runs of free frames, as long as they can be.
    fn gaps(&self) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        for range in &self.memory {
            let mut start = range.start;
            for unit in self.units.range(range.clone()).map(|(_, unit)| unit) {
                gaps.push(start..unit.frame);
                start = unit.frame + unit.size.frames();
            }
            gaps.push(start..range.end);
        }
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    pub fn free(&self) -> u64 {
        self.gaps().iter().map(|gap| gap.end - gap.start).sum()
    }

    pub fn is_free(&self, range: Range<u64>) -> bool {
        self.gaps().iter().any(|gap| gap.start <= range.start && range.end <= gap.end)
    }

    pub fn can_allocate(&self, size: PageSize, count: u64, colour: Option<Colour>) -> bool {
        self.gaps().into_iter().any(|gap| match colour {
            None => gap.start.next_multiple_of(size.frames()) + count * size.frames() <= gap.end,
            Some(colour) => gap.into_iter().any(|frame| frame % colour.count == colour.index),
        })
    }

    /// Whether some free frame's block is not all free memory.
    pub fn has_free_frame_in_split_block(&self) -> bool {
        self.gaps().iter().any(|gap| !gap.start.is_multiple_of(512) || !gap.end.is_multiple_of(512))
    }

    pub fn is_in_split_block(&self, frame: u64) -> bool {
        let block = frame / 512 * 512;
        !self.is_free(block..block + 512)
    }

    pub fn add(&mut self, owner: Owner, frame: u64, size: PageSize, count: u64) {
        for frame in (frame..).step_by(size.frames() as usize).take(count as usize) {
            self.units.insert(frame, Unit { owner, frame, size, maps: 0 });
        }
    }

    fn unit_of(&mut self, frame: u64) -> Option<&mut Unit> {
        let (_, unit) = self.units.range_mut(..=frame).next_back()?;
        (frame < unit.frame + unit.size.frames()).then_some(unit)
    }

    pub fn release(&mut self, owner: Owner, frame: u64, size: PageSize, count: u64) -> Result<()> {
        let range = frame_range(Frame::new(frame), size, count)?;
        for frame in range.clone().step_by(size.frames() as usize) {
            match self.units.get(&frame) {
                Some(unit) if (unit.owner, unit.size) != (owner, size) => return Err(Error::NotGranted),
                Some(unit) if unit.maps > 0 => return Err(Error::StillMapped),
                Some(_) => {}
                None => return Err(Error::NotGranted),
            }
        }
        self.units.retain(|frame, _| !range.contains(frame));
        Ok(())
    }

    pub fn reference(&mut self, owner: Owner, frame: u64, size: PageSize, count: u64) -> Result<()> {
        let pages = frame_range(Frame::new(frame), size, count)?.step_by(size.frames() as usize);
        for frame in pages.clone() {
            let unit = self.unit_of(frame).ok_or(Error::NotGranted)?;
            if unit.owner != owner || unit.size < size {
                return Err(Error::NotGranted);
            }
        }
        self.mappings.push((frame, size, count));
        pages.for_each(|frame| self.unit_of(frame).expect("checked").maps += 1);
        Ok(())
    }

    pub fn dereference(&mut self, (frame, size, count): (u64, PageSize, u64)) {
        for page in 0..count {
            self.unit_of(frame + page * size.frames()).expect("mapped").maps -= 1;
        }
    }

    pub fn release_all(&mut self, owner: Owner) -> u64 {
        let before = self.held(owner);
        let mut mappings = std::mem::take(&mut self.mappings);
        mappings.retain(|(frame, ..)| self.unit_of(*frame).is_some_and(|unit| unit.owner != owner));
        self.mappings = mappings;
        self.units.retain(|_, unit| unit.owner != owner);
        before
    }

    pub fn held(&self, owner: Owner) -> u64 {
        self.units.values().filter(|unit| unit.owner == owner).map(|unit| unit.size.frames()).sum()
    }

    pub fn runs(&self, owner: Owner) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for unit in self.units.values().filter(|unit| unit.owner == owner) {
            match runs.last_mut() {
                Some((start, count)) if *start + *count == unit.frame => *count += unit.size.frames(),
                _ => runs.push((unit.frame, unit.size.frames())),
            }
        }
        runs
    }
}
