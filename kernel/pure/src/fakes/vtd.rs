//! A VT-d unit that caches as much as it may: whatever it has seen stays true for it until invalidated.

use crate::machine::PhysicalMemory;
use crate::pci::Address;
use crate::testing::FakeMemory;
use std::collections::{BTreeMap, BTreeSet};

pub const BASE: u64 = 0xfed9_0000;
const IOTLB: u64 = 0xf0;
const FAULTS: u64 = 0x220;

/// What a context entry says: domain, root frame of the page tables, levels.
type Context = (u16, u64, u32);

pub struct FakeVtd {
    capability: u64,
    registers: BTreeMap<u64, u32>,
    translating: bool,
    root: u64,
    contexts: BTreeMap<u16, Context>,
    translations: BTreeSet<(u16, u64)>,
    /// Faults since the last one was taken that found no room.
    pub lost: u32,
}

impl FakeVtd {
    /// A unit with these table levels (a bit for each of 3 and 4) and page sizes up to `large` bits.
    pub fn new(three: bool, four: bool, large_pages: u64) -> FakeVtd {
        let levels = u64::from(three) << 9 | u64::from(four) << 10;
        FakeVtd {
            capability: 2 | levels | large_pages << 34 | (FAULTS / 16) << 24,
            registers: BTreeMap::new(),
            translating: false,
            root: 0,
            contexts: BTreeMap::new(),
            translations: BTreeSet::new(),
            lost: 0,
        }
    }

    pub fn decodes(&self, address: u64) -> bool {
        (BASE..BASE + 0x1000).contains(&address)
    }

    pub fn read(&self, address: u64, bytes: u64) -> u64 {
        let low = u64::from(self.read32(address - BASE));
        if bytes == 8 { low | u64::from(self.read32(address - BASE + 4)) << 32 } else { low }
    }

    fn read32(&self, offset: u64) -> u32 {
        match offset {
            0x08 => self.capability as u32,
            0x0c => (self.capability >> 32) as u32,
            0x10 => ((IOTLB / 16) << 8) as u32,
            0x1c => u32::from(self.translating) << 31 | u32::from(self.root != 0) << 30,
            _ => self.registers.get(&offset).copied().unwrap_or(0),
        }
    }

    pub fn write(&mut self, address: u64, bytes: u64, value: u64) {
        let offset = address - BASE;
        match (offset, bytes) {
            (0x18, 4) => {
                self.translating = value & 1 << 31 != 0;
                if value & 1 << 30 != 0 {
                    self.root = u64::from(self.read32(0x20)) | u64::from(self.read32(0x24)) << 32;
                }
            }
            (0x28, 8) => self.invalidate_contexts(value),
            (0xf8, 8) => self.invalidate_translations(value),
            (0x34, 4) => {}
            (_, 4) if offset == FAULTS + 12 && value & 1 << 31 != 0 => {
                self.registers.insert(offset, 0);
            }
            (_, 4) => {
                self.registers.insert(offset, value as u32);
            }
            _ => {
                self.registers.insert(offset, value as u32);
                self.registers.insert(offset + 4, (value >> 32) as u32);
            }
        }
    }

    fn invalidate_contexts(&mut self, command: u64) {
        match command >> 61 & 3 {
            1 => self.contexts.clear(),
            3 => {
                self.contexts.remove(&((command >> 16) as u16));
            }
            other => panic!("context invalidation of kind {other}"),
        }
    }

    fn invalidate_translations(&mut self, command: u64) {
        match command >> 60 & 3 {
            1 => self.translations.clear(),
            2 => self.translations.retain(|(domain, _)| *domain != (command >> 32) as u16),
            other => panic!("translation invalidation of kind {other}"),
        }
    }

    /// Whether DMA gets through; blocked DMA is recorded.
    pub fn reaches(&mut self, memory: &FakeMemory, function: Address, address: u64) -> bool {
        if !self.translating {
            return true;
        }
        let reached = self.translate(memory, function, address);
        if !reached {
            self.record(function, address);
        }
        reached
    }

    fn translate(&mut self, memory: &FakeMemory, function: Address, address: u64) -> bool {
        let Some((domain, root, levels)) = self.context(memory, function) else { return false };
        if self.translations.contains(&(domain, address >> 12)) {
            return true;
        }
        let found = walk(memory, root, levels, address);
        if let Some(to) = found {
            assert_eq!(to, address & !0xfff, "a bus address is not its physical address");
            self.translations.insert((domain, address >> 12));
        }
        found.is_some()
    }

    fn context(&mut self, memory: &FakeMemory, function: Address) -> Option<Context> {
        if let Some(context) = self.contexts.get(&function.0) {
            return Some(*context);
        }
        let root = memory.read(self.root + u64::from(function.bus()) * 16);
        if root & 1 == 0 {
            return None;
        }
        let entry = (root & !0xfff) + u64::from(function.0 & 0xff) * 16;
        let (low, high) = (memory.read(entry), memory.read(entry + 8));
        if low & 1 == 0 {
            return None;
        }
        assert_eq!(low & 0xffe, 0, "context entry with translation type or reserved bits");
        let levels = (high & 7) as u32 + 2;
        assert!(self.capability >> (6 + levels) & 1 != 0, "tables of {levels} levels are not supported");
        let context = ((high >> 8) as u16, low & !0xfff, levels);
        self.contexts.insert(function.0, context);
        Some(context)
    }

    /// The one fault record.
    fn record(&mut self, function: Address, address: u64) {
        if self.read32(FAULTS + 12) >> 31 != 0 {
            self.lost += 1;
            return;
        }
        let page = address & !0xfff;
        for (offset, value) in
            [(0, page as u32), (4, (page >> 32) as u32), (8, u32::from(function.0)), (12, 1 << 31 | 5)]
        {
            self.registers.insert(FAULTS + offset, value);
        }
    }
}

/// Walks second-level tables; the physical page that an address leads to, if it may be read and written.
fn walk(memory: &FakeMemory, root: u64, levels: u32, address: u64) -> Option<u64> {
    let mut table = root;
    for level in (1..=levels).rev() {
        let shift = 12 + 9 * (level - 1);
        let entry = memory.read(table + (address >> shift & 0x1ff) * 8);
        if entry & 3 != 3 {
            return None;
        }
        let base = entry & 0x000f_ffff_ffff_f000;
        if level == 1 || entry & 1 << 7 != 0 {
            assert!(base.is_multiple_of(1 << shift), "misaligned leaf");
            return Some((base | address & ((1 << shift) - 1)) & !0xfff);
        }
        table = base;
    }
    None
}
