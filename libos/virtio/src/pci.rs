//! The modern PCI transport (section 4.1): where a device's structures lie, and the steps that bring it up.

mod capabilities;

use crate::error::{Error, Result};
use crate::queue::Areas;
use capabilities::{Capability, Kind};
use nom_port::device::{PciFunction, Registers};

/// Red Hat's identifier, under which all virtio devices go.
const VENDOR: u32 = 0x1af4;
/// Device identifiers: modern ones begin here, behind which is the device's type (section 4.1.2.1).
const MODERN: u32 = 0x1040;

/// Feature bits that concern no device in particular (section 6).
pub mod feature {
    /// Descriptors may name a table of descriptors.
    pub const INDIRECT: u64 = 1 << 28;
    /// Each side says at which index it wants to hear from the other.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// The device follows virtio 1.0 or later.
    pub const VERSION_1: u64 = 1 << 32;
    /// The device's accesses go through what the platform puts in between, such as an IOMMU.
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    /// Virtqueues may be packed.
    pub const PACKED: u64 = 1 << 34;
    /// The device needs barriers as between a processor and a device; ours are that strong.
    pub const ORDER_PLATFORM: u64 = 1 << 36;
}

/// Bits of the device status (section 2.1).
mod status {
    pub const ACKNOWLEDGE: u8 = 1;
    pub const DRIVER: u8 = 2;
    pub const DRIVER_OK: u8 = 4;
    pub const FEATURES_OK: u8 = 8;
    pub const NEEDS_RESET: u8 = 64;
    pub const FAILED: u8 = 128;
}

/// Places in the common configuration structure (section 4.1.4.3).
mod common {
    pub const DEVICE_FEATURE_SELECT: u64 = 0x00;
    pub const DEVICE_FEATURE: u64 = 0x04;
    pub const DRIVER_FEATURE_SELECT: u64 = 0x08;
    pub const DRIVER_FEATURE: u64 = 0x0c;
    pub const CONFIG_VECTOR: u64 = 0x10;
    pub const STATUS: u64 = 0x14;
    pub const GENERATION: u64 = 0x15;
    pub const QUEUE_SELECT: u64 = 0x16;
    pub const QUEUE_SIZE: u64 = 0x18;
    pub const QUEUE_VECTOR: u64 = 0x1a;
    pub const QUEUE_ENABLE: u64 = 0x1c;
    pub const QUEUE_NOTIFY_OFFSET: u64 = 0x1e;
    pub const QUEUE_DESCRIPTORS: u64 = 0x20;
    pub const QUEUE_DRIVER: u64 = 0x28;
    pub const QUEUE_DEVICE: u64 = 0x30;
    pub const BYTES: u64 = 0x38;
}

/// No interrupt (section 4.1.5.1.3).
const NO_VECTOR: u16 = 0xffff;
/// Reads of a register before a device is given up that does not change it.
const PATIENCE: u32 = 1_000_000;
/// Readings of the configuration before a device is given up whose configuration never stands still.
const READINGS: u32 = 100;

/// A virtio device behind a PCI function. It is reset when this is dropped, so that it forgets all memory.
#[derive(Debug)]
pub struct Transport<R: Registers> {
    common: R,
    notify: R,
    notify_bytes: u64,
    /// Bytes between two notification registers.
    distance: u32,
    device: Option<(R, u64)>,
}

/// A queue of a device that is to be told about, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    queue: u16,
    register: u64,
}

impl<R: Registers> Transport<R> {
    /// Maps the structures of `function`, which must be a modern virtio device of type `kind` (section 5) or
    /// the transitional one with the identifier `transitional`, and resets it (section 3.1.1, steps 1 to 3).
    ///
    /// # Errors
    /// If it is another device, lacks a structure or does not come out of its reset.
    pub fn open<F: PciFunction<Registers = R>>(
        function: &mut F,
        kind: u16,
        transitional: u16,
    ) -> Result<Transport<R>> {
        let identifier = function.config(0);
        let (vendor, device) = (identifier & 0xffff, identifier >> 16);
        if vendor != VENDOR || (device != MODERN + u32::from(kind) && device != u32::from(transitional)) {
            return Err(Error::OtherDevice(identifier));
        }
        let transport = Transport::map(function)?;
        transport.reset()?;
        transport.common.write8(common::STATUS, status::ACKNOWLEDGE);
        transport.common.write8(common::STATUS, status::ACKNOWLEDGE | status::DRIVER);
        Ok(transport)
    }

    fn map<F: PciFunction<Registers = R>>(function: &mut F) -> Result<Transport<R>> {
        let common = Capability::find(function, Kind::Common, common::BYTES)?;
        let notify = Capability::find(function, Kind::Notify, 2)?;
        let device = Capability::find(function, Kind::Device, 4).ok();
        let mut map = |at: &Capability| function.map(at.bar, at.offset, at.bytes);
        Ok(Transport {
            common: map(&common)?,
            notify: map(&notify)?,
            notify_bytes: notify.bytes,
            distance: notify.distance,
            device: device.map(|at| Ok::<_, Error>((map(&at)?, at.bytes))).transpose()?,
        })
    }

    fn reset(&self) -> Result<()> {
        self.common.write8(common::STATUS, 0);
        let is_reset = |_: &u32| self.common.read8(common::STATUS) == 0;
        (0..PATIENCE).find(is_reset).map(drop).ok_or(Error::NoReset)
    }

    /// Features that the device offers.
    pub fn offered(&self) -> u64 {
        let half = |select| {
            self.common.write32(common::DEVICE_FEATURE_SELECT, select);
            u64::from(self.common.read32(common::DEVICE_FEATURE))
        };
        half(0) | half(1) << 32
    }

    /// Accepts `features`, some of those that are offered (section 3.1.1, steps 4 to 6). VERSION_1, and if
    /// offered ACCESS_PLATFORM and ORDER_PLATFORM, are accepted in any case. Returns all that are.
    ///
    /// # Errors
    /// If the device has no modern interface or refuses.
    pub fn negotiate(&self, features: u64) -> Result<u64> {
        let offered = self.offered();
        if offered & feature::VERSION_1 == 0 {
            return Err(Error::NotModern);
        }
        let always = feature::VERSION_1 | feature::ACCESS_PLATFORM | feature::ORDER_PLATFORM;
        let accepted = offered & (features | always);
        for (select, half) in [(0, accepted), (1, accepted >> 32)] {
            self.common.write32(common::DRIVER_FEATURE_SELECT, select);
            self.common.write32(common::DRIVER_FEATURE, half as u32);
        }
        let wanted = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
        self.common.write8(common::STATUS, wanted);
        if self.common.read8(common::STATUS) & status::FEATURES_OK == 0 {
            self.common.write8(common::STATUS, status::FAILED);
            return Err(Error::FeaturesRefused(accepted));
        }
        self.common.write16(common::CONFIG_VECTOR, NO_VECTOR);
        Ok(accepted)
    }

    /// Most entries that queue `queue` can have.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn queue_size_max(&self, queue: u16) -> Result<u16> {
        self.common.write16(common::QUEUE_SELECT, queue);
        match self.common.read16(common::QUEUE_SIZE) {
            0 => Err(Error::NoQueue(queue)),
            size => Ok(size),
        }
    }

    /// Tells the device where queue `queue` lies, with `size` entries and interrupts by `vector`, and enables
    /// it (section 4.1.5.1.3).
    ///
    /// # Errors
    /// If the device has no vector left, or says that it is notified where it has no registers.
    pub fn enable_queue(&self, queue: u16, size: u16, areas: Areas, vector: Option<u16>) -> Result<Doorbell> {
        self.common.write16(common::QUEUE_SELECT, queue);
        self.common.write16(common::QUEUE_SIZE, size);
        let vector = vector.unwrap_or(NO_VECTOR);
        self.common.write16(common::QUEUE_VECTOR, vector);
        if self.common.read16(common::QUEUE_VECTOR) != vector {
            return Err(Error::NoVector(queue));
        }
        for (register, address) in [
            (common::QUEUE_DESCRIPTORS, areas.descriptors),
            (common::QUEUE_DRIVER, areas.driver),
            (common::QUEUE_DEVICE, areas.device),
        ] {
            self.common.write32(register, address as u32);
            self.common.write32(register + 4, (address >> 32) as u32);
        }
        let offset = self.common.read16(common::QUEUE_NOTIFY_OFFSET);
        let register = u64::from(offset) * u64::from(self.distance);
        if register % 2 != 0 || register + 2 > self.notify_bytes {
            return Err(Error::NoCapability("notification"));
        }
        self.common.write16(common::QUEUE_ENABLE, 1);
        Ok(Doorbell { queue, register })
    }

    /// Lets the device begin (section 3.1.1, step 8).
    pub fn start(&self) {
        let all = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK;
        self.common.write8(common::STATUS, all);
    }

    /// Whether the device says that it has met an error from which only a reset helps, or has left.
    pub fn is_broken(&self) -> bool {
        self.common.read8(common::STATUS) & status::NEEDS_RESET != 0
    }

    /// Tells the device to look at a queue (section 4.1.5.2).
    #[inline]
    pub fn notify(&self, doorbell: Doorbell) {
        self.notify.write16(doorbell.register, doorbell.queue);
    }

    /// Reads the device's own configuration, again if it changed underway (section 2.5.1). Bytes behind its
    /// end are 0.
    ///
    /// # Errors
    /// If it changed every time.
    pub fn config<const BYTES: usize>(&self) -> Result<[u8; BYTES]> {
        for _ in 0..READINGS {
            let before = self.common.read8(common::GENERATION);
            let bytes = core::array::from_fn(|offset| self.config_byte(offset as u64));
            if self.common.read8(common::GENERATION) == before {
                return Ok(bytes);
            }
        }
        Err(Error::Unsettled)
    }

    fn config_byte(&self, offset: u64) -> u8 {
        match &self.device {
            Some((registers, bytes)) if offset < *bytes => registers.read8(offset),
            _ => 0,
        }
    }
}

impl<R: Registers> Drop for Transport<R> {
    fn drop(&mut self) {
        // A device that does not come out of its reset is a broken one, which nothing more can be done about.
        let _ = self.reset();
    }
}
