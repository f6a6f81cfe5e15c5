//! DMA remapping: which frames a device reaches.
//!
//! Each application that owns a device has a *domain*, numbered as the application is. A domain lives
//! from the first device attached to it until the last one is detached, and maps bus addresses to the
//! same physical addresses: drivers use physical addresses with and without a remapping unit. A device
//! that is attached to no domain reaches nothing.
//!
//! Interrupts are messages, which a device can forge by DMA. Only a VT-d unit that remaps them stops that:
//! then each message names an entry of the kernel's table, which says who may send it, and what it does.

mod queue;
mod request;
mod tables;
#[cfg(test)]
mod tests;
pub mod virtio;
pub mod vtd;

use crate::acpi::Tables;
use crate::devices::VECTORS;
use crate::machine::{PhysicalMemory, Registers};
use crate::msix::Message;
use crate::pci::{Address, PORTS_MAX, Pci};
use core::ops::Range;
use nom_abi::PageSize;
use nom_abi::board::DmaProtection;

/// Where frames for page tables and queues come from and go back to. They belong to the kernel.
pub trait FrameSource {
    /// The first of `count` frames in a row, contents arbitrary; `None` if memory is exhausted.
    fn take(&mut self, count: u64) -> Option<u64>;
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
    /// A virtio-iommu refused, with this status (VIRTIO 1.2, 5.13.6).
    Status(u8),
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
}

/// The machine's remapping unit.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it, and no heap to put a variant on")]
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
        machine: &mut (impl PhysicalMemory + Registers),
        frames: &mut impl FrameSource,
        tables: &Tables,
        pci: &Pci,
    ) -> Result<Iommu, Error> {
        match (tables.viot, &tables.remapping_units[..], pci.remapper()) {
            (Some(viot), ..) => {
                virtio::VirtioIommu::start(machine, frames, tables, viot, pci).map(Iommu::Virtio)
            }
            (None, [], Some(_)) => Err(Error::Refused("there is a virtio-iommu but no VIOT table")),
            (None, [], None) => Ok(Iommu::None),
            (None, [unit], _) => {
                vtd::Vtd::start(machine, frames, *unit, tables.processors.len(), pci).map(Iommu::Vtd)
            }
            (None, ..) => Err(Error::Refused("there is more than one VT-d unit")),
        }
    }

    /// What the board says.
    pub fn protection(&self) -> DmaProtection {
        match self {
            Iommu::None => DmaProtection::Trusted,
            Iommu::Virtio(_) => DmaProtection::VirtioIommu,
            Iommu::Vtd(unit) if unit.trusts_interrupts => DmaProtection::IntelVtdMemory,
            Iommu::Vtd(_) => DmaProtection::IntelVtd,
        }
    }

    /// Notes that interrupt messages pass that are not in the unit's table.
    pub fn trust_interrupts(&mut self) {
        if let Iommu::Vtd(unit) = self {
            unit.trusts_interrupts = true;
        }
    }

    /// The message by which the function at `source`, and no other, signals `vector` to the processor with
    /// this local APIC identifier. A unit that remaps interrupts enters it at `place` of its table. `None` if
    /// no message gets there.
    pub fn bind(
        &mut self,
        machine: &mut (impl PhysicalMemory + Registers),
        place: usize,
        source: Address,
        apic_id: u32,
        vector: u8,
        is_level: bool,
    ) -> Option<Message> {
        let apic_id = u8::try_from(apic_id).ok()?;
        match self {
            Iommu::Vtd(unit) if unit.interrupts.is_some() => {
                unit.bind(machine, place, source, apic_id, vector, is_level)
            }
            _ => Some(Message::new(apic_id, vector)),
        }
    }

    /// Ends what [`Iommu::bind`] entered at `place`. (If the unit does not answer it is about to be noticed
    /// when the device is detached.)
    pub fn unbind(&mut self, machine: &mut (impl PhysicalMemory + Registers), place: usize) {
        if let Iommu::Vtd(unit) = self {
            let _ = unit.unbind(machine, place);
        }
    }

    /// Lets the unit send `message` when it has blocked an access. At that interrupt call
    /// [`Iommu::take_fault`] before it is acknowledged at the local APIC: it may be level triggered.
    pub fn enable_interrupt(
        &mut self,
        machine: &mut (impl PhysicalMemory + Registers),
        pci: &Pci,
        message: Message,
    ) {
        match self {
            Iommu::None => {}
            Iommu::Virtio(unit) => unit.enable_interrupt(machine, pci, message),
            Iommu::Vtd(unit) => unit.enable_interrupt(machine, message),
        }
    }

    /// Attaches a device to a domain. Returns true if the domain is new, so that nothing is mapped in it:
    /// the caller then maps every grant of the application. Nothing has changed after an error.
    pub fn attach(
        &mut self,
        machine: &mut (impl PhysicalMemory + Registers),
        frames: &mut impl FrameSource,
        device: Address,
        domain: usize,
    ) -> Result<bool, Error> {
        match self {
            Iommu::None => Ok(false),
            Iommu::Virtio(unit) => unit.attach(machine, device, domain),
            Iommu::Vtd(unit) => unit.attach(machine, frames, device, domain),
        }
    }

    /// Detaches a device; it reaches nothing when this returns. With its last device the domain ends and
    /// its tables' frames go back. Quiesce the device before ([`Pci::switch_off`]).
    pub fn detach(
        &mut self,
        machine: &mut (impl PhysicalMemory + Registers),
        frames: &mut impl FrameSource,
        device: Address,
        domain: usize,
    ) -> Result<(), Error> {
        match self {
            Iommu::None => Ok(()),
            Iommu::Virtio(unit) => unit.detach(machine, device, domain),
            Iommu::Vtd(unit) => unit.detach(machine, frames, device, domain),
        }
    }

    /// Lets the devices of a domain reach `count` pages of `page_size` from `frame` on. Does nothing if
    /// the domain does not live. After an error some of the pages may be mapped: unmap them.
    pub fn map(
        &mut self,
        machine: &mut (impl PhysicalMemory + Registers),
        frames: &mut impl FrameSource,
        domain: usize,
        frame: u64,
        page_size: PageSize,
        count: u64,
    ) -> Result<(), Error> {
        let range = range(frame, page_size, count);
        match self {
            Iommu::None => Ok(()),
            Iommu::Virtio(unit) => {
                let starts = range.step_by(page_size.frames() as usize);
                unit.map(machine, domain, starts.map(|start| start..start + page_size.frames()))
            }
            Iommu::Vtd(unit) => unit.map(machine, frames, domain, range, page_size),
        }
    }

    /// Takes pages away again, in units of the page size with which they were mapped. When this returns no
    /// device of the domain reaches them. Does nothing if the domain does not live. After an error the
    /// frames must not be used for anything else.
    pub fn unmap(
        &mut self,
        machine: &mut (impl PhysicalMemory + Registers),
        domain: usize,
        frame: u64,
        page_size: PageSize,
        count: u64,
    ) -> Result<(), Error> {
        let range = range(frame, page_size, count);
        match self {
            Iommu::None => Ok(()),
            Iommu::Virtio(unit) => unit.unmap(machine, domain, range),
            Iommu::Vtd(unit) => unit.unmap(machine, domain, range),
        }
    }

    /// The next blocked access; call again until `None`, but not without bound: a device can fault faster
    /// than this is called.
    pub fn take_fault(&mut self, machine: &mut (impl PhysicalMemory + Registers)) -> Option<DmaFault> {
        match self {
            Iommu::None => None,
            Iommu::Virtio(unit) => unit.take_fault(machine),
            Iommu::Vtd(unit) => unit.take_fault(machine),
        }
    }
}

/// Place of the power button's interrupt in a unit's table of interrupts, before those of hot-plug ports.
pub const BUTTON_PLACE: usize = 0;
/// Place of the first hot-plug port's interrupt.
pub(crate) const PORTS_PLACE: usize = 1;

/// Place of the interrupt that is bound to a slot of a core.
pub(crate) fn place_of(core: usize, slot: usize) -> usize {
    const _: () = assert!(PORTS_PLACE + PORTS_MAX <= VECTORS);
    (core + 1) * VECTORS + slot
}

/// The frames of `count` pages.
fn range(frame: u64, page_size: PageSize, count: u64) -> Range<u64> {
    frame..frame + count * page_size.frames()
}

/// Polls until `is_done`, at most [`PATIENCE_NS`].
fn wait_until<M: Registers>(machine: &mut M, mut is_done: impl FnMut(&mut M) -> bool) -> Result<(), Error> {
    let deadline = machine.now_ns() + PATIENCE_NS;
    while !is_done(machine) {
        if machine.now_ns() >= deadline {
            return Err(Error::Silent);
        }
    }
    Ok(())
}
