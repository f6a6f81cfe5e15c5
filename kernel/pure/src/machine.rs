//! What the kernel asks of a machine: memory by physical address, device registers, and little else.

use nom_abi::memory::FRAME_BYTES;

/// Ordinary memory, by physical address. Addresses are those of frames that the kernel manages or of
/// tables that firmware left; implementations panic on anything else, for that is a bug in the kernel.
pub trait PhysicalMemory {
    /// Reads the aligned 64-bit word at `address`.
    fn read(&self, address: u64) -> u64;
    /// Writes the aligned 64-bit word at `address`.
    fn write(&mut self, address: u64, value: u64);
    /// Fills `bytes` from memory at `address`.
    fn read_bytes(&self, address: u64, bytes: &mut [u8]);
    /// Copies `bytes` to memory at `address`.
    fn write_bytes(&mut self, address: u64, bytes: &[u8]);
    /// Copies `length` bytes between two places that do not overlap.
    fn copy(&mut self, from: u64, to: u64, length: u64);
    /// Fills `count` frames from `frame` on with zeros.
    fn zero_frames(&mut self, frame: u64, count: u64);

    /// First byte of a frame.
    fn frame_address(frame: u64) -> u64 {
        frame * FRAME_BYTES
    }
}

/// Device registers, by physical address: uncached, each access exactly once and in order.
pub trait Registers {
    /// Reads the aligned 32-bit register at `address`.
    fn read32(&mut self, address: u64) -> u32;
    /// Writes the aligned 32-bit register at `address`.
    fn write32(&mut self, address: u64, value: u32);
    /// Reads the 8-bit register at `address`.
    fn read8(&mut self, address: u64) -> u8;
    /// Writes the 8-bit register at `address`.
    fn write8(&mut self, address: u64, value: u8);
    /// Reads the 16-bit register at `address`.
    fn read16(&mut self, address: u64) -> u16;
    /// Writes the 16-bit register at `address`.
    fn write16(&mut self, address: u64, value: u16);
    /// Reads the aligned 64-bit register at `address`.
    fn read64(&mut self, address: u64) -> u64;
    /// Writes the aligned 64-bit register at `address`.
    fn write64(&mut self, address: u64, value: u64);
    /// Board time in nanoseconds, to bound how long a driver waits for a device.
    fn now_ns(&self) -> u64;
}
