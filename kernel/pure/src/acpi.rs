//! What ACPI says about the machine: processors, PCI configuration space, timer, DMA remapping, reset.
//!
//! Only static tables are read, no AML. Firmware is not trusted to be right: a table that lies outside
//! memory, is too short or fails its checksum is as good as absent, and a machine with no tables at all
//! is one with one processor and no devices. Source: ACPI specification 6.4, chapter 5.2.

use crate::list::List;
use crate::machine::PhysicalMemory;
use crate::pci::Ecam;
use nom_abi::layout::CORES_MAX;

/// Most DMA remapping units (DMAR) that are kept.
pub const REMAPPING_UNITS_MAX: usize = 4;
/// Most endpoint ranges (VIOT) that are kept.
pub const ENDPOINT_RANGES_MAX: usize = 8;

/// Everything that the kernel wants to know from ACPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Local APIC identifiers of the enabled processors, in table order (MADT); at most [`CORES_MAX`].
    pub processors: List<u32, CORES_MAX>,
    /// Physical address of the local APIC's registers (MADT); the architecture's default if not said.
    pub local_apic: u64,
    /// PCI Express configuration space of segment 0 (MCFG).
    pub ecam: Option<Ecam>,
    /// Physical address of the high precision event timer's registers.
    pub hpet: Option<u64>,
    /// Physical addresses of the registers of VT-d remapping units of segment 0 (DMAR).
    pub remapping_units: List<u64, REMAPPING_UNITS_MAX>,
    /// The paravirtual DMA remapping unit (VIOT).
    pub viot: Option<Viot>,
    /// How to reset the machine (FADT).
    pub reset: Option<Reset>,
    /// I/O port of the PM1a control register (FADT); 0 if there is none.
    pub pm1a_control: u16,
}

/// A virtio-iommu on PCI and the functions whose DMA it translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viot {
    /// The virtio-iommu's own function: `bus << 8 | device << 3 | function`.
    pub iommu: u16,
    /// Functions that it translates.
    pub ranges: List<EndpointRange, ENDPOINT_RANGES_MAX>,
}

/// Consecutive PCI functions with consecutive endpoint identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointRange {
    /// First function: `bus << 8 | device << 3 | function`.
    pub first: u16,
    /// Last function, inclusive.
    pub last: u16,
    /// Endpoint identifier of the first function.
    pub endpoint: u32,
}

/// The reset register: writing `value` there resets the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Where it is.
    pub register: ResetRegister,
    /// What to write.
    pub value: u8,
}

/// Address spaces in which the reset register can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetRegister {
    /// An I/O port.
    Port(u16),
    /// A physical address.
    Memory(u64),
}

impl Viot {
    /// Endpoint identifier of a PCI function, if the unit translates it.
    pub fn endpoint(&self, function: u16) -> Option<u32> {
        let range = self
            .ranges
            .iter()
            .find(|range| (range.first..=range.last).contains(&function))?;
        Some(range.endpoint + u32::from(function - range.first))
    }
}

impl Tables {
    /// What a machine without ACPI has: nothing.
    pub const fn none() -> Tables {
        Tables {
            processors: List::new(0),
            local_apic: 0xfee0_0000,
            ecam: None,
            hpet: None,
            remapping_units: List::new(0),
            viot: None,
            reset: None,
            pm1a_control: 0,
        }
    }

    /// Reads the tables that the root pointer at `rsdp` leads to. Nothing at or above `memory_end`, where
    /// `memory` may not reach, is touched. `rsdp` 0 means that firmware left none.
    pub fn read(memory: &impl PhysicalMemory, rsdp: u64, memory_end: u64) -> Tables {
        let _ = (memory, rsdp, memory_end);
        unimplemented!()
    }
}
