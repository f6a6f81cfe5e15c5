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
mod virtio;
mod vtd;

use crate::acpi::Tables;
use crate::devices::VECTORS;
use crate::ids::{AppId, CoreId};
use crate::machine::{Hardware, PhysAddr, PhysicalMemory, Registers};
use crate::means::Means;
use crate::msix::Message;
use crate::pci::{Address, PORTS_MAX, Pci};
use core::ops::Range;
use nom_abi::PageSize;
use nom_abi::board::DmaProtection;
use nom_abi::layout::APPLICATIONS_MAX;
use virtio::VirtioIommu;
use vtd::Vtd;

/// Who sends an interrupt.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// Its place in a unit's table of interrupts.
    pub place: usize,
    /// The function.
    pub source: Address,
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

type Result<T, E = Error> = core::result::Result<T, E>;

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

/// The machine's remapping unit, and the domains that live.
#[derive(Debug)]
pub struct Iommu {
    unit: Unit,
    domains: [Domain; APPLICATIONS_MAX],
}

#[derive(Debug)]
enum Unit {
    /// None: *trusted mode*. Every operation succeeds and does nothing.
    None,
    Virtio(VirtioIommu),
    Vtd(Vtd),
}

/// A domain that lives has at least one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    devices: u32,
    /// Its highest table, if the unit has tables.
    root: PhysAddr,
    /// Grants that begin before this frame are mapped; the others are yet to be ([`Iommu::map_next`]).
    mapped_until: u64,
}

/// One that does not live.
const NO_DOMAIN: Domain = Domain { devices: 0, root: PhysAddr::new(0), mapped_until: 0 };

impl Iommu {
    /// Starts the unit that the machine has, with no domain: from here on devices reach nothing. A
    /// machine with neither unit is in trusted mode; a unit that is there but cannot be used is an
    /// error, for to go on without protection that was asked for would be wrong.
    pub fn start(by: &mut Means<impl Hardware>, tables: &Tables, pci: &Pci) -> Result<Iommu> {
        let unit = match (tables.viot, &tables.remapping_units[..], pci.remapper()) {
            (Some(viot), ..) => Unit::Virtio(VirtioIommu::start(by, tables, viot, pci)?),
            (None, [], Some(_)) => return Err(Error::Refused("there is a virtio-iommu but no VIOT table")),
            (None, [], None) => Unit::None,
            (None, [base], _) => Unit::Vtd(Vtd::start(by, *base, tables.processors.len(), pci)?),
            (None, ..) => return Err(Error::Refused("there is more than one VT-d unit")),
        };
        Ok(Iommu { unit, domains: [NO_DOMAIN; APPLICATIONS_MAX] })
    }

    /// What the board says.
    pub fn protection(&self) -> DmaProtection {
        match &self.unit {
            Unit::None => DmaProtection::Trusted,
            Unit::Virtio(_) => DmaProtection::VirtioIommu,
            Unit::Vtd(unit) if unit.trusts_interrupts => DmaProtection::IntelVtdMemory,
            Unit::Vtd(_) => DmaProtection::IntelVtd,
        }
    }

    /// Notes that interrupt messages pass that are not in the unit's table.
    pub fn trust_interrupts(&mut self) {
        if let Unit::Vtd(unit) = &mut self.unit {
            unit.trusts_interrupts = true;
        }
    }

    /// The message by which this sender, and no other, signals what `what` says; a unit that remaps
    /// interrupts enters it in its table. `None` if the unit does not answer.
    pub fn bind(&mut self, machine: &mut impl Hardware, by: Sender, what: Message) -> Option<Message> {
        match &mut self.unit {
            Unit::Vtd(unit) if unit.interrupts.is_some() => unit.bind(machine, by, what),
            _ => Some(what),
        }
    }

    /// Ends what [`Iommu::bind`] entered at `place`. (If the unit does not answer it is about to be noticed
    /// when the device is detached.)
    pub fn unbind(&mut self, machine: &mut impl Hardware, place: usize) {
        if let Unit::Vtd(unit) = &mut self.unit {
            let _ = unit.unbind(machine, place);
        }
    }

    /// Lets the unit send `message` when it has blocked an access. At that interrupt call
    /// [`Iommu::take_fault`] before it is acknowledged at the local APIC: it may be level triggered.
    pub fn enable_interrupt(&mut self, machine: &mut impl Hardware, pci: &Pci, message: Message) {
        match &self.unit {
            Unit::None => {}
            Unit::Virtio(unit) => unit.enable_interrupt(machine, pci, message),
            Unit::Vtd(unit) => unit.enable_interrupt(machine, message),
        }
    }

    /// Attaches a device to a domain. If the domain is new, nothing is mapped in it: the caller passes every
    /// grant of the application to [`Iommu::map_next`]. Nothing has changed after an error.
    pub fn attach(&mut self, by: &mut Means<impl Hardware>, device: Address, domain: AppId) -> Result<()> {
        let Domain { devices, mut root, mapped_until } = self.domains[domain];
        match &mut self.unit {
            Unit::None => return Ok(()),
            Unit::Virtio(unit) => unit.attach(by.machine, device, domain)?,
            Unit::Vtd(unit) => {
                unit.context_entry(by.machine, device).ok_or(Error::NotCovered)?;
                root = if devices == 0 { zeroed(by, 1)? } else { root };
            }
        }
        let mapped_until = if devices == 0 { 0 } else { mapped_until };
        self.domains[domain] = Domain { devices: devices + 1, root, mapped_until };
        if let Unit::Vtd(unit) = &mut self.unit
            && let Err(error) = unit.attach(by.machine, device, domain, root)
        {
            let _ = self.detach(by, device, domain);
            return Err(error);
        }
        Ok(())
    }

    /// Detaches a device; it reaches nothing when this returns. With its last device the domain ends, and all
    /// frames of the owner of its tables go back. Quiesce the device before ([`Pci::switch_off`]).
    pub fn detach(&mut self, by: &mut Means<impl Hardware>, device: Address, domain: AppId) -> Result<()> {
        let held = &mut self.domains[domain];
        let was_attached = match &mut self.unit {
            Unit::Virtio(unit) if held.devices > 0 => unit.detach(by.machine, device, domain)?,
            Unit::Vtd(unit) => unit.detach(by.machine, device, domain)?,
            _ => false,
        };
        held.devices -= u32::from(was_attached);
        if was_attached && held.devices == 0 {
            by.frames.release_all(by.owner);
        }
        Ok(())
    }

    /// The frame before which the application's grants are mapped in its domain, as long as some are not.
    pub fn mapped_until(&self, domain: AppId) -> Option<u64> {
        let Domain { devices, mapped_until, .. } = self.domains[domain];
        (devices > 0 && mapped_until < u64::MAX).then_some(mapped_until)
    }

    /// Maps the next of the grants that the application had before its domain lived, or notes that there
    /// are no more. Between [`Iommu::mapped_until`] and these there is none. After an error all is as it was,
    /// but that some of the pages may be mapped.
    pub fn map_next(
        &mut self,
        by: &mut Means<impl Hardware>,
        domain: AppId,
        pages: Option<Pages>,
    ) -> Result<()> {
        let end = pages.map_or(u64::MAX, |pages| pages.frames().end);
        let before = core::mem::replace(&mut self.domains[domain].mapped_until, end);
        let result = pages.map_or(Ok(()), |pages| self.map(by, domain, pages));
        if result.is_err() {
            self.domains[domain].mapped_until = before;
        }
        result
    }

    /// Lets the devices of a domain reach `pages`, but for those that [`Iommu::map_next`] will come to. Does
    /// nothing if the domain does not live. After an error some of the pages may be mapped: unmap them.
    pub fn map(&mut self, by: &mut Means<impl Hardware>, domain: AppId, pages: Pages) -> Result<()> {
        let Domain { devices, root, mapped_until } = self.domains[domain];
        let due = mapped_until.saturating_sub(pages.frame).div_ceil(pages.size.frames());
        let pages = Pages { count: pages.count.min(due), ..pages };
        match &mut self.unit {
            _ if pages.count == 0 => Ok(()),
            Unit::Virtio(unit) if devices > 0 => unit.map(by.machine, domain, pages),
            Unit::Vtd(unit) if devices > 0 => {
                unit.shape.check(pages.frames().end)?;
                tables::map(by, unit.shape.part(root, pages.frames()), pages.size.min(unit.shape.largest))?;
                unit.publish(by.machine, domain)
            }
            _ => Ok(()),
        }
    }

    /// Takes pages away again, in units of the page size with which they were mapped. When this returns no
    /// device of the domain reaches them. Does nothing if the domain does not live. After an error the
    /// frames must not be used for anything else.
    pub fn unmap(&mut self, machine: &mut impl Hardware, domain: AppId, pages: Pages) -> Result<()> {
        let Domain { devices, root, .. } = self.domains[domain];
        match &mut self.unit {
            Unit::Virtio(unit) if devices > 0 => unit.unmap(machine, domain, pages),
            Unit::Vtd(unit) if devices > 0 => {
                tables::unmap(machine, unit.shape.part(root, pages.frames()));
                unit.forget(machine, domain)
            }
            _ => Ok(()),
        }
    }

    /// The next blocked access; call again until `None`, but not without bound: a device can fault faster
    /// than this is called.
    pub fn take_fault(&mut self, machine: &mut impl Hardware) -> Option<DmaFault> {
        match &mut self.unit {
            Unit::None => None,
            Unit::Virtio(unit) => unit.take_fault(machine),
            Unit::Vtd(unit) => unit.take_fault(machine),
        }
    }
}

/// `count` pages of a size, from `frame` on.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    /// The first frame.
    pub frame: u64,
    /// Of each page.
    pub size: PageSize,
    /// Pages, not frames.
    pub count: u64,
}

impl Pages {
    fn frames(self) -> Range<u64> {
        self.frame..self.frame + self.count * self.size.frames()
    }
}

/// Frames in a row for tables or queues.
fn zeroed(by: &mut Means<impl PhysicalMemory>, count: u64) -> Result<PhysAddr> {
    by.take(count).map_err(|_| Error::OutOfMemory)
}

/// Place of the power button's interrupt in a unit's table of interrupts, before those of hot-plug ports.
pub const BUTTON_PLACE: usize = 0;
/// Place of the first hot-plug port's interrupt.
pub(crate) const PORTS_PLACE: usize = 1;

/// Place of the interrupt that is bound to a slot of a core.
pub(crate) fn place_of(core: CoreId, slot: usize) -> usize {
    const _: () = assert!(PORTS_PLACE + PORTS_MAX <= VECTORS);
    (core.index() + 1) * VECTORS + slot
}

/// Polls until `is_done`, at most [`PATIENCE_NS`].
fn wait_until<M: Registers>(machine: &mut M, mut is_done: impl FnMut(&mut M) -> bool) -> Result<()> {
    let deadline = machine.now_ns() + PATIENCE_NS;
    while !is_done(machine) {
        if machine.now_ns() >= deadline {
            return Err(Error::Silent);
        }
    }
    Ok(())
}
