//! Physical addresses of memory, and frames of it: neither is to be taken for the other, nor for anything
//! else that is a number. Device registers, which are reached otherwise, are plain words.

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
    pub const fn of_frame(frame: Frame) -> PhysAddr {
        PhysAddr(frame.0 << FRAME_SHIFT)
    }

    /// What processors and devices are told.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The frame that it lies in.
    pub const fn frame(self) -> Frame {
        Frame(self.0 >> FRAME_SHIFT)
    }
}

/// A frame: 4 KiB of memory, or of what lies where memory could. How many there are is a plain number:
///
/// ```compile_fail,E0308
/// use nom_kernel_pure::machine::{Frame, PhysicalMemory};
/// fn zero(memory: &mut impl PhysicalMemory, frame: Frame, count: u64) {
///     memory.zero_frames(count, frame);
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Frame(u64);

impl Frame {
    /// The one with this number, as applications and page tables call it; whether there is one is not said.
    pub const fn new(number: u64) -> Frame {
        Frame(number)
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Lets so many bytes, or frames, be added.
macro_rules! add_to {
    ($($name:ident)+) => { $(
        impl Add<u64> for $name {
            type Output = $name;
            #[inline(always)]
            fn add(self, count: u64) -> $name {
                $name(self.0 + count)
            }
        }
    )+ };
}

add_to! { PhysAddr Frame }
