//! Hardware that is not there: what the tests of devices and of DMA remapping run against.
//!
//! The fakes are stricter than machines: they panic where real hardware would misbehave silently, for
//! instance if two functions decode one address.

pub mod pci;
pub mod virtio_iommu;
pub mod vtd;

use crate::machine::{Frame, PhysAddr, PhysicalMemory, Registers};
use crate::pci::{Address, Ecam};
use crate::testing::FakeMemory;
use pci::FakePci;
use std::cell::Cell;
use std::collections::BTreeMap;
use virtio_iommu::FakeVirtioIommu;
use vtd::FakeVtd;

/// Where the fake machine has its configuration space, as `q35` does.
pub const ECAM: Ecam = Ecam { base: 0xb000_0000, first_bus: 0, last_bus: 255 };
/// Where it has its I/O APIC.
pub const IO_APIC: u64 = 0xfec0_0000;

/// A machine with PCI and at most one remapping unit.
#[derive(Default)]
pub struct FakeMachine {
    pub memory: FakeMemory,
    pub pci: FakePci,
    pub virtio_iommu: Option<FakeVirtioIommu>,
    pub vtd: Option<FakeVtd>,
    /// Registers of the I/O APIC by number, and the one selected.
    pub io_apic: (BTreeMap<u32, u32>, u32),
    /// Time, which passes when it is looked at.
    pub now_ns: Cell<u64>,
}

impl FakeMachine {
    pub fn new() -> FakeMachine {
        FakeMachine::default()
    }

    /// Whether DMA of a function to an address gets there.
    pub fn reaches(&mut self, function: Address, address: u64) -> bool {
        match (&self.virtio_iommu, &mut self.vtd) {
            (Some(unit), _) => unit.reaches(function, address),
            (None, Some(unit)) => unit.reaches(&self.memory, function, address),
            (None, None) => true,
        }
    }

    fn read_register(&mut self, address: u64, bytes: u64) -> u64 {
        assert!(address.is_multiple_of(bytes), "misaligned access to {address:#x}");
        if (ECAM.start()..ECAM.end()).contains(&address) {
            return self.pci.read_config(address - ECAM.base, bytes);
        }
        if let Some(vtd) = self.vtd.as_mut().filter(|vtd| vtd.decodes(address)) {
            return vtd.read(address, bytes);
        }
        if (IO_APIC..IO_APIC + 0x20).contains(&address) {
            return self.io_apic.0.get(&self.io_apic.1).copied().unwrap_or(0).into();
        }
        match self.virtio_iommu.as_mut().filter(|unit| self.pci.decoder(address) == unit.place()) {
            Some(unit) => unit.read(self.pci.region_offset(address), bytes),
            None => self.pci.read_memory(address, bytes),
        }
    }

    fn write_register(&mut self, address: u64, bytes: u64, value: u64) {
        assert!(address.is_multiple_of(bytes), "misaligned access to {address:#x}");
        if (ECAM.start()..ECAM.end()).contains(&address) {
            return self.pci.write_config(address - ECAM.base, bytes, value);
        }
        if let Some(vtd) = self.vtd.as_mut().filter(|vtd| vtd.decodes(address)) {
            return vtd.write(&mut self.memory, address, bytes, value);
        }
        match address {
            IO_APIC => self.io_apic.1 = value as u32,
            0xfec0_0010 => {
                self.io_apic.0.insert(self.io_apic.1, value as u32);
            }
            _ => match self.virtio_iommu.as_mut().filter(|unit| self.pci.decoder(address) == unit.place()) {
                Some(unit) => unit.write(&mut self.memory, self.pci.region_offset(address), bytes, value),
                None => self.pci.write_memory(address, bytes, value),
            },
        }
    }
}

impl PhysicalMemory for FakeMachine {
    fn read(&self, address: PhysAddr) -> u64 {
        self.memory.read(address.word())
    }
    fn write(&mut self, address: PhysAddr, value: u64) {
        self.memory.write(address.word(), value);
    }
    fn read_bytes(&self, address: PhysAddr, bytes: &mut [u8]) {
        self.memory.read_bytes(address.word(), bytes);
    }
    fn write_bytes(&mut self, address: PhysAddr, bytes: &[u8]) {
        self.memory.write_bytes(address.word(), bytes);
    }
    fn zero_frames(&mut self, frame: Frame, count: u64) {
        self.memory.zero_frames(frame, count);
    }
}

impl Registers for FakeMachine {
    fn read32(&mut self, address: u64) -> u32 {
        self.read_register(address, 4) as u32
    }
    fn write32(&mut self, address: u64, value: u32) {
        self.write_register(address, 4, value.into());
    }
    fn read8(&mut self, address: u64) -> u8 {
        self.read_register(address, 1) as u8
    }
    fn write8(&mut self, address: u64, value: u8) {
        self.write_register(address, 1, value.into());
    }
    fn read16(&mut self, address: u64) -> u16 {
        self.read_register(address, 2) as u16
    }
    fn write16(&mut self, address: u64, value: u16) {
        self.write_register(address, 2, value.into());
    }
    fn read64(&mut self, address: u64) -> u64 {
        self.read_register(address, 8)
    }
    fn write64(&mut self, address: u64, value: u64) {
        self.write_register(address, 8, value);
    }
    fn now_ns(&self) -> u64 {
        self.now_ns.set(self.now_ns.get() + 1000);
        self.now_ns.get()
    }
}
