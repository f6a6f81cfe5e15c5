use super::*;
use crate::testing::{FakeMemory, cases};
use proptest::prelude::*;

const MEMORY_END: u64 = 0x10_0000;
const RSDP: u64 = 0xe_0000;

/// Firmware that lays tables out one behind the other.
struct Firmware {
    memory: FakeMemory,
    next: u64,
    tables: Vec<u64>,
}

impl Firmware {
    fn new() -> Firmware {
        Firmware { memory: FakeMemory::new(), next: 0xf_0000, tables: Vec::new() }
    }

    fn place(&mut self, signature: &[u8; 4], body: &[u8]) -> u64 {
        let mut bytes = signature.to_vec();
        bytes.extend((HEADER_BYTES as u32 + body.len() as u32).to_le_bytes());
        bytes.resize(HEADER_BYTES as usize, 0);
        bytes.extend(body);
        bytes[9] = checksum(&bytes);
        let address = self.next;
        self.memory.write_bytes(address, &bytes);
        self.next += bytes.len() as u64;
        address
    }

    fn with(mut self, signature: &[u8; 4], body: &[u8]) -> Firmware {
        let address = self.place(signature, body);
        self.tables.push(address);
        self
    }

    /// Finishes with the root tables; the old root is empty if there is a new one.
    fn read(mut self, revision: u8) -> Tables {
        let body = |width: usize, tables: &[u64]| -> Vec<u8> {
            tables.iter().flat_map(|table| table.to_le_bytes()[..width].to_vec()).collect()
        };
        let tables = self.tables.clone();
        let old = self.place(b"RSDT", &body(4, if revision < 2 { &tables } else { &[] }));
        let new = self.place(b"XSDT", &body(8, &tables));
        let mut pointer = b"RSD PTR ".to_vec();
        pointer.resize(16, 0);
        pointer[15] = revision;
        pointer.extend((old as u32).to_le_bytes());
        pointer[8] = checksum(&pointer);
        pointer.extend(36_u32.to_le_bytes());
        pointer.extend(new.to_le_bytes());
        pointer.extend([0; 4]);
        pointer[32] = checksum(&pointer);
        self.memory.write_bytes(RSDP, &pointer);
        Tables::read(&self.memory, RSDP, MEMORY_END)
    }
}

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte))
}

/// Concatenates little-endian fields.
macro_rules! fields {
    ($($value:expr),* $(,)?) => {{
        let mut bytes: Vec<u8> = Vec::new();
        $(bytes.extend($value.to_le_bytes());)*
        bytes
    }};
}

fn madt() -> Vec<u8> {
    let mut body = fields!(0xfee0_0000_u32, 1_u32);
    body.extend(fields!(0_u8, 8_u8, 0_u8, 0_u8, 1_u32)); // enabled
    body.extend(fields!(0_u8, 8_u8, 1_u8, 1_u8, 0_u32)); // could be plugged in later
    body.extend(fields!(1_u8, 12_u8, 0_u8, 0_u8, 0xfec0_0000_u32, 0_u32));
    body.extend(fields!(1_u8, 12_u8, 1_u8, 0_u8, 0xfec1_0000_u32, 24_u32));
    body.extend(fields!(0_u8, 8_u8, 2_u8, 5_u8, 1_u32));
    body.extend(fields!(9_u8, 16_u8, 0_u16, 300_u32, 1_u32, 3_u32)); // x2APIC
    body.extend(fields!(9_u8, 16_u8, 0_u16, 5_u32, 1_u32, 3_u32)); // the same processor again
    body
}

fn viot() -> Vec<u8> {
    let mut body = fields!(2_u16, 48_u16, 0_u64);
    body.extend(fields!(3_u8, 0_u8, 16_u16, 0_u16, 0x20_u16, 0_u64));
    body.extend(fields!(
        1_u8, 0_u8, 24_u16, 0x100_u32, 0_u16, 0_u16, 0x10_u16, 0xff_u16, 48_u16, 0_u16, 0_u32
    ));
    body
}

#[test]
fn processors_are_those_that_are_enabled() {
    for revision in [0, 2] {
        let tables = Firmware::new().with(b"APIC", &madt()).read(revision);
        assert_eq!(&tables.processors[..], &[0, 5, 300]);
        assert_eq!(tables.io_apic, Some(0xfec0_0000));
    }
}

#[test]
fn devices_are_found() {
    let mut mcfg = fields!(0_u64);
    mcfg.extend(fields!(0xd000_0000_u64, 1_u16, 0_u8, 255_u8, 0_u32)); // another segment
    mcfg.extend(fields!(0xb000_0000_u64, 0_u16, 0_u8, 255_u8, 0_u32));
    let mut dmar = fields!(38_u8, 0_u8, 0_u16, 0_u64);
    dmar.extend(fields!(2_u16, 8_u16, 0_u32)); // not a unit
    // A unit with two devices in its scope: one behind the root, and the I/O APIC.
    dmar.extend(fields!(0_u16, 32_u16, 1_u16, 0_u16, 0xfed9_0000_u64));
    dmar.extend(fields!(1_u8, 8_u8, 0_u16, 0_u8, 3_u8, 1_u8, 2_u8));
    dmar.extend(fields!(3_u8, 8_u8, 0_u16, 0_u8, 0xf0_u8, 0x1f_u8, 7_u8));
    let tables = Firmware::new().with(b"MCFG", &mcfg).with(b"DMAR", &dmar).read(2);
    assert_eq!(tables.ecam, Some(Ecam { base: 0xb000_0000, first_bus: 0, last_bus: 255 }));
    assert_eq!(&tables.remapping_units[..], &[0xfed9_0000]);
    assert_eq!(tables.io_apic_source, 0xf0ff);
}

#[test]
fn endpoints_are_numbered_as_the_viot_says() {
    let viot = Firmware::new().with(b"VIOT", &viot()).read(2).viot.expect("there is one");
    assert_eq!(viot.iommu, 0x20);
    assert_eq!(viot.endpoint(0x10), Some(0x100));
    assert_eq!(viot.endpoint(0xff), Some(0x1ef));
    assert_eq!((viot.endpoint(0xf), viot.endpoint(0x100)), (None, None));
    assert_eq!(viot.function(0x1ef), Some(0xff));
    assert_eq!((viot.function(0xff), viot.function(0x1f0)), (None, None));
}

/// A FADT with these fields, each at its offset in the table, that leads to a DSDT with this bytecode.
fn with_fadt(fields: &[(usize, &[u8])], bytecode: &[u8]) -> Firmware {
    let mut firmware = Firmware::new();
    let dsdt = firmware.place(b"DSDT", bytecode);
    let mut fadt = vec![0; 220];
    let address = dsdt.to_le_bytes();
    for (offset, bytes) in fields.iter().copied().chain([(140, &address[..])]) {
        fadt[offset - HEADER_BYTES as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    firmware.with(b"FACP", &fadt)
}

/// A FADT that leads to a DSDT with this bytecode.
fn with_bytecode(bytecode: &[u8]) -> Firmware {
    with_fadt(&[], bytecode)
}

/// Fixed hardware as QEMU's `q35` has it.
const FIXED: [(usize, &[u8]); 4] = [(46, &[9, 0]), (56, &[0x00, 0x06]), (64, &[0x04, 0x06]), (88, &[4])];
/// No fixed hardware: the flag, and the sleep control register of QEMU's `microvm`.
const REDUCED: [(usize, &[u8]); 2] = [(112, &[0, 0, 0x10, 0]), (244, &[0, 8, 0, 0, 0, 2, 0xa0, 0xfe])];
/// As QEMU's `microvm` describes its generic event device.
const EVENT_DEVICE: &[u8] = b"\x08_HID\x0dACPI0013\x00\x08_CRS\x11\x0e\x0a\x0b\
    \x89\x06\x00\x03\x01\x09\x00\x00\x00\x79\x00\x5b\x80EREG\x00\x0c\x00\x00\xa0\xfe\x0a\x04";

#[test]
fn the_machine_is_switched_off_by_the_register_that_it_has() {
    let off = |register, value| Some((Register(register), value));
    for (fields, sleep, expected) in [
        (&FIXED[..], &b"\x08_S5_\x12\x06\x04\x00\x00\x00\x00"[..], off(0x604, 1 << 13)),
        (&FIXED[..], b"\x08_S5_\x12\x06\x04\x0a\x07\x00\x00\x00", off(0x604, 7 << 10 | 1 << 13)),
        (&FIXED[..], b"\x08_S5_\x12\x06\x04\x01\x00\x00\x00", off(0x604, 1 << 10 | 1 << 13)),
        (&FIXED[..], b"\x08_S5_\x12\x06\x04\x0a\x08", None),
        (&FIXED[..], b"\x08_S5_\x12\x06", None),
        (&FIXED[..], b"\x08_S3_\x12\x06\x04\x00\x00\x00\x00", None),
        (&FIXED[..2], b"\x08_S5_\x12\x06\x04\x00\x00\x00\x00", None),
        (&REDUCED[..], b"\x08_S5_\x12\x07\x04\x0a\x05\x00\x00\x00", off(0xfea0_0200, 5 << 2 | 1 << 5)),
        (&REDUCED[..1], b"\x08_S5_\x12\x07\x04\x0a\x05\x00\x00\x00", None),
    ] {
        assert_eq!(with_fadt(fields, sleep).read(2).power_off, expected, "{sleep:?}");
    }
}

#[test]
fn the_power_button_is_fixed_or_that_of_the_event_device() {
    let fixed = PowerButton { events: Register(0x600), interrupt: 9 };
    assert_eq!(with_fadt(&FIXED, b"").read(2).power_button, Some(fixed));
    assert_eq!((fixed.events.port(), Register(0x1_0000).port()), (Some(0x600), None));
    assert_eq!(with_fadt(&FIXED[..3], b"").read(2).power_button, None, "registers of unknown length");
    let reduced = PowerButton { events: Register(0xfea0_0000), interrupt: 9 };
    assert_eq!(with_fadt(&REDUCED, EVENT_DEVICE).read(2).power_button, Some(reduced));
    for length in 0..EVENT_DEVICE.len() - 2 {
        assert_eq!(with_fadt(&REDUCED, &EVENT_DEVICE[..length]).read(2).power_button, None, "{length}");
    }
}

#[test]
fn configuration_space_is_found_in_bytecode_if_there_is_no_table() {
    let method = b"\x5b\x82\x14\x0c_CBA\x00\xa4\x0c\x00\x00\x00\xe0rest";
    let name = b"\x08_CBA\x0e\x00\x00\x00\x00\x01\x00\x00\x00";
    let ecam = |base| Some(Ecam { base, first_bus: 0, last_bus: 255 });
    assert_eq!(with_bytecode(method).read(2).ecam, ecam(0xe000_0000));
    assert_eq!(with_bytecode(name).read(2).ecam, ecam(0x1_0000_0000));
    for unusable in [&b"_CBA"[..], b"_CBA\x00\xa4\x0c\x01\x00\x00\xe0", b"_CBA\x00\xa4\x0c\x00\x00", b"_CB"] {
        assert_eq!(with_bytecode(unusable).read(2).ecam, None);
    }
    let mut mcfg = fields!(0_u64);
    mcfg.extend(fields!(0xb000_0000_u64, 0_u16, 0_u8, 255_u8, 0_u32));
    assert_eq!(with_bytecode(method).with(b"MCFG", &mcfg).read(2).ecam, ecam(0xb000_0000));
}

#[test]
fn no_root_pointer_is_a_machine_without_tables() {
    let memory = FakeMemory::new();
    for rsdp in [0, RSDP, MEMORY_END - 8, u64::MAX] {
        assert_eq!(Tables::read(&memory, rsdp, MEMORY_END), Tables::default());
    }
}

#[test]
fn a_table_outside_memory_is_absent() {
    let mut firmware = Firmware::new();
    firmware.tables.extend([MEMORY_END, MEMORY_END - 4, u64::MAX - 3]);
    let tables = firmware.with(b"APIC", &madt()).read(2);
    assert_eq!(&tables.processors[..], &[0, 5, 300]);
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn damaged_tables_are_survived_and_damage_without_a_new_checksum_is_noticed(
        at in HEADER_BYTES as usize..100,
        value: u8,
        corrected: bool,
    ) {
        let body = madt();
        let at = at.min(HEADER_BYTES as usize + body.len() - 1);
        let mut firmware = Firmware::new().with(b"APIC", &body).with(b"VIOT", &viot());
        let mut bytes = vec![0; HEADER_BYTES as usize + body.len()];
        let table = firmware.tables[0];
        firmware.memory.read_bytes(table, &mut bytes);
        let before = bytes[at];
        bytes[at] = value;
        if corrected {
            bytes[9] = bytes[9].wrapping_add(before).wrapping_sub(value);
        }
        firmware.memory.write_bytes(table, &bytes);
        let tables = firmware.read(2);
        prop_assert!(tables.viot.is_some(), "one bad table must not hide another");
        if value != before && !corrected {
            prop_assert_eq!(&tables.processors[..], &[] as &[u32]);
        }
    }

    #[test]
    fn any_body_is_survived(
        signature in prop::sample::select(vec![b"APIC", b"MCFG", b"DMAR", b"VIOT", b"FACP"]),
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let tables = Firmware::new().with(signature, &body).read(2);
        prop_assert!(tables.ecam.is_none_or(|ecam| ecam.first_bus <= ecam.last_bus));
        for function in tables.viot.iter().flat_map(|viot| viot.ranges.iter().map(|range| range.last)) {
            let viot = tables.viot.expect("it has a range");
            let found = viot.endpoint(function).and_then(|endpoint| viot.function(endpoint));
            prop_assert!(found.is_some());
        }
    }
}
