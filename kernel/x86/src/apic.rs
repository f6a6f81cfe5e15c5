//! The local APIC: who a core is, interrupts between cores, and the one-shot timer (Intel SDM vol. 3A, ch.
//! 11).
//!
//! x2APIC where the processor has it, else the memory-mapped xAPIC, whose identifiers have eight bits.

use crate::area::CoreArea;
use crate::clock;
use crate::cpu::{self, msr};
use crate::mapping;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use nom_abi::layout::{CORES_MAX, DEVICE_MAP};
use nom_kernel_pure::clock::TickRate;

/// First vector of the class (Intel SDM vol. 3A, 11.8.3.1) of the kernel's own, none of which is a device's.
pub const OWN: u8 = 0xf0;
/// Vector by which a core is asked into the kernel.
pub const KICK: u8 = 0xfe;
/// Vector of the timer.
pub const TIMER: u8 = 0xfd;
/// Vector of interrupts that were withdrawn.
pub const SPURIOUS: u8 = 0xff;

const XAPIC: u64 = 0xfee0_0000;
const ID: u32 = 0x02;
const EOI: u32 = 0x0b;
const SPURIOUS_VECTOR: u32 = 0x0f;
const IN_SERVICE: u32 = 0x10;
const REQUESTED: u32 = 0x20;
const COMMAND: u32 = 0x30;
const COMMAND_HIGH: u32 = 0x31;
const TIMER_ENTRY: u32 = 0x32;
const LOCAL_INTERRUPT_0: u32 = 0x35;
const LOCAL_INTERRUPT_1: u32 = 0x36;
const TIMER_INITIAL: u32 = 0x38;
const TIMER_CURRENT: u32 = 0x39;
const TIMER_DIVIDE: u32 = 0x3e;

const MASKED: u32 = 1 << 16;
const NON_MASKABLE: u32 = 4 << 8;
const TSC_DEADLINE_MODE: u32 = 1 << 18;

static X2APIC: AtomicBool = AtomicBool::new(false);
static DEADLINE: AtomicBool = AtomicBool::new(false);
/// A [`TickRate`], where there is no TSC-deadline mode.
static TICKS: AtomicU64 = AtomicU64::new(0);
/// When each core's timer was armed last, by the time-stamp counter, and for how many ticks.
static ARMED: [(AtomicU64, AtomicU32); CORES_MAX] =
    [const { (AtomicU64::new(0), AtomicU32::new(0)) }; CORES_MAX];

fn read(register: u32) -> u32 {
    if X2APIC.load(Relaxed) {
        return cpu::rdmsr(msr::X2APIC + register) as u32;
    }
    // SAFETY: `init` mapped the page.
    unsafe { ((DEVICE_MAP + XAPIC + u64::from(register) * 16) as *const u32).read_volatile() }
}

fn write(register: u32, value: u32) {
    // SAFETY: APIC registers control interrupts only; the page is mapped by `init`.
    unsafe {
        if X2APIC.load(Relaxed) {
            cpu::wrmsr(msr::X2APIC + register, value.into());
        } else {
            ((DEVICE_MAP + XAPIC + u64::from(register) * 16) as *mut u32).write_volatile(value);
        }
    }
}

/// Chooses the mode for the machine; the first processor, once.
pub fn choose(features: &cpu::Features) {
    X2APIC.store(features.x2apic, Relaxed);
    DEADLINE.store(features.tsc_deadline, Relaxed);
    if !features.x2apic {
        mapping::ensure_device(XAPIC);
    }
    // Firmware left the 8259s open, on vectors that are exceptions.
    for port in [0x21, 0xa1] {
        // SAFETY: masks every input of the legacy interrupt controllers, which nobody uses.
        unsafe { cpu::out8(port, 0xff) };
    }
}

/// Turns this core's APIC on, its timer off.
pub fn init() {
    let enable = if X2APIC.load(Relaxed) { 0xc00 } else { 0x800 };
    // SAFETY: keeps the APIC where it is and enables it.
    unsafe { cpu::wrmsr(msr::APIC_BASE, cpu::rdmsr(msr::APIC_BASE) | enable) };
    write(SPURIOUS_VECTOR, 0x100 | u32::from(SPURIOUS));
    write(LOCAL_INTERRUPT_0, MASKED);
    write(LOCAL_INTERRUPT_1, NON_MASKABLE);
    let mode = if DEADLINE.load(Relaxed) { TSC_DEADLINE_MODE } else { 0 };
    write(TIMER_DIVIDE, 0b1011);
    write(TIMER_ENTRY, mode | u32::from(TIMER));
}

/// Measures the timer against the time-stamp counter, if it has to be.
pub fn calibrate() {
    if DEADLINE.load(Relaxed) {
        return;
    }
    write(TIMER_ENTRY, MASKED);
    write(TIMER_INITIAL, u32::MAX);
    let counted = || u64::from(u32::MAX - read(TIMER_CURRENT));
    let from = clock::bracket(counted);
    clock::wait_ns(200_000);
    let to = clock::bracket(counted);
    write(TIMER_INITIAL, 0);
    TICKS.store(TickRate::measured(to.1 - from.1, to.0 - from.0).0, Relaxed);
    write(TIMER_ENTRY, TIMER.into());
}

/// This core's APIC identifier.
pub fn id() -> u32 {
    if X2APIC.load(Relaxed) { read(ID) } else { read(ID) >> 24 }
}

/// Ends the interrupt being handled.
pub fn end_of_interrupt() {
    write(EOI, 0);
}

/// Whether an interrupt with this vector is being handled. Exceptions are not interrupts, nor are those that
/// were withdrawn.
pub fn is_in_service(vector: u8) -> bool {
    read(IN_SERVICE + u32::from(vector) / 32) & 1 << (vector % 32) != 0
}

/// Whether an interrupt with this vector has come and waits to be handled.
pub fn is_requested(vector: u8) -> bool {
    read(REQUESTED + u32::from(vector) / 32) & 1 << (vector % 32) != 0
}

/// Arms the timer for when the time-stamp counter reaches `tsc`.
pub fn set_timer(tsc: u64) {
    if DEADLINE.load(Relaxed) {
        // SAFETY: the register only decides when the timer interrupt comes.
        return unsafe { cpu::wrmsr(msr::TSC_DEADLINE, tsc.max(1)) };
    }
    let now = cpu::rdtsc();
    let ticks = TickRate(TICKS.load(Relaxed)).ticks(tsc.saturating_sub(now));
    let armed = &ARMED[CoreArea::core().index()];
    armed.0.store(now, Relaxed);
    armed.1.store(ticks, Relaxed);
    write(TIMER_INITIAL, ticks);
}

/// Learns from this core's timer, which fired, how fast it counts; unless it has been armed again since.
pub fn timer_fired() {
    if DEADLINE.load(Relaxed) || read(TIMER_CURRENT) != 0 {
        return;
    }
    let armed = &ARMED[CoreArea::core().index()];
    let (ticks, cycles) = (armed.1.swap(0, Relaxed), cpu::rdtsc().wrapping_sub(armed.0.load(Relaxed)));
    TICKS.fetch_max(TickRate(TICKS.load(Relaxed)).corrected(ticks, cycles).0, Relaxed);
}

fn command(destination: u32, low: u32) {
    if X2APIC.load(Relaxed) {
        // SAFETY: sends an interrupt to a core whose gates are loaded, or starts one at our trampoline.
        unsafe { cpu::wrmsr(msr::X2APIC + COMMAND, u64::from(destination) << 32 | u64::from(low)) };
        return;
    }
    write(COMMAND_HIGH, destination << 24);
    write(COMMAND, low);
    while read(COMMAND) & 1 << 12 != 0 {
        core::hint::spin_loop();
    }
}

/// Interrupts another core with [`KICK`].
pub fn kick(apic_id: u32) {
    command(apic_id, u32::from(KICK) | 1 << 14);
}

/// Puts a core into its reset state (INIT).
pub fn reset(apic_id: u32) {
    command(apic_id, 0x4500);
}

/// Starts a core that was reset, in real mode at `page` (start-up IPI).
pub fn start(apic_id: u32, page: u8) {
    command(apic_id, 0x4600 | u32::from(page));
}
