//! Intel VT-d: tables in memory, registers to say that they changed.
//!
//! Legacy mode with queued invalidation. Units that can remap interrupts do: messages in the old format,
//! which any device can write, are blocked, and each entry of the table serves one function. Source: Intel
//! Virtualization Technology for Directed I/O, revision 3.3.

use super::request::MESSAGE_PAGE;
use super::tables::{self, Shape};
use super::{DmaFault, Domain, Error, Means, PATIENCE_NS, Result, Sender, place_of, wait_until, zeroed};
use crate::frames::Pages;
use crate::ids::{AppId, CoreId};
use crate::machine::{Hardware, PhysAddr, PhysicalMemory, Registers};
use crate::msix::Message;
use crate::paging::Entry;
use crate::pci::{Address, Pci};
use crate::space;
use core::cell::Cell;
use core::sync::atomic::{Ordering, fence};
use nom_abi::PageSize;
use nom_abi::layout::APPLICATIONS_MAX;

/// Register offsets (11.4).
mod register {
    pub const CAPABILITY: u64 = 0x08;
    pub const EXTENDED_CAPABILITY: u64 = 0x10;
    pub const GLOBAL_COMMAND: u64 = 0x18;
    pub const GLOBAL_STATUS: u64 = 0x1c;
    pub const ROOT_TABLE: u64 = 0x20;
    pub const FAULT_STATUS: u64 = 0x34;
    pub const FAULT_CONTROL: u64 = 0x38;
    pub const FAULT_DATA: u64 = 0x3c;
    pub const FAULT_ADDRESS: u64 = 0x40;
    pub const FAULT_UPPER_ADDRESS: u64 = 0x44;
    pub const QUEUE_TAIL: u64 = 0x88;
    pub const QUEUE_ADDRESS: u64 = 0x90;
    pub const INTERRUPT_TABLE: u64 = 0xb8;
}

/// Global command and status have the same bits.
mod global {
    pub const TRANSLATE: u32 = 1 << 31;
    pub const SET_ROOT: u32 = 1 << 30;
    pub const FLUSH_WRITES: u32 = 1 << 27;
    pub const QUEUE: u32 = 1 << 26;
    pub const REMAP_INTERRUPTS: u32 = 1 << 25;
    pub const SET_INTERRUPT_TABLE: u32 = 1 << 24;
    /// What stays until it is taken back. The old format of messages, bit 23, never passes.
    pub const LASTING: u32 = TRANSLATE | QUEUE | REMAP_INTERRUPTS;
}

/// What is to be invalidated (6.5.2), each for all or for one.
mod invalidate {
    pub const ALL_CONTEXTS: u64 = 1 << 4 | 1;
    pub const ONE_CONTEXT: u64 = 3 << 4 | 1;
    pub const ALL_TRANSLATIONS: u64 = 1 << 4 | 2;
    pub const ONE_DOMAIN: u64 = 2 << 4 | 2;
    pub const INTERRUPTS: u64 = 4;
}

/// Entries of root and context tables, and of that of interrupts.
const PRESENT: u64 = 1;
/// Address of the table that an entry leads to.
const TABLE: u64 = !0xfff;

/// What the capability registers say.
#[derive(Clone, Copy, Debug)]
struct Capabilities(u64);

impl Capabilities {
    const CACHES_ABSENT: u32 = 7;
    const NEEDS_FLUSH: u32 = 4;
    const DRAINS_WRITES: u32 = 54;
    const DRAINS_READS: u32 = 55;
    const THREE_LEVELS: u32 = 9;
    const FOUR_LEVELS: u32 = 10;
    const LARGE_PAGES: u32 = 34;
    const HUGE_PAGES: u32 = 35;

    fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 != 0
    }

    fn domains(self) -> u64 {
        1 << (4 + 2 * (self.0 & 7))
    }

    /// Offset of the fault recording registers, and how many there are.
    fn fault_records(self) -> (u64, u64) {
        ((self.0 >> 24 & 0x3ff) * 16, (self.0 >> 40 & 0xff) + 1)
    }

    /// The smallest tables, for memory is far smaller than what they span.
    fn shape(self) -> Option<Shape> {
        let levels = match (self.has(Self::THREE_LEVELS), self.has(Self::FOUR_LEVELS)) {
            (true, _) => 3,
            (false, true) => 4,
            (false, false) => return None,
        };
        let largest = match (self.has(Self::LARGE_PAGES), self.has(Self::HUGE_PAGES)) {
            (true, true) => PageSize::Huge,
            (true, false) => PageSize::Large,
            (false, _) => PageSize::Small,
        };
        Some(Shape { levels, largest })
    }
}

/// A running unit.
#[derive(Debug)]
pub struct Vtd {
    base: u64,
    capabilities: Capabilities,
    shape: Shape,
    /// Patience with it that is left, in nanoseconds.
    left: Cell<u64>,
    /// The queue of invalidations, and how many there have been.
    queue: PhysAddr,
    queued: u64,
    /// First byte of the table of interrupts, 16 bytes each, if they are remapped.
    pub(super) interrupts: Option<PhysAddr>,
    /// Whether messages in the old format pass all the same.
    pub(super) trusts_interrupts: bool,
    /// The root table: one entry for each bus, leading to its context table.
    root: PhysAddr,
}

impl Vtd {
    /// Starts the unit whose registers are at `base`, on a machine with so many processors.
    pub fn start(by: &mut Means<impl Hardware>, base: u64, processors: usize, pci: &Pci) -> Result<Vtd> {
        const HAS_QUEUE: u64 = 1 << 1;
        const REMAPS_INTERRUPTS: u64 = 1 << 3;
        let capabilities = Capabilities(by.machine.read64(base + register::CAPABILITY));
        let extended = by.machine.read64(base + register::EXTENDED_CAPABILITY);
        let shape = capabilities.shape().ok_or(Error::Refused("page tables have neither 3 nor 4 levels"))?;
        if capabilities.domains() <= APPLICATIONS_MAX as u64 {
            return Err(Error::Refused("there are fewer domains than applications"));
        }
        if extended & HAS_QUEUE == 0 {
            return Err(Error::Refused("the VT-d unit has no queue of invalidations"));
        }
        let table_frames =
            (place_of(CoreId::new(processors), 0) as u64).div_ceil(ENTRIES_PER_FRAME).next_power_of_two();
        let (root, queue) = (zeroed(by, 1)?, zeroed(by, 1)?);
        let remaps = extended & REMAPS_INTERRUPTS != 0;
        let interrupts = if remaps { Some(zeroed(by, table_frames)?) } else { None };
        // A context table for each bus: there are few.
        for bus in pci.buses() {
            let contexts = zeroed(by, 1)?;
            by.machine.write(root + u64::from(bus) * 16, contexts.word() | PRESENT);
        }
        let (trusts_interrupts, left) = (!remaps, Cell::new(PATIENCE_NS));
        let mut unit =
            Vtd { base, capabilities, shape, left, queue, queued: 0, interrupts, trusts_interrupts, root };
        unit.enable(by.machine, table_frames)?;
        Ok(unit)
    }

    /// Turns translation on with the empty root table, remapping of interrupts with the empty table of so
    /// many frames, and everything that firmware turned on off.
    fn enable(&mut self, machine: &mut impl Hardware, table: u64) -> Result<()> {
        machine.write32(self.base + register::GLOBAL_COMMAND, 0);
        self.wait_for(machine, global::LASTING, false)?;
        machine.write64(self.base + register::QUEUE_TAIL, 0);
        machine.write64(self.base + register::QUEUE_ADDRESS, self.queue.word());
        self.command(machine, global::QUEUE)?;
        machine.write64(self.base + register::ROOT_TABLE, self.root.word());
        self.command(machine, global::SET_ROOT)?;
        self.invalidate(machine, invalidate::ALL_CONTEXTS)?;
        self.invalidate(machine, invalidate::ALL_TRANSLATIONS)?;
        if let Some(address) = self.interrupts {
            // The table has two to the power of this, plus one, entries.
            let size = u64::from((table * ENTRIES_PER_FRAME).trailing_zeros() - 1);
            machine.write64(self.base + register::INTERRUPT_TABLE, address.word() | size);
            self.command(machine, global::SET_INTERRUPT_TABLE)?;
            self.invalidate(machine, invalidate::INTERRUPTS)?;
            self.command(machine, global::REMAP_INTERRUPTS)?;
        }
        self.command(machine, global::TRANSLATE)
    }

    /// Gives a command, while what was commanded before lasts, and waits for it.
    fn command(&self, machine: &mut impl Registers, bit: u32) -> Result<()> {
        fence(Ordering::SeqCst);
        let lasting = machine.read32(self.base + register::GLOBAL_STATUS) & global::LASTING;
        machine.write32(self.base + register::GLOBAL_COMMAND, lasting | bit);
        self.wait_for(machine, bit, bit != global::FLUSH_WRITES)
    }

    /// Enters an interrupt of one function (9.10): fixed, to one processor.
    pub fn bind(&mut self, machine: &mut impl Hardware, by: Sender, what: Message) -> Option<Message> {
        const VERIFY_SOURCE: u64 = 1 << 18;
        let entry = self.interrupts? + 16 * by.place as u64;
        machine.write(entry + 8, VERIFY_SOURCE | u64::from(by.source.0));
        let (apic_id, data) = (what.address >> 12 & 0xff, u64::from(what.data));
        // Trigger mode and vector.
        machine.write(entry, apic_id << 40 | (data & 0xff) << 16 | (data >> 15 & 1) << 4 | PRESENT);
        self.invalidate(machine, invalidate::INTERRUPTS).ok()?;
        Some(Message::remapped(by.place))
    }

    pub fn unbind(&mut self, machine: &mut impl Hardware, place: usize) -> Result<()> {
        let Some(table) = self.interrupts else { return Ok(()) };
        machine.write(table + 16 * place as u64, 0);
        self.invalidate(machine, invalidate::INTERRUPTS)
    }

    fn wait_for(&self, machine: &mut impl Registers, bit: u32, set: bool) -> Result<()> {
        let status = self.base + register::GLOBAL_STATUS;
        wait_until(machine, &self.left, |machine| (machine.read32(status) & bit != 0) == set)
    }

    /// A device's context entry; `None` if the unit has no table for its bus.
    fn context_entry(&self, memory: &impl PhysicalMemory, device: Address) -> Option<PhysAddr> {
        let contexts = memory.read(self.root + u64::from(device.bus()) * 16);
        let table = PhysAddr::new(contexts & TABLE);
        (contexts & PRESENT != 0).then_some(table + u64::from(device.0 & 0xff) * 16)
    }

    /// Makes the unit see entries of a domain that were absent before.
    fn publish(&mut self, machine: &mut impl Hardware, domain: AppId) -> Result<()> {
        if self.capabilities.has(Capabilities::CACHES_ABSENT) {
            self.forget(machine, domain)?;
        }
        fence(Ordering::SeqCst);
        if self.capabilities.has(Capabilities::NEEDS_FLUSH) {
            self.command(machine, global::FLUSH_WRITES)?;
        }
        Ok(())
    }

    /// Makes the unit forget what it knows of a domain's tables.
    fn forget(&mut self, machine: &mut impl Hardware, domain: AppId) -> Result<()> {
        self.invalidate(machine, invalidate::ONE_DOMAIN | domain_id(domain) << 16)
    }

    /// Invalidates something and waits until nothing uses it any more (6.5.2).
    fn invalidate(&mut self, machine: &mut impl Hardware, what: u64) -> Result<()> {
        const WAIT: u64 = 1 << 5 | 5;
        const DONE: u64 = 0xffff_ffff;
        let reads = u64::from(self.capabilities.has(Capabilities::DRAINS_READS)) << 7;
        let writes = u64::from(self.capabilities.has(Capabilities::DRAINS_WRITES)) << 6;
        let drains = if what & 0xf == 2 { reads | writes } else { 0 };
        let place = self.queued * 2 % ENTRIES_PER_FRAME;
        let at = self.queue + place * 16;
        self.queued += 1;
        machine.write(at, what | drains);
        machine.write(at + 8, 0);
        // When the unit is through with that, it overwrites it.
        machine.write(at + 16, DONE << 32 | WAIT);
        machine.write(at + 24, at.word());
        fence(Ordering::SeqCst);
        machine.write64(self.base + register::QUEUE_TAIL, (place + 2) % ENTRIES_PER_FRAME * 16);
        wait_until(machine, &self.left, |machine| machine.read(at) & DONE == DONE)
    }

    /// Has a device reach what the domain says, which for its first device takes its highest table, if the
    /// unit has tables. The device reaches nothing new after an error.
    pub fn attach(&mut self, by: &mut Means<impl Hardware>, device: Address, to: &mut Domain) -> Result<()> {
        let entry = self.context_entry(by.machine, device).ok_or(Error::NotCovered)?;
        if to.devices == 0 {
            to.root = zeroed(by, 1)?;
        }
        // Address width and domain first: the unit may read the entry as soon as it is present (9.3).
        by.machine.write(entry + 8, domain_id(to.app) << 8 | u64::from(self.shape.levels - 2));
        by.machine.write(entry, to.root.word() | PRESENT);
        // What was absent is cached under domain 0 (6.1).
        let is_cached = self.capabilities.has(Capabilities::CACHES_ABSENT);
        let forgotten =
            if is_cached { self.invalidate(by.machine, one_context(device, NO_DOMAIN)) } else { Ok(()) };
        let published = forgotten.and_then(|()| self.publish(by.machine, to.app));
        published.inspect_err(|_| by.machine.write(entry, 0))
    }

    /// Has an attached device reach nothing. What it could reach may be used for other things only after
    /// success.
    pub fn detach(&mut self, machine: &mut impl Hardware, device: Address, domain: Domain) -> Result<()> {
        let entry = self.context_entry(machine, device).ok_or(Error::NotCovered)?;
        machine.write(entry, 0);
        self.invalidate(machine, one_context(device, domain.app))?;
        self.forget(machine, domain.app)
    }

    /// Lets the domain's devices reach pages. After an error some may be mapped.
    pub fn map(&mut self, by: &mut Means<impl Hardware>, domain: Domain, pages: Pages) -> Result<()> {
        self.shape.check(pages.frames().end)?;
        tables::map(by, self.shape.part(domain.root, pages.frames()), pages.size.min(self.shape.largest))?;
        self.publish(by.machine, domain.app)
    }

    /// Takes pages away again, as [`super::Iommu::unmap`] says.
    pub fn unmap(&mut self, machine: &mut impl Hardware, domain: Domain, pages: Pages) -> Result<()> {
        let part = self.shape.part(domain.root, pages.frames());
        space::visit(machine, part, &mut |machine, entry, _| machine.write(entry, Entry::EMPTY.0));
        self.forget(machine, domain.app)
    }

    /// The next recorded fault (7.2), which makes room for another.
    pub fn take_fault(&mut self, machine: &mut impl Hardware) -> Option<DmaFault> {
        const PENDING: u64 = 1 << 63;
        const CLEAR: u32 = 1 << 31;
        /// Reasons from here on are those of interrupts that were blocked, without an address.
        const INTERRUPTS: u64 = 0x20;
        /// Overflow and the errors of mechanisms that are off: cleared by writing ones.
        const STICKY: u32 = 0x7d;
        let (offset, count) = self.capabilities.fault_records();
        for record in (0..count).map(|index| self.base + offset + 16 * index) {
            let high = machine.read64(record + 8);
            if high & PENDING != 0 {
                let is_interrupt = high >> 32 & 0xff >= INTERRUPTS;
                let address = if is_interrupt { MESSAGE_PAGE } else { machine.read64(record) & TABLE };
                machine.write32(record + 12, CLEAR);
                return Some(DmaFault { device: Address(high as u16), address });
            }
        }
        let status = machine.read32(self.base + register::FAULT_STATUS);
        machine.write32(self.base + register::FAULT_STATUS, status & STICKY);
        None
    }

    /// Has blocked accesses signalled by this message.
    pub fn enable_interrupt(&self, machine: &mut impl Registers, _: &Pci, message: Message) {
        const UNMASKED: u32 = 0;
        machine.write32(self.base + register::FAULT_DATA, message.data);
        machine.write32(self.base + register::FAULT_ADDRESS, message.address as u32);
        machine.write32(self.base + register::FAULT_UPPER_ADDRESS, (message.address >> 32) as u32);
        machine.write32(self.base + register::FAULT_CONTROL, UNMASKED);
    }
}

/// Entries of 16 bytes in a frame: interrupts, or invalidations.
const ENTRIES_PER_FRAME: u64 = 256;

/// Stands for domain identifier 0.
const NO_DOMAIN: AppId = AppId::new(usize::MAX);

/// A domain's identifier in the unit; 0 stands for absent entries.
fn domain_id(domain: AppId) -> u64 {
    domain.index().wrapping_add(1) as u64
}

/// Names one device's context entry to [`Vtd::invalidate`].
fn one_context(device: Address, domain: AppId) -> u64 {
    invalidate::ONE_CONTEXT | u64::from(device.0) << 32 | (domain_id(domain) & 0xffff) << 16
}
