//! PCI Express: the functions of the machine, the ports they stand behind, and their configuration.
//!
//! Configuration space is reached by the enhanced mechanism (ECAM) alone. What firmware did is ignored:
//! [`Pci::enumerate`] numbers the buses and places every register itself, so that machines with and
//! without PCI firmware are the same afterwards. Functions are switched off (no decoding, no DMA, no
//! interrupts) until an application acquires them. Source: PCI Express Base Specification 5.0, chapter 7.

mod config;
mod enumerate;
mod switch;
#[cfg(test)]
mod tests;

use crate::bars::{Bar, Window};
use crate::hotplug::Slot;
use crate::ioapic::Input;
use crate::list::List;
use crate::machine::Registers;
pub use config::Ecam;
pub(crate) use config::{Config, capability, command, offset};
use core::fmt;
pub(crate) use enumerate::Bus;
use nom_abi::layout::DEVICES_MAX;

/// Most bridges, root ports included, that are kept.
pub const PORTS_MAX: usize = 32;

/// Bus, device and function in one number: `bus << 8 | device << 3 | function`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub u16);

impl Address {
    /// The address with these parts; `device` is below 32 and `function` below 8.
    pub const fn new(bus: u8, device: u8, function: u8) -> Address {
        Address((bus as u16) << 8 | (device as u16) << 3 | function as u16)
    }

    /// The bus.
    pub const fn bus(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:02x}:{:02x}.{}", self.bus(), self.0 >> 3 & 0x1f, self.0 & 7)
    }
}

/// An MSI-X table's place; see [`crate::msix`]. All zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsixTable {
    /// Offset of the capability in configuration space; 0 if the function has none.
    pub capability: u16,
    /// Vectors.
    pub count: u16,
    /// Base address register of the table.
    pub table_bar: u8,
    /// Base address register of the pending bits.
    pub pending_bar: u8,
    /// Offset of the table in its region.
    pub table_offset: u32,
    /// Offset of the pending bits in their region.
    pub pending_offset: u32,
}

/// A function. All zero (vendor 0) where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Where it is; that of a host bridge, which is no device, if it is not on PCI.
    pub address: Address,
    /// Vendor identifier.
    pub vendor: u16,
    /// Device identifier.
    pub device: u16,
    /// Class code: `base << 16 | sub << 8 | interface`.
    pub class: u32,
    /// Base address registers; a 64-bit one takes two places, the second of which is absent.
    pub bars: [Bar; 6],
    /// MSI-X.
    pub msix: MsixTable,
    /// Offset of the PCI Express capability; 0 if the function has none.
    pub express: u16,
    /// Physical address of its registers if it is not on PCI; else 0.
    pub mmio: u32,
    /// And where its interrupt arrives.
    pub input: Input,
}

/// A bridge to another bus: a root port, a switch port or a conventional bridge. All zero where there is
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// The bridge as a function: its own registers and MSI-X table.
    pub function: Function,
    /// Whether it leads to one PCI Express device, as root ports and downstream switch ports do.
    pub is_downstream: bool,
    /// Bus directly behind it.
    pub secondary: u8,
    /// Last bus behind it.
    pub subordinate: u8,
    /// Addresses that it forwards.
    pub window: Window,
    /// Its hot-plug slot, if devices can come and go behind it.
    pub slot: Slot,
}

/// The PCI functions of the machine.
#[derive(Debug)]
pub struct Pci {
    pub(crate) ecam: Ecam,
    /// Functions that applications can own; the index is the board's.
    pub(crate) devices: [Function; DEVICES_MAX],
    /// Bridges, in order of discovery.
    pub(crate) ports: List<Port, PORTS_MAX>,
    /// The virtio-iommu, which is the kernel's own.
    pub(crate) remapper: Function,
}

impl Function {
    /// Whether every region of the function has its place: it must not decode addresses otherwise.
    pub fn is_placed(&self) -> bool {
        self.bars.iter().all(|bar| bar.bytes == 0 || bar.base != 0)
    }
}

impl Port {
    /// Whether `address` is on a bus behind this port.
    pub fn leads_to(&self, address: Address) -> bool {
        (self.secondary..=self.subordinate).contains(&address.bus())
    }
}

impl Pci {
    /// A machine without PCI.
    pub fn none() -> Pci {
        let (function, ports) = (Function::default(), List::default());
        Pci { ecam: Ecam::default(), devices: [function; DEVICES_MAX], ports, remapper: function }
    }

    /// The function with this index on the board.
    pub fn device(&self, index: usize) -> Option<&Function> {
        self.devices.get(index).filter(|function| function.vendor != 0)
    }

    /// Every function with its index on the board.
    pub fn devices(&self) -> impl Iterator<Item = (usize, &Function)> {
        self.devices.iter().enumerate().filter(|(_, function)| function.vendor != 0)
    }

    /// Index on the board of the function at `address`, for instance one whose DMA was blocked.
    pub fn index_of(&self, address: Address) -> Option<usize> {
        self.devices().find(|(_, function)| function.address == address).map(|(index, _)| index)
    }

    /// The devices that this one could reach, or could pass for, without a remapping unit's noticing: at most
    /// those in or behind the same slot of the root. They are one owner's.
    pub fn group(&self, index: usize) -> impl Iterator<Item = usize> {
        let slot = self.device(index).map(|function| self.root_slot(function));
        self.devices().filter(move |(_, other)| Some(self.root_slot(other)) == slot).map(|(index, _)| index)
    }

    /// The slot of the root that a function is in or behind. Outer ports come behind inner ones.
    fn root_slot(&self, function: &Function) -> u16 {
        let port = self.ports.iter().rev().find(|port| port.leads_to(function.address));
        port.map_or(function.address, |port| port.function.address).0 >> 3
    }

    /// Every bus that a device can be on.
    pub fn buses(&self) -> impl Iterator<Item = u8> {
        self.ports.iter().map(|port| port.secondary).chain([self.ecam.first_bus])
    }

    /// The virtio-iommu's function, if there is one.
    pub fn remapper(&self) -> Option<&Function> {
        Some(&self.remapper).filter(|function| function.vendor != 0)
    }

    /// Forgets devices that have left ([`crate::hotplug::Event::Left`]); one bit for each index. Their
    /// indices are free for devices that arrive from then on.
    pub fn forget(&mut self, devices: u64) {
        for (index, function) in self.devices.iter_mut().enumerate() {
            if devices >> index & 1 != 0 {
                *function = Function::default();
            }
        }
    }

    /// Reads 4 bytes of a device's configuration space; `offset` is a multiple of 4 below 4096. All ones
    /// if there is no such device, it has none, or it has left.
    pub fn config_read(&self, registers: &mut impl Registers, index: usize, offset: u16) -> u32 {
        match self.device(index).filter(|function| !function.is_mmio()) {
            Some(function) => self.ecam.config(registers, function.address).read32(offset),
            None => u32::MAX,
        }
    }
}
