//! Time from the time-stamp counter, calibrated against the best reference there is.

use crate::cpu::{self, in8, msr, out8};
use crate::memory::Physical;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_abi::board::ClockSource;
use nom_kernel_pure::clock::Rate;
use nom_kernel_pure::machine::{PhysAddr, PhysicalMemory};

static BASE: AtomicU64 = AtomicU64::new(0);
static MULTIPLIER: AtomicU64 = AtomicU64::new(0);

const PIT_HZ: u64 = 1_193_182;
/// How long the PIT is watched: 2 ms against an error of a few microseconds in one reading.
const PIT_WATCH: u64 = PIT_HZ / 500;

unsafe extern "C" {
    static boot_tsc: u64;
}

/// Time-stamp counter at the kernel's first instruction.
pub fn boot() -> u64 {
    // SAFETY: written by `boot.S` before Rust ran, and constant since.
    unsafe { (&raw const boot_tsc).read() }
}

/// Nanoseconds since the kernel's first instruction; 0 until calibrated.
pub fn now_ns() -> u64 {
    span_ns(cpu::rdtsc().wrapping_sub(BASE.load(Relaxed)))
}

/// Cycles in a number of nanoseconds, rounded up; `u64::MAX` if they are more.
pub fn cycles_in(nanoseconds: u64) -> u64 {
    nom_kernel_pure::clock::cycles(MULTIPLIER.load(Relaxed), nanoseconds)
}

/// Nanoseconds in a number of cycles; `u64::MAX` if they are more.
pub fn span_ns(cycles: u64) -> u64 {
    nom_kernel_pure::clock::nanoseconds(MULTIPLIER.load(Relaxed), cycles)
}

/// Spins.
pub fn wait_ns(nanoseconds: u64) {
    let deadline = now_ns() + nanoseconds;
    while now_ns() < deadline {
        core::hint::spin_loop();
    }
}

/// Calibrates: kvmclock, CPUID, PIT, in that order. `page` is a frame that kvmclock may use for good.
pub fn calibrate(memory: &mut Physical, page: PhysAddr) -> (ClockSource, Rate) {
    let (source, rate) = kvm_clock(memory, page)
        .map(|rate| (ClockSource::KvmClock, rate))
        .or_else(|| cpuid_rate().map(|rate| (ClockSource::Cpuid, rate)))
        .or_else(|| Some((ClockSource::Pit, pit_rate()?)))
        .expect("a reference to calibrate the clock: kvmclock, CPUID or PIT");
    BASE.store(boot(), Relaxed);
    MULTIPLIER.store(rate.multiplier(), Relaxed);
    (source, rate)
}

/// KVM's pvclock (Linux Documentation/virt/kvm/x86/msr.rst, MSR_KVM_SYSTEM_TIME_NEW).
fn kvm_clock(memory: &mut Physical, page: PhysAddr) -> Option<Rate> {
    let signature = cpu::cpuid(0x4000_0000, 0);
    let is_kvm = [signature.ebx, signature.ecx, signature.edx] == [0x4b4d_564b, 0x564b_4d56, 0x4d];
    if !is_kvm || cpu::cpuid(0x4000_0001, 0).eax & 1 << 3 == 0 {
        return None;
    }
    memory.zero_frames(page.frame(), 1);
    // SAFETY: the page is the kernel's for good, so the host may write it; it is turned off again below.
    unsafe { cpu::wrmsr(msr::KVM_SYSTEM_TIME, page.word() | 1) };
    let word = memory.read(page + 24);
    // SAFETY: turns the clock off.
    unsafe { cpu::wrmsr(msr::KVM_SYSTEM_TIME, 0) };
    Rate::from_pvclock(word as u32, (word >> 32) as i8)
}

/// Leaf 0x15 (Intel SDM vol. 2A) or the hypervisors' common leaf 0x40000010.
fn cpuid_rate() -> Option<Rate> {
    let crystal = (cpu::cpuid_max(0) >= 0x15).then(|| cpu::cpuid(0x15, 0));
    let crystal = crystal.and_then(|leaf| Rate::from_cpuid_crystal(leaf.eax, leaf.ebx, leaf.ecx));
    let hypervisor = cpu::cpuid(1, 0).ecx & 1 << 31 != 0 && cpu::cpuid_max(0x4000_0000) >= 0x4000_0010;
    crystal.or_else(|| Rate::from_cpuid_hypervisor(hypervisor.then(|| cpu::cpuid(0x4000_0010, 0).eax)?))
}

/// One reading of a reference, with the time-stamp counter half-way through it; the tightest of a few.
pub fn bracket(mut read: impl FnMut() -> u64) -> (u64, u64) {
    let attempts = (0..5).map(|_| {
        let before = cpu::rdtsc();
        let reference = read();
        let after = cpu::rdtsc();
        (after - before, (before + (after - before) / 2, reference))
    });
    attempts.min_by_key(|(width, _)| *width).map(|(_, reading)| reading).unwrap_or_default()
}

/// Channel 0 of the 8254, counting down from 65,536 again and again (Intel 8254 data sheet, mode 2): the only
/// one whose gate is open on every machine. Its interrupt is masked.
fn pit_rate() -> Option<Rate> {
    // SAFETY: the timer's own ports.
    unsafe {
        out8(0x43, 0x34);
        out8(0x40, 0);
        out8(0x40, 0);
    }
    Rate::watched(PIT_HZ, PIT_WATCH, || bracket(pit_count))
}

/// What channel 0 has counted down to.
fn pit_count() -> u64 {
    // SAFETY: latches the count and reads its two bytes.
    unsafe {
        out8(0x43, 0);
        u64::from(in8(0x40)) | u64::from(in8(0x40)) << 8
    }
}

/// The time-stamp counter at a board time, not before it.
pub fn tsc_at(nanoseconds: u64) -> u64 {
    BASE.load(Relaxed).saturating_add(cycles_in(nanoseconds))
}
