//! Walks over the part of a tree of page tables that a range of addresses covers.
//!
//! Each walk recurses once for each level. A range is never empty and never leaves the table it is asked of.

use super::{Leaf, Mapping, PAGES_MAX};
use crate::frames::Frames;
use crate::machine::{PhysAddr, PhysicalMemory};
use crate::means::Means;
use crate::paging::{ENTRIES, Entry, Meaning, Privilege, ROOT_LEVEL, entry_bytes, leaf_level, leaf_size};
use core::ops::Range;
use nom_abi::error::Result;
use nom_abi::memory::FRAME_BYTES;
use nom_abi::{Error, PageSize};

/// Where an entry of a table is.
pub(crate) fn entry_address(table: PhysAddr, index: usize) -> PhysAddr {
    table + (index * size_of::<u64>()) as u64
}

/// A table, and the part of what it maps that a walk is about.
pub(crate) struct Part {
    pub table: PhysAddr,
    pub level: u32,
    pub range: Range<u64>,
}

/// One entry of a table, and the part of the range that lies behind it.
pub(crate) struct Slot {
    pub entry: PhysAddr,
    pub range: Range<u64>,
    level: u32,
}

impl Slot {
    pub fn meaning(&self, memory: &impl PhysicalMemory) -> Meaning {
        Entry(memory.read(self.entry)).meaning(self.level)
    }

    /// The part that lies behind it, of the table that it leads to.
    pub fn below(&self, table: PhysAddr) -> Part {
        Part { table, level: self.level - 1, range: self.range.clone() }
    }

    /// Whether the range covers all that lies behind the entry.
    pub fn is_whole(&self) -> bool {
        self.range.end - self.range.start == entry_bytes(self.level)
    }
}

impl Part {
    /// A range of an address space.
    pub fn of_space(root: PhysAddr, range: &Range<u64>) -> Part {
        Part { table: root, level: ROOT_LEVEL, range: range.clone() }
    }

    /// The entries that it touches, by ascending address.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        let Part { table, level, range } = self;
        let bytes = entry_bytes(level);
        (range.start / bytes..=(range.end - 1) / bytes).map(move |number| Slot {
            entry: entry_address(table, number as usize % ENTRIES),
            range: range.start.max(number * bytes)..range.end.min((number + 1) * bytes),
            level,
        })
    }
}

/// Number of tables to be added before pages of `size` can be mapped at all of `part`. Errors: AlreadyMapped.
pub(super) fn count_missing(memory: &impl PhysicalMemory, part: Part, size: PageSize) -> Result<u64> {
    let (leaf, level) = (leaf_level(size), part.level);
    part.slots().try_fold(0, |missing, slot| match slot.meaning(memory) {
        Meaning::Empty => Ok(missing + tables_between(leaf, level, &slot.range)),
        Meaning::Table(next) if level > leaf => Ok(missing + count_missing(memory, slot.below(next), size)?),
        _ => Err(Error::AlreadyMapped),
    })
}

/// Number of tables from level `leaf` to below `level` that cover `range`.
fn tables_between(leaf: u32, level: u32, range: &Range<u64>) -> u64 {
    let touched = |bytes: u64| (range.end - 1) / bytes - range.start / bytes + 1;
    (leaf..level).map(|below| touched(entry_bytes(below + 1))).sum()
}

/// Whether `part` consists of whole mapped pages: their number, after `pages` before. Errors: NotMapped,
/// InvalidArgument (more than [`PAGES_MAX`]).
pub(super) fn check_mapped(memory: &impl PhysicalMemory, part: Part, pages: u64) -> Result<u64> {
    part.slots().try_fold(pages, |pages, slot| match slot.meaning(memory) {
        Meaning::Table(next) => check_mapped(memory, slot.below(next), pages),
        Meaning::Leaf { .. } if slot.is_whole() && pages < PAGES_MAX => Ok(pages + 1),
        Meaning::Leaf { .. } if slot.is_whole() => Err(Error::InvalidArgument),
        _ => Err(Error::NotMapped),
    })
}

/// Looks at each page that is mapped in `part`, and at its entry.
pub(crate) fn visit<M: PhysicalMemory>(of: &mut M, part: Part, act: &mut impl FnMut(&mut M, PhysAddr, Leaf)) {
    let size = leaf_size(part.level);
    for slot in part.slots() {
        match (slot.meaning(of), size) {
            (Meaning::Table(next), _) => visit(of, slot.below(next), act),
            (Meaning::Leaf { frame, protection, caching }, Some(size)) => {
                act(of, slot.entry, Leaf { address: slot.range.start, frame, size, protection, caching });
            }
            _ => {}
        }
    }
}

/// Maps pages where nothing is mapped. There are frames for all tables that are missing.
pub(super) fn install(by: &mut Means<impl PhysicalMemory>, part: Part, mapping: &Mapping) {
    let &Mapping { size, protection, caching, .. } = mapping;
    let is_last = part.level == leaf_level(size);
    for slot in part.slots() {
        if is_last {
            let frame = mapping.frame + (slot.range.start - mapping.address) / FRAME_BYTES;
            let leaf = Entry::leaf(frame, size, protection, caching, Privilege::User);
            by.machine.write(slot.entry, leaf.0);
            continue;
        }
        let next = match slot.meaning(by.machine) {
            Meaning::Table(next) => next,
            _ => {
                let table = by.take(1).expect("enough frames were free for all missing tables");
                by.machine.write(slot.entry, Entry::table(table, Privilege::User).0);
                table
            }
        };
        install(by, slot.below(next), mapping);
    }
}

/// Unmaps pages that are mapped, tells `on_leaf` of each, and removes tables that become empty. Returns
/// whether an entry of this table was emptied: if not, nobody need look whether all are.
pub(super) fn remove<'m>(
    by: &mut Means<'_, 'm, impl PhysicalMemory>,
    part: Part,
    on_leaf: &mut impl FnMut(&mut Frames<'m>, Leaf),
) -> bool {
    let size = leaf_size(part.level);
    part.slots().fold(false, |emptied, slot| match (slot.meaning(by.machine), size) {
        (Meaning::Table(next), _) => {
            remove(by, slot.below(next), on_leaf) && remove_table_if_empty(by, &slot, next) || emptied
        }
        (Meaning::Leaf { frame, protection, caching }, Some(size)) => {
            by.machine.write(slot.entry, Entry::EMPTY.0);
            let address = slot.range.start;
            on_leaf(by.frames, Leaf { address, frame, size, protection, caching });
            true
        }
        _ => unreachable!("checked to be mapped"),
    })
}

/// Whether it was.
#[inline(never)] // Its buffer is not on the stack while the tables below are walked.
fn remove_table_if_empty(by: &mut Means<impl PhysicalMemory>, slot: &Slot, table: PhysAddr) -> bool {
    // Many entries at a time: a call may look at six tables, and be nearly all of what it may be.
    let is_empty = |part| {
        let mut entries = [0; 256];
        by.machine.read_bytes(table + part, &mut entries);
        entries.as_chunks::<8>().0.iter().fold(0, |all, entry| all | u64::from_ne_bytes(*entry)) == 0
    };
    let goes = slot.is_whole() || (0..FRAME_BYTES).step_by(256).all(is_empty);
    if goes {
        by.machine.write(slot.entry, Entry::EMPTY.0);
        let released = by.frames.release(by.owner, table.frame(), PageSize::Small, 1);
        released.expect("tables are held by their space's owner");
    }
    goes
}
