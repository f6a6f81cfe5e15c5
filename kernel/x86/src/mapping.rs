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
use nom_kernel_pure::machine::{PhysAddr, PhysicalMemory};
use nom_kernel_pure::paging::direct_map_base;

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const UNCACHED: u64 = 1 << 3 | 1 << 4;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

const SMALL_PAGE: u64 = 4096;
const LARGE_PAGE: u64 = 2 << 20;
const HUGE_PAGE: u64 = 1 << 30;

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
    huge_pages: bool,
}

impl Mapper<'_> {
    /// The entry for `address` in the table of the given level (4 to 1), making the tables above it.
    fn entry(&mut self, address: u64, level: u32) -> PhysAddr {
        let mut table = self.root;
        for at in (level + 1..=4).rev() {
            let entry = table + (address >> (12 + 9 * (at - 1)) & 511) * 8;
            if self.memory.read(entry) & PRESENT == 0 {
                let new = self.early.table(self.memory);
                self.memory.write(entry, new.word() | PRESENT | WRITE);
            }
            table = PhysAddr::new(self.memory.read(entry) & ADDRESS);
        }
        table + (address >> (12 + 9 * (level - 1)) & 511) * 8
    }

    /// Maps `[physical, end)` at `address` with the largest pages that fit.
    fn map(&mut self, mut address: u64, physical: PhysAddr, end: PhysAddr, flags: u64) {
        let (mut physical, end) = (physical.word(), end.word());
        while physical < end {
            let fits = |page: u64| {
                address.is_multiple_of(page) && physical.is_multiple_of(page) && end - physical >= page
            };
            let (level, page) = match () {
                () if self.huge_pages && fits(HUGE_PAGE) => (3, HUGE_PAGE),
                () if fits(LARGE_PAGE) => (2, LARGE_PAGE),
                () => (1, SMALL_PAGE),
            };
            let entry = self.entry(address, level);
            let size = if level > 1 { LARGE } else { 0 };
            self.memory.write(entry, physical | flags | size | PRESENT | GLOBAL);
            address += page;
            physical += page;
        }
    }
}

/// Builds the kernel's page tables and loads them. `constant_end` is the physical end of the bundle.
pub fn build(
    memory: &mut Physical,
    early: &mut Early,
    info: &StartInfo,
    constant_end: PhysAddr,
    huge_pages: bool,
) {
    let root = early.table(memory);
    let spare = early.take(SPARE_TABLES * FRAME_BYTES);
    let mut mapper = Mapper { memory, early, root, huge_pages };
    let text = &raw const kernel_start as u64;
    let (text_end, rodata_end) = (&raw const kernel_text_end as u64, &raw const kernel_rodata_end as u64);
    mapper.map(text, physical(text), physical(text_end), 0);
    mapper.map(text_end, physical(text_end), physical(rodata_end), NO_EXECUTE);
    mapper.map(rodata_end, physical(rodata_end), image_end(), NO_EXECUTE | WRITE);

    let constant_end = constant_end.word().next_multiple_of(SMALL_PAGE);
    let direct = direct_map_base(cpu::rdrand().unwrap_or(0), info.high_end());
    let mut map_directly = |start: u64, end: u64, flags| {
        mapper.map(direct + start, PhysAddr::new(start), PhysAddr::new(end), flags);
    };
    map_directly(0, KERNEL_LOAD, NO_EXECUTE | WRITE);
    map_directly(KERNEL_LOAD, constant_end, NO_EXECUTE);
    map_directly(constant_end, info.low_end().next_multiple_of(SMALL_PAGE), NO_EXECUTE | WRITE);
    for region in info.regions().iter().filter(|region| region.usable && region.start >= 1 << 32) {
        let start = region.start.next_multiple_of(SMALL_PAGE);
        map_directly(start, region.end & !(SMALL_PAGE - 1), NO_EXECUTE | WRITE);
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
    let mut mapper = Mapper { memory, early, root: kernel_root(), huge_pages: false };
    mapper.map(top - bytes, physical, physical + bytes, NO_EXECUTE | WRITE);
    top
}

/// Maps the 2 MiB page of device registers that holds `address`, uncached, if it is not mapped.
///
/// Called by one core at a time: at boot, then under the kernel's lock.
pub fn ensure_device(address: u64) {
    // SAFETY: only page-table words of the device map are touched, by one core at a time.
    let memory = unsafe { &mut Physical::new() };
    let early = &mut Early { next: SPARE.load(Relaxed), end: SPARE_END.load(Relaxed) };
    let mut mapper = Mapper { memory, early, root: kernel_root(), huge_pages: false };
    let entry = mapper.entry(DEVICE_MAP + address, 2);
    if mapper.memory.read(entry) & PRESENT == 0 {
        let page = address & !(LARGE_PAGE - 1);
        mapper.memory.write(entry, page | PRESENT | WRITE | UNCACHED | LARGE | GLOBAL | NO_EXECUTE);
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
    let bytes = if index % 4 == 0 { STACK_BYTES } else { SMALL_PAGE };
    let in_own = own.contains(&address) && (STACK_SLOT - bytes..STACK_SLOT - 15).contains(&slot);
    address.is_multiple_of(8) && (boot.contains(&address) || in_own)
}
