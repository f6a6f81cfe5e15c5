//! What a core has for itself, found through GS while the kernel runs.

use crate::cpu::{self, msr};
use core::cell::UnsafeCell;
use core::mem::offset_of;
use nom_abi::layout::CORES_MAX;
use nom_abi::upcall::Registers;
use nom_kernel_pure::ids::CoreId;

/// One core's area. Only that core touches it, always with interrupts off.
#[repr(C, align(64))]
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

/// Offsets for `trap.S`.
pub const STACK_TOP: usize = offset_of!(CoreArea, stack_top);

struct Areas(UnsafeCell<[CoreArea; CORES_MAX]>);

// SAFETY: core `n` is the only one that reaches element `n` (see `CoreArea::with`).
unsafe impl Sync for Areas {}

static AREAS: Areas = Areas(UnsafeCell::new([const { CoreArea::EMPTY }; CORES_MAX]));

impl CoreArea {
    const EMPTY: CoreArea =
        CoreArea { registers: Registers::ZERO, stack_top: 0, core: CoreId::FIRST, pending: [0; 4], this: 0 };

    /// Makes `core`'s area the running core's.
    pub fn install(core: CoreId, stack_top: u64) {
        assert!(core.index() < CORES_MAX);
        let area = AREAS.0.get().cast::<CoreArea>().wrapping_add(core.index());
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
