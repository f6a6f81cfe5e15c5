//! What a core has for itself, found through GS while the kernel runs.

use crate::cpu::{self, msr};
use crate::memory::direct;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_abi::layout::{APPLICATION_END, CORES_MAX};
use nom_abi::upcall::Registers;
use nom_kernel_pure::ids::CoreId;
use nom_kernel_pure::machine::Reflection;

/// One core's area. Only that core touches it, always with interrupts off.
#[repr(C)]
pub struct CoreArea {
    /// Registers of the application at the border: `trap.S` stores and loads them.
    pub registers: Registers,
    /// Top of this core's kernel stack.
    pub stack_top: u64,
    /// Which core this is.
    pub core: CoreId,
    /// Interrupt vectors that ended a halt and wait to be handled.
    pub pending: [u64; 4],
    /// Where the area is.
    this: u64,
}

/// What `trap.S` does with a `syscall` that is not for this kernel. Only its core reads and writes it.
#[derive(Debug)]
#[repr(C)]
pub struct Reflected {
    /// End of the addresses behind such a `syscall`; 0: all are for this kernel.
    below: AtomicU64,
    /// Where in user space the core goes on.
    entry: AtomicU64,
    /// Address in the direct map of the word that is told where the `syscall` was.
    word: AtomicU64,
}

/// What GS points to: the area comes first.
#[repr(C, align(64))]
struct Block {
    area: CoreArea,
    reflected: Reflected,
}

/// Offsets for `trap.S`.
pub const STACK_TOP: usize = offset_of!(CoreArea, stack_top);
pub const REFLECTED_BELOW: usize = offset_of!(Block, reflected.below);
pub const REFLECTED_ENTRY: usize = offset_of!(Block, reflected.entry);
pub const REFLECTED_WORD: usize = offset_of!(Block, reflected.word);
const _: () = assert!(offset_of!(Block, area) == 0);

struct Blocks(UnsafeCell<[Block; CORES_MAX]>);

// SAFETY: core `n` is the only one that reaches element `n` (see `CoreArea::with`).
unsafe impl Sync for Blocks {}

static BLOCKS: Blocks = Blocks(UnsafeCell::new([const { Block::new() }; CORES_MAX]));

impl Block {
    const fn new() -> Block {
        let reflected =
            Reflected { below: AtomicU64::new(0), entry: AtomicU64::new(0), word: AtomicU64::new(0) };
        Block { area: CoreArea::EMPTY, reflected }
    }
}

/// Says where this core goes on at a `syscall` of code below the kernel-placed windows.
pub fn reflect(reflection: Option<Reflection>) {
    // SAFETY: the field that `install` filled; the area, of which somebody may hold a reference, is not
    // touched.
    let block = unsafe { gs_word::<{ offset_of!(CoreArea, this) }>() } as *const Block;
    // SAFETY: 1. The block is static. 2. `reflected` is atomics, and apart from the area.
    let reflected = unsafe { &(*block).reflected };
    let below = if let Some(Reflection { entry, word }) = reflection {
        reflected.entry.store(entry.word(), Relaxed);
        reflected.word.store(direct(word), Relaxed);
        APPLICATION_END
    } else {
        0
    };
    reflected.below.store(below, Relaxed);
}

impl CoreArea {
    const EMPTY: CoreArea =
        CoreArea { registers: Registers::ZERO, stack_top: 0, core: CoreId::FIRST, pending: [0; 4], this: 0 };

    /// Makes `core`'s area the running core's.
    pub fn install(core: CoreId, stack_top: u64) {
        assert!(core.index() < CORES_MAX);
        let block = BLOCKS.0.get().cast::<Block>().wrapping_add(core.index());
        let area = block.cast::<CoreArea>();
        // SAFETY: 1. `core` is in bounds. 2. Each core installs its own number once, before anything else
        // could reach its area. 3. GS then points to the kernel's own static memory.
        unsafe {
            (*area).core = core;
            (*area).stack_top = stack_top;
            (*area).this = area as u64;
            cpu::wrmsr(msr::GS_BASE, area as u64);
        }
    }

    /// Runs `f` on the running core's area. Must not be nested: `f` gets the only reference.
    pub fn with<R>(f: impl FnOnce(&mut CoreArea) -> R) -> R {
        // SAFETY: the field that `install` filled; GS points to the area, see below.
        let area = unsafe { gs_word::<{ offset_of!(CoreArea, this) }>() } as *mut CoreArea;
        // SAFETY: 1. In the kernel GS holds what `install` put there (entry swaps it in before Rust runs).
        // 2. Only this core reaches this element, with interrupts off. 3. Callers do not nest.
        f(unsafe { &mut *area })
    }

    /// The running core.
    pub fn core() -> CoreId {
        // SAFETY: as in `with`.
        CoreId::new(unsafe { gs_word::<{ offset_of!(CoreArea, core) }>() as usize })
    }
}

/// The word at an offset from GS.
///
/// # Safety
/// GS must point to this core's area and the offset be that of one of its words.
unsafe fn gs_word<const OFFSET: usize>() -> u64 {
    let word: u64;
    // SAFETY: by this function's contract.
    unsafe {
        core::arch::asm!("mov {}, gs:[{}]", out(reg) word, const OFFSET,
            options(readonly, nostack, preserves_flags))
    };
    word
}
