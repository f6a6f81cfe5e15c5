//! The bulletin board: what the machine has, who owns it, what it costs and what time it is.
//!
//! Mapped read-only into every address space (nom, VEE'16, section 3.5) and read without a system call.
//! Every field is an atomic; each section has its [`Sequence`], so a reader sees one consistent section.
//! Only the kernel writes, under its lock; but for the last page, the [`Prices`], which one application of
//! the bundle publishes.

use crate::layout::{APPLICATIONS_MAX, CORES_MAX, DEVICES_MAX};
pub use crate::prices::{PRICES_MAX, PriceEntry, PriceList, PriceSource, PricedResource, Prices};
use crate::seqlock::Sequence;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use zerocopy::FromZeros;

/// First word of the board.
pub const MAGIC: u64 = u64::from_le_bytes(*b"nomboard");
/// Marks an absent owner, core or device.
pub const NOBODY: u32 = u32::MAX;

/// The whole board, as mapped.
#[derive(Debug, FromZeros)]
#[repr(C, align(4096))]
pub struct Board {
    /// Magic, version and size.
    pub header: Header,
    /// How to read time.
    pub clock: Clock,
    /// Totals of the machine.
    pub machine: Machine,
    /// One entry for each processor.
    pub cores: [Core; CORES_MAX],
    /// One entry for each application of the bundle.
    pub applications: [Application; APPLICATIONS_MAX],
    /// One entry for each PCI function that applications can own.
    pub devices: [Device; DEVICES_MAX],
    /// Present prices; empty until somebody publishes some.
    pub prices: Prices,
}

/// Identifies the board; written once before any application runs.
#[derive(Debug, FromZeros)]
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::VERSION`].
    pub version: AtomicU32,
    /// Bytes in [`Board`].
    pub bytes: AtomicU32,
}

/// Board time: nanoseconds since the kernel's first instruction, from the processor's time-stamp counter.
#[derive(Debug, FromZeros)]
#[repr(C, align(64))]
pub struct Clock {
    /// Guards the section.
    pub sequence: Sequence,
    /// Where the calibration came from: a [`ClockSource`].
    pub source: AtomicU32,
    /// Time-stamp counter at time zero.
    pub tsc_base: AtomicU64,
    /// Nanoseconds = `(tsc - tsc_base) * multiplier >> 32`.
    pub multiplier: AtomicU64,
    /// Time-stamp counter's frequency, in Hz.
    pub tsc_hz: AtomicU64,
    /// Time-stamp counter when the first application's first instruction was about to run.
    pub first_user_tsc: AtomicU64,
    /// Seconds since 1970, UTC, at time zero; 0 if the machine has no calendar.
    pub unix_start: AtomicU64,
}

/// How the time-stamp counter was calibrated, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockSource {
    /// Not calibrated.
    None = 0,
    /// KVM's paravirtual clock.
    KvmClock = 1,
    /// CPUID leaves 0x15 or 0x40000010.
    Cpuid = 2,
    /// The high precision event timer. No kernel calibrates by it any more.
    Hpet = 3,
    /// The 8254 interval timer.
    Pit = 4,
}

impl ClockSource {
    /// Name for people.
    pub const fn name(code: u32) -> &'static str {
        match code {
            1 => "kvmclock",
            2 => "cpuid",
            3 => "hpet",
            4 => "pit",
            _ => "none",
        }
    }
}

/// Who stops a device from reaching foreign memory, and from forging interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DmaProtection {
    /// Nobody: *trusted mode*. Only applications that are trusted with the whole machine should run.
    Trusted = 0,
    /// A virtio-iommu.
    VirtioIommu = 1,
    /// An Intel VT-d remapping unit, which stops devices from forging interrupts, too.
    IntelVtd = 2,
    /// An Intel VT-d remapping unit that lets every interrupt message pass.
    IntelVtdMemory = 3,
}

impl DmaProtection {
    /// Name for people.
    pub const fn name(code: u32) -> &'static str {
        match code {
            1 => "virtio-iommu",
            2 | 3 => "intel-iommu",
            _ => "trusted",
        }
    }

    /// What keeps a device from forging interrupts, for people: "remapped", or "trusted" if nothing does.
    /// Then who owns a device can have any processor take any interrupt, also resets and the firmware's.
    pub const fn interrupts(code: u32) -> &'static str {
        if code == DmaProtection::IntelVtd as u32 { "remapped" } else { "trusted" }
    }
}

/// Totals of the machine.
#[derive(Debug, FromZeros)]
#[repr(C, align(64))]
pub struct Machine {
    /// Guards the section.
    pub sequence: Sequence,
    /// Processors running.
    pub cores: AtomicU32,
    /// A [`DmaProtection`].
    pub dma_protection: AtomicU32,
    /// Number of cache colours.
    pub colours: AtomicU32,
    /// Frames of memory that the kernel manages.
    pub frames_total: AtomicU64,
    /// Frames that nobody holds.
    pub frames_free: AtomicU64,
    /// Frames that the kernel holds for itself and for page tables.
    pub frames_kernel: AtomicU64,
    /// Timer interrupts that the kernel has taken since boot, all cores.
    pub timer_interrupts: AtomicU64,
    /// Board time at which the machine was asked to end; 0 before.
    pub shutdown_ns: AtomicU64,
    /// [`Hazards`] of the processor: nothing keeps an application from these ways of reading others' memory.
    pub unmitigated: AtomicU32,
}

/// What transient execution betrays on a processor, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hazards(pub u32);

impl Hazards {
    /// What the kernel has mapped, and so all memory: the processor does not say that it is free of Meltdown.
    pub const MELTDOWN: u32 = 1;
    /// What passes through the processor's buffers: it does not say that it is free of MDS.
    pub const MDS: u32 = 2;
    /// What an application, or the kernel for it, can be brought to touch by mistrained branches (Spectre).
    pub const SPECTRE: u32 = 4;
}

impl core::fmt::Display for Hazards {
    /// Names with commas between them.
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names = [(Hazards::MELTDOWN, "meltdown"), (Hazards::MDS, "mds"), (Hazards::SPECTRE, "spectre")];
        let mut separator = "";
        for (_, name) in names.iter().filter(|(bit, _)| self.0 & bit != 0) {
            write!(out, "{separator}{name}")?;
            separator = ",";
        }
        Ok(())
    }
}

/// One processor.
#[derive(Debug, FromZeros)]
#[repr(C, align(64))]
pub struct Core {
    /// Guards the entry.
    pub sequence: Sequence,
    /// 1 if the processor runs, else 0.
    pub online: AtomicU32,
    /// Local APIC identifier.
    pub apic_id: AtomicU32,
    /// Index of the application that runs there now, or [`NOBODY`] while it halts.
    pub running: AtomicU32,
    /// Applications that hold the core, one bit each.
    pub holders: AtomicU64,
    /// Cycles spent halted.
    pub idle_cycles: AtomicU64,
}

/// State of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ApplicationState {
    /// In the bundle, never started.
    Idle = 0,
    /// Running.
    Running = 1,
    /// Ended itself; `status` is its exit status.
    Exited = 2,
    /// Ended by the kernel after a fault, or killed by its manager.
    Faulted = 3,
}

impl ApplicationState {
    /// Name for people.
    pub const fn name(code: u32) -> &'static str {
        match code {
            1 => "running",
            2 => "exited",
            3 => "faulted",
            _ => "idle",
        }
    }
}

/// One application of the bundle. Its index here is its number everywhere.
#[derive(Debug, FromZeros)]
#[repr(C, align(64))]
pub struct Application {
    /// Guards the entry.
    pub sequence: Sequence,
    /// An [`ApplicationState`].
    pub state: AtomicU32,
    /// Name, UTF-8, padded with zeros.
    pub name: [AtomicU64; 4],
    /// Exit status, if it ended.
    pub status: AtomicU32,
    /// Share weight on a contended core.
    pub weight: AtomicU32,
    /// Most cores it may hold.
    pub cores_max: AtomicU32,
    /// Most frames it may hold.
    pub frames_max: AtomicU64,
    /// Times it was started.
    pub starts: AtomicU32,
}

/// What one application of the bundle uses, on a page of its own behind the board: see [`usage_address`]. It
/// is shown to the application itself, to those that manage it, and to those whose manifest says `monitors`;
/// others read zeros.
#[derive(Debug, FromZeros)]
#[repr(C, align(4096))]
pub struct Usage {
    /// Cores held now.
    pub cores: AtomicU32,
    /// Times a core was taken from it by force, since the machine booted.
    pub preemptions: AtomicU32,
    /// Frames charged to it now: grants, program, stack and page tables.
    pub frames: AtomicU64,
    /// Cycles its cores ran it, since the machine booted.
    pub cycles: AtomicU64,
    /// System calls that it made and its manifest does not allow, since the machine booted.
    pub refused: AtomicU64,
}

impl Usage {
    /// Of nobody.
    pub const fn none() -> Usage {
        Usage {
            cores: AtomicU32::new(0),
            preemptions: AtomicU32::new(0),
            frames: AtomicU64::new(0),
            cycles: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

/// Adds to a counter of the board, which the kernel alone writes, one core at a time: no memory is locked.
pub fn advance(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// Where the usage of an application of the bundle is, of a board that is mapped at `board`.
pub const fn usage_address(board: u64, application: usize) -> u64 {
    board + (BOARD_BYTES + application * size_of::<Usage>()) as u64
}

/// One PCI function, or virtio device without PCI.
#[derive(Debug, FromZeros)]
#[repr(C, align(64))]
pub struct Device {
    /// Guards the entry.
    pub sequence: Sequence,
    /// 1 if there is such a device, else 0.
    pub present: AtomicU32,
    /// Bus, device and function: `bus << 8 | device << 3 | function`. Without PCI the physical address of its
    /// registers, above 0xffff, which lie at its offset in the only page of region 0.
    pub address: AtomicU32,
    /// Vendor identifier.
    pub vendor: AtomicU32,
    /// Device identifier.
    pub device: AtomicU32,
    /// Class code: `base << 16 | sub << 8 | interface`.
    pub class: AtomicU32,
    /// Owner's application index, or [`NOBODY`].
    pub owner: AtomicU32,
    /// Vectors in its MSI-X table; 0 if it has none; 1 without PCI.
    pub vectors: AtomicU32,
    /// Bytes of each base address register's region; 0 if absent or not memory.
    pub bar_bytes: [AtomicU64; 6],
    /// Times a device appeared in or left this entry.
    pub changes: AtomicU32,
    /// DMA accesses of this device that were blocked.
    pub dma_blocked: AtomicU32,
}

/// Bytes of the board, a whole number of pages.
pub const BOARD_BYTES: usize = size_of::<Board>();
/// Where the board's prices begin, which lie on pages of their own.
pub const PRICES_OFFSET: usize = core::mem::offset_of!(Board, prices);

const _: () = {
    assert!(BOARD_BYTES.is_multiple_of(4096) && BOARD_BYTES <= 9 * 4096);
    assert!(PRICES_OFFSET.is_multiple_of(4096) && PRICES_OFFSET + size_of::<Prices>() == BOARD_BYTES);
    assert!(size_of::<Usage>() == 4096);
    assert!(size_of::<Core>() == 64 && size_of::<Application>() == 128 && size_of::<Device>() == 128);
    assert!(core::mem::offset_of!(Board, clock) == 64 && core::mem::offset_of!(Board, machine) == 128);
    assert!(core::mem::offset_of!(Board, cores) == 192);
};

impl Board {
    /// Whether this memory is a board of this version.
    pub fn is_valid(&self) -> bool {
        self.header.magic.load(Relaxed) == MAGIC && self.header.version.load(Relaxed) == crate::VERSION
    }
}

impl Clock {
    /// Board time for a time-stamp counter reading, in nanoseconds.
    pub fn nanoseconds(&self, tsc: u64) -> u64 {
        let (base, multiplier) =
            self.sequence.read(|| (self.tsc_base.load(Relaxed), self.multiplier.load(Relaxed)));
        ((tsc.wrapping_sub(base) as u128 * multiplier as u128) >> 32) as u64
    }
}

impl Application {
    /// The name's bytes; the part before the first zero is the name.
    pub fn name_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&self.name) {
            *chunk = word.load(Relaxed).to_le_bytes();
        }
        bytes
    }
}
