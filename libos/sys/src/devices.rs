//! PCI devices: registers, configuration, interrupts.

use crate::raw;
use crate::region::Region;
use nom_abi::PageSize;
use nom_abi::error::{Error, Result};

/// A device of the board that this program has acquired; released when dropped.
#[derive(Debug)]
pub struct Device {
    index: u64,
}

impl Device {
    /// Acquires the device with this `index` on the board.
    ///
    /// # Errors
    /// NoDevice, NotPermitted.
    pub fn acquire(index: usize) -> Result<Device> {
        let index = index as u64;
        // SAFETY: a device does nothing to memory until a driver tells it to, for which it needs `map`.
        unsafe { raw::device_acquire(index) }?;
        Ok(Device { index })
    }

    /// Its index on the board.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// Reads configuration space at `offset`, a multiple of 4 below 4096.
    ///
    /// # Errors
    /// NoDevice when it has left; Misaligned, InvalidArgument.
    pub fn config(&self, offset: u64) -> Result<u32> {
        // SAFETY: the kernel reads on our behalf; no memory of ours is concerned.
        unsafe { raw::device_config_read(self.index, offset) }.map(|value| value as u32)
    }

    /// Maps `bytes` from `offset` of base address register `bar`, both multiples of 4096.
    ///
    /// # Safety
    /// Registers can make the device write to memory by itself. Whoever writes them tells the device only
    /// addresses of memory that the program treats as shared, such as [`crate::memory::Shared`].
    ///
    /// # Errors
    /// As `device_map` says.
    pub unsafe fn map(&self, bar: u64, offset: u64, bytes: u64) -> Result<Registers> {
        let region = Region::reserve(bytes, PageSize::Small)?;
        // SAFETY: the region is new and its own.
        unsafe { raw::device_map(self.index, bar, offset, region.address(), bytes) }?;
        Ok(Registers { region })
    }

    /// Delivers MSI-X vector `vector` to this core, as bit `bit` of `Events::interrupts`.
    ///
    /// # Errors
    /// NoDevice, NoSuchInterrupt, InvalidArgument.
    pub fn bind_interrupt(&self, vector: u64, bit: u64) -> Result<()> {
        // SAFETY: an interrupt becomes an event; no memory is concerned.
        unsafe { raw::interrupt_bind(self.index, vector, bit) }?;
        Ok(())
    }

    /// Masks or unmasks a bound vector.
    ///
    /// # Errors
    /// NoDevice, NoSuchInterrupt.
    pub fn mask_interrupt(&self, vector: u64, masked: bool) -> Result<()> {
        // SAFETY: as in `bind_interrupt`.
        unsafe { raw::interrupt_mask(self.index, vector, masked.into()) }?;
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: its registers are unmapped, so a later access to them faults and goes nowhere else. It
        // fails only when the device has left, which is the same as released.
        let _ = unsafe { raw::device_release(self.index) };
    }
}

/// Mapped device registers. After the device was released an access is a page fault.
#[derive(Debug)]
pub struct Registers {
    region: Region,
}

macro_rules! accessors {
    ($($read:ident $write:ident $type:ty;)+) => { $(
        /// Reads the register at `offset`.
        ///
        /// # Panics
        /// If `offset` is misaligned or outside.
        pub fn $read(&self, offset: u64) -> $type {
            let register = self.register(offset, size_of::<$type>() as u64) as *const $type;
            // SAFETY: `register` checked that it lies inside and is aligned; any value is valid.
            unsafe { register.read_volatile() }
        }

        /// Writes the register at `offset`.
        ///
        /// # Panics
        /// If `offset` is misaligned or outside.
        pub fn $write(&self, offset: u64, value: $type) {
            let register = self.register(offset, size_of::<$type>() as u64) as *mut $type;
            // SAFETY: as above; what the device then does is the condition of `Device::map`.
            unsafe { register.write_volatile(value) }
        }
    )+ };
}

impl Registers {
    accessors! {
        read8 write8 u8;
        read16 write16 u16;
        read32 write32 u32;
        read64 write64 u64;
    }

    fn register(&self, offset: u64, bytes: u64) -> u64 {
        match self.region.part(offset, bytes) {
            Ok(address) if offset.is_multiple_of(bytes) => address,
            _ => panic!("no {bytes}-byte register at {offset:#x} of {:#x}", self.region.bytes()),
        }
    }
}

/// The first device of the board that `matches` its vendor and device identifiers.
///
/// # Errors
/// NoDevice if none does.
pub fn find(matches: impl Fn(u32, u32) -> bool) -> Result<usize> {
    find_nth(0, matches)
}

/// Of the devices of the board that `matches` their vendor and device identifiers, the one with this number.
///
/// # Errors
/// NoDevice if so many are not there.
pub fn find_nth(number: usize, matches: impl Fn(u32, u32) -> bool) -> Result<usize> {
    use core::sync::atomic::Ordering::Relaxed;
    let devices = crate::start::board().devices.iter().enumerate();
    let mut found = devices.filter(|(_, device)| {
        let (present, vendor, id) = device.sequence.read(|| {
            (device.present.load(Relaxed), device.vendor.load(Relaxed), device.device.load(Relaxed))
        });
        present == 1 && matches(vendor, id)
    });
    found.nth(number).map(|(index, _)| index).ok_or(Error::NoDevice)
}
