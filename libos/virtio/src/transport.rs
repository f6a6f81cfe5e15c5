//! The two transports, modern PCI (section 4.1) and MMIO (section 4.2): where a device's structures lie, and
//! the steps that bring it up, which are the same.
//!
//! Over MMIO a device has one interrupt for all that happens, which must be acknowledged; so it has one queue
//! pair.

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
    pub const ACKNOWLEDGE: u32 = 1;
    pub const DRIVER: u32 = 2;
    pub const DRIVER_OK: u32 = 4;
    pub const FEATURES_OK: u32 = 8;
    pub const NEEDS_RESET: u32 = 64;
    pub const FAILED: u32 = 128;
}

/// A register, which both transports have.
#[derive(Clone, Copy)]
struct Register {
    /// Place in the common configuration structure (section 4.1.4.3), and bytes there.
    pci: (u8, u8),
    /// Place over MMIO (section 4.2.2), where each has 4 bytes.
    mmio: u8,
}

impl Register {
    const fn new(place: u8, bytes: u8, mmio: u8) -> Register {
        Register { pci: (place, bytes), mmio }
    }
}

const DEVICE_FEATURE_SELECT: Register = Register::new(0x00, 4, 0x14);
const DEVICE_FEATURE: Register = Register::new(0x04, 4, 0x10);
const DRIVER_FEATURE_SELECT: Register = Register::new(0x08, 4, 0x24);
const DRIVER_FEATURE: Register = Register::new(0x0c, 4, 0x20);
const STATUS: Register = Register::new(0x14, 1, 0x70);
const GENERATION: Register = Register::new(0x15, 1, 0xfc);
const QUEUE_SELECT: Register = Register::new(0x16, 2, 0x30);
const QUEUE_SIZE_MAX: Register = Register::new(0x18, 2, 0x34);
const QUEUE_SIZE: Register = Register::new(0x18, 2, 0x38);
const QUEUE_ENABLE: Register = Register::new(0x1c, 2, 0x44);
/// Lower and upper half of the address of each area of a queue.
const QUEUE_AREAS: [[Register; 2]; 3] = [
    [Register::new(0x20, 4, 0x80), Register::new(0x24, 4, 0x84)],
    [Register::new(0x28, 4, 0x90), Register::new(0x2c, 4, 0x94)],
    [Register::new(0x30, 4, 0xa0), Register::new(0x34, 4, 0xa4)],
];

/// What PCI alone has.
mod common {
    pub const CONFIG_VECTOR: u64 = 0x10;
    pub const QUEUE_VECTOR: u64 = 0x1a;
    pub const QUEUE_NOTIFY_OFFSET: u64 = 0x1e;
    pub const BYTES: u64 = 0x38;
}

/// What MMIO alone has.
mod mmio {
    pub const VERSION: u64 = 0x04;
    pub const DEVICE: u64 = 0x08;
    pub const QUEUE_NOTIFY: u64 = 0x50;
    pub const INTERRUPT_ACKNOWLEDGE: u64 = 0x64;
    pub const CONFIG: u64 = 0x100;
    /// All registers up to the device's configuration, and those of it that any device here has.
    pub const CONFIG_BYTES: u64 = 0x40;
    /// Queues were used, and the configuration changed.
    pub const INTERRUPTS: u32 = 3;
    /// The version that is not legacy.
    pub const MODERN: u32 = 2;
}

/// No interrupt (section 4.1.5.1.3).
const NO_VECTOR: u16 = 0xffff;
/// Reads of a register before a device is given up that does not change it.
const PATIENCE: u32 = 1_000_000;
/// Readings of the configuration before a device is given up whose configuration never stands still.
const READINGS: u32 = 100;

/// A virtio device. It is reset when this is dropped, so that it forgets all memory.
#[derive(Debug)]
pub struct Transport<R: Registers> {
    is_mmio: bool,
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
    /// Maps the structures of `function`, which must be a modern virtio device of type `kind` (section 5) or,
    /// on PCI, the transitional one with the identifier `transitional`, and resets it (section 3.1.1, steps 1
    /// to 3).
    ///
    /// # Errors
    /// If it is another device, lacks a structure or does not come out of its reset.
    pub fn open<F: PciFunction<Registers = R>>(
        function: &mut F,
        kind: u16,
        transitional: u16,
    ) -> Result<Transport<R>> {
        let transport = match function.mmio() {
            None => Transport::on_pci(function, kind, transitional)?,
            Some(place) => Transport::on_mmio(function, place, kind)?,
        };
        transport.restart()?;
        Ok(transport)
    }

    /// Has the device forget all that it was told, its queues and what was lent to it, and says that it has a
    /// driver (section 3.1.1, steps 1 to 3). When this returns without an error it writes to no memory.
    ///
    /// # Errors
    /// If it does not come out of its reset.
    pub fn restart(&self) -> Result<()> {
        self.reset()?;
        self.write(STATUS, status::ACKNOWLEDGE);
        self.write(STATUS, status::ACKNOWLEDGE | status::DRIVER);
        Ok(())
    }

    fn on_pci<F: PciFunction<Registers = R>>(function: &mut F, kind: u16, transitional: u16) -> Result<Self> {
        let identifier = function.config(0);
        let (vendor, device) = (identifier & 0xffff, identifier >> 16);
        if vendor != VENDOR || (device != MODERN + u32::from(kind) && device != u32::from(transitional)) {
            return Err(Error::OtherDevice(identifier));
        }
        let common = Capability::find(function, Kind::Common, common::BYTES)?;
        let notify = Capability::find(function, Kind::Notify, 2)?;
        let device = Capability::find(function, Kind::Device, 4).ok();
        let mut map = |at: &Capability| function.map(at.bar, at.offset, at.bytes);
        Ok(Transport {
            is_mmio: false,
            common: map(&common)?,
            notify: map(&notify)?,
            notify_bytes: notify.bytes,
            distance: notify.distance,
            device: device.map(|at| Ok::<_, Error>((map(&at)?, at.bytes))).transpose()?,
        })
    }

    fn on_mmio<F: PciFunction<Registers = R>>(function: &mut F, place: u64, kind: u16) -> Result<Self> {
        let mut map = |offset, bytes| function.map(0, place + offset, bytes);
        let common = map(0, mmio::CONFIG)?;
        if common.read32(mmio::VERSION) != mmio::MODERN {
            return Err(Error::NotModern);
        }
        let found = common.read32(mmio::DEVICE);
        if found != u32::from(kind) {
            return Err(Error::OtherDevice(VENDOR | (MODERN + found) << 16));
        }
        let notify = map(mmio::QUEUE_NOTIFY, 4)?;
        let device = Some((map(mmio::CONFIG, mmio::CONFIG_BYTES)?, mmio::CONFIG_BYTES));
        Ok(Transport { is_mmio: true, common, notify, notify_bytes: 4, distance: 0, device })
    }

    fn read(&self, register: Register) -> u32 {
        match register.pci {
            _ if self.is_mmio => self.common.read32(register.mmio.into()),
            (place, 1) => self.common.read8(place.into()).into(),
            (place, 2) => self.common.read16(place.into()).into(),
            (place, _) => self.common.read32(place.into()),
        }
    }

    fn write(&self, register: Register, value: u32) {
        match register.pci {
            _ if self.is_mmio => self.common.write32(register.mmio.into(), value),
            (place, 1) => self.common.write8(place.into(), value as u8),
            (place, 2) => self.common.write16(place.into(), value as u16),
            (place, _) => self.common.write32(place.into(), value),
        }
    }

    /// Queue pairs that can each have an interrupt of their own.
    pub fn pairs_max(&self) -> u16 {
        if self.is_mmio { 1 } else { u16::MAX }
    }

    fn reset(&self) -> Result<()> {
        self.write(STATUS, 0);
        let is_reset = |_: &u32| self.read(STATUS) == 0;
        (0..PATIENCE).find(is_reset).map(drop).ok_or(Error::NoReset)
    }

    /// Features that the device offers.
    pub fn offered(&self) -> u64 {
        let half = |select| {
            self.write(DEVICE_FEATURE_SELECT, select);
            u64::from(self.read(DEVICE_FEATURE))
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
            self.write(DRIVER_FEATURE_SELECT, select);
            self.write(DRIVER_FEATURE, half as u32);
        }
        let wanted = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
        self.write(STATUS, wanted);
        if self.read(STATUS) & status::FEATURES_OK == 0 {
            self.write(STATUS, status::FAILED);
            return Err(Error::FeaturesRefused(accepted));
        }
        if !self.is_mmio {
            // It is how a device says that it broke. One without a vector for that is found out later.
            let _ = self.set_vector(common::CONFIG_VECTOR, Some(0));
        }
        Ok(accepted)
    }

    /// Most entries that queue `queue` can have.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn queue_size_max(&self, queue: u16) -> Result<u16> {
        self.write(QUEUE_SELECT, queue.into());
        match self.read(QUEUE_SIZE_MAX) {
            0 => Err(Error::NoQueue(queue)),
            size => Ok(size.min(u16::MAX.into()) as u16),
        }
    }

    /// Tells the device where queue `queue` lies, with `size` entries and interrupts by `vector`, and enables
    /// it (section 4.1.5.1.3).
    ///
    /// # Errors
    /// If the device has no vector left, or says that it is notified where it has no registers.
    pub fn enable_queue(&self, queue: u16, size: u16, areas: Areas, vector: Option<u16>) -> Result<Doorbell> {
        self.write(QUEUE_SELECT, queue.into());
        self.write(QUEUE_SIZE, size.into());
        let areas = [areas.descriptors, areas.driver, areas.device];
        for ([low, high], address) in QUEUE_AREAS.into_iter().zip(areas) {
            self.write(low, address as u32);
            self.write(high, (address >> 32) as u32);
        }
        let mut register = 0;
        if !self.is_mmio {
            self.set_vector(common::QUEUE_VECTOR, vector).ok_or(Error::NoVector(queue))?;
            let offset = self.common.read16(common::QUEUE_NOTIFY_OFFSET);
            register = u64::from(offset) * u64::from(self.distance);
        }
        if register % 2 != 0 || register + 2 > self.notify_bytes {
            return Err(Error::NoCapability("notification"));
        }
        self.write(QUEUE_ENABLE, 1);
        Ok(Doorbell { queue, register })
    }

    /// `None` if the device has no such vector, or none left.
    fn set_vector(&self, register: u64, vector: Option<u16>) -> Option<()> {
        let vector = vector.unwrap_or(NO_VECTOR);
        self.common.write16(register, vector);
        (self.common.read16(register) == vector).then_some(())
    }

    /// Lets the device begin (section 3.1.1, step 8).
    pub fn start(&self) {
        let all = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK;
        self.write(STATUS, all);
    }

    /// Whether the device says that it has met an error from which only a reset helps, or has left.
    pub fn is_broken(&self) -> bool {
        self.read(STATUS) & status::NEEDS_RESET != 0
    }

    /// Tells the device to look at a queue (sections 4.1.5.2 and 4.2.3.3).
    #[inline]
    pub fn notify(&self, doorbell: Doorbell) {
        if self.is_mmio {
            return self.notify.write32(0, doorbell.queue.into());
        }
        self.notify.write16(doorbell.register, doorbell.queue);
    }

    /// Says that what was interrupted for is known, before it is looked for, so that the next interrupt comes
    /// (section 4.2.3.4).
    #[inline]
    pub fn acknowledge(&self) {
        if self.is_mmio {
            self.common.write32(mmio::INTERRUPT_ACKNOWLEDGE, mmio::INTERRUPTS);
        }
    }

    /// Reads the device's own configuration, again if it changed underway (section 2.5.1). Bytes behind its
    /// end are 0.
    ///
    /// # Errors
    /// If it changed every time.
    pub fn config<const BYTES: usize>(&self) -> Result<[u8; BYTES]> {
        for _ in 0..READINGS {
            let before = self.read(GENERATION);
            let bytes = core::array::from_fn(|offset| self.config_byte(offset as u64));
            if self.read(GENERATION) == before {
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
