//! Walks over the part of a tree of page tables that a range of addresses covers.
//!
//! Each walk recurses once for each level. A range is never empty and never leaves the table it is asked of.

use super::{Leaf, Mapping, PAGES_MAX};
use crate::frames::{Frames, Owner};
use crate::machine::{PhysAddr, PhysicalMemory};
use crate::paging::{ENTRIES, Entry, Meaning, Privilege, entry_bytes, leaf_level, leaf_size};
use core::ops::Range;
use nom_abi::error::Result;
use nom_abi::memory::FRAME_BYTES;
use nom_abi::{Error, PageSize, Protection};

/// Where an entry of a table is.
pub(super) fn entry_address(table: PhysAddr, index: usize) -> PhysAddr {
    table + (index * size_of::<u64>()) as u64
}

/// One entry of a table, and the part of the range that lies behind it.
struct Slot {
    entry: PhysAddr,
    start: u64,
    end: u64,
    level: u32,
}

impl Slot {
    fn meaning(&self, memory: &impl PhysicalMemory) -> Meaning {
        Entry(memory.read(self.entry)).meaning(self.level)
    }

    fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Whether the range covers all that lies behind the entry.
    fn is_whole(&self) -> bool {
        self.end - self.start == entry_bytes(self.level)
    }
}

/// The entries of a table that `range` touches, by ascending address.
fn slots(table: PhysAddr, level: u32, range: Range<u64>) -> impl Iterator<Item = Slot> {
    let bytes = entry_bytes(level);
    (range.start / bytes..=(range.end - 1) / bytes).map(move |number| Slot {
        entry: entry_address(table, number as usize % ENTRIES),
        start: range.start.max(number * bytes),
        end: range.end.min((number + 1) * bytes),
        level,
    })
}

/// Number of tables to be added below `table` before pages of `size` can be mapped at all of `range`.
/// Errors: AlreadyMapped.
pub(super) fn count_missing(
    memory: &impl PhysicalMemory,
    table: PhysAddr,
    level: u32,
    range: Range<u64>,
    size: PageSize,
) -> Result<u64> {
    let leaf = leaf_level(size);
    slots(table, level, range).try_fold(0, |missing, slot| match slot.meaning(memory) {
        Meaning::Empty => Ok(missing + tables_between(leaf, level, &slot.range())),
        Meaning::Table(next) if level > leaf => {
            Ok(missing + count_missing(memory, next, level - 1, slot.range(), size)?)
        }
        _ => Err(Error::AlreadyMapped),
    })
}

/// Number of tables from level `leaf` to below `level` that cover `range`.
fn tables_between(leaf: u32, level: u32, range: &Range<u64>) -> u64 {
    let touched = |bytes: u64| (range.end - 1) / bytes - range.start / bytes + 1;
    (leaf..level).map(|below| touched(entry_bytes(below + 1))).sum()
}

/// Whether `range` consists of whole mapped pages: their number, after `pages` before. Errors: NotMapped,
/// InvalidArgument (more than [`PAGES_MAX`]).
pub(super) fn check_mapped(
    memory: &impl PhysicalMemory,
    table: PhysAddr,
    level: u32,
    range: Range<u64>,
    pages: u64,
) -> Result<u64> {
    slots(table, level, range).try_fold(pages, |pages, slot| match slot.meaning(memory) {
        Meaning::Table(next) => check_mapped(memory, next, level - 1, slot.range(), pages),
        Meaning::Leaf { .. } if slot.is_whole() && pages < PAGES_MAX => Ok(pages + 1),
        Meaning::Leaf { .. } if slot.is_whole() => Err(Error::InvalidArgument),
        _ => Err(Error::NotMapped),
    })
}

/// Changes the protection of the pages in `range`, which are mapped.
pub(super) fn protect(
    memory: &mut impl PhysicalMemory,
    table: PhysAddr,
    level: u32,
    range: Range<u64>,
    protection: Protection,
) {
    for slot in slots(table, level, range) {
        match (slot.meaning(memory), leaf_size(level)) {
            (Meaning::Table(next), _) => protect(memory, next, level - 1, slot.range(), protection),
            (Meaning::Leaf { frame, caching, .. }, Some(size)) => {
                let entry = Entry::leaf(frame, size, protection, caching, Privilege::User);
                memory.write(slot.entry, entry.0);
            }
            _ => unreachable!("checked to be mapped"),
        }
    }
}

/// Maps pages where nothing is mapped.
pub(super) struct Installer<'a, 'm, M> {
    pub memory: &'a mut M,
    /// Has enough free frames for the tables that are missing.
    pub frames: &'a mut Frames<'m>,
    pub mapping: &'a Mapping,
    /// Who is charged for tables.
    pub owner: Owner,
}

impl<M: PhysicalMemory> Installer<'_, '_, M> {
    pub fn install(&mut self, table: PhysAddr, level: u32, range: Range<u64>) {
        for slot in slots(table, level, range) {
            if level == leaf_level(self.mapping.size) {
                let leaf = self.leaf(slot.start);
                self.memory.write(slot.entry, leaf.0);
                continue;
            }
            let next = match slot.meaning(self.memory) {
                Meaning::Table(next) => next,
                _ => self.add_table(slot.entry),
            };
            self.install(next, level - 1, slot.range());
        }
    }

    fn leaf(&self, address: u64) -> Entry {
        let &Mapping { size, protection, caching, .. } = self.mapping;
        let frame = self.mapping.frame + (address - self.mapping.address) / FRAME_BYTES;
        Entry::leaf(frame, size, protection, caching, Privilege::User)
    }

    /// Makes the entry at `entry` point to a new table, which it returns.
    fn add_table(&mut self, entry: PhysAddr) -> PhysAddr {
        let allocated = self.frames.allocate(self.owner, PageSize::Small, 1, None);
        let frame = allocated.expect("enough frames were free for all missing tables");
        self.memory.zero_frames(frame, 1);
        let table = PhysAddr::of_frame(frame);
        self.memory.write(entry, Entry::table(table, Privilege::User).0);
        table
    }
}

/// Unmaps pages that are mapped, and removes tables that become empty.
pub(super) struct Remover<'a, 'm, M, F> {
    pub memory: &'a mut M,
    pub frames: &'a mut Frames<'m>,
    /// Who was charged for tables.
    pub owner: Owner,
    /// Told of every page.
    pub on_leaf: F,
}

impl<'m, M: PhysicalMemory, F: FnMut(&mut Frames<'m>, Leaf)> Remover<'_, 'm, M, F> {
    pub fn remove(&mut self, table: PhysAddr, level: u32, range: Range<u64>) {
        for slot in slots(table, level, range) {
            match (slot.meaning(self.memory), leaf_size(level)) {
                (Meaning::Table(next), _) => {
                    self.remove(next, level - 1, slot.range());
                    self.remove_table_if_empty(&slot, next);
                }
                (Meaning::Leaf { frame, protection, caching }, Some(size)) => {
                    self.memory.write(slot.entry, Entry::EMPTY.0);
                    let address = slot.start;
                    (self.on_leaf)(self.frames, Leaf { address, frame, size, protection, caching });
                }
                _ => unreachable!("checked to be mapped"),
            }
        }
    }

    fn remove_table_if_empty(&mut self, slot: &Slot, table: PhysAddr) {
        let is_empty = |index| self.memory.read(entry_address(table, index)) == Entry::EMPTY.0;
        if slot.is_whole() || (0..ENTRIES).all(is_empty) {
            self.memory.write(slot.entry, Entry::EMPTY.0);
            let released = self.frames.release(self.owner, table.frame(), PageSize::Small, 1);
            released.expect("tables are held by their space's owner");
        }
    }
}
