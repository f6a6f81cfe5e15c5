//! Intel VT-d: tables in memory, registers to say that they changed.
//!
//! Legacy mode with register-based invalidation, the common part of all units. Interrupts are not
//! remapped, and pass. Source: Intel Virtualization Technology for Directed I/O, revision 3.3.

use super::tables::Shape;
use super::{DmaFault, Error, FrameSource, wait_until};
use crate::machine::{PhysicalMemory, Registers};
use crate::msix::Message;
use crate::pci::Address;
use core::sync::atomic::{Ordering, fence};
use nom_abi::PageSize;
use nom_abi::layout::APPLICATIONS_MAX;
use nom_abi::memory::FRAME_SHIFT;

/// Register offsets (11.4).
mod register {
    pub const CAPABILITY: u64 = 0x08;
    pub const EXTENDED_CAPABILITY: u64 = 0x10;
    pub const GLOBAL_COMMAND: u64 = 0x18;
    pub const GLOBAL_STATUS: u64 = 0x1c;
    pub const ROOT_TABLE: u64 = 0x20;
    pub const CONTEXT_COMMAND: u64 = 0x28;
    pub const FAULT_STATUS: u64 = 0x34;
    pub const FAULT_CONTROL: u64 = 0x38;
    pub const FAULT_DATA: u64 = 0x3c;
    pub const FAULT_ADDRESS: u64 = 0x40;
    pub const FAULT_UPPER_ADDRESS: u64 = 0x44;
}

/// Global command and status have the same bits.
mod global {
    pub const TRANSLATE: u32 = 1 << 31;
    pub const SET_ROOT: u32 = 1 << 30;
    pub const FLUSH_WRITES: u32 = 1 << 27;
    pub const QUEUE: u32 = 1 << 26;
    pub const REMAP_INTERRUPTS: u32 = 1 << 25;
}

/// Entries of root and context tables.
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

/// A domain that lives has at least one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Domain {
    /// Frame of its highest table.
    root: u64,
    devices: u32,
}

impl Domain {
    const NONE: Domain = Domain { root: 0, devices: 0 };
}

/// A running unit.
#[derive(Debug)]
pub struct Vtd {
    base: u64,
    capabilities: Capabilities,
    shape: Shape,
    /// Physical address of the register that invalidates translations.
    invalidate: u64,
    /// Frame of the root table: one entry for each bus, leading to its context table.
    root: u64,
    domains: [Domain; APPLICATIONS_MAX],
}

impl Vtd {
    /// Starts the unit whose registers are at `base`.
    pub(super) fn start<M: PhysicalMemory + Registers>(
        machine: &mut M,
        frames: &mut impl FrameSource,
        base: u64,
    ) -> Result<Vtd, Error> {
        let capabilities = Capabilities(machine.read64(base + register::CAPABILITY));
        let extended = machine.read64(base + register::EXTENDED_CAPABILITY);
        let shape = capabilities.shape().ok_or(Error::Refused("page tables have neither 3 nor 4 levels"))?;
        if capabilities.domains() <= APPLICATIONS_MAX as u64 {
            return Err(Error::Refused("there are fewer domains than applications"));
        }
        let root = frames.take().ok_or(Error::OutOfMemory)?;
        machine.zero_frames(root, 1);
        let invalidate = base + (extended >> 8 & 0x3ff) * 16 + 8;
        let domains = [Domain::NONE; APPLICATIONS_MAX];
        let unit = Vtd { base, capabilities, shape, invalidate, root, domains };
        unit.enable(machine)?;
        Ok(unit)
    }

    /// Turns translation on with the empty root table, and everything that firmware turned on off.
    fn enable<M: Registers>(&self, machine: &mut M) -> Result<(), Error> {
        const ALL_CONTEXTS: u64 = 1 << 61;
        machine.write32(self.base + register::GLOBAL_COMMAND, 0);
        self.wait_for(machine, global::TRANSLATE | global::QUEUE | global::REMAP_INTERRUPTS, false)?;
        machine.write64(self.base + register::ROOT_TABLE, self.root << FRAME_SHIFT);
        self.command(machine, 0, global::SET_ROOT)?;
        self.invalidate_contexts(machine, ALL_CONTEXTS)?;
        self.invalidate_translations(machine, None)?;
        self.command(machine, 0, global::TRANSLATE)
    }

    /// Gives a command while the settings in `keep` stay, and waits for it.
    fn command<M: Registers>(&self, machine: &mut M, keep: u32, bit: u32) -> Result<(), Error> {
        fence(Ordering::SeqCst);
        machine.write32(self.base + register::GLOBAL_COMMAND, keep | bit);
        self.wait_for(machine, bit, bit != global::FLUSH_WRITES)
    }

    fn wait_for<M: Registers>(&self, machine: &mut M, bit: u32, set: bool) -> Result<(), Error> {
        let status = self.base + register::GLOBAL_STATUS;
        wait_until(machine, |machine| (machine.read32(status) & bit != 0) == set)
    }

    pub(super) fn enable_interrupt(&self, machine: &mut impl Registers, message: Message) {
        const UNMASKED: u32 = 0;
        machine.write32(self.base + register::FAULT_DATA, message.data);
        machine.write32(self.base + register::FAULT_ADDRESS, message.address as u32);
        machine.write32(self.base + register::FAULT_UPPER_ADDRESS, (message.address >> 32) as u32);
        machine.write32(self.base + register::FAULT_CONTROL, UNMASKED);
    }

    pub(super) fn attach<M: PhysicalMemory + Registers>(
        &mut self,
        machine: &mut M,
        frames: &mut impl FrameSource,
        device: Address,
        domain: usize,
    ) -> Result<bool, Error> {
        let contexts = self.context_table(machine, frames, device)?;
        let is_new = self.domains[domain].devices == 0;
        if is_new {
            let root = frames.take().ok_or(Error::OutOfMemory)?;
            machine.zero_frames(root, 1);
            self.domains[domain].root = root;
        }
        self.domains[domain].devices += 1;
        // Address width and domain first: the unit may read the entry as soon as it is present (9.3).
        let entry = context_entry(contexts, device);
        machine.write(entry + 8, domain_id(domain) << 8 | u64::from(self.shape.levels - 2));
        machine.write(entry, self.domains[domain].root << FRAME_SHIFT | PRESENT);
        let done = self.publish(machine, device, domain);
        if done.is_err() {
            let _ = self.detach(machine, frames, device, domain);
        }
        done.map(|()| is_new)
    }

    pub(super) fn detach<M: PhysicalMemory + Registers>(
        &mut self,
        machine: &mut M,
        frames: &mut impl FrameSource,
        device: Address,
        domain: usize,
    ) -> Result<(), Error> {
        let root_entry = self.root_entry(device);
        let contexts = machine.read(root_entry);
        let entry = context_entry(contexts >> FRAME_SHIFT, device);
        if contexts & PRESENT == 0 || machine.read(entry) & PRESENT == 0 {
            return Ok(());
        }
        machine.write(entry, 0);
        self.invalidate_contexts(machine, one_context(device, domain))?;
        self.invalidate_translations(machine, Some(domain))?;
        let held = &mut self.domains[domain];
        held.devices -= 1;
        if held.devices == 0 {
            let root = core::mem::replace(held, Domain::NONE).root;
            self.shape.free(machine, frames, root);
        }
        Ok(())
    }

    pub(super) fn map<M: PhysicalMemory + Registers>(
        &mut self,
        machine: &mut M,
        source: &mut impl FrameSource,
        domain: usize,
        frames: core::ops::Range<u64>,
        size: PageSize,
    ) -> Result<(), Error> {
        let Domain { root, devices } = self.domains[domain];
        if devices == 0 {
            return Ok(());
        }
        self.shape.map(machine, source, root, frames, size)?;
        if self.capabilities.has(Capabilities::CACHES_ABSENT) {
            self.invalidate_translations(machine, Some(domain))?;
        }
        self.flush_writes(machine)
    }

    pub(super) fn unmap<M: PhysicalMemory + Registers>(
        &mut self,
        machine: &mut M,
        domain: usize,
        frames: core::ops::Range<u64>,
    ) -> Result<(), Error> {
        let Domain { root, devices } = self.domains[domain];
        if devices == 0 {
            return Ok(());
        }
        self.shape.unmap(machine, root, frames);
        self.invalidate_translations(machine, Some(domain))
    }

    /// The next recorded fault (7.2), which makes room for another.
    pub(super) fn take_fault<M: Registers>(&mut self, machine: &mut M) -> Option<DmaFault> {
        const PENDING: u64 = 1 << 63;
        const IS_READ: u64 = 1 << 62;
        const CLEAR: u32 = 1 << 31;
        /// Overflow and the errors of mechanisms that are off: cleared by writing ones.
        const STICKY: u32 = 0x7d;
        let (offset, count) = self.capabilities.fault_records();
        for record in (0..count).map(|index| self.base + offset + 16 * index) {
            let high = machine.read64(record + 8);
            if high & PENDING != 0 {
                let address = machine.read64(record) & TABLE;
                machine.write32(record + 12, CLEAR);
                let write = Some(high & IS_READ == 0);
                return Some(DmaFault { device: Address(high as u16), address, write });
            }
        }
        let status = machine.read32(self.base + register::FAULT_STATUS);
        machine.write32(self.base + register::FAULT_STATUS, status & STICKY);
        None
    }

    fn root_entry(&self, device: Address) -> u64 {
        (self.root << FRAME_SHIFT) + u64::from(device.bus()) * 16
    }

    /// Frame of the context table of the device's bus. It stays when its devices go: there are few buses.
    fn context_table<M: PhysicalMemory + Registers>(
        &self,
        machine: &mut M,
        frames: &mut impl FrameSource,
        device: Address,
    ) -> Result<u64, Error> {
        let at = self.root_entry(device);
        let entry = machine.read(at);
        if entry & PRESENT != 0 {
            return Ok(entry >> FRAME_SHIFT);
        }
        let frame = frames.take().ok_or(Error::OutOfMemory)?;
        machine.zero_frames(frame, 1);
        machine.write(at, frame << FRAME_SHIFT | PRESENT);
        Ok(frame)
    }

    /// Makes the unit see an entry that was absent before.
    fn publish<M: Registers>(&self, machine: &mut M, device: Address, domain: usize) -> Result<(), Error> {
        if self.capabilities.has(Capabilities::CACHES_ABSENT) {
            // What was absent is cached under domain 0 (6.1).
            self.invalidate_contexts(machine, one_context(device, NO_DOMAIN))?;
            self.invalidate_translations(machine, Some(domain))?;
        }
        self.flush_writes(machine)
    }

    fn flush_writes<M: Registers>(&self, machine: &mut M) -> Result<(), Error> {
        fence(Ordering::SeqCst);
        if self.capabilities.has(Capabilities::NEEDS_FLUSH) {
            self.command(machine, global::TRANSLATE, global::FLUSH_WRITES)?;
        }
        Ok(())
    }

    /// Invalidates cached context entries and waits (11.4.5); `what` says which.
    fn invalidate_contexts<M: Registers>(&self, machine: &mut M, what: u64) -> Result<(), Error> {
        const START: u64 = 1 << 63;
        fence(Ordering::SeqCst);
        let command = self.base + register::CONTEXT_COMMAND;
        machine.write64(command, START | what);
        wait_until(machine, |machine| machine.read64(command) & START == 0)
    }

    /// Invalidates the cached translations of a domain, or all, and waits until accesses that used them
    /// are done (11.4.8.1).
    fn invalidate_translations<M: Registers>(
        &self,
        machine: &mut M,
        domain: Option<usize>,
    ) -> Result<(), Error> {
        const START: u64 = 1 << 63;
        const ALL: u64 = 1 << 60;
        const ONE_DOMAIN: u64 = 2 << 60;
        const DRAIN_READS: u64 = 1 << 49;
        const DRAIN_WRITES: u64 = 1 << 48;
        fence(Ordering::SeqCst);
        let what = domain.map_or(ALL, |domain| ONE_DOMAIN | domain_id(domain) << 32);
        let reads = if self.capabilities.has(Capabilities::DRAINS_READS) { DRAIN_READS } else { 0 };
        let writes = if self.capabilities.has(Capabilities::DRAINS_WRITES) { DRAIN_WRITES } else { 0 };
        machine.write64(self.invalidate, START | what | reads | writes);
        wait_until(machine, |machine| machine.read64(self.invalidate) & START == 0)
    }
}

/// Stands for domain identifier 0.
const NO_DOMAIN: usize = usize::MAX;

/// A domain's identifier in the unit; 0 stands for absent entries.
fn domain_id(domain: usize) -> u64 {
    domain.wrapping_add(1) as u64
}

/// Names one device's context entry to [`Vtd::invalidate_contexts`].
fn one_context(device: Address, domain: usize) -> u64 {
    const ONE_DEVICE: u64 = 3 << 61;
    ONE_DEVICE | u64::from(device.0) << 16 | domain_id(domain)
}

/// Physical address of a device's entry in a context table.
fn context_entry(table: u64, device: Address) -> u64 {
    (table << FRAME_SHIFT) + u64::from(device.0 & 0xff) * 16
}
