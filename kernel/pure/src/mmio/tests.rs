//! Command lines, good and bad, against registers made from the specification.

use super::*;
use crate::ioapic::Input;
use crate::msix::Message;
use std::collections::BTreeMap;
use std::string::String;

const IO_APIC: u64 = 0xfec0_0000;
const PAGE: u64 = 0xfeb0_0000;
const MEMORY_END: u64 = 0x800_0000;

/// Devices by address, and an I/O APIC. Every other address reads as 0, as in QEMU.
#[derive(Default)]
struct Machine {
    /// Version, kind and status.
    devices: BTreeMap<u64, [u32; 3]>,
    /// Devices that go on whatever they are told.
    is_deaf: bool,
    selected: u32,
    io_apic: BTreeMap<u32, u32>,
}

impl Machine {
    fn with(devices: &[(u64, [u32; 2])]) -> Machine {
        let devices = devices.iter().map(|(at, [version, kind])| (*at, [*version, *kind, 4])).collect();
        Machine { devices, ..Machine::default() }
    }

    fn line(&self, line: u32) -> u32 {
        self.io_apic.get(&(0x10 + 2 * line)).copied().unwrap_or(1 << 16)
    }
}

impl Registers for Machine {
    fn read32(&mut self, address: u64) -> u32 {
        if address & !0xf000 == IO_APIC + 0x10 {
            return self.io_apic.get(&self.selected).copied().unwrap_or(1 << 16);
        }
        let Some(device) = self.devices.get(&(address & !0x1ff)) else { return 0 };
        match address & 0x1ff {
            0 => u32::from_le_bytes(*b"virt"),
            4 => device[0],
            8 => device[1],
            0x70 => device[2],
            other => panic!("a read at {other:#x}"),
        }
    }
    fn write32(&mut self, address: u64, value: u32) {
        match address & !0xf000 {
            IO_APIC => self.selected = value,
            0xfec0_0010 => drop(self.io_apic.insert(self.selected, value)),
            _ => {
                assert_eq!((address & 0x1ff, value), (0x70, 0), "the kernel resets, and does nothing else");
                let device = self.devices.get_mut(&(address & !0x1ff)).expect("a device");
                device[2] = if self.is_deaf { 0x80 } else { 0 };
            }
        }
    }
    fn read8(&mut self, _: u64) -> u8 {
        panic!("registers have 32 bits")
    }
    fn write8(&mut self, _: u64, _: u8) {
        panic!("registers have 32 bits")
    }
    fn read16(&mut self, _: u64) -> u16 {
        panic!("registers have 32 bits")
    }
    fn write16(&mut self, _: u64, _: u16) {
        panic!("registers have 32 bits")
    }
    fn read64(&mut self, _: u64) -> u64 {
        panic!("registers have 32 bits")
    }
    fn write64(&mut self, _: u64, _: u64) {
        panic!("registers have 32 bits")
    }
    fn now_ns(&self) -> u64 {
        0
    }
}

/// What comes of the command line's devices, in their order.
fn add(machine: &mut Machine, texts: &[&str]) -> (Pci, Vec<Result<(), &'static str>>) {
    let mut pci = Pci::none();
    let add = |text: &&str| pci.add_mmio(machine, text, &Tables::default(), MEMORY_END);
    let results = texts.iter().map(add).collect();
    (pci, results)
}

fn refusal(devices: &[(u64, [u32; 2])], text: &str) -> String {
    let (pci, results) = add(&mut Machine::with(devices), &[text]);
    assert_eq!(pci.devices().count(), 0, "{text}");
    results[0].expect_err(text).into()
}

#[test]
fn a_device_becomes_that_of_its_kind_on_pci() {
    let mut machine = Machine::with(&[(PAGE + 0xe00, [2, 1]), (0xd000_0000, [2, 4])]);
    let (pci, results) = add(&mut machine, &["512@0xfeb00e00:23", "4K@0xd0000000:5"]);
    assert_eq!(results, [Ok(()), Ok(())]);
    let [network, entropy] = [0, 1].map(|index| *pci.device(index).expect("it is listed"));
    assert_eq!((network.vendor, network.device, network.class), (0x1af4, 0x1041, 0x02_0000));
    assert_eq!((entropy.vendor, entropy.device, entropy.class), (0x1af4, 0x1044, 0x00_ff00));
    assert_eq!((network.mmio, network.bars[0].base), (0xfeb0_0e00, PAGE));
    assert_eq!(network.bars[0].pages(0, 4096), Some(PAGE));
    assert_eq!(network.bars[0].pages(4096, 4096), None);
    assert!(network.has_vector(0) && !network.has_vector(1));
    assert!(!network.is_reserved(0, 0, 4096));
    // It was reset, and has no configuration space: without PCI there is none at any address.
    assert_eq!(machine.devices[&(PAGE + 0xe00)][2], 0);
    assert_eq!(pci.config_read(&mut machine, 0, 0), u32::MAX);
    assert!(!pci.is_confinable(&mut machine, 0), "no IOMMU knows of it");
}

#[test]
fn its_interrupt_is_an_edge_to_its_owners_core() {
    let mut machine = Machine::with(&[(0xd000_0000, [2, 1])]);
    let (pci, _) = add(&mut machine, &["4K@0xd0000000:5"]);
    assert_eq!(machine.line(5) >> 16 & 1, 1);
    assert!(pci.switch_on(&mut machine, 0));
    assert!(pci.devices[0].bind(&mut machine, 0, Message::new(3, 0x41)));
    assert_eq!((machine.line(5), machine.io_apic[&(0x11 + 10)]), (0x41, 3 << 24));
    pci.mask_vector(&mut machine, 0, 0, true);
    assert_eq!(machine.line(5), 0x1_0041);
    pci.mask_vector(&mut machine, 0, 0, false);
    assert_eq!(machine.line(5), 0x41);
    machine.devices.get_mut(&0xd000_0000).unwrap()[2] = 7;
    assert!(pci.switch_off(&mut machine, 0));
    assert_eq!((machine.line(5), machine.devices[&0xd000_0000][2]), (0x1_0041, 0));
    machine.is_deaf = true;
    assert!(!pci.switch_off(&mut machine, 0), "it says that it goes on");
}

/// Whoever is given one device of a page could drive the others.
#[test]
fn a_page_with_two_devices_is_nobodys() {
    let both = [(PAGE + 0x200, [2, 1]), (PAGE + 0xe00, [2, 2])];
    for (named, line) in [(PAGE + 0x200, 17), (PAGE + 0xe00, 23)] {
        let text = std::format!("512@{named:#x}:{line}");
        assert!(refusal(&both, &text).contains("another device"), "{text}");
    }
    let mut deaf = Machine { is_deaf: true, ..Machine::with(&both[..1]) };
    let (pci, results) = add(&mut deaf, &["512@0xfeb00200:17"]);
    assert_eq!((pci.devices().count(), &results[..]), (0, &[Err("it does not come out of its reset")][..]));
    // Places without a device, as QEMU has them, are nothing.
    let mut alone = Machine::with(&[(PAGE, [2, 0]), (PAGE + 0x200, [2, 1])]);
    assert_eq!(add(&mut alone, &["512@0xfeb00200:17"]).1, [Ok(())]);
    // Nor is a device given twice, under whatever size; nor two that share an interrupt.
    let mut machine = Machine::with(&[(PAGE, [2, 1]), (PAGE + 0x1000, [2, 1])]);
    let (pci, results) = add(&mut machine, &["4K@0xfeb00000:5", "512@0xfeb00000:6", "4K@0xfeb01000:5"]);
    assert!(results[1..].iter().all(|result| result.is_err_and(|error| error.contains("before it"))));
    assert_eq!(pci.devices().count(), 1);
}

#[test]
fn what_is_no_device_is_refused_by_name() {
    let modern = [(PAGE, [2, 1])];
    for text in
        ["", "4K", "4K@", "4K@0xfeb00000", "4K@0xfeb00000:", "x@0xfeb00000:5", "4K@0xfeb0000g:5", "4K@-1:5"]
    {
        assert!(refusal(&modern, text).contains("expected <bytes>@<address>:<interrupt>"), "{text}");
    }
    for text in ["4K@0x7000000:5", "512@0xfeb00100:5", "4K@0xfeb00200:5", "4K@0x1feb00000:5", "0@0x10:5"] {
        assert!(refusal(&modern, text).contains("aligned"), "{text}");
    }
    assert!(refusal(&modern, "4K@0xfeb00000:24").contains("I/O APIC"));
    assert!(refusal(&[(PAGE, [1, 1])], "4K@0xfeb00000:5").contains("force-legacy=false"));
    for device in [[2, 0], [3, 1], [2, 0x40]] {
        assert!(refusal(&[(PAGE, device)], "4K@0xfeb00000:5").contains("no virtio device"), "{device:?}");
    }
    assert!(refusal(&[], "4K@0xfeb00000:5").contains("no virtio device"));
    // A fourth part, as Linux takes it, is the device's number there, and says nothing.
    assert_eq!(add(&mut Machine::with(&modern), &["4096@0xfeb00000:5:0"]).1, [Ok(())]);
}

#[test]
fn every_place_of_the_board_can_be_taken_and_no_more() {
    let at = |index: u64| PAGE + index * FRAME_BYTES;
    let devices: Vec<_> = (0..65).map(|index| (at(index), [2, 4])).collect();
    let mut machine = Machine::with(&devices);
    let mut firmware = Tables::default();
    for index in 0..4 {
        firmware.io_apics.push(Input { registers: IO_APIC + u64::from(index) * 0x1000, line: 24 * index });
    }
    let mut pci = Pci::none();
    for index in 0..64 {
        let text = std::format!("4K@{:#x}:{index}", at(index));
        assert_eq!(pci.add_mmio(&mut machine, &text, &firmware, MEMORY_END), Ok(()), "{text}");
    }
    let text = std::format!("4K@{:#x}:64", at(64));
    assert_eq!(pci.add_mmio(&mut machine, &text, &firmware, MEMORY_END), Err("too many devices"));
}
