//! Single instructions that Rust has no word for.

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};
use nom_abi::PageSize;
use nom_abi::board::Hazards;
use nom_kernel_pure::machine::PhysAddr;

/// Model-specific registers by name (Intel SDM vol. 4).
pub mod msr {
    pub const APIC_BASE: u32 = 0x1b;
    pub const SYSENTER_CS: u32 = 0x174;
    pub const TSC_DEADLINE: u32 = 0x6e0;
    pub const X2APIC: u32 = 0x800;
    pub const STAR: u32 = 0xc000_0081;
    pub const LSTAR: u32 = 0xc000_0082;
    pub const CSTAR: u32 = 0xc000_0083;
    pub const SFMASK: u32 = 0xc000_0084;
    pub const FS_BASE: u32 = 0xc000_0100;
    pub const GS_BASE: u32 = 0xc000_0101;
    pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
    /// KVM_MSR_SYSTEM_TIME_NEW of the Linux KVM documentation.
    pub const KVM_SYSTEM_TIME: u32 = 0x4b56_4d01;
}

/// Bits of CR4 that the kernel may turn on (Intel SDM vol. 3A, 2.5).
pub mod cr4 {
    pub const MCE: u64 = 1 << 6;
    pub const PGE: u64 = 1 << 7;
    pub const UMIP: u64 = 1 << 11;
    pub const FSGSBASE: u64 = 1 << 16;
    pub const OSXSAVE: u64 = 1 << 18;
    pub const SMEP: u64 = 1 << 20;
    pub const SMAP: u64 = 1 << 21;
}

pub fn rdmsr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register; every caller names one that exists on this processor.
    unsafe { asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// # Safety
/// The value must keep memory safety: base addresses and entry points must be the kernel's own.
pub unsafe fn wrmsr(register: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: by this function's contract.
    unsafe { asm!("wrmsr", in("ecx") register, in("eax") low, in("edx") high, options(nostack)) };
}

pub fn rdtsc() -> u64 {
    // SAFETY: RDTSC has no side effect and CR4.TSD is clear.
    unsafe { core::arch::x86_64::_rdtsc() }
}

pub fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    __cpuid_count(leaf, subleaf)
}

/// Highest basic leaf, or highest of the range that starts at `range`.
pub fn cpuid_max(range: u32) -> u32 {
    cpuid(range, 0).eax
}

/// # Safety
/// The port must be one whose write has no effect on memory the kernel relies on.
pub unsafe fn out8(port: u16, value: u8) {
    // SAFETY: by this function's contract.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) };
}

/// # Safety
/// As [`out8`].
pub unsafe fn out16(port: u16, value: u16) {
    // SAFETY: by this function's contract.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack, preserves_flags)) };
}

/// # Safety
/// As [`in8`].
pub unsafe fn in16(port: u16) -> u16 {
    let value;
    // SAFETY: by this function's contract.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// # Safety
/// Reading the port must have no side effect that breaks a driver's state.
pub unsafe fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: by this function's contract.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The faulting address of the last page fault.
pub fn cr2() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

pub fn cr3() -> PhysAddr {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    PhysAddr::new(value)
}

/// Loads a page-table root, and so forgets every non-global translation.
///
/// # Safety
/// At `root` must be a root whose upper half is the kernel's.
pub unsafe fn set_cr3(root: PhysAddr) {
    // SAFETY: by this function's contract the kernel stays mapped.
    unsafe { asm!("mov cr3, {}", in(reg) root.word(), options(nostack, preserves_flags)) };
}

/// Forgets the translations of the page at `address`, and all that is known of page tables.
pub fn invlpg(address: u64) {
    // SAFETY: whatever is forgotten is found again.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

pub fn cr4_set(bits: u64) {
    // SAFETY: only bits of `cr4`, each after its CPUID check: they restrict what the processor allows or
    // enable state that `vector_state` manages.
    unsafe {
        asm!("mov {t}, cr4", "or {t}, {b}", "mov cr4, {t}", t = out(reg) _, b = in(reg) bits,
            options(nostack));
    };
}

/// Forgets why the last debug exception came, and every breakpoint (Intel SDM vol. 3B, 17.2): the kernel sets
/// none, and an application cannot.
pub fn no_breakpoints() {
    // SAFETY: the debug registers change no memory.
    unsafe {
        asm!("mov dr7, {}", "mov dr6, {}", in(reg) 0x400_u64, in(reg) 0xffff_0ff0_u64,
            options(nomem, nostack, preserves_flags))
    };
}

pub fn xsetbv(mask: u64) {
    // SAFETY: called after CR4.OSXSAVE with a subset of the mask CPUID reports.
    unsafe {
        asm!("xsetbv", in("ecx") 0, in("eax") mask as u32, in("edx") (mask >> 32) as u32, options(nostack))
    };
}

/// Sleeps until an interrupt has been taken; interrupts are off before and after.
pub fn halt_until_interrupt() {
    // SAFETY: STI takes effect after the next instruction, so no interrupt is lost before HLT; handlers of
    // interrupts that arrive in the kernel preserve every register.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Stops this processor for good.
pub fn stop() -> ! {
    loop {
        // SAFETY: interrupts stay off, so nothing runs here any more.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// A random word from RDRAND, if the processor has it.
pub fn rdrand() -> Option<u64> {
    if cpuid(1, 0).ecx & 1 << 30 == 0 {
        return None;
    }
    (0..10).find_map(|_| {
        let (value, ok): (u64, u8);
        // SAFETY: CPUID said that RDRAND exists.
        unsafe { asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack)) };
        (ok != 0).then_some(value)
    })
}

/// Which ways of reading others' memory nothing keeps applications from.
pub fn hazards() -> Hazards {
    const CAPABILITIES: u32 = 0x10a;
    let vendor = cpuid(0, 0);
    let tells = vendor.eax >= 7 && cpuid(7, 0).edx & 1 << 29 != 0;
    let capabilities = if tells { rdmsr(CAPABILITIES) } else { 0 };
    nom_kernel_pure::hazards::hazards([vendor.ebx, vendor.edx, vendor.ecx], capabilities)
}

/// What CPUID says about the features that the kernel uses where they are there.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    pub x2apic: bool,
    pub tsc_deadline: bool,
    pub xsave: bool,
    pub huge_pages: bool,
    /// Bits of CR4.
    cr4: u64,
}

impl Features {
    pub fn read() -> Features {
        let one = cpuid(1, 0);
        let seven = if cpuid_max(0) >= 7 { (cpuid(7, 0).ebx, cpuid(7, 0).ecx) } else { (0, 0) };
        let bits = [
            (one.ecx >> 26, cr4::OSXSAVE),
            (one.edx >> 7, cr4::MCE),
            (seven.0, cr4::FSGSBASE),
            (seven.0 >> 7, cr4::SMEP),
            (seven.0 >> 20, cr4::SMAP),
            (seven.1 >> 2, cr4::UMIP),
        ];
        Features {
            x2apic: one.ecx & 1 << 21 != 0,
            tsc_deadline: one.ecx & 1 << 24 != 0,
            xsave: one.ecx & 1 << 26 != 0,
            huge_pages: cpuid(0x8000_0001, 0).edx & 1 << 26 != 0,
            cr4: bits.into_iter().fold(cr4::PGE, |all, (has, bit)| all | (bit * u64::from(has & 1))),
        }
    }

    /// Turns on the protections that this processor has: each core does it for itself.
    pub fn enable(&self) {
        cr4_set(self.cr4);
    }
}

/// Colours of the largest cache: bytes in one way of it, in frames (Intel CPUID leaf 4, AMD 0x8000001d). 1 if
/// the processor does not say.
pub fn cache_colours() -> u32 {
    let leaf = if cpuid_max(0x8000_0000) >= 0x8000_001d && cpuid(0x8000_0001, 0).ecx & 1 << 22 != 0 {
        0x8000_001d
    } else if cpuid_max(0) >= 4 {
        4
    } else {
        return 1;
    };
    let caches = (0..8).map(|index| cpuid(leaf, index)).take_while(|cache| cache.eax & 0x1f != 0);
    let way_bytes = caches.map(|cache| ((cache.ebx & 0xfff) + 1) as u64 * (u64::from(cache.ecx) + 1)).max();
    let frames = way_bytes.unwrap_or(0) / 4096;
    // A cache whose sets are hashed has no meaningful colours; of more than these, each frame of a large page
    // would have one of its own.
    frames.clamp(1, PageSize::Large.frames()) as u32
}
