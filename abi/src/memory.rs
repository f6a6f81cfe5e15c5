//! Page sizes, protections and frame numbers.

use crate::error::{Error, Result};

/// Bytes in the smallest page and in one frame.
pub const FRAME_BYTES: u64 = 4096;
/// `log2` of [`FRAME_BYTES`].
pub const FRAME_SHIFT: u32 = 12;
/// Asks `memory_grant` for frames of any cache colour.
pub const ANY_COLOUR: u64 = u64::MAX;

/// The three page sizes of x86-64, also the three sizes of a memory grant's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u64)]
pub enum PageSize {
    /// 4 KiB.
    Small = 0,
    /// 2 MiB.
    Large = 1,
    /// 1 GiB.
    Huge = 2,
}

impl PageSize {
    /// Every size, smallest first.
    pub const ALL: [PageSize; 3] = [PageSize::Small, PageSize::Large, PageSize::Huge];

    /// The size with this register encoding.
    pub const fn from_code(code: u64) -> Result<PageSize> {
        match code {
            0 => Ok(PageSize::Small),
            1 => Ok(PageSize::Large),
            2 => Ok(PageSize::Huge),
            _ => Err(Error::InvalidArgument),
        }
    }

    /// Frames of 4 KiB in one page of this size.
    pub const fn frames(self) -> u64 {
        1 << (9 * self as u64)
    }

    /// Bytes in one page of this size.
    pub const fn bytes(self) -> u64 {
        self.frames() * FRAME_BYTES
    }
}

/// What an application may do with mapped memory. Writable and executable exclude each other (W^X).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Protection {
    /// Mapped, but every access faults: a guard, or a page whose use is to be noticed.
    None = 0,
    /// Read only.
    Read = 1,
    /// Read and write.
    ReadWrite = 3,
    /// Read and execute.
    ReadExecute = 5,
}

impl Protection {
    /// The protection with this register encoding: bit 0 read, bit 1 write, bit 2 execute.
    pub const fn from_code(code: u64) -> Result<Protection> {
        match code {
            0 => Ok(Protection::None),
            1 => Ok(Protection::Read),
            3 => Ok(Protection::ReadWrite),
            5 => Ok(Protection::ReadExecute),
            6 | 7 => Err(Error::WriteExecute),
            _ => Err(Error::InvalidArgument),
        }
    }

    /// Whether stores are allowed.
    pub const fn writable(self) -> bool {
        matches!(self, Protection::ReadWrite)
    }

    /// Whether instruction fetches are allowed.
    pub const fn executable(self) -> bool {
        matches!(self, Protection::ReadExecute)
    }
}
