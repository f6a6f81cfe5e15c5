//! Second-level page tables: what the devices of one VT-d domain reach.
//!
//! Bus addresses are physical addresses, so an entry holds the very address that it is found at. What of an
//! entry is used means the same as in a processor's tables. Source: VT-d specification 3.3, section 9.8
//! (legacy mode).

use super::{Error, Means, Result, zeroed};
use crate::machine::{PhysAddr, PhysicalMemory};
use crate::paging::{Meaning, leaf_level};
use crate::space::Part;
use core::ops::Range;
use nom_abi::PageSize;
use nom_abi::memory::FRAME_BYTES;

/// The device may read and write.
const READ_WRITE: u64 = 3;
/// A leaf above the lowest level.
const LARGE: u64 = 1 << 7;

/// The shape of a unit's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Levels of tables, 3 or 4. The lowest level is 1.
    pub levels: u32,
    /// Largest page that an entry can map.
    pub largest: PageSize,
}

impl Shape {
    /// What lies at `frames`, of which there is one at least, in the tables under `root`.
    pub fn part(&self, root: PhysAddr, frames: Range<u64>) -> Part {
        let range = frames.start * FRAME_BYTES..frames.end * FRAME_BYTES;
        Part { table: root, level: self.levels, range }
    }

    /// Whether the tables span memory up to this frame.
    pub fn check(&self, end: u64) -> Result<()> {
        let spans = end <= 1 << (9 * self.levels);
        spans.then_some(()).ok_or(Error::Refused("memory lies beyond what the unit translates"))
    }
}

/// Maps what lies in `part`, by entries for pages of `size` at most.
pub fn map(by: &mut Means<impl PhysicalMemory>, part: Part, size: PageSize) -> Result<()> {
    let is_leaf = part.level <= leaf_level(size);
    let large = if part.level > 1 { LARGE } else { 0 };
    for slot in part.slots() {
        let next = match slot.meaning(by.machine) {
            Meaning::Table(next) => next,
            _ if is_leaf && slot.is_whole() => {
                by.machine.write(slot.entry, slot.range.start | large | READ_WRITE);
                continue;
            }
            Meaning::Leaf { .. } => continue,
            Meaning::Empty => {
                let table = zeroed(by, 1)?;
                by.machine.write(slot.entry, table.word() | READ_WRITE);
                table
            }
        };
        map(by, slot.below(next), size)?;
    }
    Ok(())
}
