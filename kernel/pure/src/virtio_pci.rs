//! Where a virtio device has its registers. Source: VIRTIO 1.2, section 4.1.
//!
//! The kernel drives no virtio device but the virtio-iommu. Of others it needs to know how to reset them
//! and whether a remapping unit confines them.

use crate::machine::Registers;
use crate::pci::{Config, Function, capability};

/// Vendor of every virtio device.
const VENDOR: u16 = 0x1af4;
/// Devices of that vendor that are virtio devices.
const DEVICES: core::ops::RangeInclusive<u16> = 0x1000..=0x107f;

/// Kinds of structures (4.1.4).
pub(crate) const COMMON: u8 = 1;
/// See [`COMMON`].
pub(crate) const NOTIFY: u8 = 2;
/// See [`COMMON`].
pub(crate) const INTERRUPT: u8 = 3;
/// See [`COMMON`].
pub(crate) const DEVICE: u8 = 4;

/// Offsets in the common configuration structure (4.1.4.3).
pub(crate) mod common {
    pub const DEVICE_FEATURE_SELECT: u64 = 0;
    pub const DEVICE_FEATURE: u64 = 4;
    pub const DRIVER_FEATURE_SELECT: u64 = 8;
    pub const DRIVER_FEATURE: u64 = 12;
    pub const CONFIG_VECTOR: u64 = 16;
    pub const STATUS: u64 = 20;
    pub const QUEUE_SELECT: u64 = 22;
    pub const QUEUE_SIZE: u64 = 24;
    pub const QUEUE_VECTOR: u64 = 26;
    pub const QUEUE_ENABLE: u64 = 28;
    pub const QUEUE_NOTIFY_OFFSET: u64 = 30;
    pub const QUEUE_DESCRIPTORS: u64 = 32;
    pub const QUEUE_AVAILABLE: u64 = 40;
    pub const QUEUE_USED: u64 = 48;
    pub const BYTES: u64 = 56;
}

/// A structure's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Structure {
    /// Physical address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes between two queues' notification registers ([`NOTIFY`] only).
    pub notify_stride: u64,
}

/// The first structure of a kind, if the function is a virtio device that has it where registers are.
pub(crate) fn structure<R: Registers>(
    config: &mut Config<R>,
    function: &Function,
    kind: u8,
) -> Option<Structure> {
    if !is_virtio(function) {
        return None;
    }
    let mut at = config.find_capability(capability::VENDOR, 0)?;
    while config.read8(at + 3) != kind {
        at = config.find_capability(capability::VENDOR, at)?;
    }
    let bar = function.bars.get(usize::from(config.read8(at + 4)))?;
    let (offset, bytes) = (u64::from(config.read32(at + 8)), u64::from(config.read32(at + 12)));
    let notify_stride = if kind == NOTIFY { u64::from(config.read32(at + 16)) } else { 0 };
    Some(Structure { address: bar.pages(offset, bytes)?, bytes, notify_stride })
}

fn is_virtio(function: &Function) -> bool {
    function.vendor == VENDOR && DEVICES.contains(&function.device)
}

fn common<R: Registers>(config: &mut Config<R>, function: &Function) -> Option<u64> {
    structure(config, function, COMMON).filter(|it| it.bytes >= common::BYTES).map(|it| it.address)
}

/// Starts to reset a virtio device that decodes addresses; returns the address of the status register,
/// which reads zero when it is done. `None` for other devices.
pub(crate) fn start_reset<R: Registers>(config: &mut Config<R>, function: &Function) -> Option<u64> {
    let status = common(config, function)? + common::STATUS;
    config.registers.write8(status, 0);
    Some(status)
}

/// Whether DMA of this device, which decodes addresses, goes through a remapping unit: true for all but
/// virtio devices that do not offer `VIRTIO_F_ACCESS_PLATFORM` (feature 33).
pub(crate) fn obeys_platform<R: Registers>(config: &mut Config<R>, function: &Function) -> bool {
    const WORD: u32 = 33 / 32;
    const BIT: u32 = 1 << (33 % 32);
    if !is_virtio(function) {
        return true;
    }
    let Some(common) = common(config, function) else { return false };
    config.registers.write32(common + common::DEVICE_FEATURE_SELECT, WORD);
    config.registers.read32(common + common::DEVICE_FEATURE) & BIT != 0
}
