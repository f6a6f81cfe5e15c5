//! PCI Express: configuration space, enumeration, and the tables of functions and ports.
//!
//! Configuration space is reached by the enhanced mechanism (ECAM) alone. Enumeration numbers the buses
//! behind bridges where firmware did not, leaves every function switched off (no decoding, no DMA, no
//! interrupts) with its base address registers assigned ([`crate::bars`]), and every bridge forwarding.
//! Source: PCI Express Base Specification 5.0, chapter 7.

use crate::bars::{Aperture, Bar};
use crate::hotplug::Slot;
use crate::list::List;
use crate::machine::Registers;
use nom_abi::layout::DEVICES_MAX;

/// Most bridges, root ports included, that are kept.
pub const PORTS_MAX: usize = 64;

/// Bus, device and function in one number: `bus << 8 | device << 3 | function`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub u16);

/// Where configuration space is: 4 KiB for each function, 1 MiB for each bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecam {
    /// Physical address of bus 0's part, though `first_bus` may be above 0.
    pub base: u64,
    /// First bus.
    pub first_bus: u8,
    /// Last bus, inclusive.
    pub last_bus: u8,
}

/// An MSI-X table's place; see [`crate::msix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// A function that is not a bridge. All zero (vendor 0) where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where it is.
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
}

/// A bridge to another bus: a root port, a switch port or a conventional bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The bridge as a function: its own registers and MSI-X table.
    pub function: Function,
    /// Bus directly behind it.
    pub secondary: u8,
    /// Last bus behind it.
    pub subordinate: u8,
    /// Addresses that it forwards: first byte.
    pub window_base: u64,
    /// Addresses that it forwards: end, exclusive; equal to `window_base` if none.
    pub window_end: u64,
    /// Its hot-plug slot, if devices can come and go behind it.
    pub slot: Slot,
}

/// The PCI functions of the machine.
#[derive(Debug)]
pub struct Pci {
    pub(crate) ecam: Option<Ecam>,
    pub(crate) aperture: Aperture,
    /// Functions that applications can own; the index is the board's.
    pub(crate) devices: [Function; DEVICES_MAX],
    /// Bridges, in order of discovery: a port stands behind the port it hangs on.
    pub(crate) ports: List<Port, PORTS_MAX>,
    /// The virtio-iommu, which is the kernel's own.
    pub(crate) remapper: Function,
}

impl Function {
    /// No function.
    pub const ABSENT: Function = Function {
        address: Address(0),
        vendor: 0,
        device: 0,
        class: 0,
        bars: [Bar::ABSENT; 6],
        msix: MsixTable {
            capability: 0,
            count: 0,
            table_bar: 0,
            pending_bar: 0,
            table_offset: 0,
            pending_offset: 0,
        },
        express: 0,
    };
}

impl Port {
    /// No port.
    pub const ABSENT: Port = Port {
        function: Function::ABSENT,
        secondary: 0,
        subordinate: 0,
        window_base: 0,
        window_end: 0,
        slot: Slot::FIXED,
    };
}

impl Pci {
    /// A machine without PCI.
    pub const fn none() -> Pci {
        Pci {
            ecam: None,
            aperture: Aperture {
                base: 0,
                end: 0,
                high: 0,
            },
            devices: [Function::ABSENT; DEVICES_MAX],
            ports: List::new(Port::ABSENT),
            remapper: Function::ABSENT,
        }
    }

    /// Finds every function, numbers buses, assigns base address registers, and switches every function
    /// off. `low_memory_end` and `memory_end` are where RAM ends below and above 4 GiB: no register may
    /// be placed in RAM.
    pub fn enumerate(
        &mut self,
        registers: &mut impl Registers,
        ecam: Ecam,
        low_memory_end: u64,
        memory_end: u64,
    ) {
        let _ = (registers, ecam, low_memory_end, memory_end);
        unimplemented!()
    }

    /// The function with this index on the board.
    pub fn device(&self, index: usize) -> Option<&Function> {
        self.devices.get(index).filter(|function| function.vendor != 0)
    }

    /// Every function with its index on the board.
    pub fn devices(&self) -> impl Iterator<Item = (usize, &Function)> {
        self.devices
            .iter()
            .enumerate()
            .filter(|(_, function)| function.vendor != 0)
    }

    /// Index on the board of the function at `address`, for instance one whose DMA was blocked.
    pub fn index_of(&self, address: Address) -> Option<usize> {
        self.devices()
            .find(|(_, function)| function.address == address)
            .map(|(index, _)| index)
    }

    /// The virtio-iommu's function, if there is one.
    pub fn remapper(&self) -> Option<&Function> {
        Some(&self.remapper).filter(|function| function.vendor != 0)
    }

    /// Reads 4 bytes of a device's configuration space; `offset` is a multiple of 4 below 4096. All ones
    /// if there is no such device.
    pub fn config_read(&self, registers: &mut impl Registers, index: usize, offset: u16) -> u32 {
        let _ = (registers, index, offset);
        unimplemented!()
    }

    /// Makes a device ready for a new owner: resets it, then lets it decode addresses, start DMA and
    /// signal MSI-X, every vector masked. Attach it to its owner's domain *before*: from here on it can
    /// reach memory. Returns false if the function does not answer (it has left, or is still resetting).
    pub fn switch_on(&self, registers: &mut impl Registers, index: usize) -> bool {
        let _ = (registers, index);
        unimplemented!()
    }

    /// Quiesces a device: no DMA, no interrupts, reset, no decoding. When this returns it writes no memory.
    pub fn switch_off(&self, registers: &mut impl Registers, index: usize) {
        let _ = (registers, index);
        unimplemented!()
    }

    /// Whether a remapping unit really confines this device. A virtio device without the feature
    /// `VIRTIO_F_ACCESS_PLATFORM` (QEMU: `iommu_platform=on`) reaches all memory whatever the unit says.
    pub fn is_confinable(&self, registers: &mut impl Registers, index: usize) -> bool {
        let _ = (registers, index);
        unimplemented!()
    }
}
