//! A tree of PCI functions with bridges that route by their registers, and slots as QEMU's root ports
//! have them.

use crate::pci::Address;
use std::collections::BTreeMap;

/// Where builders put capabilities.
pub const EXPRESS: usize = 0x40;
pub const MSIX: usize = 0x80;
const VIRTIO: usize = 0x90;
const SLOT_CONTROL: usize = EXPRESS + 0x18;
const SLOT_STATUS: usize = EXPRESS + 0x1a;
const PRESENT: u16 = 1 << 6;
const PRESENCE_CHANGED: u16 = 1 << 3;
const BUTTON: u16 = 1;
const POWER_OFF: u16 = 1 << 10;
const INDICATOR: u16 = 3 << 8;

/// One function.
#[derive(Clone)]
pub struct FakeFunction {
    pub config: Vec<u8>,
    writable: Vec<u8>,
    /// Bits that writing ones clears.
    clears: Vec<u8>,
    bars: [Option<(u64, bool)>; 6],
    /// Contents of its regions.
    regions: BTreeMap<(usize, u64), u8>,
    /// Features, if it is a virtio device.
    virtio: Option<u64>,
    pub resets: u32,
    /// Whether it never comes back from a reset; and how often somebody looked.
    pub hangs: bool,
    pub looks: u32,
}

impl FakeFunction {
    pub fn new(vendor: u16, device: u16, class: u32) -> FakeFunction {
        let mut function = FakeFunction {
            config: vec![0; 4096],
            writable: vec![0; 4096],
            clears: vec![0; 4096],
            bars: [None; 6],
            regions: BTreeMap::new(),
            virtio: None,
            resets: 0,
            hangs: false,
            looks: 0,
        };
        function.put(0, &vendor.to_le_bytes());
        function.put(2, &device.to_le_bytes());
        function.put(8, &(class << 8).to_le_bytes());
        function.allow(4, &0x0407_u16.to_le_bytes());
        function.allow(0x30, &0xffff_f801_u32.to_le_bytes());
        function
    }

    /// A PCIe root port, with a slot if `hot_plug`.
    pub fn root_port(hot_plug: bool) -> FakeFunction {
        let mut port = FakeFunction::bridge().express(4, false).bar(0, 4096).msix(1, 0, 0, 2048);
        if hot_plug {
            port.config[EXPRESS + 3] |= 1;
            // Hot-plug capable, with button, indicators and power control.
            port.put(EXPRESS + 0x14, &0x7b_u32.to_le_bytes());
            port.put(SLOT_CONTROL, &(POWER_OFF | INDICATOR).to_le_bytes());
            port.allow(SLOT_CONTROL, &0x07ff_u16.to_le_bytes());
            port.clears[SLOT_STATUS] = 0x1f;
            port.clears[SLOT_STATUS + 1] = 1;
        }
        port
    }

    /// A bridge without capabilities.
    pub fn bridge() -> FakeFunction {
        let mut bridge = FakeFunction::new(0x1b36, 0x000c, 0x060400);
        bridge.config[0xe] = 1;
        bridge.allow(0x18, &[0xff, 0xff, 0xff, 0, 0xf0, 0xf0, 0, 0]);
        bridge.allow(0x20, &[0xf0, 0xff, 0xf0, 0xff, 0xf0, 0xff, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff]);
        bridge.allow(0x2c, &[0xff; 4]);
        bridge
    }

    /// A virtio device with the feature `VIRTIO_F_ACCESS_PLATFORM` or without.
    pub fn virtio(device: u16, confinable: bool) -> FakeFunction {
        let mut function = FakeFunction::new(0x1af4, device, 0x020000).bar(1, 4096).wide_bar(4, 16384);
        function = function.msix(4, 1, 0, 2048);
        for (index, kind) in [1, 3, 4, 2].into_iter().enumerate() {
            let at = VIRTIO + 20 * index;
            let next = if index < 3 { at + 20 } else { 0 };
            function.put(at, &[9, next as u8, 20, kind, 4, 0, 0, 0]);
            function.put(at + 8, &(0x1000 * index as u32).to_le_bytes());
            function.put(at + 12, &0x1000_u32.to_le_bytes());
            function.put(at + 16, &4_u32.to_le_bytes());
        }
        function.config[MSIX + 1] = VIRTIO as u8;
        function.virtio = Some(1 << 32 | if confinable { 1 << 33 } else { 0 });
        function
    }

    pub fn multi_function(mut self) -> FakeFunction {
        self.config[0xe] |= 0x80;
        self
    }

    pub fn bar(mut self, index: usize, bytes: u64) -> FakeFunction {
        self.bars[index] = Some((bytes, false));
        self.allow(0x10 + 4 * index, &(!(bytes - 1) as u32 & !0xf).to_le_bytes());
        self
    }

    pub fn wide_bar(mut self, index: usize, bytes: u64) -> FakeFunction {
        self.bars[index] = Some((bytes, true));
        self.allow(0x10 + 4 * index, &(!(bytes - 1) & !0xf).to_le_bytes());
        self.config[0x10 + 4 * index] = 0xc;
        self
    }

    pub fn io_bar(mut self, index: usize) -> FakeFunction {
        self.allow(0x10 + 4 * index, &0xffe0_u32.to_le_bytes());
        self.config[0x10 + 4 * index] = 1;
        self
    }

    /// A PCI Express capability of a device/port type.
    pub fn express(mut self, kind: u16, can_reset: bool) -> FakeFunction {
        self.capability(EXPRESS, 0x10);
        self.put(EXPRESS + 2, &(2 | kind << 4).to_le_bytes());
        if can_reset {
            self.put(EXPRESS + 4, &(1_u32 << 28).to_le_bytes());
            self.allow(EXPRESS + 8, &0x8000_u16.to_le_bytes());
        }
        self
    }

    /// MSI-X with table and pending bits in one region.
    pub fn msix(mut self, count: u16, bar: u32, table: u32, pending: u32) -> FakeFunction {
        self.capability(MSIX, 0x11);
        self.put(MSIX + 2, &(count - 1).to_le_bytes());
        self.put(MSIX + 4, &(table | bar).to_le_bytes());
        self.put(MSIX + 8, &(pending | bar).to_le_bytes());
        self.allow(MSIX + 2, &0xc000_u16.to_le_bytes());
        self
    }

    /// Makes a capability at `at` the list's first.
    fn capability(&mut self, at: usize, id: u8) {
        self.config[6] |= 0x10;
        self.put(at, &[id, self.config[0x34]]);
        self.config[0x34] = at as u8;
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.config[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, bytes: &[u8]) {
        self.writable[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.config[at], self.config[at + 1]])
    }

    fn bar_base(&self, index: usize) -> u64 {
        let at = 0x10 + 4 * index;
        let bytes: [u8; 8] = self.config[at..at + 8].try_into().expect("8 bytes");
        let wide = self.bars[index].is_some_and(|(_, wide)| wide);
        u64::from_le_bytes(bytes) & if wide { !0xf } else { 0xffff_fff0 }
    }

    /// The region that has `address`, if the function decodes memory.
    fn region(&self, address: u64) -> Option<(usize, u64)> {
        let decodes = self.half(4) & 2 != 0;
        (0..6).filter(|_| decodes).find_map(|index| {
            let (bytes, _) = self.bars[index]?;
            let offset = address.checked_sub(self.bar_base(index))?;
            (offset < bytes).then_some((index, offset))
        })
    }

    /// Whether a bridge forwards an address.
    fn forwards(&self, address: u64) -> bool {
        let base = u64::from(self.half(0x20) & 0xfff0) << 16;
        let end = (u64::from(self.half(0x22) & 0xfff0) << 16) + (1 << 20);
        self.half(4) & 2 != 0 && (base..end).contains(&address)
    }

    pub fn can_dma(&self) -> bool {
        self.half(4) & 4 != 0
    }

    fn reset(&mut self) {
        self.resets += 1;
        self.put(4, &[0; 2]);
        for index in 0..6 {
            if self.bars[index].is_some_and(|(_, wide)| wide) {
                self.put(0x14 + 4 * index, &[0; 4]);
            }
            let flags = self.config[0x10 + 4 * index] & 0xf;
            self.put(0x10 + 4 * index, &[flags, 0, 0, 0]);
        }
        let control = self.half(MSIX + 2) & 0x3fff;
        self.put(MSIX + 2, &control.to_le_bytes());
        self.regions.clear();
    }
}

/// A function's place in the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The bridge that it is behind.
    pub bridge: Option<usize>,
    pub device: u8,
    pub function: u8,
}

/// The functions of a machine. A function keeps its number for good.
#[derive(Default)]
pub struct FakePci {
    functions: Vec<Option<(Place, FakeFunction)>>,
}

impl FakePci {
    /// Adds a function behind a bridge, or at the root; returns its number.
    pub fn add(&mut self, bridge: Option<usize>, device: u8, function: u8, it: FakeFunction) -> usize {
        self.functions.push(Some((Place { bridge, device, function }, it)));
        let present = bridge.filter(|_| function == 0);
        if let Some(port) = present {
            let port = self.get_mut(port);
            port.config[SLOT_STATUS] |= PRESENT as u8;
            let control = port.half(SLOT_CONTROL) & !(POWER_OFF | INDICATOR) | 1 << 8;
            port.put(SLOT_CONTROL, &control.to_le_bytes());
        }
        self.functions.len() - 1
    }

    pub fn get(&self, number: usize) -> &FakeFunction {
        &self.functions[number].as_ref().expect("the function is there").1
    }

    pub fn get_mut(&mut self, number: usize) -> &mut FakeFunction {
        &mut self.functions[number].as_mut().expect("the function is there").1
    }

    /// Plugs a function in behind a port: it has no power until the port gives it.
    pub fn plug(&mut self, port: usize, it: FakeFunction) -> usize {
        self.functions.push(Some((Place { bridge: Some(port), device: 0, function: 0 }, it)));
        let status = self.get(port).half(SLOT_STATUS) | PRESENT | PRESENCE_CHANGED | BUTTON;
        self.get_mut(port).put(SLOT_STATUS, &status.to_le_bytes());
        self.functions.len() - 1
    }

    /// Presses the button of a port.
    pub fn press(&mut self, port: usize) {
        self.get_mut(port).config[SLOT_STATUS] |= BUTTON as u8;
    }

    /// Tears everything behind a port out.
    pub fn pull(&mut self, port: usize) {
        for place in &mut self.functions {
            if place.as_ref().is_some_and(|(place, _)| place.bridge == Some(port)) {
                *place = None;
            }
        }
        let status = self.get(port).half(SLOT_STATUS) & !PRESENT | PRESENCE_CHANGED;
        self.get_mut(port).put(SLOT_STATUS, &status.to_le_bytes());
    }

    /// Whether something is behind a port.
    pub fn is_present(&self, port: usize) -> bool {
        self.get(port).half(SLOT_STATUS) & PRESENT != 0
    }

    /// Whether the slot's events would interrupt.
    pub fn is_signalling(&self, port: usize) -> bool {
        let (control, status) = (self.get(port).half(SLOT_CONTROL), self.get(port).half(SLOT_STATUS));
        control & 1 << 5 != 0 && control & status & 0x1f != 0
    }

    fn all(&self) -> impl Iterator<Item = (usize, &Place, &FakeFunction)> {
        self.functions
            .iter()
            .enumerate()
            .filter_map(|(number, it)| it.as_ref().map(|(place, function)| (number, place, function)))
    }

    /// The bus that a function is on, if every bridge above routes to it and has its slot powered.
    fn bus(&self, place: &Place) -> Option<u8> {
        let Some(number) = place.bridge else { return Some(0) };
        let (above, bridge) = self.functions[number].as_ref()?;
        let upstream = self.bus(above)?;
        let (secondary, subordinate) = (bridge.config[0x19], bridge.config[0x1a]);
        let is_off = bridge.half(SLOT_CONTROL) & POWER_OFF != 0;
        (secondary > upstream && subordinate >= secondary && !is_off).then_some(secondary)
    }

    /// Address of a function as it is routed now.
    pub fn address(&self, number: usize) -> Option<Address> {
        let (place, _) = self.functions[number].as_ref()?;
        Some(Address::new(self.bus(place)?, place.device, place.function))
    }

    fn at(&self, address: Address) -> Option<usize> {
        let mut found = self.all().filter(|(number, ..)| self.address(*number) == Some(address));
        let first = found.next().map(|(number, ..)| number);
        assert!(found.next().is_none(), "two functions answer at {address:?}");
        first
    }

    pub fn read_config(&mut self, offset: u64, bytes: u64) -> u64 {
        let Some(number) = self.at(Address((offset >> 12) as u16)) else { return u64::MAX };
        let at = (offset & 0xfff) as usize;
        let function = self.get_mut(number);
        if function.hangs && function.resets > 0 {
            function.looks += 1;
            return u64::MAX;
        }
        let config = &self.get(number).config[at..at + bytes as usize];
        config.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    pub fn write_config(&mut self, offset: u64, bytes: u64, value: u64) {
        let Some(number) = self.at(Address((offset >> 12) as u16)) else { return };
        let at = (offset & 0xfff) as usize;
        let before = self.get(number).half(SLOT_CONTROL);
        let function = self.get_mut(number);
        for (index, byte) in value.to_le_bytes().into_iter().take(bytes as usize).enumerate() {
            let (mask, clears) = (function.writable[at + index], function.clears[at + index]);
            let place = &mut function.config[at + index];
            *place = (*place & !mask | byte & mask) & !(byte & clears);
        }
        if function.half(EXPRESS + 8) & 0x8000 != 0 && function.config[EXPRESS] == 0x10 {
            function.put(EXPRESS + 8, &[0; 2]);
            function.reset();
        }
        self.after_slot_control(number, before);
    }

    /// QEMU removes the device when power and indicator of its slot go off.
    fn after_slot_control(&mut self, port: usize, before: u16) {
        let off = POWER_OFF | INDICATOR;
        let (control, status) = (self.get(port).half(SLOT_CONTROL), self.get(port).half(SLOT_STATUS));
        if status & PRESENT != 0 && control & off == off && before & off != off {
            self.pull(port);
        }
    }

    /// The function and region that decode an address.
    pub fn decoder(&self, address: u64) -> Option<(usize, usize)> {
        let mut found = self.all().filter_map(|(number, place, function)| {
            let mut above = place.bridge;
            while let Some(bridge) = above {
                let (place, bridge) = self.functions[bridge].as_ref()?;
                if !bridge.forwards(address) {
                    return None;
                }
                above = place.bridge;
            }
            function.region(address).map(|(region, _)| (number, region))
        });
        let first = found.next();
        assert!(found.next().is_none(), "two regions decode {address:#x}");
        first
    }

    /// Offset of an address in the region that decodes it.
    pub fn region_offset(&self, address: u64) -> u64 {
        let (number, _) = self.decoder(address).expect("somebody decodes it");
        self.get(number).region(address).expect("it is decoded").1
    }

    pub fn read_memory(&mut self, address: u64, bytes: u64) -> u64 {
        let (number, region) = self.decoder(address).unwrap_or_else(|| panic!("nobody at {address:#x}"));
        let offset = self.region_offset(address);
        let function = self.get(number);
        if let (Some(features), 4, 4) = (function.virtio, region, offset) {
            let select = function.regions.get(&(4, 0)).copied().unwrap_or(0);
            return features >> (32 * select) & 0xffff_ffff;
        }
        let byte = |index| function.regions.get(&(region, offset + index)).copied().unwrap_or(0);
        (0..bytes).rev().fold(0, |value, index| value << 8 | u64::from(byte(index)))
    }

    pub fn write_memory(&mut self, address: u64, bytes: u64, value: u64) {
        let (number, region) = self.decoder(address).unwrap_or_else(|| panic!("nobody at {address:#x}"));
        let offset = self.region_offset(address);
        let function = self.get_mut(number);
        for (index, byte) in value.to_le_bytes().into_iter().take(bytes as usize).enumerate() {
            function.regions.insert((region, offset + index as u64), byte);
        }
        if function.virtio.is_some() && (region, offset, value) == (4, 20, 0) {
            function.resets += 1;
        }
    }
}
