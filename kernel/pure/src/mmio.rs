//! Virtio devices without PCI: a page of registers that the kernel's command line names, and one input of an
//! I/O APIC. Source: VIRTIO 1.2, section 4.2.
//!
//! No remapping unit confines such a device, so on a machine that has one nobody is given it.

#[cfg(test)]
mod tests;

use crate::acpi::Tables;
use crate::bars::Bar;
use crate::ioapic;
use crate::machine::Registers;
use crate::pci::{Function, MsixTable, Pci};
use nom_abi::memory::FRAME_BYTES;

/// Registers: what it is in three words (4.2.2), and the device status.
const IDENTITY: [u64; 3] = [0, 4, 8];
const STATUS: u64 = 0x70;
/// "virt", the first word; version and kind of device are the others.
const MAGIC: u32 = 0x7472_6976;
/// Devices of monitors that give them less than a page are that far apart.
const STRIDE: u64 = 0x200;

/// Bytes, address and interrupt of `4K@0xd0000000:5`, as Linux reads `virtio_mmio.device=`.
fn parse(text: &str) -> Option<(u64, u64, u32)> {
    let (bytes, rest) = text.split_once('@')?;
    let mut parts = rest.split(':');
    let base = u64::from_str_radix(parts.next()?.strip_prefix("0x")?, 16).ok()?;
    let (digits, unit) = bytes.strip_suffix('K').map_or((bytes, 1), |digits| (digits, 1024));
    Some((digits.parse::<u32>().ok()? as u64 * unit, base, parts.next()?.parse().ok()?))
}

impl Pci {
    /// Lists the device that `text` names (`<bytes>@<address>:<interrupt>`), and resets it. Its owner will
    /// see its whole page, which must therefore have no other device. Errors: what is wrong with it.
    pub fn add_mmio(
        &mut self,
        registers: &mut impl Registers,
        text: &str,
        firmware: &Tables,
        low_memory_end: u64,
    ) -> Result<(), &'static str> {
        let (bytes, base, line) =
            parse(text).ok_or("expected <bytes>@<address>:<interrupt>, such as 4K@0xd0000000:5")?;
        let page = base - base % FRAME_BYTES;
        let is_apart = base.is_multiple_of(bytes.clamp(STRIDE, FRAME_BYTES)) && base >= low_memory_end;
        let address = u32::try_from(base).ok().filter(|_| is_apart);
        let address = address.ok_or("expected an aligned address behind memory and below 4 GiB")?;
        let input = firmware.input(line).ok_or("no I/O APIC has this interrupt")?;
        let known = |other: &Function| other.bars[0].base == page || other.input == input;
        if self.devices().any(|(_, other)| other.is_mmio() && known(other)) {
            return Err("its page or its interrupt is that of a device before it");
        }
        let mut others = (page..page + FRAME_BYTES).step_by(STRIDE as usize).filter(|at| *at != base);
        if bytes < FRAME_BYTES && others.any(|at| matches!(identify(registers, at), [MAGIC, _, 1..=u32::MAX]))
        {
            return Err("another device has registers in the same page of 4096 bytes: one is too many");
        }
        let kind = match identify(registers, base) {
            [MAGIC, 2, kind @ 1..=0x3f] => kind as u16,
            [MAGIC, 1, _] => return Err("a legacy device (QEMU: -global virtio-mmio.force-legacy=false)"),
            _ => return Err("there is no virtio device of version 2"),
        };
        let place = self.devices.iter_mut().find(|place| place.vendor == 0).ok_or("too many devices")?;
        let mut function = Function {
            // As the same device on PCI has them, for which manifests ask.
            vendor: 0x1af4,
            device: 0x1040 + kind,
            class: if kind == 1 { 0x02_0000 } else { 0x00_ff00 },
            msix: MsixTable { count: 1, table_bar: 7, pending_bar: 7, ..MsixTable::default() },
            mmio: address,
            input,
            ..Function::default()
        };
        function.bars[0] = Bar { base: page, bytes: FRAME_BYTES, ..Bar::default() };
        function.reset_mmio(registers).then_some(()).ok_or("it does not come out of its reset")?;
        *place = function;
        Ok(())
    }
}

fn identify(registers: &mut impl Registers, base: u64) -> [u32; 3] {
    IDENTITY.map(|place| registers.read32(base + place))
}

impl Function {
    /// Whether it is one of this module's.
    pub(crate) fn is_mmio(&self) -> bool {
        self.mmio != 0
    }

    /// Resets it, with its interrupt masked: it then writes no memory. Returns false if it goes on.
    pub(crate) fn reset_mmio(&self, registers: &mut impl Registers) -> bool {
        ioapic::mask(registers, self.input, true);
        let status = u64::from(self.mmio) + STATUS;
        registers.write32(status, 0);
        registers.read32(status) == 0
    }
}
