//! Vector registers and segment bases of applications: saved and loaded only when a core changes between
//! contexts, for the kernel uses neither.

use crate::cpu::{self, msr};
use crate::memory::direct;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use nom_kernel_pure::machine::{Frame, PhysAddr, Segment};

/// x87, SSE, AVX and AVX-512; AMX's tiles would not fit in a frame.
const WANTED: u64 = 0xe7;
/// The segment bases come first; XSAVE wants its area 64-byte aligned.
const AREA: u64 = 64;
const CONTROL_WORD: u64 = 0x37f;
const MXCSR: u64 = 0x1f80;

static XSAVE: AtomicBool = AtomicBool::new(false);

/// Turns the vector units on for this core. Panics if the state of the features that this processor has does
/// not fit in a frame, which no processor of today does with [`WANTED`].
pub fn init(features: &cpu::Features) {
    if features.xsave {
        let supported = cpu::cpuid(0xd, 0);
        cpu::xsetbv(u64::from(supported.eax) & WANTED);
        assert!(u64::from(cpu::cpuid(0xd, 0).ebx) + AREA <= 4096, "vector state larger than a frame");
    }
    XSAVE.store(features.xsave, Relaxed);
}

fn pointer(frame: Frame) -> *mut u64 {
    direct(PhysAddr::of_frame(frame)) as *mut u64
}

/// Makes `frame` the state of a computation that has not begun.
pub fn reset(frame: Frame) {
    let state = pointer(frame);
    // SAFETY: the frame is the kernel's and mapped; the offsets are inside it.
    unsafe {
        state.write_bytes(0, 512);
        state.byte_add(AREA as usize).write(CONTROL_WORD);
        state.byte_add(AREA as usize + 24).write(MXCSR);
    }
}

/// Stores this core's state in `frame`.
pub fn save(frame: Frame) {
    let state = pointer(frame);
    // SAFETY: the frame is the kernel's, mapped, and large enough (`init` checked).
    unsafe {
        state.write(cpu::rdmsr(msr::FS_BASE));
        state.add(1).write(cpu::rdmsr(msr::KERNEL_GS_BASE));
        let area = state.byte_add(AREA as usize);
        if XSAVE.load(Relaxed) {
            asm!("xsave64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        } else {
            asm!("fxsave64 [{}]", in(reg) area, options(nostack));
        }
    }
}

/// Loads this core's state from `frame`, which `reset` or `save` filled.
pub fn load(frame: Frame) {
    let state = pointer(frame);
    // SAFETY: the frame is the kernel's and holds a valid state; the bases were canonical when saved.
    unsafe {
        cpu::wrmsr(msr::FS_BASE, state.read());
        cpu::wrmsr(msr::KERNEL_GS_BASE, state.add(1).read());
        let area = state.byte_add(AREA as usize);
        if XSAVE.load(Relaxed) {
            asm!("xrstor64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        } else {
            asm!("fxrstor64 [{}]", in(reg) area, options(nostack));
        }
    }
}

/// Sets this core's FS base, or the GS base with which the application goes on.
pub fn set_segment_base(segment: Segment, address: u64) {
    let register = match segment {
        Segment::Thread => msr::FS_BASE,
        Segment::Core => msr::KERNEL_GS_BASE,
    };
    // SAFETY: the kernel uses neither FS nor, until `swapgs` on the way out, what is in this register; the
    // pure kernel checked that the address is the application's.
    unsafe { cpu::wrmsr(register, address) };
}
