//! Second-level page tables: what the devices of one VT-d domain reach.
//!
//! Bus addresses are physical addresses, so an entry holds the very address that it is found at.
//! Source: VT-d specification 3.3, section 9.8 (legacy mode).

use super::{Error, Means, Result, zeroed};
use crate::machine::{PhysAddr, PhysicalMemory};
use core::ops::Range;
use nom_abi::PageSize;
use nom_abi::memory::FRAME_SHIFT;

/// The device may read and write.
const READ_WRITE: u64 = 3;
/// A leaf above the lowest level.
const LARGE: u64 = 1 << 7;
/// The address in an entry.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Bits of a frame number that index one table.
const INDEX_BITS: u32 = 9;

/// The shape of a unit's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Levels of tables, 3 or 4. The lowest level is 1.
    pub levels: u32,
    /// Largest page that an entry can map.
    pub largest: PageSize,
}

/// A part of a range of frames that one entry is responsible for.
struct Part {
    entry: PhysAddr,
    frames: Range<u64>,
    /// Whether that is all that the entry spans.
    is_whole: bool,
}

impl Shape {
    /// Maps `frames` in the tables under `root`, by entries for pages of `size` where the unit has them.
    pub fn map(
        &self,
        by: &mut Means<impl PhysicalMemory>,
        root: PhysAddr,
        frames: Range<u64>,
        size: PageSize,
    ) -> Result<()> {
        if frames.end > 1 << (INDEX_BITS * self.levels) {
            return Err(Error::Refused("memory lies beyond what the unit translates"));
        }
        let leaf = size.min(self.largest) as u32 + 1;
        map_level(by, root, self.levels, leaf, frames)
    }

    /// Takes `frames` out of the tables under `root`; those that are not there are passed over.
    pub fn unmap(&self, memory: &mut impl PhysicalMemory, root: PhysAddr, frames: Range<u64>) {
        unmap_level(memory, root, self.levels, frames);
    }

    /// Gives every table under `root`, and `root`, back.
    pub fn free(&self, by: &mut Means<impl PhysicalMemory>, root: PhysAddr) {
        free_level(by, root, self.levels);
    }
}

fn map_level<M: PhysicalMemory>(
    by: &mut Means<M>,
    table: PhysAddr,
    level: u32,
    leaf: u32,
    frames: Range<u64>,
) -> Result<()> {
    for part in parts(table, level, frames) {
        let entry = by.machine.read(part.entry);
        let present = entry & READ_WRITE != 0;
        let is_table = present && level > 1 && entry & LARGE == 0;
        if level <= leaf && part.is_whole && !is_table {
            let large = if level > 1 { LARGE } else { 0 };
            by.machine.write(part.entry, part.frames.start << FRAME_SHIFT | large | READ_WRITE);
            continue;
        }
        if present && !is_table {
            continue;
        }
        let next = if is_table { table_of(entry) } else { zeroed(by, 1)? };
        by.machine.write(part.entry, next.word() | READ_WRITE);
        map_level(by, next, level - 1, leaf, part.frames)?;
    }
    Ok(())
}

fn unmap_level(memory: &mut impl PhysicalMemory, table: PhysAddr, level: u32, frames: Range<u64>) {
    for part in parts(table, level, frames) {
        let entry = memory.read(part.entry);
        if entry & READ_WRITE == 0 {
            continue;
        }
        if level == 1 || entry & LARGE != 0 {
            memory.write(part.entry, 0);
        } else {
            unmap_level(memory, table_of(entry), level - 1, part.frames);
        }
    }
}

fn free_level(by: &mut Means<impl PhysicalMemory>, table: PhysAddr, level: u32) {
    // A table of the lowest level leads to no other.
    let whole = if level > 1 { 0..1 << (INDEX_BITS * level) } else { 0..0 };
    for part in parts(table, level, whole) {
        let entry = by.machine.read(part.entry);
        if entry & READ_WRITE != 0 && entry & LARGE == 0 {
            free_level(by, table_of(entry), level - 1);
        }
    }
    by.frames.give_back(table.frame());
}

fn table_of(entry: u64) -> PhysAddr {
    PhysAddr::new(entry & ADDRESS)
}

/// Splits a range of frames among the entries of a table.
fn parts(table: PhysAddr, level: u32, frames: Range<u64>) -> impl Iterator<Item = Part> {
    let shift = INDEX_BITS * (level - 1);
    let mut start = frames.start;
    core::iter::from_fn(move || {
        (start < frames.end).then(|| {
            let span_end = ((start >> shift) + 1) << shift;
            let end = span_end.min(frames.end);
            let index = start >> shift & ((1 << INDEX_BITS) - 1);
            let is_whole = end - start == 1 << shift;
            let part = Part { entry: table + index * 8, frames: start..end, is_whole };
            start = end;
            part
        })
    })
}
