//! Starting the other processors (Intel SDM vol. 3A, 9.4).
//!
//! All at once: each takes a ticket in `boot.S`, which is its core number and the index of its stack. They
//! pass from real mode through a page below 1 MiB and the boot page tables into `core_entry`.

use crate::apic;
use crate::clock;
use crate::memory::Physical;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use nom_abi::layout::CORES_MAX;
use nom_kernel_pure::machine::{PhysAddr, PhysicalMemory};

/// Where the trampoline is copied to: a frame below 1 MiB that is never handed out.
pub const TRAMPOLINE: u64 = 0x8000;
/// How long processors have to come up.
const PATIENCE_NS: u64 = 2_000_000_000;

/// Tickets taken; the first processor has number 0.
pub static CORES_STARTED: AtomicU32 = AtomicU32::new(1);
/// Stack of each core.
pub static STACK_TOPS: [AtomicU64; CORES_MAX] = [const { AtomicU64::new(0) }; CORES_MAX];
/// Cores that reached Rust and are ready.
static READY: AtomicU32 = AtomicU32::new(1);
/// Whether there is a kernel to enter.
static RELEASED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
}

/// Starts the processors with these APIC identifiers and returns how many cores there now are. Their stacks
/// must be in [`STACK_TOPS`].
pub fn start(memory: &mut Physical, others: impl Iterator<Item = u32> + Clone) -> usize {
    let code = &raw const trampoline_start;
    let length = &raw const trampoline_end as usize - code as usize;
    // SAFETY: the two symbols of `boot.S` delimit constant bytes of the image.
    memory.write_bytes(PhysAddr::new(TRAMPOLINE), unsafe { core::slice::from_raw_parts(code, length) });
    let expected = 1 + others.clone().count() as u32;
    others.clone().for_each(apic::reset);
    clock::wait_ns(10_000);
    others.for_each(|id| apic::start(id, (TRAMPOLINE >> 12) as u8));
    let deadline = clock::now_ns() + PATIENCE_NS;
    while READY.load(Acquire) < expected && clock::now_ns() < deadline {
        core::hint::spin_loop();
    }
    READY.load(Acquire) as usize
}

/// A core says that it can take interrupts.
pub fn ready() {
    READY.fetch_add(1, AcqRel);
}

/// Spins until [`release`].
pub fn wait_for_kernel() {
    while !RELEASED.load(Acquire) {
        core::hint::spin_loop();
    }
}

/// Lets the other cores into the kernel.
pub fn release() {
    RELEASED.store(true, Release);
}
