//! What the kernel asks of a machine: memory by physical address, device registers, and little else.

use crate::ids::CoreId;
pub use crate::physical::{Frame, PhysAddr};
pub use crate::space::UserAddr;
pub use nom_abi::syscall::Segment;

/// Ordinary memory, by physical address. Addresses are those of frames that the kernel manages or of
/// tables that firmware left; implementations panic on anything else, for that is a bug in the kernel.
pub trait PhysicalMemory {
    /// Reads the aligned 64-bit word at `address`.
    fn read(&self, address: PhysAddr) -> u64;
    /// Writes the aligned 64-bit word at `address`.
    fn write(&mut self, address: PhysAddr, value: u64);
    /// Fills `bytes` from memory at `address`.
    fn read_bytes(&self, address: PhysAddr, bytes: &mut [u8]);
    /// Copies `bytes` to memory at `address`.
    fn write_bytes(&mut self, address: PhysAddr, bytes: &[u8]);
    /// Fills `count` frames from `frame` on with zeros.
    fn zero_frames(&mut self, frame: Frame, count: u64);
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

/// What a driver needs: device registers, and memory that the device reaches, too.
pub trait Hardware: PhysicalMemory + Registers {}
impl<T: PhysicalMemory + Registers> Hardware for T {}

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Something is broken.
    Error,
    /// Something works less well than it could.
    Warn,
    /// What the machine is, and who starts and ends.
    Info,
    /// Everything.
    Debug,
}

impl Level {
    /// The name of each, in this order.
    pub const NAMES: [&str; 4] = ["error", "warn", "info", "debug"];
}

/// Where a core goes on at a `syscall` of code that is not for this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflection {
    /// Where, in user space.
    pub entry: UserAddr,
    /// The word, in memory that stays its owner's meanwhile, that is told where the `syscall` was.
    pub word: PhysAddr,
}

/// The rest of the machine: processors, the serial port, and what the host's tools read.
///
/// "This core" is the one that runs the kernel now. Frames of *state* hold a computation's vector registers
/// and segment bases, which the kernel itself never uses.
pub trait Machine: Hardware {
    /// This core's time-stamp counter.
    fn cycles(&self) -> u64;
    /// Cycles in a span of nanoseconds.
    fn span_cycles(&self, nanoseconds: u64) -> u64;
    /// Nanoseconds in a span of cycles.
    fn span_ns(&self, cycles: u64) -> u64;
    /// A random word.
    fn random(&mut self) -> u64;
    /// APIC identifier of a core.
    fn apic_id(&self, core: CoreId) -> u32;
    /// Makes another core enter the kernel soon. Nothing happens if it is this core, which is in it.
    fn kick(&mut self, core: CoreId);
    /// Arms this core's timer for a board time, instead of whatever it was armed for.
    fn set_timer(&mut self, deadline_ns: u64);
    /// Loads the address space with its root table at `root` on this core, or the kernel's own.
    fn load_space(&mut self, root: Option<PhysAddr>);
    /// Makes every core forget what it knows of `length` bytes from `address` on in an address space; returns
    /// when all have.
    fn flush_space(&mut self, root: PhysAddr, address: u64, length: u64);
    /// Makes every core leave an address space; returns when all have.
    fn leave_space(&mut self, root: PhysAddr);
    /// Makes a frame the state of a computation that has not begun.
    fn reset_state(&mut self, frame: Frame);
    /// Stores this core's state in a frame.
    fn save_state(&mut self, frame: Frame);
    /// Loads this core's state from a frame.
    fn load_state(&mut self, frame: Frame);
    /// Sets where a segment of this core's state begins.
    fn set_segment_base(&mut self, segment: Segment, address: u64);
    /// Says where this core goes on at a `syscall` of code below the kernel-placed windows, if not here.
    fn reflect(&mut self, reflection: Option<Reflection>);
    /// Writes to the serial console.
    fn write_console(&mut self, bytes: &[u8]);
    /// Writes a line of log.
    fn log(&mut self, level: Level, text: core::fmt::Arguments<'_>);
    /// Tells the host's tools, in one line.
    fn control(&mut self, line: core::fmt::Arguments<'_>);
}
