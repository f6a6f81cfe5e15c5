//! Switching functions on and off.

use super::{Config, Function, Pci, command, offset};
use crate::machine::Registers;
use crate::{bars, virtio_pci};

/// How often is looked whether a reset is done: others wait for the lock meanwhile. A look takes two hundred
/// instructions, and a microsecond or two where the device is real. The specification lets a function take
/// 100 ms (6.6.2); one that is not done by then counts as absent, and can be tried again later.
const RESET_LOOKS: u32 = 500;

impl Pci {
    /// Makes a device ready for a new owner: resets it, then lets it decode addresses, start DMA and
    /// signal MSI-X, every vector masked. Attach it to its owner's domain *before*: from here on it can
    /// reach memory. Returns false, with the device off, if it has left, is still resetting, or found no
    /// room for its registers.
    pub fn switch_on(&self, registers: &mut impl Registers, index: usize) -> bool {
        self.device(index).is_some_and(|function| self.switch_function_on(registers, function))
    }

    pub(crate) fn switch_function_on(&self, registers: &mut impl Registers, function: &Function) -> bool {
        if function.is_mmio() {
            return function.reset_mmio(registers);
        }
        let config = &mut self.ecam.config(registers, function.address);
        if !function.is_placed() || config.identity() != Some((function.vendor, function.device)) {
            return false;
        }
        if reset(config, function) == Some(false) {
            config.write16(offset::COMMAND, command::NO_INTX);
            return false;
        }
        function.enable_msix(config);
        config.write16(offset::COMMAND, command::MEMORY | command::BUS_MASTER | command::NO_INTX);
        true
    }

    /// Keeps a device from DMA and from interrupts, which is DMA, too.
    pub fn silence(&self, registers: &mut impl Registers, index: usize) {
        if let Some(function) = self.device(index) {
            let config = &mut self.ecam.config(registers, function.address);
            config.write16(offset::COMMAND, command::MEMORY | command::NO_INTX);
        }
    }

    /// Quiesces a device: no DMA, no interrupts, reset, no decoding. Returns false if
    /// it keeps its state, for it has no reset; one that is not on PCI may then go on writing memory.
    pub fn switch_off(&self, registers: &mut impl Registers, index: usize) -> bool {
        let Some(function) = self.device(index) else { return true };
        if function.is_mmio() {
            return function.reset_mmio(registers);
        }
        self.silence(registers, index);
        let config = &mut self.ecam.config(registers, function.address);
        function.disable_msix(config);
        // A device that does not finish its reset stays off: `switch_on` tries again.
        let is_reset = reset(config, function).is_some();
        config.write16(offset::COMMAND, command::NO_INTX);
        is_reset
    }

    /// Whether a remapping unit really confines this device. A virtio device without the feature
    /// `VIRTIO_F_ACCESS_PLATFORM` (QEMU: `iommu_platform=on`) reaches all memory whatever the unit says;
    /// and devices behind a conventional bridge cannot be told apart.
    pub fn is_confinable(&self, registers: &mut impl Registers, index: usize) -> bool {
        let Some(function) = self.device(index).filter(|function| !function.is_mmio()) else { return false };
        let mut above = self.ports.iter().filter(|port| port.leads_to(function.address));
        if !function.is_placed() || above.any(|port| port.function.express == 0) {
            return false;
        }
        let config = &mut self.ecam.config(registers, function.address);
        let before = config.read16(offset::COMMAND);
        if before & command::MEMORY == 0 {
            bars::program(config, &function.bars);
            config.write16(offset::COMMAND, before | command::MEMORY);
        }
        let obeys = virtio_pci::obeys_platform(config, function);
        config.write16(offset::COMMAND, before);
        obeys
    }
}

/// Resets a function that does no DMA, gives it its registers' places again and lets it decode them. A
/// function-level reset if it has that, else virtio's own; `None` if it has neither, and keeps its state.
/// Returns false if it does not come back in time.
fn reset<R: Registers>(config: &mut Config<R>, function: &Function) -> Option<bool> {
    const DEVICE_CAPABILITIES: u16 = 4;
    const HAS_RESET: u32 = 1 << 28;
    const DEVICE_CONTROL: u16 = 8;
    const INITIATE_RESET: u16 = 1 << 15;

    let express = function.express;
    let has_reset = express != 0 && config.read32(express + DEVICE_CAPABILITIES) & HAS_RESET != 0;
    if has_reset {
        let control = config.read16(express + DEVICE_CONTROL);
        config.write16(express + DEVICE_CONTROL, control | INITIATE_RESET);
        let identity = Some((function.vendor, function.device));
        if !(0..RESET_LOOKS).any(|_| config.identity() == identity) {
            return Some(false);
        }
    }
    if !function.is_placed() {
        return Some(true);
    }
    bars::program(config, &function.bars);
    config.write16(offset::COMMAND, command::MEMORY | command::NO_INTX);
    if has_reset {
        return Some(true);
    }
    let status = virtio_pci::start_reset(config, function)?;
    Some((0..RESET_LOOKS).any(|_| config.registers.read8(status) == 0))
}
