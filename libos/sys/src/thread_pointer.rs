//! The FS register: where a thread of the program keeps what is its own. Nothing of this crate uses it.

use crate::{local, raw};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use nom_abi::syscall::Segment;

/// Leaf 7, EBX: the instructions that read and write segment bases (Intel SDM vol. 2A, "CPUID").
const FSGSBASE: u32 = 1;

/// The base of FS on this core.
pub fn get() -> u64 {
    if !has_instructions() {
        return local::current().thread_pointer.load(Relaxed);
    }
    let address;
    // SAFETY: reads a register; the kernel turned the instruction on.
    unsafe { asm!("rdfsbase {}", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Sets it; an address outside of user space changes nothing.
pub fn set(address: u64) {
    if address >= nom_abi::layout::USER_END {
        return;
    }
    if has_instructions() {
        // SAFETY: no Rust code of the program uses FS; the address is canonical.
        return unsafe { asm!("wrfsbase {}", in(reg) address, options(nomem, nostack, preserves_flags)) };
    }
    // The handler of an upcall in between finds the old one in both places, or the new one.
    local::current().thread_pointer.store(address, Relaxed);
    // SAFETY: as above.
    let set = unsafe { raw::segment_base(Segment::Thread as u64, address) };
    set.expect("the address is in user space");
}

/// Whether the processor has the instructions; then the kernel has turned them on.
fn has_instructions() -> bool {
    const UNKNOWN: u8 = 0;
    const HAS: u8 = 1;
    const HAS_NOT: u8 = 2;
    // Asked once, since a hypervisor answers in its own time.
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    match ANSWER.load(Relaxed) {
        UNKNOWN => {
            let has = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & FSGSBASE != 0;
            ANSWER.store(if has { HAS } else { HAS_NOT }, Relaxed);
            has
        }
        answer => answer == HAS,
    }
}
