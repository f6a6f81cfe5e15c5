//! Finding functions, numbering buses, placing registers, opening bridges.

use super::{Address, Config, Ecam, Function, MsixTable, Pci, Port, capability, command, offset};
use crate::bars::{self, BRIDGE_ALIGN, Window};
use crate::hotplug::Slot;
use crate::machine::Registers;

/// Bridges behind bridges are followed this deep.
const DEPTH_MAX: u8 = 8;
/// Addresses kept for a slot, at least: what is plugged in later must fit.
const SLOT_WINDOW_BYTES: u64 = 2 << 20;
/// Class code of bridges that are not to other PCI buses (host, ISA); they keep what firmware gave them.
const CLASS_BRIDGE: u32 = 0x06;
/// Class code of remapping units of other kinds: never an application's.
const CLASS_IOMMU: u32 = 0x0806;
/// virtio-iommu: vendor and device.
const VIRTIO_IOMMU: (u16, u16) = (0x1af4, 0x1057);

/// A bus to be scanned.
#[derive(Clone, Copy)]
pub(crate) struct Bus {
    number: u8,
    /// Whether it is a link to one device, which is device 0.
    is_link: bool,
    /// Bridges between it and the root.
    depth: u8,
}

impl Bus {
    /// The link behind a downstream port, whose bridges stay closed.
    pub fn link(number: u8) -> Bus {
        Bus { number, is_link: true, depth: DEPTH_MAX }
    }
}

impl Pci {
    /// Finds every function, numbers the buses, gives all registers places above `low_memory_end` (where
    /// RAM below 4 GiB ends), and switches every function off. Functions that find no free index, and
    /// those on further root buses, stay off and unlisted.
    pub fn enumerate(&mut self, registers: &mut impl Registers, ecam: Ecam, low_memory_end: u64) {
        self.ecam = ecam;
        let mut window = Window::of_machine(&ecam, low_memory_end);
        let root = Bus { number: ecam.first_bus, is_link: false, depth: 0 };
        self.scan(registers, root, &mut window);
    }

    /// Scans one bus and all behind it; returns the last bus number used.
    pub(crate) fn scan(&mut self, registers: &mut impl Registers, bus: Bus, window: &mut Window) -> u8 {
        // Bus numbers are taken from every bridge first: two that claim the same would both answer.
        let (ecam, mut next) = (self.ecam, 0);
        while let Some(address) = next_function(registers, &ecam, bus, &mut next) {
            let mut config = ecam.config(registers, address);
            if is_bridge(&mut config) {
                config.write16(offset::COMMAND, command::NO_INTX);
                config.write32(offset::BUS_NUMBERS, 0);
            }
        }
        let mut last = bus.number;
        next = 0;
        while let Some(address) = next_function(registers, &ecam, bus, &mut next) {
            if is_bridge(&mut ecam.config(registers, address)) {
                last = self.add_port(registers, address, Bus { number: last, ..bus }, window);
            } else {
                self.add_function(registers, address, window);
            }
        }
        last
    }

    /// Numbers and scans the buses behind a bridge, the numbers up to that of `last` being used, and opens
    /// it. Returns the last bus number used.
    fn add_port(&mut self, registers: &mut impl Registers, at: Address, last: Bus, to: &mut Window) -> u8 {
        let Bus { number: last, depth, .. } = last;
        if last >= self.ecam.last_bus || depth >= DEPTH_MAX {
            return last;
        }
        let mut config = self.ecam.config(registers, at);
        let mut port = Port { function: describe(&mut config, at, 2), ..Port::default() };
        bars::place(&mut port.function.bars, to);
        bars::program(&mut config, &port.function.bars);
        port.secondary = last + 1;
        port.is_downstream = is_downstream(&mut config, port.function.express);
        port.slot = Slot::of_port(&mut config, port.function.express);
        write_bus_numbers(&mut config, &port, self.ecam.last_bus);

        to.next = to.next.next_multiple_of(BRIDGE_ALIGN);
        let base = to.next;
        let bus = Bus { number: port.secondary, is_link: port.is_downstream, depth: depth + 1 };
        port.subordinate = self.scan(registers, bus, to);
        let least = if port.slot.is_fixed() { base } else { base + SLOT_WINDOW_BYTES };
        let end = to.next.max(least).next_multiple_of(BRIDGE_ALIGN);
        to.next = end.min(to.end);
        port.window = Window::new(base, to.next.max(base));
        open(&mut self.ecam.config(registers, at), &port);
        self.ports.push(port);
        port.subordinate
    }

    /// Lists a function, switched off. The virtio-iommu is set aside, host and ISA bridges left alone.
    fn add_function(&mut self, registers: &mut impl Registers, address: Address, window: &mut Window) {
        let mut config = self.ecam.config(registers, address);
        let class = config.read32(offset::CLASS_AND_REVISION) >> 8;
        if class >> 16 == CLASS_BRIDGE || class >> 8 == CLASS_IOMMU {
            return;
        }
        config.write16(offset::COMMAND, command::NO_INTX);
        config.write32(offset::ROM, 0);
        let mut function = describe(&mut config, address, 6);
        let is_remapper = (function.vendor, function.device) == VIRTIO_IOMMU;
        let free = self.devices.iter_mut().find(|place| place.vendor == 0);
        let Some(place) = (if is_remapper { Some(&mut self.remapper) } else { free }) else { return };
        bars::place(&mut function.bars, window);
        *place = function;
    }

    /// Indices, one bit each, of the devices behind a port.
    pub(crate) fn devices_behind(&self, port: &Port) -> u64 {
        let behind = self.devices().filter(|(_, function)| port.leads_to(function.address));
        behind.fold(0, |mask, (index, _)| mask | 1 << index)
    }
}

/// The first function of a bus from number `next` on, which then is that of the next one to look at.
fn next_function(registers: &mut impl Registers, ecam: &Ecam, bus: Bus, next: &mut u16) -> Option<Address> {
    const MULTI_FUNCTION: u8 = 1 << 7;
    const FUNCTIONS: u16 = 8;
    let count = if bus.is_link { FUNCTIONS } else { 32 * FUNCTIONS };
    while *next < count {
        let address = Address(Address::new(bus.number, 0, 0).0 + *next);
        let mut config = ecam.config(registers, address);
        let is_there = config.identity().is_some();
        // Without a function 0 that says so there are no others (7.5.1.1.9).
        let is_first = next.is_multiple_of(FUNCTIONS);
        let is_alone = is_first && !(is_there && config.read8(offset::HEADER_TYPE) & MULTI_FUNCTION != 0);
        *next += if is_alone { FUNCTIONS } else { 1 };
        if is_there {
            return Some(address);
        }
    }
    None
}

/// Whether the function leads to another bus.
fn is_bridge<R: Registers>(config: &mut Config<R>) -> bool {
    config.read8(offset::HEADER_TYPE) & 0x7f == 1
}

/// Reads what a function is; its registers have no places yet and it decodes nothing.
fn describe<R: Registers>(config: &mut Config<R>, address: Address, bar_count: usize) -> Function {
    let (vendor, device) = config.identity().unwrap_or((0, 0));
    let class = config.read32(offset::CLASS_AND_REVISION) >> 8;
    let bars = bars::size(config, bar_count);
    let mut function = Function { address, vendor, device, class, bars, ..Function::default() };
    function.msix = MsixTable::read(config, &function.bars);
    function.express = config.find_capability(capability::EXPRESS, 0).unwrap_or(0);
    function
}

/// Whether a bridge is a root port or a switch's downstream port (device/port type, 7.5.3.2).
fn is_downstream<R: Registers>(config: &mut Config<R>, express: u16) -> bool {
    const ROOT_PORT: u16 = 4;
    const DOWNSTREAM: u16 = 6;
    express != 0 && matches!(config.read16(express + 2) >> 4 & 0xf, ROOT_PORT | DOWNSTREAM)
}

fn write_bus_numbers<R: Registers>(config: &mut Config<R>, port: &Port, subordinate: u8) {
    let bytes = [port.function.address.bus(), port.secondary, subordinate, 0];
    config.write32(offset::BUS_NUMBERS, u32::from_le_bytes(bytes));
}

/// Lets a bridge forward its window downstream, and DMA and messages upstream. All regions behind it are
/// in the window without prefetching, which suits every kind.
fn open<R: Registers>(config: &mut Config<R>, port: &Port) {
    /// A base above its limit forwards nothing.
    const CLOSED: u32 = 0x0000_fff0;
    const CLOSED_IO: u16 = 0x00f0;
    write_bus_numbers(config, port, port.subordinate);
    let Window { base, end, .. } = port.window;
    let forwarded = ((end.wrapping_sub(1) >> 16 & 0xfff0) << 16 | (base >> 16 & 0xfff0)) as u32;
    config.write32(offset::MEMORY_WINDOW, if base < end { forwarded } else { CLOSED });
    config.write32(offset::PREFETCH_WINDOW, CLOSED);
    config.write32(offset::PREFETCH_BASE_UPPER, 0);
    config.write32(offset::PREFETCH_LIMIT_UPPER, 0);
    config.write16(offset::IO_WINDOW, CLOSED_IO);
    config.write32(offset::BRIDGE_ROM, 0);
    config.write16(offset::BRIDGE_CONTROL, 0);
    let decode = if port.function.is_placed() { command::MEMORY } else { 0 };
    config.write16(offset::COMMAND, decode | command::BUS_MASTER | command::NO_INTX);
}
