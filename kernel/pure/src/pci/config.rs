//! Configuration space and the lists of capabilities in it.

use super::Address;
use crate::machine::Registers;

/// Where configuration space is: 4 KiB for each function, 1 MiB for each bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ecam {
    /// Physical address of bus 0's part, though `first_bus` may be above 0.
    pub base: u64,
    /// First bus.
    pub first_bus: u8,
    /// Last bus, inclusive.
    pub last_bus: u8,
}

impl Ecam {
    /// First byte of the buses' configuration spaces.
    pub const fn start(&self) -> u64 {
        self.base + ((self.first_bus as u64) << 20)
    }

    /// End, exclusive, of the buses' configuration spaces.
    pub const fn end(&self) -> u64 {
        self.base + ((self.last_bus as u64 + 1) << 20)
    }

    /// Configuration space of the function at `address`, which is on one of the buses.
    pub(crate) fn config<'r, R: Registers>(&self, registers: &'r mut R, address: Address) -> Config<'r, R> {
        Config { registers, base: self.base + (u64::from(address.0) << 12) }
    }
}

/// Offsets in configuration space (PCI Express Base Specification 5.0, 7.5.1).
pub(crate) mod offset {
    pub const ID: u16 = 0x00;
    pub const COMMAND: u16 = 0x04;
    pub const STATUS: u16 = 0x06;
    pub const CLASS_AND_REVISION: u16 = 0x08;
    pub const HEADER_TYPE: u16 = 0x0e;
    pub const BAR0: u16 = 0x10;
    /// Bridges: primary, secondary and subordinate bus in one word.
    pub const BUS_NUMBERS: u16 = 0x18;
    pub const IO_WINDOW: u16 = 0x1c;
    pub const MEMORY_WINDOW: u16 = 0x20;
    pub const PREFETCH_WINDOW: u16 = 0x24;
    pub const PREFETCH_BASE_UPPER: u16 = 0x28;
    pub const PREFETCH_LIMIT_UPPER: u16 = 0x2c;
    pub const CAPABILITIES: u16 = 0x34;
    pub const ROM: u16 = 0x30;
    pub const BRIDGE_ROM: u16 = 0x38;
    pub const BRIDGE_CONTROL: u16 = 0x3e;
}

/// Bits of the command register.
pub(crate) mod command {
    pub const MEMORY: u16 = 1 << 1;
    pub const BUS_MASTER: u16 = 1 << 2;
    pub const NO_INTX: u16 = 1 << 10;
}

/// Capability identifiers.
pub(crate) mod capability {
    pub const MSI: u8 = 0x05;
    pub const VENDOR: u8 = 0x09;
    pub const EXPRESS: u8 = 0x10;
    pub const MSIX: u8 = 0x11;
}

/// The status register's bit that says that there is a list of capabilities.
const STATUS_HAS_CAPABILITIES: u16 = 1 << 4;
/// More than this many capabilities do not fit, so a longer list goes in circles.
const CAPABILITIES_MAX: usize = 48;

/// One function's configuration space.
pub(crate) struct Config<'r, R> {
    pub registers: &'r mut R,
    base: u64,
}

impl<R: Registers> Config<'_, R> {
    pub fn read8(&mut self, offset: u16) -> u8 {
        self.registers.read8(self.base + u64::from(offset))
    }

    pub fn read16(&mut self, offset: u16) -> u16 {
        self.registers.read16(self.base + u64::from(offset))
    }

    pub fn read32(&mut self, offset: u16) -> u32 {
        self.registers.read32(self.base + u64::from(offset))
    }

    pub fn write16(&mut self, offset: u16, value: u16) {
        self.registers.write16(self.base + u64::from(offset), value);
    }

    pub fn write32(&mut self, offset: u16, value: u32) {
        self.registers.write32(self.base + u64::from(offset), value);
    }

    /// Vendor and device, if a function answers here.
    pub fn identity(&mut self) -> Option<(u16, u16)> {
        let id = self.read32(offset::ID);
        let (vendor, device) = (id as u16, (id >> 16) as u16);
        (vendor != 0xffff && vendor != 0).then_some((vendor, device))
    }

    /// Offset of the first capability `id` behind the one at `after`; `after` 0 starts at the beginning.
    pub fn find_capability(&mut self, id: u8, after: u16) -> Option<u16> {
        if self.read16(offset::STATUS) & STATUS_HAS_CAPABILITIES == 0 {
            return None;
        }
        let mut link = if after == 0 { offset::CAPABILITIES } else { after + 1 };
        for _ in 0..CAPABILITIES_MAX {
            let place = u16::from(self.read8(link) & !3);
            if place < 0x40 {
                return None;
            }
            if self.read8(place) == id {
                return Some(place);
            }
            link = place + 1;
        }
        None
    }
}
