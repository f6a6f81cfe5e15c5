//! PCI functions and the memory that they reach.

use core::fmt;
use core::ptr::NonNull;

/// Registers of a device: a window of one of its base address registers. Offsets are in bytes, aligned to
/// the access; an access outside is a mistake of the driver, on which the world panics.
pub trait Registers {
    /// Reads 1 byte.
    fn read8(&self, offset: u64) -> u8;
    /// Reads 2 bytes.
    fn read16(&self, offset: u64) -> u16;
    /// Reads 4 bytes.
    fn read32(&self, offset: u64) -> u32;
    /// Reads 8 bytes.
    fn read64(&self, offset: u64) -> u64;
    /// Writes 1 byte.
    fn write8(&self, offset: u64, value: u8);
    /// Writes 2 bytes.
    fn write16(&self, offset: u64, value: u16);
    /// Writes 4 bytes.
    fn write32(&self, offset: u64, value: u32);
    /// Writes 8 bytes.
    fn write64(&self, offset: u64, value: u64);
}

/// Why the world refused something about a device; says what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub &'static str);

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

impl core::error::Error for Refused {}

/// A PCI function, or a virtio device without PCI, that belongs to this application.
pub trait PciFunction {
    /// Mapped registers.
    type Registers: Registers;

    /// 4 bytes of configuration space at `offset`, a multiple of 4 below 4096; all ones if it has left.
    fn config(&self, offset: u16) -> u32;

    /// Where in region 0 its registers begin if it is a virtio device without PCI (virtio 1.2, section 4.2).
    fn mmio(&self) -> Option<u64> {
        None
    }

    /// Maps `bytes` from `offset` of base address register `bar`. The world maps whole pages; `offset` may be
    /// any.
    ///
    /// # Errors
    /// If there is no such region, or it holds registers that are the kernel's.
    fn map(&mut self, bar: u8, offset: u64, bytes: u64) -> Result<Self::Registers, Refused>;

    /// Delivers MSI-X vector `vector`, or without PCI the only interrupt, 0, to the calling core, as bit
    /// `bit` of [`crate::world::Wakeup`].
    ///
    /// # Errors
    /// If there is no such vector, or `bit` is above 63.
    fn bind_interrupt(&mut self, vector: u16, bit: u8) -> Result<(), Refused>;
}

/// Memory that devices reach, zeroed, contiguous on the bus and aligned to 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaBlock {
    /// Where this program sees it.
    pub pointer: NonNull<u8>,
    /// Where the device sees it.
    pub bus: u64,
    /// Its length.
    pub bytes: usize,
}

/// Memory for devices. It is the program's until it is released or the program ends.
pub trait Dma {
    /// A block of at least `bytes`; `None` if memory is exhausted.
    fn allocate(&mut self, bytes: usize) -> Option<DmaBlock>;

    /// Takes a block back that [`Dma::allocate`] gave, once, and as a whole. Neither the program nor a device
    /// uses it any more: that is the driver's promise, as it is that it uses only what it was given.
    fn release(&mut self, block: DmaBlock);
}
