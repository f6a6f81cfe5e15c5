//! The kernel's own half of every address space: image, direct map, device registers, stacks.
//!
//! Built once, before the first application's address space copies the top-level entries; only device
//! registers are added later, below a top-level entry that is there from the start. The image is mapped
//! writable nowhere but in its own data: in the direct map it and the bundle are read-only.

use crate::cpu;
use crate::memory::Physical;
use crate::start_info::StartInfo;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_abi::layout::{DEVICE_MAP, KERNEL_LOAD};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::{PageSize, Protection};
use nom_kernel_pure::machine::{PhysAddr, PhysicalMemory};
use nom_kernel_pure::paging::{self, Caching, Entry, Meaning, Privilege, ROOT_LEVEL, direct_map_base};

/// Kernel stacks, 64 KiB apart, each at the top of its slot: what lies below is a guard.
const STACKS: u64 = 0xffff_e000_0000_0000;
const STACK_SLOT: u64 = 64 << 10;
/// Bytes of one kernel stack.
pub const STACK_BYTES: u64 = 16 << 10;

/// Physical address of the kernel's page-table root; `boot.S` loads it on processors that start.
pub static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);
/// Frames for tables that map device registers discovered later.
static SPARE: AtomicU64 = AtomicU64::new(0);
static SPARE_END: AtomicU64 = AtomicU64::new(0);
/// 2 MiB pages of device registers: three for APIC and the like, the rest for bridges and devices.
const SPARE_TABLES: u64 = 8;

unsafe extern "C" {
    static kernel_start: u8;
    static kernel_text_end: u8;
    static kernel_rodata_end: u8;
    static kernel_end: u8;
}

/// Where the loader has moved the image to: physical address `p` of the image is at this plus `p`.
pub fn image_base() -> u64 {
    &raw const kernel_start as u64 - KERNEL_LOAD
}

/// Where the kernel image ends and the bundle begins.
pub fn image_end() -> PhysAddr {
    physical(&raw const kernel_end as u64)
}

/// Where the byte of the image is that is mapped at `address`.
fn physical(address: u64) -> PhysAddr {
    PhysAddr::new(address - image_base())
}

/// Hands out frames in order, before there is an allocator.
pub struct Early {
    next: u64,
    end: u64,
}

impl Early {
    /// Frames in `[start, end)`, rounded inwards.
    pub fn new(start: u64, end: u64) -> Early {
        Early { next: start.next_multiple_of(FRAME_BYTES), end: end & !(FRAME_BYTES - 1) }
    }

    /// Where there are `bytes` of memory, whole frames, not zeroed.
    pub fn take(&mut self, bytes: u64) -> PhysAddr {
        let address = PhysAddr::new(self.next);
        self.next += bytes.next_multiple_of(FRAME_BYTES);
        assert!(self.next <= self.end, "not enough memory for the kernel: {bytes} more bytes needed");
        address
    }

    fn table(&mut self, memory: &mut Physical) -> PhysAddr {
        let address = self.take(FRAME_BYTES);
        memory.zero_frames(address.frame(), 1);
        address
    }

    /// First byte not handed out.
    pub fn next(&self) -> u64 {
        self.next
    }
}

/// Maps ranges into the kernel's half.
struct Mapper<'a> {
    memory: &'a mut Physical,
    early: &'a mut Early,
    root: PhysAddr,
    largest: PageSize,
}

impl Mapper<'_> {
    /// The entry for `address` in the table of the given level (4 to 1), making the tables above it.
    fn entry(&mut self, address: u64, level: u32) -> PhysAddr {
        let mut table = self.root;
        for at in (level + 1..=ROOT_LEVEL).rev() {
            let entry = table + 8 * paging::index(address, at) as u64;
            table = match Entry(self.memory.read(entry)).meaning(at) {
                Meaning::Table(table) => table,
                _ => {
                    let new = self.early.table(self.memory);
                    self.memory.write(entry, Entry::table(new, Privilege::Kernel).0);
                    new
                }
            };
        }
        table + 8 * paging::index(address, level) as u64
    }

    /// Maps `[physical, end)` at `address` with the largest pages that fit.
    fn map(&mut self, mut address: u64, physical: PhysAddr, end: PhysAddr, protection: Protection) {
        let (mut physical, end) = (physical.word(), end.word());
        while physical < end {
            let fits = |size: &PageSize| {
                (address | physical).is_multiple_of(size.bytes()) && end - physical >= size.bytes()
            };
            let sizes = PageSize::ALL.into_iter().filter(|size| *size <= self.largest);
            let size = sizes.rev().find(fits).expect("ranges are whole frames");
            let entry = self.entry(address, paging::leaf_level(size));
            let (frame, caching) = (PhysAddr::new(physical).frame(), Caching::WriteBack);
            self.memory.write(entry, Entry::leaf(frame, size, protection, caching, Privilege::Kernel).0);
            address += size.bytes();
            physical += size.bytes();
        }
    }
}

/// Builds the kernel's page tables and loads them. `constant_end` is the physical end of the bundle.
pub fn build(memory: &mut Physical, early: &mut Early, info: &StartInfo, constant_end: PhysAddr, huge: bool) {
    let root = early.table(memory);
    let spare = early.take(SPARE_TABLES * FRAME_BYTES);
    let largest = if huge { PageSize::Huge } else { PageSize::Large };
    let mut mapper = Mapper { memory, early, root, largest };
    let text = &raw const kernel_start as u64;
    let (text_end, rodata_end) = (&raw const kernel_text_end as u64, &raw const kernel_rodata_end as u64);
    mapper.map(text, physical(text), physical(text_end), Protection::ReadExecute);
    mapper.map(text_end, physical(text_end), physical(rodata_end), Protection::Read);
    mapper.map(rodata_end, physical(rodata_end), image_end(), Protection::ReadWrite);

    let constant_end = constant_end.word().next_multiple_of(FRAME_BYTES);
    let direct = direct_map_base(cpu::rdrand().unwrap_or(0), info.high_end());
    let mut map_directly = |start: u64, end: u64, protection| {
        mapper.map(direct + start, PhysAddr::new(start), PhysAddr::new(end), protection);
    };
    map_directly(0, KERNEL_LOAD, Protection::ReadWrite);
    map_directly(KERNEL_LOAD, constant_end, Protection::Read);
    map_directly(constant_end, info.low_end().next_multiple_of(FRAME_BYTES), Protection::ReadWrite);
    for region in info.regions.iter().filter(|region| region.usable && region.start >= 1 << 32) {
        let start = region.start.next_multiple_of(FRAME_BYTES);
        map_directly(start, region.end & !(FRAME_BYTES - 1), Protection::ReadWrite);
    }
    mapper.entry(DEVICE_MAP, 3);
    mapper.entry(STACKS, 3);

    SPARE.store(spare.word(), Relaxed);
    SPARE_END.store(spare.word() + SPARE_TABLES * FRAME_BYTES, Relaxed);
    KERNEL_ROOT.store(root.word(), Relaxed);
    // SAFETY: the tables map the image that runs, its stack (in the image's data) and all memory.
    unsafe { cpu::set_cr3(root) };
    Physical::set_range(direct, info.high_end());
}

/// The kernel's page-table root.
pub fn kernel_root() -> PhysAddr {
    PhysAddr::new(KERNEL_ROOT.load(Relaxed))
}

/// Top of stack number `index`.
pub fn stack_top(index: u64) -> u64 {
    STACKS + (index + 1) * STACK_SLOT
}

/// Maps stack number `index` and returns its top.
pub fn map_stack(memory: &mut Physical, early: &mut Early, index: u64, bytes: u64) -> u64 {
    let physical = early.take(bytes);
    let top = stack_top(index);
    let mut mapper = Mapper { memory, early, root: kernel_root(), largest: PageSize::Small };
    mapper.map(top - bytes, physical, physical + bytes, Protection::ReadWrite);
    top
}

/// Maps the 2 MiB page of device registers that holds `address`, uncached, if it is not mapped.
///
/// Called by one core at a time: at boot, then under the kernel's lock.
pub fn ensure_device(address: u64) {
    // SAFETY: only page-table words of the device map are touched, by one core at a time.
    let memory = unsafe { &mut Physical::new() };
    let early = &mut Early { next: SPARE.load(Relaxed), end: SPARE_END.load(Relaxed) };
    let size = PageSize::Large;
    let mut mapper = Mapper { memory, early, root: kernel_root(), largest: size };
    let entry = mapper.entry(DEVICE_MAP + address, paging::leaf_level(size));
    if mapper.memory.read(entry) == Entry::EMPTY.0 {
        let frame = PhysAddr::new(address - address % size.bytes()).frame();
        let how = (Protection::ReadWrite, Caching::Uncached);
        mapper.memory.write(entry, Entry::leaf(frame, size, how.0, how.1, Privilege::Kernel).0);
        SPARE.store(mapper.early.next, Relaxed);
    }
}

/// Whether a frame pointer lies in a kernel stack, so that it can be followed.
pub fn is_kernel_stack(address: u64) -> bool {
    unsafe extern "C" {
        static boot_stack: u8;
        static boot_stack_top: u8;
    }
    let boot = &raw const boot_stack as u64..&raw const boot_stack_top as u64 - 15;
    let own = STACKS..STACKS + 4 * nom_abi::layout::CORES_MAX as u64 * STACK_SLOT;
    let (index, slot) =
        (address.wrapping_sub(STACKS) / STACK_SLOT, address.wrapping_sub(STACKS) % STACK_SLOT);
    // Of a core's four slots the first is its stack, the others are those of the exceptions with their own.
    let bytes = if index % 4 == 0 { STACK_BYTES } else { FRAME_BYTES };
    let in_own = own.contains(&address) && (STACK_SLOT - bytes..STACK_SLOT - 15).contains(&slot);
    address.is_multiple_of(8) && (boot.contains(&address) || in_own)
}
