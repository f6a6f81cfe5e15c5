//! What tables are made of: memory, frames of it, and who pays for them.

use crate::frames::{Frames, Owner};
use crate::machine::{PhysAddr, PhysicalMemory};
use nom_abi::PageSize;
use nom_abi::error::{Error, Result};

/// A machine, and frames of its memory for tables and queues, charged to an owner up to a bound.
pub struct Means<'a, 'm, M> {
    /// The memory of the tables, and registers.
    pub machine: &'a mut M,
    /// Where frames come from.
    pub frames: &'a mut Frames<'m>,
    /// Who is charged.
    pub owner: Owner,
    /// Most frames that may be taken.
    pub at_most: u64,
}

impl<'a, 'm, M: PhysicalMemory> Means<'a, 'm, M> {
    /// The kernel's own, without bound.
    pub fn of_kernel(machine: &'a mut M, frames: &'a mut Frames<'m>) -> Means<'a, 'm, M> {
        Means { machine, frames, owner: Owner::KERNEL, at_most: u64::MAX }
    }

    /// Where the first of `count` zeroed frames in a row begins. Errors: OverMemoryCap, OutOfMemory.
    pub fn take(&mut self, count: u64) -> Result<PhysAddr> {
        let left = self.at_most.checked_sub(count).ok_or(Error::OverMemoryCap)?;
        let frame = self.frames.allocate(self.owner, PageSize::Small, count, None)?;
        self.machine.zero_frames(frame, count);
        self.at_most = left;
        Ok(PhysAddr::of_frame(frame))
    }
}
