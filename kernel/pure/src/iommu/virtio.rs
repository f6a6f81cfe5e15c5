//! virtio-iommu: requests through a queue, faults through another.
//!
//! Source: VIRTIO 1.2, section 5.13.

use super::queue::{Buffer, Queue, SIZE};
use super::request::Request;
use super::{DmaFault, Domain, Error, Means, PATIENCE_NS, Result, wait_until, zeroed};
use crate::acpi::{Tables, Viot};
use crate::frames::Pages;
use crate::ioapic;
use crate::machine::{Hardware, PhysAddr, PhysicalMemory, Registers};
use crate::msix::Message;
use crate::pci::{Address, Function, Pci, command, offset};
use crate::virtio_pci::{self, Structure, common};
use core::cell::Cell;
use nom_abi::memory::FRAME_SHIFT;

/// Feature bits (5.13.3).
mod feature {
    pub const MAP_UNMAP: u64 = 1 << 2;
    pub const BYPASS_CONFIG: u64 = 1 << 6;
    pub const VERSION_1: u64 = 1 << 32;
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    /// Without these the unit cannot be used.
    pub const NEEDED: u64 = MAP_UNMAP | VERSION_1;
    /// The old bypass, under which unattached devices reach everything, is not among them.
    pub const WANTED: u64 = NEEDED | BYPASS_CONFIG | ACCESS_PLATFORM;
}

/// Device status bits (2.1).
mod status {
    pub const ACKNOWLEDGE: u8 = 1;
    pub const DRIVER: u8 = 2;
    pub const DRIVER_OK: u8 = 4;
    pub const FEATURES_OK: u8 = 8;
}

/// Offsets in the device's configuration (5.13.4).
mod config {
    pub const PAGE_SIZES: u64 = 0;
    pub const BYPASS: u64 = 36;
}

const REQUEST_QUEUE: u16 = 0;
const EVENT_QUEUE: u16 = 1;
/// Requests that are under way at a time: each takes two descriptors.
const BATCH: u16 = SIZE / 2;
/// Bytes between two requests in the buffer area.
const REQUEST_STRIDE: u64 = 64;
/// Where a request's answer is behind its start: status and three reserved bytes.
const ANSWER: u64 = 40;
const ANSWER_BYTES: u32 = 4;
/// A status that no answer has.
const UNANSWERED: u8 = 0xff;
/// Bytes between two event buffers.
const EVENT_STRIDE: u64 = 32;
/// Bytes of a fault report.
const EVENT_BYTES: u32 = 24;
/// A running virtio-iommu.
#[derive(Debug)]
pub struct VirtioIommu {
    requests: Queue,
    /// Patience with it that is left, in nanoseconds.
    left: Cell<u64>,
    events: Queue,
    /// Register whose reading takes back the interrupt line.
    interrupt_status: u64,
    io_apic: Option<u64>,
    viot: Viot,
}

impl VirtioIommu {
    /// Starts the unit: from here on unattached devices reach nothing.
    pub fn start(by: &mut Means<impl Hardware>, tables: &Tables, viot: Viot, pci: &Pci) -> Result<Self> {
        let function = pci.remapper().filter(|function| function.address == Address(viot.iommu));
        let function = function.ok_or(Error::Refused("the virtio-iommu that the VIOT names is not there"))?;
        if !pci.switch_function_on(by.machine, function) {
            return Err(Error::Refused("the virtio-iommu does not come out of reset"));
        }
        let [common, notify, interrupt, own] = find(by.machine, pci, function)
            .ok_or(Error::Refused("the virtio-iommu lacks a register structure"))?;
        let (common, own) = (common.address, own.address);
        let features = negotiate(by.machine, common)?;
        let sizes = by.machine.read32(own + config::PAGE_SIZES);
        if sizes.trailing_zeros() > FRAME_SHIFT {
            return Err(Error::Refused("the virtio-iommu maps no 4 KiB pages"));
        }
        let mut unit = VirtioIommu {
            requests: start_queue(by, common, notify, REQUEST_QUEUE)?,
            left: Cell::new(PATIENCE_NS),
            events: start_queue(by, common, notify, EVENT_QUEUE)?,
            interrupt_status: interrupt.address,
            io_apic: tables.io_apic,
            viot,
        };
        unit.requests.disable_interrupts(by.machine);
        let before = by.machine.read8(common + common::STATUS);
        by.machine.write8(common + common::STATUS, before | status::DRIVER_OK);
        if features & feature::BYPASS_CONFIG != 0 {
            by.machine.write8(own + config::BYPASS, 0);
        }
        unit.offer_events(by.machine);
        Ok(unit)
    }

    fn endpoint(&self, device: Address) -> Result<u32> {
        self.viot.endpoint(device.0).ok_or(Error::NotCovered)
    }

    /// Has the device carry requests out, in batches, and waits for each batch. Returns the first refusal,
    /// after the batch that it is in.
    fn submit(&mut self, machine: &mut impl Hardware, mut all: impl Iterator<Item = Request>) -> Result<()> {
        loop {
            let mut count = 0;
            for (slot, request) in (0..BATCH).zip(&mut all) {
                self.write_request(machine, slot, &request);
                count = slot + 1;
            }
            if count == 0 {
                return Ok(());
            }
            self.run(machine, count)?;
            for slot in 0..count {
                match self.answer(machine, slot) {
                    0 => {}
                    status => return Err(Error::Status(status)),
                }
            }
        }
    }

    fn request_address(&self, slot: u16) -> PhysAddr {
        self.requests.buffers() + u64::from(slot) * REQUEST_STRIDE
    }

    /// Writes a request where the device will read it, and offers it.
    fn write_request(&mut self, memory: &mut impl PhysicalMemory, slot: u16, request: &Request) {
        let address = self.request_address(slot);
        memory.write_bytes(address, &request.bytes);
        let answer = address + ANSWER;
        memory.write_bytes(answer, &[UNANSWERED; ANSWER_BYTES as usize]);
        self.offer_pair(memory, slot, [(address, request.length), (answer, ANSWER_BYTES)]);
    }

    /// Offers two parts of memory, address and length: one that the device reads, and one that it writes.
    fn offer_pair(&mut self, memory: &mut impl PhysicalMemory, slot: u16, parts: [(PhysAddr, u32); 2]) {
        let [first, second] = [2 * slot, 2 * slot + 1];
        for ((address, length), descriptor) in parts.into_iter().zip([first, second]) {
            let is_first = descriptor == first;
            let part = Buffer { address, length, device_writes: !is_first, next: is_first.then_some(second) };
            self.requests.describe(memory, descriptor, part);
        }
        self.requests.offer(memory, first);
    }

    fn answer(&self, memory: &impl PhysicalMemory, slot: u16) -> u8 {
        let mut status = [0];
        memory.read_bytes(self.request_address(slot) + ANSWER, &mut status);
        status[0]
    }

    /// Notifies the device of `count` requests and waits until it has used all.
    fn run(&mut self, machine: &mut impl Hardware, count: u16) -> Result<()> {
        self.requests.notify(machine);
        let mut done = 0;
        wait_until(machine, &self.left, |machine| {
            while done < count && self.requests.take_used(machine).is_some() {
                done += 1;
            }
            done == count
        })
    }

    fn offer_events(&mut self, machine: &mut impl Hardware) {
        for buffer in 0..SIZE {
            let address = self.events.buffers() + u64::from(buffer) * EVENT_STRIDE;
            let part = Buffer { address, length: EVENT_BYTES, device_writes: true, next: None };
            self.events.describe(machine, buffer, part);
            self.events.offer(machine, buffer);
        }
        self.events.notify(machine);
    }

    /// Has a device reach what the domain says, which for its first device takes its highest table, if the
    /// unit has tables. The device reaches nothing new after an error.
    pub fn attach(&mut self, by: &mut Means<impl Hardware>, device: Address, to: &mut Domain) -> Result<()> {
        let request = Request::attach(id(*to), self.endpoint(device)?);
        self.submit(by.machine, [request].into_iter())
    }

    /// Has an attached device reach nothing. What it could reach may be used for other things only after
    /// success.
    /// With its last endpoint a domain and its mappings end (5.13.6.3.1).
    pub fn detach(&mut self, machine: &mut impl Hardware, device: Address, domain: Domain) -> Result<()> {
        let request = Request::detach(id(domain), self.endpoint(device)?);
        self.submit(machine, [request].into_iter())
    }

    /// Lets the domain's devices reach pages. After an error some may be mapped.
    /// Maps each page as a unit of its own: the device unmaps only what it mapped as one.
    pub fn map(&mut self, by: &mut Means<impl Hardware>, domain: Domain, pages: Pages) -> Result<()> {
        let size = pages.size.frames();
        let starts = pages.frames().step_by(size as usize);
        self.submit(by.machine, starts.map(|start| Request::map(id(domain), start..start + size)))
    }

    /// Takes pages away again, as [`super::Iommu::unmap`] says.
    pub fn unmap(&mut self, machine: &mut impl Hardware, domain: Domain, pages: Pages) -> Result<()> {
        self.submit(machine, [Request::unmap(id(domain), pages.frames())].into_iter())
    }

    /// The next fault report (5.13.6.9).
    pub fn take_fault(&mut self, machine: &mut impl Hardware) -> Option<DmaFault> {
        machine.read8(self.interrupt_status);
        loop {
            let buffer = self.events.take_used(machine)? % SIZE;
            let mut report = [0; EVENT_BYTES as usize];
            machine.read_bytes(self.events.buffers() + u64::from(buffer) * EVENT_STRIDE, &mut report);
            self.events.offer(machine, buffer);
            self.events.notify(machine);
            let word = |at: usize| u32::from_le_bytes(core::array::from_fn(|byte| report[at + byte]));
            if let Some(function) = self.viot.function(word(8)) {
                let address = u64::from(word(16)) | u64::from(word(20)) << 32;
                return Some(DmaFault { device: Address(function), address });
            }
        }
    }

    /// Has blocked accesses signalled by this message: by MSI-X, else by the PCI interrupt line.
    pub fn enable_interrupt(&self, machine: &mut impl Registers, pci: &Pci, message: Message) {
        let Some(function) = pci.remapper() else { return };
        if function.bind(machine, 0, message) {
            return;
        }
        if let Some(io_apic) = self.io_apic {
            let mut config = pci.ecam.config(machine, function.address);
            let before = config.read16(offset::COMMAND);
            config.write16(offset::COMMAND, before & !command::NO_INTX);
            ioapic::route_pci_lines(machine, io_apic, message);
        }
    }
}

/// A domain's identifier in the unit.
fn id(domain: Domain) -> u32 {
    domain.app.index() as u32
}

/// The device's structures: common, notifications, interrupts, its own.
fn find(machine: &mut impl Registers, pci: &Pci, function: &Function) -> Option<[Structure; 4]> {
    let config = &mut pci.ecam.config(machine, function.address);
    let mut find = |kind, bytes| {
        virtio_pci::structure(config, function, kind).filter(|structure| structure.bytes >= bytes)
    };
    let common = find(virtio_pci::COMMON, common::BYTES)?;
    let notify = find(virtio_pci::NOTIFY, 2)?;
    Some([common, notify, find(virtio_pci::INTERRUPT, 1)?, find(virtio_pci::DEVICE, config::BYPASS)?])
}

/// Initialises the device up to its queues (3.1.1), and returns the features that it has.
fn negotiate(machine: &mut impl Registers, common: u64) -> Result<u64> {
    machine.write8(common + common::STATUS, status::ACKNOWLEDGE);
    machine.write8(common + common::STATUS, status::ACKNOWLEDGE | status::DRIVER);
    let mut features = 0;
    for word in 0..2 {
        machine.write32(common + common::DEVICE_FEATURE_SELECT, word);
        let offered = machine.read32(common + common::DEVICE_FEATURE);
        let taken = offered & (feature::WANTED >> (32 * word)) as u32;
        machine.write32(common + common::DRIVER_FEATURE_SELECT, word);
        machine.write32(common + common::DRIVER_FEATURE, taken);
        features |= u64::from(taken) << (32 * word);
    }
    if features & feature::NEEDED != feature::NEEDED {
        return Err(Error::Refused("the virtio-iommu cannot map and unmap"));
    }
    let wanted = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
    machine.write8(common + common::STATUS, wanted);
    match machine.read8(common + common::STATUS) & status::FEATURES_OK {
        0 => Err(Error::Refused("the virtio-iommu does not accept its own features")),
        _ => Ok(features),
    }
}

/// Sets a queue up. Events go by the first MSI-X vector, if there is one.
fn start_queue(by: &mut Means<impl Hardware>, common: u64, notify: Structure, number: u16) -> Result<Queue> {
    const NO_VECTOR: u16 = 0xffff;
    let (frame, machine) = (zeroed(by, 1)?, &mut *by.machine);
    machine.write16(common + common::CONFIG_VECTOR, NO_VECTOR);
    machine.write16(common + common::QUEUE_SELECT, number);
    let vector = if number == EVENT_QUEUE { 0 } else { NO_VECTOR };
    machine.write16(common + common::QUEUE_VECTOR, vector);
    let offset = u64::from(machine.read16(common + common::QUEUE_NOTIFY_OFFSET));
    let queue = Queue::new(frame, number, notify.address + offset * notify.notify_stride);
    match queue.enable(machine, common) {
        true => Ok(queue),
        false => Err(Error::Refused("the virtio-iommu's queues are too short")),
    }
}
