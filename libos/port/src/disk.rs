//! What a file system asks of the disk that it is on.

use core::fmt;

/// Where reads of a disk begin and end: multiples of this.
pub const SECTOR_BYTES: u64 = 512;

/// A disk that is read.
pub trait Disk {
    /// Bytes that it has, a multiple of [`SECTOR_BYTES`].
    fn bytes(&self) -> u64;

    /// Reads from `offset` on; that and the length are multiples of [`SECTOR_BYTES`].
    ///
    /// # Errors
    /// If not all of that can be read; what is in `target` then is of no use.
    fn read(&mut self, offset: u64, target: &mut [u8]) -> Result<(), Unreadable>;
}

/// The disk did not say what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the disk cannot be read there")
    }
}

impl core::error::Error for Unreadable {}
