//! A driver for one request at a time to a virtio entropy device (virtio 1.2, sections 4.1, 4.2 and 5.4).

use crate::{Check, Failure};
use alloc::vec::Vec;
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};
use nom_sys::abi::Upcall;
use nom_sys::devices::{self, Device, Registers};
use nom_sys::memory::Shared;
use nom_sys::region::Region;
use nom_sys::start::board;
use nom_sys::{Error, PageSize, events, time};

const VENDOR: u32 = 0x1af4;
/// Modern, and transitional with a modern interface.
const DEVICES: [u32; 2] = [0x1044, 0x1005];
const PAGE: u64 = 4096;
/// The bit of `Events::interrupts` that says that a request was completed.
pub const INTERRUPT_BIT: u64 = 5;
/// How long a request may take.
const TIMEOUT_NS: u64 = 5_000_000_000;

/// Places in the common configuration (section 4.1.4.3).
mod common {
    pub const DEVICE_FEATURE_SELECT: u64 = 0x00;
    pub const DEVICE_FEATURE: u64 = 0x04;
    pub const DRIVER_FEATURE_SELECT: u64 = 0x08;
    pub const DRIVER_FEATURE: u64 = 0x0c;
    pub const CONFIG_VECTOR: u64 = 0x10;
    pub const STATUS: u64 = 0x14;
    pub const QUEUE_SELECT: u64 = 0x16;
    pub const QUEUE_SIZE: u64 = 0x18;
    pub const QUEUE_VECTOR: u64 = 0x1a;
    pub const QUEUE_ENABLE: u64 = 0x1c;
    pub const QUEUE_NOTIFY_OFFSET: u64 = 0x1e;
    pub const QUEUE_DESCRIPTORS: u64 = 0x20;
    pub const QUEUE_AVAILABLE: u64 = 0x28;
    pub const QUEUE_USED: u64 = 0x30;
}

/// Places of registers without PCI (section 4.2.2): those in the common configuration have others, too.
mod mmio {
    pub const NOTIFY: u64 = 0x50;
    pub const ACKNOWLEDGE: u64 = 0x64;
    pub const INTERRUPTS: u32 = 3;

    /// Where a register of the common configuration is.
    pub fn place(common: u64) -> u64 {
        match common {
            super::common::DEVICE_FEATURE_SELECT => 0x14,
            super::common::DEVICE_FEATURE => 0x10,
            super::common::DRIVER_FEATURE_SELECT => 0x24,
            super::common::DRIVER_FEATURE => 0x20,
            super::common::STATUS => 0x70,
            super::common::QUEUE_SELECT => 0x30,
            super::common::QUEUE_SIZE => 0x38,
            super::common::QUEUE_ENABLE => 0x44,
            0x20..0x28 => common + 0x60,
            0x28..0x30 => common + 0x68,
            0x30..0x38 => common + 0x70,
            other => panic!("no register {other:#x} without PCI"),
        }
    }
}

/// Bits of the device status (section 2.1).
mod status {
    pub const ACKNOWLEDGE: u8 = 1;
    pub const DRIVER: u8 = 2;
    pub const DRIVER_OK: u8 = 4;
    pub const FEATURES_OK: u8 = 8;
}

/// VERSION_1 and ACCESS_PLATFORM, bits 32 and 33: the upper half of what is accepted, if offered.
const FEATURES_HIGH: u32 = 0b11;
const VERSION_1: u32 = 1;
const NO_VECTOR: u16 = 0xffff;
/// The queue's size; the driver uses the first descriptor only.
const QUEUE_SIZE: u16 = 8;
const DESCRIPTOR_WRITE: u64 = 2 << 32;

/// Where in the first shared page the rings lie, and the buffer behind them.
const AVAILABLE: u64 = 0x200;
const USED: u64 = 0x400;
const BUFFER: u64 = PAGE;
/// Bytes of the buffer.
pub const BUFFER_BYTES: usize = PAGE as usize;

/// The device, ready for requests.
pub struct Entropy {
    // Dropped before the memory that it writes to.
    device: Device,
    common: Window,
    notify: Window,
    rings: Shared,
    requests: u16,
}

/// Registers at an offset of a mapped page.
struct Window {
    registers: Registers,
    offset: u64,
    is_mmio: bool,
}

/// A vendor capability: where a structure lies (section 4.1.4).
struct Capability {
    kind: u8,
    bar: u64,
    offset: u64,
    /// The word behind it: of the notification structure, the distance between two queues' registers.
    extra: u32,
}

const KIND_COMMON: u8 = 1;
const KIND_NOTIFY: u8 = 2;

/// Index of the first entropy device on the board.
///
/// # Errors
/// NoDevice.
pub fn find() -> Result<usize, Error> {
    devices::find(|vendor, device| vendor == VENDOR && DEVICES.contains(&device))
}

impl Entropy {
    /// Acquires the device with this index and sets it up (section 3.1.1).
    ///
    /// # Errors
    /// Says what the kernel or the device refused.
    pub fn open(index: usize) -> Result<Entropy, Failure> {
        let device = Device::acquire(index)?;
        let place = is_mmio(index).then(|| u64::from(board().devices[index].address.load(Relaxed)) % PAGE);
        let (at, mut notify, distance) = match place {
            None => {
                let (notify, distance) = map(&device, KIND_NOTIFY)?;
                (map(&device, KIND_COMMON)?.0, notify, distance)
            }
            Some(place) => (map_mmio(&device, place)?, map_mmio(&device, place + mmio::NOTIFY)?, 0),
        };
        at.write8(common::STATUS, 0);
        at.write8(common::STATUS, status::ACKNOWLEDGE | status::DRIVER);
        negotiate(&at)?;
        device.bind_interrupt(0, INTERRUPT_BIT)?;
        let rings = Shared::new(PageSize::Small, 2)?;
        set_up_queue(&at, rings.grant().physical_address())?;
        if !at.is_mmio {
            notify.offset += u64::from(at.read16(common::QUEUE_NOTIFY_OFFSET)) * u64::from(distance);
        }
        let ready = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK;
        at.write8(common::STATUS, ready);
        Ok(Entropy { device, common: at, notify, rings, requests: 0 })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Has the device write `bytes` random bytes at bus address `address`; `completed` tells when it has.
    ///
    /// # Safety
    /// The program treats the memory there as shared; or somebody prevents the device from reaching it.
    pub unsafe fn request(&mut self, address: u64, bytes: u32) {
        let words = self.rings.words();
        words[0].store(address, Relaxed);
        words[1].store(u64::from(bytes) | DESCRIPTOR_WRITE, Relaxed);
        self.requests = self.requests.wrapping_add(1);
        // Flags 0, then the index, then entries that all name descriptor 0. The device reads it after the
        // descriptor, and the notification comes last (section 2.7.13).
        fence(SeqCst);
        words[AVAILABLE as usize / 8].store(u64::from(self.requests) << 16, Relaxed);
        fence(SeqCst);
        if self.common.is_mmio {
            let Window { registers, offset, .. } = &self.common;
            registers.write32(offset + mmio::ACKNOWLEDGE, mmio::INTERRUPTS);
            return self.notify.registers.write32(self.notify.offset, 0);
        }
        self.notify.registers.write16(self.notify.offset, 0);
    }

    /// How many bytes the last request brought, once it was completed.
    pub fn completed(&self) -> Option<u32> {
        let words = self.rings.words();
        let index = (words[USED as usize / 8].load(Relaxed) >> 16) as u16;
        if index != self.requests {
            return None;
        }
        fence(SeqCst);
        let entry = usize::from(self.requests.wrapping_sub(1) % QUEUE_SIZE);
        Some(words[USED as usize / 8 + 1 + entry].load(Relaxed) as u32)
    }

    /// Whether the device says that it needs a reset, as it does when it could not reach a ring.
    pub fn is_broken(&self) -> bool {
        self.common.read8(common::STATUS) & 0x40 != 0
    }

    /// Reads up to [`BUFFER_BYTES`] of entropy into `buffer`, sleeping until the device's interrupt. Returns
    /// how many bytes came.
    ///
    /// # Errors
    /// If no interrupt comes, or one without a completed request.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        self.request_own(buffer.len());
        let deadline = time::now_ns() + TIMEOUT_NS;
        loop {
            let events = events::wait(Some(deadline));
            if events.pending == 0 {
                return Err("the device did not interrupt".into());
            }
            if events.has(Upcall::Interrupt) && events.interrupts == 1 << INTERRUPT_BIT {
                return self.take(buffer).ok_or_else(|| "an interrupt without a completed request".into());
            }
        }
    }

    /// Requests entropy into the driver's own buffer.
    pub fn request_own(&mut self, bytes: usize) {
        let bytes = bytes.min(BUFFER_BYTES) as u32;
        // SAFETY: the second page of the rings' memory is reached only as atomics.
        unsafe { self.request(self.rings.grant().physical_address() + BUFFER, bytes) };
    }

    /// What a completed request of [`Entropy::request_own`] brought.
    pub fn take(&self, buffer: &mut [u8]) -> Option<usize> {
        let length = self.completed()? as usize;
        let words = &self.rings.words()[BUFFER as usize / 8..];
        for (chunk, word) in buffer[..length].chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.load(Relaxed).to_le_bytes()[..chunk.len()]);
        }
        Some(length)
    }
}

impl Drop for Entropy {
    fn drop(&mut self) {
        // Reset, so that the device forgets the rings before their memory is released.
        self.common.write8(common::STATUS, 0);
    }
}

fn negotiate(at: &Window) -> Result<(), Failure> {
    at.write32(common::DEVICE_FEATURE_SELECT, 1);
    let offered = at.read32(common::DEVICE_FEATURE);
    if offered & VERSION_1 == 0 {
        return Err("the device has no modern interface".into());
    }
    at.write32(common::DRIVER_FEATURE_SELECT, 0);
    at.write32(common::DRIVER_FEATURE, 0);
    at.write32(common::DRIVER_FEATURE_SELECT, 1);
    at.write32(common::DRIVER_FEATURE, offered & FEATURES_HIGH);
    let wanted = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
    at.write8(common::STATUS, wanted);
    if at.read8(common::STATUS) & status::FEATURES_OK == 0 {
        return Err("the device refuses the features".into());
    }
    Ok(())
}

fn set_up_queue(at: &Window, rings: u64) -> Result<(), Failure> {
    at.write16(common::QUEUE_SELECT, 0);
    at.write16(common::QUEUE_SIZE, QUEUE_SIZE);
    if !at.is_mmio {
        at.write16(common::CONFIG_VECTOR, NO_VECTOR);
        at.write16(common::QUEUE_VECTOR, 0);
        if at.read16(common::QUEUE_VECTOR) != 0 {
            return Err("the device has no interrupt vector for the queue".into());
        }
    }
    for (register, address) in [
        (common::QUEUE_DESCRIPTORS, rings),
        (common::QUEUE_AVAILABLE, rings + AVAILABLE),
        (common::QUEUE_USED, rings + USED),
    ] {
        at.write32(register, address as u32);
        at.write32(register + 4, (address >> 32) as u32);
    }
    at.write16(common::QUEUE_ENABLE, 1);
    Ok(())
}

/// Maps the page of a structure. Returns it with the word behind the capability.
fn map(device: &Device, kind: u8) -> Result<(Window, u32), Failure> {
    let found = capabilities(device)?.into_iter().find(|capability| capability.kind == kind);
    let capability = found.ok_or("the device lacks a virtio capability")?;
    let page = capability.offset & !(PAGE - 1);
    // SAFETY: `Entropy::request` passes on what a caller tells it, under the same condition, and the rings
    // are `Shared`.
    let registers = unsafe { device.map(capability.bar, page, PAGE) }?;
    Ok((Window { registers, offset: capability.offset - page, is_mmio: false }, capability.extra))
}

/// Whether a device of the board is not on PCI.
pub fn is_mmio(index: usize) -> bool {
    board().devices[index].address.load(Relaxed) > 0xffff
}

/// Maps the only page of a device that is not on PCI.
fn map_mmio(device: &Device, offset: u64) -> Result<Window, Failure> {
    // SAFETY: as in `map`.
    let registers = unsafe { device.map(0, 0, PAGE) }?;
    Ok(Window { registers, offset, is_mmio: true })
}

/// The device's vendor capabilities.
fn capabilities(device: &Device) -> Result<Vec<Capability>, Failure> {
    const VENDOR_SPECIFIC: u8 = 9;
    let mut found = Vec::new();
    each_capability(device, |at, [id, _, _, kind]| {
        if id == VENDOR_SPECIFIC {
            let bar = u64::from(device.config(at + 4)? & 0xff);
            let offset = device.config(at + 8)?.into();
            let extra = if kind == KIND_NOTIFY { device.config(at + 16)? } else { 0 };
            found.push(Capability { kind, bar, offset, extra });
        }
        Ok(())
    })?;
    Ok(found)
}

/// Region and page of where a device keeps the messages that it interrupts by, and those that are pending
/// (PCI 3.0, section 6.8.2). Who could write there would send any interrupt to any processor.
///
/// # Errors
/// As for configuration space.
pub fn message_pages(device: &Device) -> Result<Vec<(u64, u64)>, Failure> {
    const MSIX: u8 = 0x11;
    let mut found = Vec::new();
    each_capability(device, |at, [id, ..]| {
        for word in (1..3).filter(|_| id == MSIX) {
            let place = u64::from(device.config(at + 4 * word)?);
            found.push((place & 7, (place & !7) & !(PAGE - 1)));
        }
        Ok(())
    })?;
    Ok(found)
}

/// Goes through a device's capabilities: where each is, and its first word (PCI 3.0, section 6.7).
fn each_capability(device: &Device, mut act: impl FnMut(u64, [u8; 4]) -> Check) -> Check {
    const POINTER: u64 = 0x34;
    let mut at = u64::from(device.config(POINTER)? & 0xfc);
    // A list has at most 48 entries; one that is longer runs in a circle.
    for _ in 0..48 {
        if at == 0 {
            break;
        }
        let word = device.config(at)?.to_le_bytes();
        act(at, word)?;
        at = u64::from(word[1] & 0xfc);
    }
    Ok(())
}

macro_rules! forward {
    ($($read:ident $write:ident $type:ty;)+) => { $(
        fn $read(&self, offset: u64) -> $type {
            if self.is_mmio {
                return self.registers.read32(self.offset + mmio::place(offset)) as $type;
            }
            self.registers.$read(self.offset + offset)
        }

        fn $write(&self, offset: u64, value: $type) {
            if self.is_mmio {
                return self.registers.write32(self.offset + mmio::place(offset), value.into());
            }
            self.registers.$write(self.offset + offset, value)
        }
    )+ };
}

impl Window {
    forward! {
        read8 write8 u8;
        read16 write16 u16;
        read32 write32 u32;
    }
}

/// Ranges of registers that cannot be mapped, and why: region, offset, bytes.
pub fn bad_ranges(index: usize) -> Vec<(u64, u64, u64, Error)> {
    let regions = &board().devices[index].bar_bytes;
    let absent = regions.iter().position(|bytes| bytes.load(Relaxed) == 0).unwrap_or(6) as u64;
    let present = regions.iter().position(|bytes| bytes.load(Relaxed) != 0).unwrap_or(0);
    let (bar, bytes) = (present as u64, regions[present].load(Relaxed));
    [
        (6, 0, PAGE, Error::NoSuchRegion),
        (absent, 0, PAGE, Error::NoSuchRegion),
        (bar, 0, 0, Error::NoSuchRegion),
        (bar, bytes.next_multiple_of(PAGE), PAGE, Error::NoSuchRegion),
        (bar, 0, bytes.next_multiple_of(PAGE) + PAGE, Error::NoSuchRegion),
        (bar, 8, PAGE, Error::Misaligned),
        (bar, 0, PAGE - 1, Error::Misaligned),
    ]
    .into()
}

/// Why a range of registers of the device with this index cannot be mapped.
pub fn map_error(index: usize, bar: u64, offset: u64, bytes: u64) -> Option<Error> {
    let address = Region::reserve(1 << 30, PageSize::Small).ok()?.address();
    // SAFETY: the addresses are used for nothing else, and nothing writes the registers if it is mapped.
    unsafe { nom_sys::raw::device_map(index as u64, bar, offset, address, bytes) }.err()
}
