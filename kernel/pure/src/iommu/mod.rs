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
use crate::frames::{Owner, Pages};
use crate::ids::{AppId, CoreId};
use crate::machine::{Hardware, PhysAddr, PhysicalMemory, Registers};
use crate::means::Means;
use crate::msix::Message;
use crate::pci::{Address, PORTS_MAX, Pci};
use core::cell::Cell;
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

/// Runs of grants that a device is let reach at a time, and units in each: nobody waits longer for the lock.
const RUNS_AT_A_TIME: usize = 4;
const UNITS_AT_A_TIME: usize = 64;

/// Longest wait for a unit's answers, in nanoseconds. Units answer in microseconds; one that takes this long
/// is broken, and nobody waits for it a second time: others wait for the lock meanwhile.
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
    /// None is *trusted mode*: every operation succeeds and does nothing.
    unit: Option<Unit>,
    domains: [Domain; APPLICATIONS_MAX],
}

/// The two kinds have the same methods for what a domain needs, which [`with`] calls.
#[derive(Debug)]
enum Unit {
    Virtio(VirtioIommu),
    Vtd(Vtd),
}

/// Has the unit, of whichever kind, do something.
macro_rules! with {
    ($unit:expr, $it:ident => $act:expr) => {
        match $unit {
            Unit::Virtio($it) => $act,
            Unit::Vtd($it) => $act,
        }
    };
}

/// A domain that lives has at least one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    app: AppId,
    devices: u32,
    /// Its highest table, if the unit has tables.
    root: PhysAddr,
    /// Grants that begin before this frame are mapped; the others are yet to be ([`Iommu::map_grants`]).
    mapped_until: u64,
}

impl Domain {
    /// An application's domain, which does not live.
    const fn of(app: AppId) -> Domain {
        Domain { app, devices: 0, root: PhysAddr::new(0), mapped_until: 0 }
    }
}

impl Iommu {
    /// Starts the unit that the machine has, with no domain: from here on devices reach nothing. A
    /// machine with neither unit is in trusted mode; a unit that is there but cannot be used is an
    /// error, for to go on without protection that was asked for would be wrong.
    pub fn start(by: &mut Means<impl Hardware>, tables: &Tables, pci: &Pci) -> Result<Iommu> {
        let unit = match (tables.viot, &tables.remapping_units[..], pci.remapper()) {
            (Some(viot), ..) => Some(Unit::Virtio(VirtioIommu::start(by, tables, viot, pci)?)),
            (None, [], Some(_)) => return Err(Error::Refused("there is a virtio-iommu but no VIOT table")),
            (None, [], None) => None,
            (None, [base], _) => Some(Unit::Vtd(Vtd::start(by, *base, tables.processors.len(), pci)?)),
            (None, ..) => return Err(Error::Refused("there is more than one VT-d unit")),
        };
        Ok(Iommu { unit, domains: core::array::from_fn(|app| Domain::of(AppId::new(app))) })
    }

    /// What the board says.
    pub fn protection(&self) -> DmaProtection {
        match &self.unit {
            None => DmaProtection::Trusted,
            Some(Unit::Virtio(_)) => DmaProtection::VirtioIommu,
            Some(Unit::Vtd(unit)) if unit.trusts_interrupts => DmaProtection::IntelVtdMemory,
            Some(Unit::Vtd(_)) => DmaProtection::IntelVtd,
        }
    }

    /// Notes that interrupt messages pass that are not in the unit's table.
    pub fn trust_interrupts(&mut self) {
        if let Some(Unit::Vtd(unit)) = &mut self.unit {
            unit.trusts_interrupts = true;
        }
    }

    /// The message by which this sender, and no other, signals what `what` says; a unit that remaps
    /// interrupts enters it in its table. `None` if the unit does not answer.
    pub fn bind(&mut self, machine: &mut impl Hardware, by: Sender, what: Message) -> Option<Message> {
        match &mut self.unit {
            Some(Unit::Vtd(unit)) if unit.interrupts.is_some() => unit.bind(machine, by, what),
            _ => Some(what),
        }
    }

    /// Ends what [`Iommu::bind`] entered at `place`. (If the unit does not answer it is about to be noticed
    /// when the device is detached.)
    pub fn unbind(&mut self, machine: &mut impl Hardware, place: usize) {
        if let Some(Unit::Vtd(unit)) = &mut self.unit {
            let _ = unit.unbind(machine, place);
        }
    }

    /// Lets the unit send `message` when it has blocked an access. At that interrupt call
    /// [`Iommu::take_fault`] before it is acknowledged at the local APIC: it may be level triggered.
    pub fn enable_interrupt(&mut self, machine: &mut impl Hardware, pci: &Pci, message: Message) {
        if let Some(unit) = &self.unit {
            with!(unit, unit => unit.enable_interrupt(machine, pci, message));
        }
    }

    /// Attaches a device to a domain. If the domain is new, nothing is mapped in it before
    /// the caller has every grant of the application mapped by [`Iommu::map_grants`]. Nothing has changed
    /// after an error.
    pub fn attach(&mut self, by: &mut Means<impl Hardware>, device: Address, domain: AppId) -> Result<()> {
        let Some(unit) = &mut self.unit else { return Ok(()) };
        let mut held = self.domains[domain];
        let attached = with!(unit, unit => unit.attach(by, device, &mut held));
        if held.devices == 0 && attached.is_err_and(|error| error != Error::Silent) {
            by.frames.release_all(by.owner);
        }
        attached?;
        self.domains[domain] = Domain { devices: held.devices + 1, ..held };
        Ok(())
    }

    /// Detaches a device; it reaches nothing when this returns. With its last device the domain ends, and all
    /// frames of the owner of its tables go back. Quiesce the device before ([`Pci::switch_off`]).
    pub fn detach(&mut self, by: &mut Means<impl Hardware>, device: Address, domain: AppId) -> Result<()> {
        let held = &mut self.domains[domain];
        let Some(unit) = self.unit.as_mut().filter(|_| held.devices > 0) else { return Ok(()) };
        with!(unit, unit => unit.detach(by.machine, device, *held))?;
        held.devices -= 1;
        if held.devices == 0 {
            *held = Domain::of(domain);
            by.frames.release_all(by.owner);
        }
        Ok(())
    }

    /// Maps more of the grants that the application had before its domain lived. Returns whether that is all;
    /// between calls others may have the lock. After an error some of a piece that is yet to come may be
    /// mapped.
    pub fn map_grants(&mut self, by: &mut Means<impl Hardware>, domain: AppId) -> Result<bool> {
        for _ in 0..RUNS_AT_A_TIME {
            let Domain { devices, mapped_until: from, .. } = self.domains[domain];
            if devices == 0 || from == u64::MAX {
                return Ok(true);
            }
            let run = by.frames.next_units(Owner::grants(domain), from, UNITS_AT_A_TIME);
            self.domains[domain].mapped_until = run.map_or(u64::MAX, |pages| pages.frames().end);
            let mapped = run.map_or(Ok(()), |pages| self.map(by, domain, pages));
            mapped.inspect_err(|_| self.domains[domain].mapped_until = from)?;
        }
        Ok(false)
    }

    /// Lets the devices of a domain reach `pages`, but for those that [`Iommu::map_grants`] will come to.
    /// Does nothing if the domain does not live. After an error some of the pages may be mapped: unmap them.
    pub fn map(&mut self, by: &mut Means<impl Hardware>, domain: AppId, pages: Pages) -> Result<()> {
        let held = self.domains[domain];
        let due = held.mapped_until.saturating_sub(pages.frame.number()).div_ceil(pages.size.frames());
        let pages = Pages { count: pages.count.min(due), ..pages };
        match &mut self.unit {
            Some(unit) if held.devices > 0 && pages.count > 0 => {
                with!(unit, unit => unit.map(by, held, pages))
            }
            _ => Ok(()),
        }
    }

    /// Takes pages away again, in units of the page size with which they were mapped. When this returns no
    /// device of the domain reaches them. Does nothing if the domain does not live. After an error the
    /// frames must not be used for anything else.
    pub fn unmap(&mut self, machine: &mut impl Hardware, domain: AppId, pages: Pages) -> Result<()> {
        let held = self.domains[domain];
        match &mut self.unit {
            Some(unit) if held.devices > 0 => with!(unit, unit => unit.unmap(machine, held, pages)),
            _ => Ok(()),
        }
    }

    /// The next blocked access; call again until `None`, but not without bound: a device can fault faster
    /// than this is called.
    pub fn take_fault(&mut self, machine: &mut impl Hardware) -> Option<DmaFault> {
        self.unit.as_mut().and_then(|unit| with!(unit, unit => unit.take_fault(machine)))
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

/// Polls until it `is` so, as long as there is patience with the unit, which then is at an end.
fn wait_until<M: Registers>(by: &mut M, left: &Cell<u64>, mut is: impl FnMut(&mut M) -> bool) -> Result<()> {
    let deadline = by.now_ns() + left.get();
    while !is(by) {
        if by.now_ns() >= deadline {
            left.set(0);
            return Err(Error::Silent);
        }
    }
    Ok(())
}
