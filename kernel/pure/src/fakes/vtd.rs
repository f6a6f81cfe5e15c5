//! A VT-d unit that caches as much as it may: whatever it has seen stays true for it until invalidated.

use crate::msix::Message;
use crate::pci::Address;
use crate::testing::FakeMemory;
use std::collections::{BTreeMap, BTreeSet};

pub const BASE: u64 = 0xfed9_0000;
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
    /// Table of interrupts and its entries, while they are remapped; and what is cached of it.
    interrupts: Option<(u64, u64)>,
    routes: BTreeMap<u64, [u64; 2]>,
    /// The queue, once it is on: how many entries it has taken.
    queue: Option<u64>,
    /// It can remap interrupts.
    pub can_remap: bool,
    /// It takes invalidations and never does them.
    pub is_dead: bool,
    /// Faults since the last one was taken that found no room.
    pub lost: u32,
}

impl FakeVtd {
    /// One that says that it also remembers what was absent (caching mode, bit 7 of the capabilities).
    pub fn remembering_what_is_absent(self) -> FakeVtd {
        FakeVtd { capability: self.capability | 1 << 7, ..self }
    }

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
            interrupts: None,
            routes: BTreeMap::new(),
            queue: None,
            can_remap: true,
            is_dead: false,
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
            0x10 => 1 << 1 | u32::from(self.can_remap) << 3,
            0x1c => {
                let (queue, remap) = (self.queue.is_some(), self.interrupts.is_some());
                let has_table = self.registers.contains_key(&0xb8);
                u32::from(self.translating) << 31
                    | u32::from(self.root != 0) << 30
                    | u32::from(queue) << 26
                    | u32::from(remap) << 25
                    | u32::from(has_table) << 24
            }
            _ => self.registers.get(&offset).copied().unwrap_or(0),
        }
    }

    pub fn write(&mut self, memory: &mut FakeMemory, address: u64, bytes: u64, value: u64) {
        let offset = address - BASE;
        match (offset, bytes) {
            (0x18, 4) => {
                self.translating = value & 1 << 31 != 0;
                self.queue = (value & 1 << 26 != 0).then_some(self.queue.unwrap_or(0));
                let (table, size) = (self.read(BASE + 0xb8, 8) & !0xfff, 2 << (self.read32(0xb8) & 0xf));
                self.interrupts = (value & 1 << 25 != 0).then_some((table, size));
                if value & 1 << 30 != 0 {
                    self.root = u64::from(self.read32(0x20)) | u64::from(self.read32(0x24)) << 32;
                }
            }
            (0x88, 8) if self.queue.is_some() => self.invalidate(memory, value),
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

    /// Takes what is in the queue before `tail`.
    fn invalidate(&mut self, memory: &mut FakeMemory, tail: u64) {
        while let Some(head) = self.queue.filter(|head| head * 16 != tail && !self.is_dead) {
            let at = (self.read(BASE + 0x90, 8) & !0xfff) + head * 16;
            self.queue = Some((head + 1) % 256);
            let (low, high) = (memory.read(at), memory.read(at + 8));
            match (low & 0xf, low >> 4 & 3) {
                (1, 1) => self.contexts.clear(),
                (1, 3) => _ = self.contexts.remove(&((low >> 32) as u16)),
                (2, 1) => self.translations.clear(),
                (2, 2) => self.translations.retain(|(domain, _)| *domain != (low >> 16) as u16),
                (4, 0) => self.routes.clear(),
                (5, 2) => memory.write_bytes(high, &low.to_le_bytes()[4..]),
                other => panic!("invalidation of kind {other:?}"),
            }
        }
    }

    /// What becomes of a message that a function writes: processor and vector, if it passes.
    pub fn deliver(&mut self, memory: &FakeMemory, from: Address, message: Message) -> Option<(u64, u8)> {
        let Some((table, size)) = self.interrupts else {
            return Some((message.address >> 12 & 0xff, message.data as u8));
        };
        if message.address & 1 << 4 == 0 {
            return None;
        }
        let place = message.address >> 5 & 0x7fff | (message.address >> 2 & 1) << 15;
        if place >= size {
            return None;
        }
        let read = |place| [0, 8].map(|word| memory.read(table + 16 * place + word));
        let [low, high] = *self.routes.entry(place).or_insert_with(|| read(place));
        let is_sent_by_whom_it_serves = high >> 18 & 3 == 1 && high as u16 == from.0;
        (low & 1 != 0 && is_sent_by_whom_it_serves).then_some((low >> 40 & 0xff, (low >> 16) as u8))
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
