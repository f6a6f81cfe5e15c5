//! Physical memory through the direct map, device registers through the uncached map.

use crate::clock;
use crate::mapping;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_abi::layout::{DEVICE_MAP, DIRECT_MAP};
use nom_abi::memory::FRAME_BYTES;
use nom_kernel_pure::machine::{Frame, PhysAddr, PhysicalMemory, Registers};

/// End of the memory that the direct map covers; 1 GiB while the boot page tables are in use.
static END: AtomicU64 = AtomicU64::new(1 << 30);
/// Where it begins.
static BASE: AtomicU64 = AtomicU64::new(DIRECT_MAP);

/// Where the direct map has what is at `address`: a virtual address.
#[inline(always)]
pub fn direct(address: PhysAddr) -> u64 {
    BASE.load(Relaxed) + address.word()
}

/// Memory and device registers of the whole machine. The kernel has it once, under its lock.
pub struct Physical {
    _only_here: (),
}

impl Physical {
    /// # Safety
    /// At most one value may be used at a time: it stands for all memory that is not the kernel image.
    pub const unsafe fn new() -> Physical {
        Physical { _only_here: () }
    }

    /// Tells from where and how far the direct map reaches, as soon as the kernel's own page tables are
    /// loaded. What was derived from it before is where nothing is any more.
    pub fn set_range(base: u64, end: u64) {
        BASE.store(base, Relaxed);
        END.store(end, Relaxed);
    }

    /// Bytes that nobody writes while the kernel runs: the bundle, firmware tables.
    ///
    /// # Safety
    /// No frame of the range may be granted, freed or written as long as the slice is used.
    pub unsafe fn constant(address: PhysAddr, length: u64) -> &'static [u8] {
        let pointer = at(address, length);
        // SAFETY: mapped, by `at`; immutable, by this function's contract.
        unsafe { core::slice::from_raw_parts(pointer, length as usize) }
    }

    /// Typed, zeroed memory that belongs to the kernel for good.
    ///
    /// # Safety
    /// 1. The range belongs to the caller alone. 2. All bits zero is a valid `T`.
    pub unsafe fn table<T>(address: PhysAddr, count: usize) -> &'static mut [T] {
        // SAFETY: mapped, by `at`; the caller's alone, by the contract.
        unsafe { at(address, (size_of::<T>() * count) as u64).write_bytes(0, size_of::<T>() * count) };
        // SAFETY: by the contract; zeroed memory is initialised.
        unsafe { Self::untouched(address, count) }
    }

    /// Typed memory that belongs to the kernel for good, each element made by `make`.
    ///
    /// # Safety
    /// The range belongs to the caller alone.
    pub unsafe fn table_with<T>(address: PhysAddr, count: usize, make: impl Fn() -> T) -> &'static mut [T] {
        let pointer = at(address, (size_of::<T>() * count) as u64).cast::<T>();
        for index in 0..count {
            // SAFETY: mapped, by `at`; in bounds; aligned, which `untouched` asserts before it is read.
            unsafe { pointer.add(index).write_unaligned(make()) };
        }
        // SAFETY: by the contract; every element has just been written.
        unsafe { Self::untouched(address, count) }
    }

    /// A value in memory that belongs to the kernel for good.
    ///
    /// # Safety
    /// The range belongs to the caller alone.
    pub unsafe fn place<T>(address: PhysAddr, value: T) -> &'static mut T {
        let pointer = at(address, size_of::<T>() as u64).cast::<T>();
        assert!(pointer.is_aligned());
        // SAFETY: mapped, by `at`; aligned; unique, by the contract; initialised here.
        unsafe {
            pointer.write(value);
            &mut *pointer
        }
    }

    /// Typed memory that belongs to the kernel for good, with whatever it contains.
    ///
    /// # Safety
    /// 1. The range belongs to the caller alone. 2. Its contents are valid values of `T`.
    pub unsafe fn untouched<T>(address: PhysAddr, count: usize) -> &'static mut [T] {
        let pointer = at(address, (size_of::<T>() * count) as u64);
        assert!(address.word().is_multiple_of(align_of::<T>() as u64));
        // SAFETY: mapped, by `at`; aligned, by the assertion; unique and valid, by the contract.
        unsafe { core::slice::from_raw_parts_mut(pointer.cast(), count) }
    }
}

/// Where `length` bytes of memory at `address` are mapped.
fn at(address: PhysAddr, length: u64) -> *mut u8 {
    let end = address.word().checked_add(length);
    assert!(end.is_some_and(|end| end <= END.load(Relaxed)), "no memory at {address:?}+{length:#x}");
    direct(address) as *mut u8
}

impl PhysicalMemory for Physical {
    #[inline(always)]
    fn read(&self, address: PhysAddr) -> u64 {
        let is_mapped = address.word() < END.load(Relaxed);
        assert!(is_mapped && address.word().is_multiple_of(8), "no word of memory at {address:?}");
        // SAFETY: aligned, and mapped, for `END` is a multiple of 8; volatile, because applications and
        // devices write frames too.
        unsafe { (direct(address) as *const u64).read_volatile() }
    }

    #[inline(always)]
    fn write(&mut self, address: PhysAddr, value: u64) {
        let is_mapped = address.word() < END.load(Relaxed);
        assert!(is_mapped && address.word().is_multiple_of(8), "no word of memory at {address:?}");
        // SAFETY: as in `read`; pages of the kernel image and of the bundle are mapped read-only here.
        unsafe { (direct(address) as *mut u64).write_volatile(value) }
    }

    fn read_bytes(&self, address: PhysAddr, bytes: &mut [u8]) {
        let from = at(address, bytes.len() as u64);
        // SAFETY: mapped, by `at`; `bytes` is kernel memory that no frame overlaps.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) }
    }

    fn write_bytes(&mut self, address: PhysAddr, bytes: &[u8]) {
        let to = at(address, bytes.len() as u64);
        // SAFETY: as in `read_bytes`.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    fn zero_frames(&mut self, frame: Frame, count: u64) {
        let bytes = count * FRAME_BYTES;
        // SAFETY: mapped, by `at`; the frames are the caller's.
        unsafe { at(PhysAddr::of_frame(frame), bytes).write_bytes(0, bytes as usize) }
    }
}

/// Where the register at `address` is mapped, mapping its 2 MiB page first if that is new.
fn register<T>(address: u64) -> *mut T {
    assert!(address.is_multiple_of(size_of::<T>() as u64), "register {address:#x} is misaligned");
    mapping::ensure_device(address);
    (DEVICE_MAP + address) as *mut T
}

macro_rules! register_access {
    ($read:ident $write:ident $type:ty) => {
        fn $read(&mut self, address: u64) -> $type {
            // SAFETY: `register` mapped it uncached; device memory is no Rust object.
            unsafe { register::<$type>(address).read_volatile() }
        }
        fn $write(&mut self, address: u64, value: $type) {
            // SAFETY: as above; that the register may be written is the driver's knowledge.
            unsafe { register::<$type>(address).write_volatile(value) }
        }
    };
}

impl Registers for Physical {
    register_access!(read8 write8 u8);
    register_access!(read16 write16 u16);
    register_access!(read32 write32 u32);
    register_access!(read64 write64 u64);

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }
}
