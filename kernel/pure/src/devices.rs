//! Devices and their owners: registers, interrupts and DMA go to one application, and come back whole.

use crate::frames::Owner;
use crate::hotplug::Event;
use crate::ids::{AppId, CoreId};
use crate::iommu::{DmaFault, Iommu, PORTS_PLACE, Sender, place_of};
use crate::kernel::{FIRST_DEVICE_VECTOR, Kernel, PLATFORM_VECTOR};
use crate::list::List;
use crate::machine::{Frame, Level, Machine, PhysAddr, PhysicalMemory};
use crate::means::Means;
use crate::msix::Message;
use crate::paging::{Caching, Entry};
use crate::pci::{Function, Pci};
use crate::space::{Bounds, Mapping, PAGES_MAX, Space};
use crate::syscalls::{Caller, Reply};
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::board::DmaProtection;
use nom_abi::error::{Error, Result};
use nom_abi::layout::DEVICES_MAX;
use nom_abi::memory::FRAME_BYTES;
use nom_abi::syscall::arguments::*;
use nom_abi::upcall::Upcall;
use nom_abi::{PageSize, Protection};

/// Interrupt vectors that each core has for devices.
pub const VECTORS: usize = 64;
/// Most ranges of one device's registers that can be mapped at a time.
const RANGES_MAX: usize = 8;
/// Most blocked accesses that are looked at at a time, and the pause after that many, in nanoseconds.
const FAULTS_AT_A_TIME: usize = 64;
const FAULTS_PAUSE_NS: u64 = 10_000_000;

/// Interrupt vectors of a core that are bound to devices, from `FIRST_DEVICE_VECTOR` on.
#[derive(Clone, Debug)]
pub(crate) struct Vectors {
    bound: [Option<Binding>; VECTORS],
    /// Whether any of them may be deferred.
    defers: bool,
}

impl Vectors {
    /// Whether any of them may be deferred until its owner has its turn.
    pub(crate) fn defers(&self) -> bool {
        self.defers
    }
}

impl Default for Vectors {
    fn default() -> Vectors {
        Vectors { bound: [None; VECTORS], defers: false }
    }
}

/// Whom a vector belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Binding {
    /// Device, by its index on the board.
    device: u8,
    /// Bit that the owner named.
    bit: u8,
    /// Entry of the device's MSI-X table.
    entry: u16,
    /// Whether its owner wants it masked.
    masked: bool,
    /// Whether it is masked until its owner, who was told, has its turn.
    deferred: bool,
}

impl Binding {
    /// Whether it is that of an entry of a device.
    fn is_of(&self, device: usize, entry: u64) -> bool {
        usize::from(self.device) == device && u64::from(self.entry) == entry
    }
}

/// A range of user addresses where registers were mapped: start, length, and first frame of the registers.
type RegisterRange = (u64, u64, Frame);

/// What an application holds of a device.
#[derive(Clone, Copy, Debug, Default)]
struct Holding {
    owner: Option<AppId>,
    /// Where its registers were mapped.
    ranges: List<RegisterRange, RANGES_MAX>,
    /// Of a full list, which range is looked at next.
    looked: u8,
    /// Whether it is not turned on yet: `device_acquire` is made again until it reaches its owner's grants.
    arriving: bool,
    /// Whether it was asked to let go.
    leaving: bool,
    /// Whether it keeps what its last owner had it do: nobody gets it any more.
    spent: bool,
}

/// The machine's devices.
pub struct Devices<'m> {
    pub(crate) pci: &'m mut Pci,
    pub(crate) iommu: Iommu,
    holdings: [Holding; DEVICES_MAX],
    /// Board time at which more blocked accesses may be waiting to be reported; all ones: none are.
    faults_ns: u64,
    /// Applications, one bit each, whose memory a device may still reach: the unit did not detach it.
    reached: u64,
}

impl<'m> Devices<'m> {
    /// Devices that nobody owns yet.
    pub fn new(pci: &'m mut Pci, iommu: Iommu) -> Devices<'m> {
        let holdings = [Holding::default(); DEVICES_MAX];
        Devices { pci, iommu, holdings, faults_ns: u64::MAX, reached: 0 }
    }

    /// Whether a device may still reach what an application was granted, though it gave the device back.
    pub fn is_reached(&self, app: AppId) -> bool {
        self.reached & app.bit() != 0 || self.holdings.iter().any(|it| it.owner == Some(app))
    }

    /// The device's owner, if it has one.
    pub fn owner(&self, device: usize) -> Option<AppId> {
        self.holdings[device].owner
    }

    /// Board time at which [`Kernel::poll_platform`] wants to look again; all ones: never.
    pub fn deadline_ns(&self) -> u64 {
        self.pci.deadline_ns().min(self.faults_ns)
    }

    /// The function with this index. Errors: NoDevice.
    fn function(&self, device: u64) -> Result<(usize, &Function)> {
        let index = usize::try_from(device).map_err(|_| Error::NoDevice)?;
        Ok((index, self.pci.device(index).ok_or(Error::NoDevice)?))
    }

    /// The function with this index, if `application` owns it and it is turned on. Errors: NoDevice,
    /// NotPermitted.
    fn owned(&self, app: AppId, device: u64) -> Result<(usize, &Function)> {
        let (index, function) = self.function(device)?;
        let is_owned = self.owner(index) == Some(app) && !self.holdings[index].arriving;
        if is_owned { Ok((index, function)) } else { Err(Error::NotPermitted) }
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// Has core 0 told of hot-plug events and of blocked DMA.
    pub(crate) fn start_platform_interrupts(&mut self) {
        let message = Message::to(self.machine.apic_id(CoreId::FIRST), PLATFORM_VECTOR);
        let Devices { pci, iommu, .. } = &mut self.devices;
        if let Some(message) = message {
            pci.enable_hotplug(&mut self.machine, |machine, port, source| {
                iommu.bind(machine, Sender { place: PORTS_PLACE + port, source }, message)
            });
            iommu.enable_interrupt(&mut self.machine, pci, message);
        }
        self.poll_platform(CoreId::FIRST);
    }

    pub(crate) fn device_acquire(&mut self, caller: Caller<'_>, asked: DeviceAcquire) -> Result<Reply> {
        let app = caller.app;
        let (index, function) = self.devices.function(asked.device)?;
        let &Function { address, vendor, device: id, class, .. } = function;
        let holding = &self.devices.holdings[index];
        if holding.owner == Some(app) && holding.arriving {
            return self.go_on_acquiring(app, index);
        }
        let record = self.record(app);
        let permitted = self.bundle.devices(&record).any(|selector| {
            (selector.vendor == 0xffff || selector.vendor == vendor)
                && (selector.device == 0xffff || selector.device == id)
                && (selector.class == 0xff_ffff || selector.class == class)
        });
        if !permitted || self.applications[app].is_bad() || self.devices.owner(index).is_some() {
            return Err(Error::NotPermitted);
        }
        if let Some(why) = self.hindrance(app, index) {
            self.warn_of(app, format_args!("device {index} {why}"));
            return Err(Error::NotPermitted);
        }
        self.attach(app, index, address)?;
        let holding = &mut self.devices.holdings[index];
        (holding.owner, holding.arriving) = (Some(app), true);
        self.go_on_acquiring(app, index)
    }

    /// Has a device reach all that its new owner was granted, piece by piece, and then turns it on.
    fn go_on_acquiring(&mut self, app: AppId, index: usize) -> Result<Reply> {
        let result = match self.iommu(app, |iommu, by| iommu.map_grants(by, app)) {
            Ok(false) => return Ok(Reply::Unfinished),
            Ok(true) if self.devices.pci.switch_on(&mut self.machine, index) => Ok(Reply::DONE),
            Ok(true) => Err(Error::NoDevice),
            Err(error) => Err(self.cannot_confine(app, index, error)),
        };
        self.devices.holdings[index].arriving = false;
        match self.devices.pci.device(index).map(|function| function.address) {
            Some(address) if result.is_err() => {
                self.devices.holdings[index].spent = !self.detach(app, address);
                self.let_go(index, app);
            }
            _ => self.publish_device(index),
        }
        result
    }

    /// Why nobody, or not this application, can be given a device without harm to others.
    fn hindrance(&mut self, app: AppId, index: usize) -> Option<&'static str> {
        let Devices { pci, iommu, holdings, reached, .. } = &mut self.devices;
        let is_others = |other: usize| holdings[other].owner.is_some_and(|it| it != app);
        if holdings[index].spent || *reached & app.bit() != 0 {
            return Some("keeps what its last owner had it do: it has no reset, or was not detached");
        }
        if iommu.protection() == DmaProtection::Trusted {
            return None;
        }
        if !pci.is_confinable(&mut self.machine, index) {
            return Some("ignores the IOMMU (QEMU: iommu_platform=on is missing)");
        }
        pci.group(index).any(is_others).then_some("reaches a device of another owner without the IOMMU")
    }

    /// Has the IOMMU do what takes memory, charged to an application.
    pub(crate) fn iommu<T>(&mut self, app: AppId, act: impl FnOnce(&mut Iommu, &mut Means<M>) -> T) -> T {
        let (owner, at_most) = (Owner::dma(app), self.allowance(app));
        let (machine, frames) = (&mut self.machine, &mut self.frames);
        act(&mut self.devices.iommu, &mut Means { machine, frames, owner, at_most })
    }

    /// Puts a device into its new owner's domain.
    fn attach(&mut self, app: AppId, index: usize, address: crate::pci::Address) -> Result<()> {
        let result = self.iommu(app, |iommu, by| iommu.attach(by, address, app));
        if result == Err(crate::iommu::Error::Silent) {
            self.devices.reached |= app.bit(); // It may still use the domain's tables.
        }
        result.map_err(|error| self.cannot_confine(app, index, error))
    }

    fn cannot_confine(&mut self, app: AppId, index: usize, error: crate::iommu::Error) -> Error {
        self.warn_of(app, format_args!("device {index} cannot be confined: {error:?}"));
        Error::OutOfMemory
    }

    /// Takes a device out of its owner's domain. If the unit does not do it, neither the device nor what its
    /// owner was granted is ever given to anybody again.
    fn detach(&mut self, app: AppId, address: crate::pci::Address) -> bool {
        let result = self.iommu(app, |iommu, by| iommu.detach(by, address, app));
        if let Err(error) = result {
            self.devices.reached |= app.bit();
            let what = "stays attached by the IOMMU, and its owner's memory is lost";
            self.machine.log(Level::Error, format_args!("{address} {what}: {error:?}"));
        }
        result.is_ok()
    }

    pub(crate) fn device_release(&mut self, caller: Caller<'_>, asked: DeviceRelease) -> Result<Reply> {
        let (index, _) = self.devices.owned(caller.app, asked.device)?;
        if self.unbind_some(index) {
            return Ok(Reply::Unfinished);
        }
        if self.devices.holdings[index].ranges.len() > 1 {
            self.unmap_registers(index, caller.app);
            return Ok(Reply::Unfinished);
        }
        self.take_device(caller.app, index)?;
        Ok(Reply::DONE)
    }

    /// Unbinds a device's interrupts from the first core that has any. Returns whether one had.
    fn unbind_some(&mut self, index: usize) -> bool {
        let is_its = |binding: &Binding| usize::from(binding.device) == index;
        let has = |core: &CoreId| self.cores[*core].vectors.bound.iter().flatten().any(is_its);
        let first = self.all_cores().find(has);
        self.unbind_vectors(first.into_iter(), |binding| is_its(binding));
        first.is_some()
    }

    /// Takes a device, none of whose interrupts is bound, from its owner. If it has no reset nobody gets it
    /// any more, unless it was never turned on, so that nobody has seen its registers.
    fn take_device(&mut self, app: AppId, index: usize) -> Result<()> {
        let function = self.devices.pci.device(index).ok_or(Error::NoDevice)?;
        let (address, is_mmio) = (function.address, function.is_mmio());
        let is_reset = self.devices.pci.switch_off(&mut self.machine, index);
        if is_mmio && !is_reset {
            self.warn_of(app, format_args!("device {index} does not stop: its owner keeps it"));
            return Err(Error::WrongState);
        }
        let is_detached = self.detach(app, address);
        let holding = &mut self.devices.holdings[index];
        holding.spent = !(is_detached && (is_reset || holding.arriving));
        self.let_go(index, app);
        Ok(())
    }

    /// Ends an ownership whose device no longer signals or writes anything.
    fn let_go(&mut self, index: usize, app: AppId) {
        for _ in 0..RANGES_MAX {
            self.unmap_registers(index, app);
        }
        let Holding { leaving, spent, .. } = self.devices.holdings[index];
        self.devices.holdings[index] = Holding { spent, ..Holding::default() };
        if leaving {
            self.devices.pci.eject(&mut self.machine, index);
        }
        self.publish_device(index);
    }

    /// Takes the next device, from a number on, of an application that ended. Returns where to go on.
    pub(crate) fn release_device(&mut self, app: AppId, from: usize) -> Option<usize> {
        let index = (from..DEVICES_MAX).find(|index| self.devices.owner(*index) == Some(app))?;
        if self.unbind_some(index) {
            return Some(index);
        }
        // This only fails if the device has just left: then there is nothing to do; or does not stop: then
        // nobody else is given it, nor the memory that it may write to.
        let _ = self.take_device(app, index);
        Some(index + 1)
    }

    /// Unbinds what is bound to a core that its owner gives up. The device keeps an interrupt that it would
    /// send meanwhile, and sends it when the vector is bound again.
    pub(crate) fn unbind_core(&mut self, core: CoreId, app: AppId) {
        let is_owned = |device: &usize| self.devices.owner(*device) == Some(app);
        let owned = (0..DEVICES_MAX).filter(is_owned).fold(0_u64, |all, device| all | 1 << device);
        self.unbind_vectors(core::iter::once(core), |binding| owned & 1 << binding.device != 0);
    }

    fn unbind_vectors(&mut self, cores: impl Iterator<Item = CoreId>, which: impl Fn(&mut Binding) -> bool) {
        for (core, slot) in cores.flat_map(|core| (0..VECTORS).map(move |slot| (core, slot))) {
            if let Some(binding) = self.cores[core].vectors.bound[slot].take_if(&which) {
                let Devices { pci, iommu, .. } = &mut self.devices;
                pci.mask_vector(&mut self.machine, binding.device.into(), binding.entry, true);
                iommu.unbind(&mut self.machine, place_of(core, slot));
            }
        }
    }

    /// Takes a range of registers out of the owner's address space, as far as they still are in it.
    fn unmap_registers(&mut self, index: usize, app: AppId) {
        let Some(range) = self.devices.holdings[index].ranges.pop() else { return };
        let Ok(space) = self.applications[app].space() else { return };
        visit(&mut self.machine, space, range, |machine, entry| machine.write(entry, Entry::EMPTY.0));
        self.for_spaces_in_use(app, |machine, root| machine.flush_space(root, 0, u64::MAX));
    }

    pub(crate) fn device_map(&mut self, caller: Caller<'_>, asked: DeviceMap) -> Result<Reply> {
        let app = caller.app;
        let DeviceMap { device, bar, offset, address, length } = asked;
        let (index, function) = self.devices.owned(app, device)?;
        let register = usize::try_from(bar).ok().filter(|bar| *bar < 6).ok_or(Error::NoSuchRegion)?;
        if !offset.is_multiple_of(FRAME_BYTES) || !length.is_multiple_of(FRAME_BYTES) {
            return Err(Error::Misaligned);
        }
        if length > PAGES_MAX * FRAME_BYTES {
            return Err(Error::InvalidArgument);
        }
        let physical = function.bars[register].pages(offset, length).ok_or(Error::NoSuchRegion)?;
        if length == 0 || function.is_reserved(register, offset, length) {
            return Err(Error::NoSuchRegion);
        }
        let frame = PhysAddr::new(physical).frame();
        let space = self.applications[app].space()?;
        let holding = self.devices.holdings[index];
        let place = usize::from(holding.looked);
        // A place is free again when nothing of its range is mapped any more. One is looked at in a call.
        if holding.ranges.len() == RANGES_MAX {
            let mut is_there = false;
            visit(&mut self.machine, space, holding.ranges[place], |_, _| is_there = true);
            if is_there {
                let next = (place + 1) % RANGES_MAX;
                self.devices.holdings[index].looked = next as u8;
                return if next == 0 { Err(Error::TableFull) } else { Ok(Reply::Unfinished) };
            }
        }
        let (size, count) = (PageSize::Small, length / FRAME_BYTES);
        let (protection, caching) = (Protection::ReadWrite, Caching::Uncached);
        let mapping = Mapping { address, frame, size, count, protection, caching };
        self.map_pages(app, space, Bounds::APPLICATION, &mapping)?;
        let holding = &mut self.devices.holdings[index];
        holding.looked = 0;
        if !holding.ranges.push((address, length, frame)) {
            holding.ranges[place] = (address, length, frame);
        }
        Ok(Reply::DONE)
    }

    pub(crate) fn device_config_read(&mut self, caller: Caller<'_>, of: DeviceConfigRead) -> Result<Reply> {
        let DeviceConfigRead { device, offset } = of;
        let (index, _) = self.devices.owned(caller.app, device)?;
        if !offset.is_multiple_of(4) {
            return Err(Error::Misaligned);
        }
        let offset =
            u16::try_from(offset).ok().filter(|offset| *offset < 4096).ok_or(Error::InvalidArgument)?;
        Ok(Reply::Value(self.devices.pci.config_read(&mut self.machine, index, offset).into()))
    }

    pub(crate) fn interrupt_bind(&mut self, caller: Caller<'_>, asked: InterruptBind) -> Result<Reply> {
        let (core, InterruptBind { device, vector: entry, bit }) = (caller.core, asked);
        let (index, function) = self.devices.owned(caller.app, device)?;
        if bit >= 64 {
            return Err(Error::InvalidArgument);
        }
        if !function.has_vector(entry) {
            return Err(Error::NoSuchInterrupt);
        }
        let function = *function;
        let binding =
            Binding { device: index as u8, bit: bit as u8, entry: entry as u16, ..Binding::default() };
        let same = |slot: &Option<Binding>| slot.is_some_and(|bound| bound.is_of(index, entry));
        let slots = &self.cores[core].vectors.bound;
        let free = slots.iter().position(same).or_else(|| slots.iter().position(Option::is_none));
        let slot = free.ok_or(Error::NoSuchInterrupt)?;
        self.unbind_vectors(self.all_cores(), |other| same(&Some(*other)));
        let what = Message::to(self.machine.apic_id(core), FIRST_DEVICE_VECTOR + slot as u8);
        let sender = Sender { place: place_of(core, slot), source: function.address };
        let message = what.and_then(|what| self.devices.iommu.bind(&mut self.machine, sender, what));
        let message = message.ok_or(Error::NoSuchInterrupt)?;
        self.cores[core].vectors.bound[slot] = Some(binding);
        function.bind(&mut self.machine, binding.entry, message);
        Ok(Reply::DONE)
    }

    pub(crate) fn interrupt_mask(&mut self, caller: Caller<'_>, asked: InterruptMask) -> Result<Reply> {
        let InterruptMask { device, vector: entry, masked } = asked;
        let (index, _) = self.devices.owned(caller.app, device)?;
        if masked > 1 {
            return Err(Error::InvalidArgument);
        }
        let mut bound = self.cores.iter_mut().flat_map(|core| &mut core.vectors.bound).flatten();
        let bound = bound.find(|it| it.is_of(index, entry)).ok_or(Error::NoSuchInterrupt)?;
        bound.masked = masked == 1;
        // An owner's other core does not have others interrupted for it before its turn.
        let is_masked = bound.masked || bound.deferred;
        self.devices.pci.mask_vector(&mut self.machine, index, entry as u16, is_masked);
        Ok(Reply::DONE)
    }

    /// A device's or the platform's interrupt arrived on `core`. A vector that is bound to nothing is one
    /// that was on its way when it was unbound. One whose owner has its turn later is heard once until then,
    /// in its owner's time: whoever runs would pay for the others.
    pub fn interrupt(&mut self, core: CoreId, vector: u8) {
        if vector == PLATFORM_VECTOR {
            return self.poll_platform(core);
        }
        let slot = usize::from(vector.wrapping_sub(FIRST_DEVICE_VECTOR));
        let Some(binding) = self.cores[core].vectors.bound.get(slot).copied().flatten() else { return };
        if let Some(owner) = self.devices.owner(binding.device.into()) {
            let hits_another = self.cores[core].current().is_some_and(|current| current != owner);
            if hits_another && self.context(core, owner).is_ready() {
                self.account(core);
                let vectors = &mut self.cores[core].vectors;
                (vectors.defers, vectors.bound[slot]) = (true, Some(Binding { deferred: true, ..binding }));
                self.devices.pci.mask_vector(&mut self.machine, binding.device.into(), binding.entry, true);
                self.account_to(core, owner);
            }
            self.tell_on(core, owner, Upcall::Interrupt, |events| events.interrupts |= 1 << binding.bit);
        }
    }

    /// Unmasks the vectors of an application on a core that were deferred until it has its turn.
    #[cold]
    pub(crate) fn undefer_vectors(&mut self, core: CoreId, app: AppId) {
        let Devices { pci, holdings, .. } = &mut self.devices;
        let this = &mut self.cores[core].vectors;
        this.defers = false;
        for binding in this.bound.iter_mut().flatten().filter(|binding| binding.deferred) {
            let device = usize::from(binding.device);
            binding.deferred = holdings[device].owner != Some(app);
            this.defers |= binding.deferred;
            if !binding.deferred {
                pci.mask_vector(&mut self.machine, device, binding.entry, binding.masked);
            }
        }
    }

    /// Looks whether devices came, went, or were stopped from reaching foreign memory.
    pub(crate) fn poll_platform(&mut self, core: CoreId) {
        while let Some(event) = self.devices.pci.next_event(&mut self.machine) {
            match event {
                Event::Arrived(devices) => self.arrived(devices),
                Event::RemovalRequested(devices) => each(devices, |index| self.removal_requested(index)),
                Event::Left(devices) => each(devices, |index| self.left(index)),
            }
        }
        self.report_faults(core);
    }

    /// Looks at blocked accesses, so many at a time: a device can cause them faster than that. The time is
    /// its owner's, not that of whom it interrupts.
    fn report_faults(&mut self, core: CoreId) {
        self.account(core);
        let mut last = None;
        for _ in 0..FAULTS_AT_A_TIME {
            let fault = self.devices.iommu.take_fault(&mut self.machine);
            last = fault.and_then(|fault| self.dma_blocked(fault)).or(last);
            if let Some(owner) = last {
                self.account_to(core, owner);
            }
            if fault.is_none() {
                return self.devices.faults_ns = u64::MAX;
            }
        }
        self.devices.faults_ns = self.machine.now_ns() + FAULTS_PAUSE_NS;
    }

    fn arrived(&mut self, devices: u64) {
        each(devices, |index| {
            self.board.devices[index].changes.fetch_add(1, Relaxed);
            self.publish_device(index);
        });
        for app in self.all_applications() {
            self.tell(app, Upcall::DeviceArrived, |_| {});
        }
    }

    fn removal_requested(&mut self, index: usize) {
        match self.devices.owner(index) {
            Some(owner) => {
                self.devices.holdings[index].leaving = true;
                self.tell(owner, Upcall::DeviceLeft, |_| {});
            }
            None => self.devices.pci.eject(&mut self.machine, index),
        }
    }

    pub(crate) fn left(&mut self, index: usize) {
        if let Some((owner, function)) = self.devices.owner(index).zip(self.devices.pci.device(index)) {
            let address = function.address;
            self.unbind_vectors(self.all_cores(), |binding| usize::from(binding.device) == index);
            let _ = self.detach(owner, address);
            self.devices.holdings[index].leaving = false;
            self.let_go(index, owner);
            self.tell(owner, Upcall::DeviceLeft, |_| {});
        }
        self.devices.holdings[index].spent = false;
        self.devices.pci.forget(1 << index);
        self.board.devices[index].changes.fetch_add(1, Relaxed);
        self.publish_device(index);
    }

    /// Counts a blocked access, says so ever more seldom, and tells the device's owner, whose devices are
    /// silenced if there have been too many: it can release them, and is given no other. Returns the owner.
    fn dma_blocked(&mut self, fault: DmaFault) -> Option<AppId> {
        let index = self.devices.pci.index_of(fault.device)?;
        let count = self.board.devices[index].dma_blocked.fetch_add(1, Relaxed).wrapping_add(1);
        if count.is_power_of_two() {
            let text = format_args!("DMA blocked: {:#x} by {}, number {count}", fault.address, fault.device);
            self.machine.log(Level::Warn, text);
        }
        let owner = self.devices.owner(index)?;
        self.tell(owner, Upcall::DmaBlocked, |events| events.fault_address = fault.address);
        if self.applications[owner].blame() {
            self.devices.pci.silence(&mut self.machine, index);
            self.tell(owner, Upcall::DeviceLeft, |_| {});
        }
        Some(owner)
    }
}

/// Looks at the entries by which a range of registers is mapped, as far as it is.
fn visit<M: PhysicalMemory>(
    memory: &mut M,
    space: Space,
    (start, length, frame): RegisterRange,
    mut act: impl FnMut(&mut M, PhysAddr),
) {
    space.visit(memory, start..start + length, |memory, entry, leaf| {
        // Nothing else is ever mapped uncached.
        let is_there = leaf.frame == frame + (leaf.address - start) / FRAME_BYTES;
        if is_there && leaf.caching == Caching::Uncached {
            act(memory, entry);
        }
    });
}

/// Calls `f` with the number of each bit that is set.
fn each(bits: u64, f: impl FnMut(usize)) {
    (0..64).filter(|index| bits & 1 << index != 0).for_each(f);
}

#[cfg(test)]
mod tests;

/// What tests look at.
#[cfg(test)]
mod seen {
    impl super::Vectors {
        pub(crate) fn count(&self) -> usize {
            self.bound.iter().flatten().count()
        }
    }
}
