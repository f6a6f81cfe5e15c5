//! What ACPI says about the machine: processors, PCI configuration space, timer, DMA remapping, power.
//!
//! Only static tables are read, no AML. Firmware is not trusted to be right: a table that lies outside
//! memory, is too short or fails its checksum is as good as absent, and a machine with no tables at all
//! is one with one processor and no devices. Source: ACPI specification 6.4, chapter 5.2.

#[cfg(test)]
mod tests;

use crate::ioapic::Input;
use crate::list::List;
use crate::machine::{PhysAddr, PhysicalMemory};
use crate::pci::{Address, Ecam};
use nom_abi::layout::CORES_MAX;

/// Most DMA remapping units (DMAR) that are kept.
pub const REMAPPING_UNITS_MAX: usize = 4;
/// Most endpoint ranges (VIOT) that are kept.
pub const ENDPOINT_RANGES_MAX: usize = 8;

/// Most I/O APICs (MADT) that are kept.
pub const IO_APICS_MAX: usize = 4;
/// Where a machine without tables has its only one.
const IO_APIC_DEFAULT: Input = Input { registers: 0xfec0_0000, line: 0 };

/// Everything that the kernel wants to know from ACPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Local APIC identifiers of the enabled processors, in table order (MADT); at most [`CORES_MAX`].
    pub processors: List<u32, CORES_MAX>,
    /// Physical address of the registers of the I/O APIC that has interrupts 0 to 23 (MADT).
    pub io_apic: Option<u64>,
    /// The first input of every I/O APIC, by the number of its interrupt (MADT); at most [`IO_APICS_MAX`].
    pub io_apics: List<Input, IO_APICS_MAX>,
    /// PCI Express configuration space of segment 0 (MCFG).
    pub ecam: Option<Ecam>,
    /// Physical addresses of the registers of VT-d remapping units of segment 0 (DMAR).
    pub remapping_units: List<u64, REMAPPING_UNITS_MAX>,
    /// As which function the I/O APIC signals, `bus << 8 | device << 3 | function` (DMAR).
    pub io_apic_source: u16,
    /// The paravirtual DMA remapping unit (VIOT).
    pub viot: Option<Viot>,
    /// How to hear of the power button (FADT, DSDT).
    pub power_button: Option<PowerButton>,
    /// What to write where to switch the machine off (FADT, DSDT).
    pub power_off: Option<(Register, u16)>,
}

/// A virtio-iommu on PCI and the functions whose DMA it translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viot {
    /// The virtio-iommu's own function: `bus << 8 | device << 3 | function`.
    pub iommu: u16,
    /// Functions that it translates.
    pub ranges: List<EndpointRange, ENDPOINT_RANGES_MAX>,
}

/// Consecutive PCI functions with consecutive endpoint identifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointRange {
    /// First function: `bus << 8 | device << 3 | function`.
    pub first: u16,
    /// Last function, inclusive.
    pub last: u16,
    /// Endpoint identifier of the first function.
    pub endpoint: u32,
}

/// A register: an I/O port below 64 KiB, else a physical address, where no device's registers lie lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub u64);

impl Register {
    /// The I/O port, if it is one.
    pub fn port(self) -> Option<u16> {
        self.0.try_into().ok()
    }
}

/// The power button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerButton {
    /// The 16-bit PM1a status register, with its enable register behind it; or, if in memory, the 32-bit
    /// selector of a generic event device.
    pub events: Register,
    /// Input of the I/O APIC: level triggered for a port, edge triggered for memory.
    pub interrupt: u32,
}

impl Viot {
    /// Endpoint identifier of a PCI function, if the unit translates it.
    pub fn endpoint(&self, function: u16) -> Option<u32> {
        let range = self.ranges.iter().find(|range| (range.first..=range.last).contains(&function))?;
        Some(range.endpoint + u32::from(function - range.first))
    }

    /// The PCI function with an endpoint identifier.
    pub fn function(&self, endpoint: u32) -> Option<u16> {
        self.ranges.iter().find_map(|range| {
            let offset = u16::try_from(endpoint.checked_sub(range.endpoint)?).ok()?;
            range.first.checked_add(offset).filter(|function| *function <= range.last)
        })
    }
}

impl Tables {
    /// Reads the tables that the root pointer at `rsdp` leads to. Nothing at or above `memory_end`, where
    /// `memory` may not reach, is touched. `rsdp` 0 means that firmware left none.
    pub fn read(memory: &impl PhysicalMemory, rsdp: u64, memory_end: u64) -> Tables {
        let mut tables = Tables::default();
        let Some((root, entry_bytes)) = root_table(memory, rsdp, memory_end) else { return tables };
        for offset in (HEADER_BYTES..root.length).step_by(entry_bytes as usize) {
            let address = if entry_bytes == 8 { root.u64(offset) } else { root.u32(offset).map(u64::from) };
            if let Some(table) = address.and_then(|at| Table::open(memory, at, memory_end)) {
                tables.add(&table, memory_end);
            }
        }
        tables
    }

    /// Where an interrupt arrives, by its number in all of the machine.
    pub fn input(&self, interrupt: u32) -> Option<Input> {
        let known = if self.io_apics.is_empty() { &[IO_APIC_DEFAULT] } else { &self.io_apics[..] };
        let first = known.iter().find(|first| interrupt.wrapping_sub(first.line) < 24)?;
        Some(Input { line: interrupt - first.line, ..*first })
    }

    fn add<M: PhysicalMemory>(&mut self, table: &Table<M>, memory_end: u64) {
        match &table.signature {
            b"APIC" => self.add_processors(table),
            b"FACP" => {
                let dsdt = dsdt_address(table).and_then(|at| Table::open(table.memory, at, memory_end));
                let Some(dsdt) = dsdt else { return };
                self.ecam = self.ecam.or_else(|| ecam_in_bytecode(&dsdt));
                self.power_button = power_button(table, &dsdt);
                self.power_off = power_off(table, &dsdt);
            }
            b"MCFG" => self.ecam = ecam(table).or(self.ecam),
            b"DMAR" => self.add_remapping_units(table),
            b"VIOT" => self.viot = viot(table),
            _ => {}
        }
    }

    /// Multiple APIC description table (5.2.12).
    fn add_processors<M: PhysicalMemory>(&mut self, table: &Table<M>) {
        const LOCAL_APIC: u64 = 0;
        const IO_APIC: u64 = 1;
        const LOCAL_X2APIC: u64 = 9;
        const ENABLED: u32 = 1;
        for (at, kind) in table.structures(44, Width::Bytes) {
            let (id, flags) = match kind {
                LOCAL_APIC => (table.u8(at + 3).map(u32::from), table.u32(at + 4)),
                IO_APIC => {
                    let (registers, line) = (table.u32(at + 4).map(u64::from), table.u32(at + 8));
                    self.io_apic = registers.filter(|_| line == Some(0)).or(self.io_apic);
                    if let (Some(registers), Some(line)) = (registers, line) {
                        self.io_apics.push(Input { registers, line });
                    }
                    continue;
                }
                LOCAL_X2APIC => (table.u32(at + 4), table.u32(at + 8)),
                _ => continue,
            };
            if let (Some(id), true) = (id, flags.is_some_and(|flags| flags & ENABLED != 0))
                && !self.processors.contains(&id)
            {
                self.processors.push(id);
            }
        }
    }

    /// DMA remapping reporting (Intel VT-d specification 3.3, chapter 8).
    fn add_remapping_units<M: PhysicalMemory>(&mut self, table: &Table<M>) {
        const UNIT: u64 = 0;
        const IO_APIC: u64 = 3;
        for (at, kind) in table.structures(48, Width::Words) {
            if let (UNIT, Some(0), Some(base)) = (kind, table.u16(at + 6), table.u64(at + 8)) {
                self.remapping_units.push(base);
                let end = at + table.u16(at + 2).map_or(0, u64::from);
                let mut scopes = table.structures(at + 16, Width::Bytes).take_while(|(at, _)| *at < end);
                if let Some((scope, _)) = scopes.find(|(_, kind)| *kind == IO_APIC) {
                    // Bus, then device and function of the one step from there.
                    let [bus, device, function] = table.bytes(scope + 5).unwrap_or_default();
                    self.io_apic_source = Address::new(bus, device & 31, function & 7).0;
                }
            }
        }
    }
}

/// Bytes of the header of every table.
const HEADER_BYTES: u64 = 36;
/// No table is larger: a length beyond is garbage.
const TABLE_BYTES_MAX: u64 = 1 << 20;
/// Flag of the FADT: there is no fixed hardware (5.2.9).
const HARDWARE_REDUCED: u32 = 1 << 20;

/// A table whose checksum is right. Reads beyond its length give `None`.
struct Table<'m, M> {
    memory: &'m M,
    address: u64,
    length: u64,
    signature: [u8; 4],
}

/// How wide type and length of the structures in a table are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    Bytes,
    Words,
    /// One byte of type, one that is reserved, and a word of length.
    ByteAndWord,
}

macro_rules! define_readers {
    ($($number:ident)+) => { $(
        fn $number(&self, offset: u64) -> Option<$number> {
            self.bytes(offset).map($number::from_le_bytes)
        }
    )+ };
}

impl<'m, M: PhysicalMemory> Table<'m, M> {
    fn open(memory: &'m M, address: u64, memory_end: u64) -> Option<Table<'m, M>> {
        let mut table = Table { memory, address, length: HEADER_BYTES, signature: [0; 4] };
        table.is_within(memory_end).then_some(())?;
        table.signature = table.bytes(0)?;
        let length = u64::from(table.u32(4)?);
        table.length = Some(length).filter(|length| (HEADER_BYTES..=TABLE_BYTES_MAX).contains(length))?;
        (table.is_within(memory_end) && table.sum(table.length) == 0).then_some(table)
    }

    fn is_within(&self, memory_end: u64) -> bool {
        self.address.checked_add(self.length).is_some_and(|end| end <= memory_end)
    }

    /// Sum of the first `length` bytes: 0 if they are whole.
    fn sum(&self, length: u64) -> u8 {
        (0..length).fold(0_u8, |sum, offset| sum.wrapping_add(self.u8(offset).unwrap_or(0)))
    }

    fn bytes<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (offset.checked_add(N as u64)? <= self.length).then_some(())?;
        self.memory.read_bytes(PhysAddr::new(self.address + offset), &mut bytes);
        Some(bytes)
    }

    define_readers! { u8 u16 u32 u64 }

    /// Offset and type of each of the structures from `start` on, each of which says its own length.
    fn structures(&self, start: u64, width: Width) -> impl Iterator<Item = (u64, u64)> {
        let mut next = start;
        let byte = |at| self.u8(at).map(u64::from);
        let word = |at| self.u16(at).map(u64::from);
        core::iter::from_fn(move || {
            let at = next;
            let (kind, length, header) = match width {
                Width::Bytes => (byte(at)?, byte(at + 1)?, 2),
                Width::Words => (word(at)?, word(at + 2)?, 4),
                Width::ByteAndWord => (byte(at)?, word(at + 2)?, 4),
            };
            next = (length >= header).then_some(at + length)?;
            Some((at, kind))
        })
    }
}

/// The extended root table, else the old one, and the bytes of its entries (5.2.5.3).
fn root_table<M: PhysicalMemory>(memory: &M, rsdp: u64, memory_end: u64) -> Option<(Table<'_, M>, u64)> {
    const LENGTH: u64 = 36;
    /// The part that the first version had, with a checksum of its own.
    const OLD_LENGTH: u64 = 20;
    let pointer = Table { memory, address: rsdp, length: LENGTH, signature: [0; 4] };
    if rsdp == 0 || !pointer.is_within(memory_end) || pointer.bytes(0)? != *b"RSD PTR " {
        return None;
    }
    let open = |address| Table::open(memory, address, memory_end);
    if pointer.u8(15)? >= 2
        && pointer.sum(LENGTH) == 0
        && let Some(table) = open(pointer.u64(24)?).filter(|table| table.signature == *b"XSDT")
    {
        return Some((table, 8));
    }
    if pointer.sum(OLD_LENGTH) != 0 {
        return None;
    }
    let table = open(u64::from(pointer.u32(16)?)).filter(|table| table.signature == *b"RSDT")?;
    Some((table, 4))
}

/// Configuration space of segment 0 (PCI Firmware Specification 3.3, 4.1.2).
fn ecam<M: PhysicalMemory>(table: &Table<M>) -> Option<Ecam> {
    const ENTRY_BYTES: usize = 16;
    (44..table.length).step_by(ENTRY_BYTES).find_map(|at| {
        let ecam = Ecam { base: table.u64(at)?, first_bus: table.u8(at + 10)?, last_bus: table.u8(at + 11)? };
        (reaches(&ecam) && table.u16(at + 8)? == 0 && ecam.first_bus <= ecam.last_bus).then_some(ecam)
    })
}

/// Where the FADT says that the differentiated system description table is (5.2.9).
fn dsdt_address<M: PhysicalMemory>(table: &Table<M>) -> Option<u64> {
    let wide = table.u64(140).filter(|address| *address != 0);
    wide.or_else(|| table.u32(40).map(u64::from))
}

/// Configuration space as the method `_CBA` returns it (PCI Firmware Specification 3.3, 4.1.3): QEMU's
/// `microvm` has no MCFG. This is no interpreter: it looks for a method, or a name, that is a constant.
fn ecam_in_bytecode<M: PhysicalMemory>(table: &Table<M>) -> Option<Ecam> {
    const RETURN: u8 = 0xa4;
    let name = find(table, HEADER_BYTES, b"_CBA")?;
    let is_method = table.u8(name + 5) == Some(RETURN);
    let base = constant(table, name + if is_method { 6 } else { 4 })?;
    Some(Ecam { base, first_bus: 0, last_bus: 255 }).filter(reaches)
}

/// Where bytes stand in a table, from an offset on.
fn find<M: PhysicalMemory, const N: usize>(table: &Table<M>, from: u64, bytes: &[u8; N]) -> Option<u64> {
    (from..table.length).find(|at| table.bytes(*at).as_ref() == Some(bytes))
}

/// An integer constant of bytecode (20.2.3).
fn constant<M: PhysicalMemory>(table: &Table<M>, at: u64) -> Option<u64> {
    match table.u8(at)? {
        small @ 0..=1 => Some(small.into()),
        0x0a => table.u8(at + 1).map(u64::from),
        0x0b => table.u16(at + 1).map(u64::from),
        0x0c => table.u32(at + 1).map(u64::from),
        0x0e => table.u64(at + 1),
        _ => None,
    }
}

/// The power button: fixed hardware (4.8.3.1), else that of a generic event device as QEMU describes it
/// (5.6.9): its extended interrupt (6.4.3.6), and the region `EREG` that begins with the selector.
fn power_button<M: PhysicalMemory>(fadt: &Table<M>, dsdt: &Table<M>) -> Option<PowerButton> {
    if fadt.u32(112)? & HARDWARE_REDUCED == 0 {
        let port = fadt.u16(56).filter(|port| *port != 0 && fadt.u8(88) == Some(4))?;
        return Some(PowerButton { events: Register(port.into()), interrupt: fadt.u16(46)?.into() });
    }
    let device = find(dsdt, HEADER_BYTES, b"ACPI0013")?;
    let interrupt = dsdt.u32(find(dsdt, device, &[0x89, 6, 0])? + 5)?;
    let events = constant(dsdt, find(dsdt, device, b"EREG\0")? + 5).filter(|at| at >> 16 != 0)?;
    (interrupt < 24).then_some(PowerButton { events: Register(events), interrupt })
}

/// State S5: the control register and its value, with the type of sleep that `_S5_` names (7.4.2.6), in fixed
/// hardware (4.8.3.2.1) or without (4.8.3.7).
fn power_off<M: PhysicalMemory>(fadt: &Table<M>, dsdt: &Table<M>) -> Option<(Register, u16)> {
    // Behind the name: package, its length in one byte, the number of elements.
    let kind = constant(dsdt, find(dsdt, HEADER_BYTES, b"_S5_\x12")? + 7).filter(|kind| *kind < 8)? as u16;
    if fadt.u32(112)? & HARDWARE_REDUCED == 0 {
        let port = fadt.u16(64).filter(|port| *port != 0)?;
        return Some((Register(port.into()), kind << 10 | 1 << 13));
    }
    // A generic address (5.2.3.2): what kind it is, then itself.
    let register = fadt.u64(244 + 4).filter(|register| *register != 0)?;
    Some((Register(register), kind << 2 | 1 << 5))
}

/// Whether configuration space can be where it is said to be.
fn reaches(ecam: &Ecam) -> bool {
    ecam.base != 0 && ecam.base.is_multiple_of(1 << 20) && ecam.base < 1 << 48
}

/// The first virtio-iommu on PCI and the ranges it translates (virtual I/O translation table, 5.2.33).
fn viot<M: PhysicalMemory>(table: &Table<M>) -> Option<Viot> {
    const PCI_RANGE: u64 = 1;
    const VIRTIO_PCI: u64 = 3;
    let (count, start) = (usize::from(table.u16(36)?), u64::from(table.u16(38)?));
    let nodes = || table.structures(start, Width::ByteAndWord).take(count);
    let (unit, _) = nodes().find(|(at, kind)| *kind == VIRTIO_PCI && table.u16(at + 4) == Some(0))?;
    let mut viot = Viot { iommu: table.u16(unit + 6)?, ranges: List::default() };
    for (at, _) in nodes().filter(|(_, kind)| *kind == PCI_RANGE) {
        let is_ours = table.u16(at + 8)? == 0 && u64::from(table.u16(at + 16)?) == unit;
        let range = EndpointRange {
            first: table.u16(at + 12)?,
            last: table.u16(at + 14)?,
            endpoint: table.u32(at + 4)?,
        };
        let count = range.last.checked_sub(range.first).map(u32::from);
        if is_ours && count.and_then(|count| range.endpoint.checked_add(count)).is_some() {
            viot.ranges.push(range);
        }
    }
    Some(viot)
}
