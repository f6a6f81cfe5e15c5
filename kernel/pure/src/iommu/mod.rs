//! DMA remapping: which frames a device reaches.
//!
//! Each application that owns a device has a *domain*, numbered as the application is. A domain lives
//! from the first device attached to it until the last one is detached, and maps bus addresses to the
//! same physical addresses: drivers use physical addresses with and without a remapping unit. A device
//! that is attached to no domain reaches nothing. Interrupt messages pass in every case.

pub mod virtio;
pub mod vtd;

use crate::acpi::Tables;
use crate::machine::{PhysicalMemory, Registers};
use crate::msix::Message;
use crate::pci::{Address, Pci};
use nom_abi::PageSize;
use nom_abi::board::DmaProtection;

/// Memory and registers, as remapping units need both.
pub trait Machine: PhysicalMemory + Registers {}
impl<T: PhysicalMemory + Registers> Machine for T {}

/// Where frames for page tables and queues come from and go back to. They belong to the kernel.
pub trait FrameSource {
    /// One frame, contents arbitrary; `None` if memory is exhausted.
    fn take(&mut self) -> Option<u64>;
    /// Takes a frame back.
    fn give_back(&mut self, frame: u64);
}

/// Why a remapping unit did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No frame for a table was left.
    OutOfMemory,
    /// The unit does not translate this device's DMA.
    NotCovered,
    /// The unit refused, or lacks something that is needed; the text says what.
    Refused(&'static str),
    /// The unit did not answer within [`PATIENCE_NS`]. What it has in force is unknown.
    Silent,
}

/// Longest wait for a unit's answer, in nanoseconds. Units answer in microseconds; one that takes this
/// long is broken.
pub const PATIENCE_NS: u64 = 1_000_000_000;

/// A blocked access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaFault {
    /// The device that tried; see [`Pci::index_of`].
    pub device: Address,
    /// Bus address that it tried to reach.
    pub address: u64,
    /// Whether it tried to write.
    pub write: bool,
}

/// The machine's remapping unit.
#[derive(Debug)]
pub enum Iommu {
    /// None: *trusted mode*. Every operation succeeds and does nothing.
    None,
    /// A virtio-iommu.
    Virtio(virtio::VirtioIommu),
    /// An Intel VT-d unit.
    Vtd(vtd::Vtd),
}

impl Iommu {
    /// Starts the unit that the machine has, with no domain: from here on devices reach nothing. A
    /// machine with neither unit gives [`Iommu::None`]; a unit that is there but cannot be used is an
    /// error, for to go on without protection that was asked for would be wrong.
    pub fn start(
        machine: &mut impl Machine,
        frames: &mut impl FrameSource,
        tables: &Tables,
        pci: &Pci,
    ) -> Result<Iommu, Error> {
        let _ = (machine, frames, tables, pci);
        unimplemented!()
    }

    /// What the board says.
    pub fn protection(&self) -> DmaProtection {
        match self {
            Iommu::None => DmaProtection::Trusted,
            Iommu::Virtio(_) => DmaProtection::VirtioIommu,
            Iommu::Vtd(_) => DmaProtection::IntelVtd,
        }
    }

    /// Lets the unit send `message` when it has blocked an access. Without this, poll
    /// [`Iommu::take_fault`].
    pub fn enable_interrupt(&mut self, machine: &mut impl Machine, pci: &Pci, message: Message) {
        let _ = (machine, pci, message);
        unimplemented!()
    }

    /// Attaches a device to a domain. Returns true if the domain is new, so that nothing is mapped in it:
    /// the caller then maps every grant of the application. Nothing has changed after an error.
    pub fn attach(
        &mut self,
        machine: &mut impl Machine,
        frames: &mut impl FrameSource,
        device: Address,
        domain: usize,
    ) -> Result<bool, Error> {
        let _ = (machine, frames, device, domain);
        unimplemented!()
    }

    /// Detaches a device; it reaches nothing when this returns. With its last device the domain ends and
    /// its tables' frames go back. Quiesce the device before ([`Pci::switch_off`]).
    pub fn detach(
        &mut self,
        machine: &mut impl Machine,
        frames: &mut impl FrameSource,
        device: Address,
        domain: usize,
    ) -> Result<(), Error> {
        let _ = (machine, frames, device, domain);
        unimplemented!()
    }

    /// Lets the devices of a domain reach `count` pages of `page_size` from `frame` on. Does nothing if
    /// the domain does not live. After an error some of the pages may be mapped: unmap them.
    pub fn map(
        &mut self,
        machine: &mut impl Machine,
        frames: &mut impl FrameSource,
        domain: usize,
        frame: u64,
        page_size: PageSize,
        count: u64,
    ) -> Result<(), Error> {
        let _ = (machine, frames, domain, frame, page_size, count);
        unimplemented!()
    }

    /// Takes pages away again, in units of the page size with which they were mapped. When this returns no
    /// device of the domain reaches them. Does nothing if the domain does not live. After an error the
    /// frames must not be used for anything else.
    pub fn unmap(
        &mut self,
        machine: &mut impl Machine,
        domain: usize,
        frame: u64,
        page_size: PageSize,
        count: u64,
    ) -> Result<(), Error> {
        let _ = (machine, domain, frame, page_size, count);
        unimplemented!()
    }

    /// The next blocked access; call again until `None`.
    pub fn take_fault(&mut self, machine: &mut impl Machine) -> Option<DmaFault> {
        let _ = machine;
        unimplemented!()
    }
}
