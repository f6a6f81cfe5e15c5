//! What a program's threads have in the processor beside general and SSE registers: x87's, MMX's among them,
//! and those that came after SSE. They are moved when another thread runs, and only where they are used: most
//! threads use none, and where a processor is emulated each register that FXSAVE or XSAVE moves takes long.
//!
//! Whether registers are used the processor says where it can (XINUSE); where it cannot, or says that all
//! are, as emulated ones do, they are looked at. What is not used is as in a program that begins.

use super::context::{CONTROL_WORD, EXTENDED_AT, Line, MXCSR, MXCSR_AT, SSE_AT, Vector};
use core::arch::{asm, x86_64};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Where FXSAVE stores the x87 registers.
const X87_AT: usize = 32;
/// x87 and SSE, which FXSAVE stores; as XSAVE names them, and AVX's upper halves.
const X87: u64 = 1;
const LEGACY: u64 = 3;
const AVX: u64 = 4;
/// Where XSAVE stores the upper halves, on every processor, and how many bytes.
const AVX_AT: usize = 576;
const AVX_BYTES: usize = 256;

static DEFAULT_MXCSR: u32 = MXCSR;

/// Bytes that XSAVE stores of what the kernel has turned on; 0 without it.
static AREA_BYTES: AtomicUsize = AtomicUsize::new(0);
/// What XSAVE stores that FXSAVE does not.
static EXTENDED: AtomicU64 = AtomicU64::new(0);
/// What XINUSE can say of, of all that there is.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Learns what the processor has. CPUID takes thousands of cycles where a host answers it.
pub(super) fn learn() {
    const OSXSAVE: u32 = 1 << 27;
    const XGETBV1: u32 = 1 << 2;
    if x86_64::__cpuid(1).ecx & OSXSAVE == 0 {
        return;
    }
    // SAFETY: OSXSAVE is on.
    let enabled = unsafe { xgetbv(0) };
    AREA_BYTES.store(x86_64::__cpuid_count(0xd, 0).ebx as usize, Relaxed);
    EXTENDED.store(enabled & !LEGACY, Relaxed);
    if x86_64::__cpuid_count(0xd, 1).eax & XGETBV1 != 0 {
        TOLD.store(enabled, Relaxed);
    }
}

/// Bytes of an area for XSAVE; 0 without it.
pub(super) fn area_bytes() -> usize {
    AREA_BYTES.load(Relaxed)
}

/// What XSAVE stores that FXSAVE does not.
pub(super) fn extended_features() -> u64 {
    EXTENDED.load(Relaxed)
}

/// # Safety
/// OSXSAVE is on, and the processor has this register.
unsafe fn xgetbv(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("xgetbv", in("ecx") register, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// What may be used: all of which the processor does not say that it is not.
pub(super) fn in_use() -> u64 {
    let told = TOLD.load(Relaxed);
    if told == 0 {
        return u64::MAX;
    }
    // SAFETY: CPUID said that there is this register; `learn` looked.
    unsafe { xgetbv(1) }
}

/// Whether the x87 registers are other than in a program that begins, as far as a program can see. MMX shows
/// what is in those that are empty, so they are looked at, too.
fn x87_is_used() -> bool {
    let (mut control, mut status) = (0_u16, 0_u16);
    // SAFETY: neither waits for an exception, nor changes anything.
    unsafe {
        asm!("fnstcw [{}]", "fnstsw [{}]", in(reg) &raw mut control, in(reg) &raw mut status,
            options(nostack, preserves_flags));
    }
    if control != CONTROL_WORD || status != 0 {
        return true;
    }
    const ALL_EMPTY: u16 = 0xffff;
    let mut environment = [0_u16; 14];
    // SAFETY: it has the bytes that are written. All exceptions are masked, so masking them changes nothing.
    unsafe { asm!("fnstenv [{}]", in(reg) environment.as_mut_ptr(), options(nostack, preserves_flags)) };
    if environment[4] != ALL_EMPTY {
        return true;
    }
    let contents: u64;
    // SAFETY: no exception waits, and all registers are empty, with the first one on top, behind `emms` as
    // before.
    unsafe {
        asm!(
            "movq {all}, mm0",
            "movq {one}, mm1", "or {all}, {one}",
            "movq {one}, mm2", "or {all}, {one}",
            "movq {one}, mm3", "or {all}, {one}",
            "movq {one}, mm4", "or {all}, {one}",
            "movq {one}, mm5", "or {all}, {one}",
            "movq {one}, mm6", "or {all}, {one}",
            "movq {one}, mm7", "or {all}, {one}",
            "emms",
            all = out(reg) contents,
            one = out(reg) _,
            options(nomem, nostack),
        );
    }
    contents != 0
}

/// Stores the x87 registers if they are used, and says whether they are. `was_used` is what was said of what
/// is stored there.
pub(super) fn store_x87(vector: &mut Vector, was_used: bool, in_use: u64) -> bool {
    let is_used = in_use & X87 != 0 && x87_is_used();
    let mut image = MaybeUninit::<Vector>::uninit();
    if is_used {
        // SAFETY: it is aligned, and has the bytes that are written; those that FXSAVE does not write are
        // not looked at.
        unsafe {
            asm!("fxsave64 [{}]", in(reg) image.as_mut_ptr(), options(nostack, preserves_flags));
        }
    } else if was_used {
        image.write(Vector::new());
    } else {
        return false;
    }
    for part in [0..MXCSR_AT, X87_AT..SSE_AT] {
        let from = image.as_ptr().cast::<u8>().wrapping_add(part.start);
        // SAFETY: it is within the image, of which these bytes were written.
        let stored = unsafe { core::slice::from_raw_parts(from, part.len()) };
        vector.0[part].copy_from_slice(stored);
    }
    is_used
}

/// Loads the x87 registers.
///
/// # Safety
/// No bit of MXCSR is set there that the processor does not have.
pub(super) unsafe fn load_x87(vector: &Vector) {
    // SAFETY: the caller's promise. No code of Rust's needs SSE registers as they were, and MXCSR is its own
    // behind this.
    unsafe {
        asm!(
            "fxrstor64 [{area}]",
            "ldmxcsr [{mxcsr}]",
            area = in(reg) vector.0.as_ptr(),
            mxcsr = in(reg) &raw const DEFAULT_MXCSR,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack, readonly),
        );
    }
}

/// What an area's header says is stored in it.
fn stored(area: &[Line]) -> u64 {
    area.get(EXTENDED_AT / 64).map_or(0, |header| {
        u64::from_le_bytes(*header.0.first_chunk().expect("a line has more than 8 bytes"))
    })
}

/// Stores the registers beyond SSE's that are used, and says which. What is not used is zero in the area.
pub(super) fn store_extended(area: &mut [Line], in_use: u64) -> u64 {
    let features = in_use & extended_features();
    let before = stored(area);
    if features | before == 0 {
        return 0;
    }
    if before & !features != 0 {
        area[EXTENDED_AT / 64..].fill(Line([0; 64]));
    }
    let used = match features {
        AVX if store_upper_halves(area) => AVX,
        AVX => 0,
        _ => features,
    };
    area[EXTENDED_AT / 64].0[..8].copy_from_slice(&used.to_le_bytes());
    if used & !AVX != 0 {
        let (low, high) = (used as u32, (used >> 32) as u32);
        // SAFETY: the area is aligned and has the bytes that CPUID asked for.
        unsafe {
            asm!("xsave64 [{}]", in(reg) area.as_mut_ptr(), in("eax") low, in("edx") high, options(nostack));
        }
    }
    used
}

/// Stores the upper halves of AVX's registers, and says whether one is not zero.
fn store_upper_halves(area: &mut [Line]) -> bool {
    let halves = &mut area[AVX_AT / 64..][..AVX_BYTES / 64];
    let any: u64;
    // SAFETY: AVX is on, and the area has the bytes that are written. No instruction but one that only stores
    // may have a prefix of AVX's: it would clear upper halves.
    unsafe {
        asm!(
            "vextractf128 [{to} + 16 * 0], ymm0, 1",
            "vextractf128 [{to} + 16 * 1], ymm1, 1",
            "vextractf128 [{to} + 16 * 2], ymm2, 1",
            "vextractf128 [{to} + 16 * 3], ymm3, 1",
            "vextractf128 [{to} + 16 * 4], ymm4, 1",
            "vextractf128 [{to} + 16 * 5], ymm5, 1",
            "vextractf128 [{to} + 16 * 6], ymm6, 1",
            "vextractf128 [{to} + 16 * 7], ymm7, 1",
            "vextractf128 [{to} + 16 * 8], ymm8, 1",
            "vextractf128 [{to} + 16 * 9], ymm9, 1",
            "vextractf128 [{to} + 16 * 10], ymm10, 1",
            "vextractf128 [{to} + 16 * 11], ymm11, 1",
            "vextractf128 [{to} + 16 * 12], ymm12, 1",
            "vextractf128 [{to} + 16 * 13], ymm13, 1",
            "vextractf128 [{to} + 16 * 14], ymm14, 1",
            "vextractf128 [{to} + 16 * 15], ymm15, 1",
            "movaps xmm0, [{to}]",
            "orps xmm0, [{to} + 16 * 1]", "orps xmm0, [{to} + 16 * 2]", "orps xmm0, [{to} + 16 * 3]",
            "orps xmm0, [{to} + 16 * 4]", "orps xmm0, [{to} + 16 * 5]", "orps xmm0, [{to} + 16 * 6]",
            "orps xmm0, [{to} + 16 * 7]", "orps xmm0, [{to} + 16 * 8]", "orps xmm0, [{to} + 16 * 9]",
            "orps xmm0, [{to} + 16 * 10]", "orps xmm0, [{to} + 16 * 11]", "orps xmm0, [{to} + 16 * 12]",
            "orps xmm0, [{to} + 16 * 13]", "orps xmm0, [{to} + 16 * 14]", "orps xmm0, [{to} + 16 * 15]",
            "movq {any}, xmm0",
            "movhlps xmm0, xmm0",
            "movq {high}, xmm0",
            "or {any}, {high}",
            to = in(reg) halves.as_mut_ptr(),
            any = out(reg) any,
            high = out(reg) _,
            out("xmm0") _,
            options(nostack),
        );
    }
    any != 0
}

/// Loads the registers beyond SSE's that are used, and clears those of `before`, which another thread used.
///
/// # Safety
/// What is in the area is what was stored there, or zeros.
pub(super) unsafe fn load_extended(area: &[Line], before: u64) {
    let features = (before | stored(area)) & extended_features();
    if features == 0 {
        return;
    }
    let (low, high) = (features as u32, (features >> 32) as u32);
    // SAFETY: the caller's promise; the area is aligned.
    unsafe {
        asm!("xrstor64 [{}]", in(reg) area.as_ptr(), in("eax") low, in("edx") high, options(nostack));
    }
}
