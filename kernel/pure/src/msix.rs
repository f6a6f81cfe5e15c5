//! Message-signalled interrupts: what a vector sends, and the MSI-X tables that only the kernel writes.
//!
//! Source: PCI Local Bus Specification 3.0, section 6.8; message format: Intel SDM volume 3, 11.11.

use crate::bars::Bar;
use crate::ioapic;
use crate::machine::Registers;
use crate::pci::{Config, Function, MsixTable, Pci, capability};
use nom_abi::memory::FRAME_BYTES;

/// A message-signalled interrupt: the device writes `data` at `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Physical address of the write.
    pub address: u64,
    /// What is written.
    pub data: u32,
}

impl Message {
    /// Fixed delivery of `vector` to the one processor with this local APIC identifier, edge triggered,
    /// physical destination.
    pub const fn new(apic_id: u8, vector: u8) -> Message {
        Message { address: 0xfee0_0000 | (apic_id as u64) << 12, data: vector as u32 }
    }

    /// The same for any identifier; `None` if no message gets there.
    pub fn to(apic_id: u32, vector: u8) -> Option<Message> {
        Some(Message::new(apic_id.try_into().ok()?, vector))
    }

    /// The same, level triggered.
    pub const fn level(self) -> Message {
        Message { data: self.data | 1 << 15, ..self }
    }

    /// What the entry at `place` of a remapping unit's table says (VT-d specification 3.3, 5.1.2.2).
    pub const fn remapped(place: usize) -> Message {
        const REMAPPED: u64 = 1 << 4;
        let place = place as u64;
        Message { address: 0xfee0_0000 | (place & 0x7fff) << 5 | REMAPPED | (place >> 15 & 1) << 2, data: 0 }
    }
}

/// Bytes of one entry in the table.
const ENTRY_BYTES: u64 = 16;
/// Offset of an entry's control word; bit 0 masks it.
const ENTRY_CONTROL: u64 = 12;
/// The capability's control word: MSI-X on.
const ENABLE: u16 = 1 << 15;
/// The capability's control word: all vectors masked.
const MASK_ALL: u16 = 1 << 14;

impl MsixTable {
    /// Reads a function's capability. A table that does not lie in its region counts as none.
    pub(crate) fn read<R: Registers>(config: &mut Config<R>, bars: &[Bar; 6]) -> MsixTable {
        let Some(at) = config.find_capability(capability::MSIX, 0) else { return MsixTable::default() };
        let (table, pending) = (config.read32(at + 4), config.read32(at + 8));
        let found = MsixTable {
            capability: at,
            count: (config.read16(at + 2) & 0x7ff) + 1,
            table_bar: (table & 7) as u8,
            pending_bar: (pending & 7) as u8,
            table_offset: table & !7,
            pending_offset: pending & !7,
        };
        let parts = [found.table(), found.pending()];
        let fits = |(bar, offset, bytes): &(u8, u64, u64)| {
            bars.get(usize::from(*bar)).is_some_and(|bar| offset + bytes <= bar.bytes)
        };
        if parts.iter().all(fits) { found } else { MsixTable::default() }
    }

    /// Region, offset and bytes of the table.
    fn table(&self) -> (u8, u64, u64) {
        (self.table_bar, u64::from(self.table_offset), u64::from(self.count) * ENTRY_BYTES)
    }

    /// Region, offset and bytes of the pending bits.
    fn pending(&self) -> (u8, u64, u64) {
        (self.pending_bar, u64::from(self.pending_offset), u64::from(self.count.div_ceil(64)) * 8)
    }
}

impl Function {
    /// Whether any of `length` bytes at `offset` of base address register `bar` is on a page that holds
    /// part of the MSI-X table or of the pending bits: never to be mapped for an application.
    pub fn is_reserved(&self, bar: usize, offset: u64, length: u64) -> bool {
        let first = offset / FRAME_BYTES;
        let last = offset.saturating_add(length).div_ceil(FRAME_BYTES);
        self.msix.count != 0
            && [self.msix.table(), self.msix.pending()].iter().any(|(part, start, bytes)| {
                let pages = (start / FRAME_BYTES, (start + bytes).div_ceil(FRAME_BYTES));
                usize::from(*part) == bar && first < pages.1 && pages.0 < last
            })
    }

    /// Whether the MSI-X table has this vector.
    pub fn has_vector(&self, vector: u64) -> bool {
        vector < u64::from(self.msix.count)
    }

    /// Turns MSI-X on with every vector masked. The function need not decode addresses yet: it does so
    /// while this runs.
    pub(crate) fn enable_msix<R: Registers>(&self, config: &mut Config<R>) {
        if self.msix.count == 0 {
            return;
        }
        let control = self.msix.capability + 2;
        config.write16(control, ENABLE | MASK_ALL);
        for vector in 0..self.msix.count {
            self.write_control(config.registers, vector, true);
        }
        config.write16(control, ENABLE);
    }

    /// Turns MSI-X off.
    pub(crate) fn disable_msix<R: Registers>(&self, config: &mut Config<R>) {
        if self.msix.count != 0 {
            config.write16(self.msix.capability + 2, MASK_ALL);
        }
    }

    /// Writes one entry of the table and unmasks it. Returns false if there is no such entry.
    pub(crate) fn bind(&self, registers: &mut impl Registers, vector: u16, message: Message) -> bool {
        if self.is_mmio() {
            // An edge: an owner that does not acknowledge it hears of no other, and disturbs nobody.
            ioapic::route(registers, self.input, message, message);
            return true;
        }
        let Some(entry) = self.entry(vector) else { return false };
        self.write_control(registers, vector, true);
        registers.write32(entry, message.address as u32);
        registers.write32(entry + 4, (message.address >> 32) as u32);
        registers.write32(entry + 8, message.data);
        self.write_control(registers, vector, false);
        true
    }

    fn write_control(&self, registers: &mut impl Registers, vector: u16, masked: bool) {
        if self.is_mmio() {
            ioapic::mask(registers, self.input, masked);
        } else if let Some(entry) = self.entry(vector) {
            registers.write32(entry + ENTRY_CONTROL, u32::from(masked));
        }
    }

    /// Physical address of an entry of the table.
    fn entry(&self, vector: u16) -> Option<u64> {
        let (bar, offset, _) = self.msix.table();
        let base = self.bars.get(usize::from(bar))?.base;
        (vector < self.msix.count && base != 0).then_some(base + offset + u64::from(vector) * ENTRY_BYTES)
    }

    /// Makes a function that uses interrupt `number` signal it by a message: by MSI-X, else by MSI, which
    /// must have a single message. Returns false if it has neither.
    pub(crate) fn signal_by(&self, config: &mut Config<impl Registers>, number: u16, by: Message) -> bool {
        if self.msix.count != 0 {
            self.enable_msix(config);
            return self.bind(config.registers, number, by);
        }
        let Some(at) = config.find_capability(capability::MSI, 0) else { return false };
        const ENABLE_ONE: u16 = 1;
        const IS_WIDE: u16 = 1 << 7;
        let is_wide = config.read16(at + 2) & IS_WIDE != 0;
        config.write32(at + 4, by.address as u32);
        if is_wide {
            config.write32(at + 8, (by.address >> 32) as u32);
        }
        config.write16(at + if is_wide { 12 } else { 8 }, by.data as u16);
        config.write16(at + 2, ENABLE_ONE);
        true
    }
}

impl Pci {
    /// Masks or unmasks entry `vector` of the MSI-X table of a device that is switched on, if it has that.
    pub fn mask_vector(&self, registers: &mut impl Registers, index: usize, vector: u16, masked: bool) {
        if let Some(function) = self.device(index) {
            function.write_control(registers, vector, masked);
        }
    }
}
