//! Physical addresses of memory, which are not to be taken for anything else that is a number: virtual
//! addresses, numbers of frames, and device registers, which are reached otherwise, are plain words.

use core::ops::Add;
use nom_abi::memory::FRAME_SHIFT;

/// Where something is in memory, as page tables and devices name it. A word that an application passed is
/// none, whatever it means:
///
/// ```compile_fail,E0308
/// use nom_kernel_pure::machine::PhysicalMemory;
/// fn read(memory: &impl PhysicalMemory, pointer: u64) -> u64 {
///     memory.read(pointer)
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PhysAddr(u64);

impl PhysAddr {
    /// What a processor, a device or firmware calls this.
    pub const fn new(word: u64) -> PhysAddr {
        PhysAddr(word)
    }

    /// Where a frame begins.
    pub const fn of_frame(frame: u64) -> PhysAddr {
        PhysAddr(frame << FRAME_SHIFT)
    }

    /// What processors and devices are told.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Number of the frame that it lies in.
    pub const fn frame(self) -> u64 {
        self.0 >> FRAME_SHIFT
    }
}

impl Add<u64> for PhysAddr {
    type Output = PhysAddr;
    #[inline(always)]
    fn add(self, bytes: u64) -> PhysAddr {
        PhysAddr(self.0 + bytes)
    }
}
