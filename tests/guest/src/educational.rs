//! A driver for QEMU's `edu` device, whose only use is to move bytes: a program can have it write anything
//! anywhere on the bus (QEMU, `docs/specs/edu.rst`).

use crate::Failure;
use crate::processors::wait_until;
use core::sync::atomic::Ordering::Relaxed;
use nom_sys::devices::{self, Device, Registers};
use nom_sys::memory::Shared;
use nom_sys::{Error, PageSize};

const VENDOR: u32 = 0x1234;
const DEVICE: u32 = 0x11e8;
const PAGE: u64 = 4096;
/// How long the device may take for bytes; it takes 100 ms.
const TIMEOUT_NS: u64 = 20_000_000_000;

/// Registers, and the device's own memory as its addresses name it.
const SOURCE: u64 = 0x80;
const DESTINATION: u64 = 0x88;
const COUNT: u64 = 0x90;
const COMMAND: u64 = 0x98;
const OWN_MEMORY: u64 = 0x4_0000;
/// The device refuses, by ending the machine, what reaches the last byte of its memory.
const OWN_BYTES: u64 = PAGE - 4;
const START: u64 = 1;
const TO_BUS: u64 = 2;

/// The device, its own memory filled with what it is to write.
pub struct Educational {
    // Dropped before the memory that it reads.
    device: Device,
    registers: Registers,
    _words: Shared,
}

/// Index of the first such device on the board.
///
/// # Errors
/// NoDevice.
pub fn find() -> Result<usize, Error> {
    devices::find(|vendor, device| (vendor, device) == (VENDOR, DEVICE))
}

impl Educational {
    /// Acquires the device with this index, and fills its memory: word `n` has the 32-bit value `n`.
    ///
    /// # Errors
    /// Says what the kernel refused, or that the device does not work.
    pub fn open(index: usize) -> Result<Educational, Failure> {
        let device = Device::acquire(index)?;
        let words = Shared::new(PageSize::Small, 1)?;
        for (number, word) in (0_u64..).zip(words.words()) {
            word.store(((2 * number + 1) << 32) | (2 * number), Relaxed);
        }
        // SAFETY: the device reads memory that is shared; whoever has it write answers for where.
        let registers = unsafe { device.map(0, 0, PAGE) }?;
        let it = Educational { device, registers, _words: words };
        it.transfer(it._words.grant().physical_address(), OWN_MEMORY, OWN_BYTES, 0)?;
        Ok(it)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Has the device write the 32-bit value `value`, below 1023, at bus address `address`.
    ///
    /// # Safety
    /// The program treats the memory there as shared; or somebody prevents the device from reaching it.
    ///
    /// # Errors
    /// If the device does not get done.
    pub unsafe fn write(&self, address: u64, value: u64) -> Result<(), Failure> {
        self.transfer(OWN_MEMORY + 4 * value, address, 4, TO_BUS)
    }

    fn transfer(&self, from: u64, to: u64, bytes: u64, direction: u64) -> Result<(), Failure> {
        self.registers.write64(SOURCE, from);
        self.registers.write64(DESTINATION, to);
        self.registers.write64(COUNT, bytes);
        self.registers.write64(COMMAND, START | direction);
        wait_until(TIMEOUT_NS, "the device is done", || self.registers.read64(COMMAND) & START == 0)
    }
}
