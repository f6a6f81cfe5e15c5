//! Work that may panic, or never come back, on a stack of its own.
//!
//! While it runs, the core's block has the way out for a panic: to leave that stack for good. Who never comes
//! back cannot be left so: he may be in the middle of a step that others see. So now and then an alarm looks
//! whether the core has begun something else since, and if not, ends the program where it hangs, and says so.

use crate::local::{self, Local};
use crate::upcall::Delivery;
use crate::{exit_with_backtrace, preempt, println, time};
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::compiler_fence;

/// How often is looked. Who has not come back for one to two of these never will.
const WATCH_NS: u64 = 5_000_000_000;

/// Bytes below the stack pointer that work may use (System V ABI for x86-64, section 3.2.2).
const RED_ZONE: u64 = 128;

/// Exit status of a program that hangs, as of one that panicked.
const STATUS: u8 = 101;

/// The way out of work that panics.
pub(crate) struct Escape<'a>(&'a dyn Fn());

/// See [`nom_port::world::Containment::contained`].
pub(crate) fn contained(work: &mut dyn FnMut(), escape: &dyn Fn()) {
    let escape = Escape(escape);
    let local = local::current();
    let outer = local.escape.swap(ptr::from_ref(&escape).cast_mut().cast(), Relaxed);
    local.works.store(local.works.load(Relaxed).wrapping_add(1), Relaxed);
    if !local.is_watched.load(Relaxed) {
        watch(local);
    }
    compiler_fence(SeqCst);
    work();
    compiler_fence(SeqCst);
    local.escape.store(outer, Relaxed);
}

#[cold]
fn watch(local: &Local) {
    local.is_watched.store(true, Relaxed);
    local.works_before.store(local.works.load(Relaxed), Relaxed);
    preempt::set_alarm(Some(time::now_ns().saturating_add(WATCH_NS)));
}

/// Leaves the stack of work that panics, if it can be left: nobody else waits for a lock of its, or finds the
/// heap half changed.
#[cfg_attr(
    not(target_os = "none"),
    expect(dead_code, reason = "the panic handler is the kernel's program's")
)]
pub(crate) fn escape(tell: impl FnOnce()) {
    let local = local::current();
    let escape: *const Escape<'_> = local.escape.swap(ptr::null_mut(), Relaxed).cast();
    let is_whole =
        local.locks.load(Relaxed) == 0 && !local.cache.is_busy() && !local.is_handling.load(Relaxed);
    if escape.is_null() || !is_whole {
        return;
    }
    tell();
    // SAFETY: `contained` has it on its stack, where it stays until the work is over, of which this is a part
    // (condition 16).
    unsafe { (*escape).0() };
}

/// The alarm came: whoever has not come back since the last one hangs.
pub(crate) fn look(local: &Local, delivery: &mut Delivery) {
    local.is_watched.store(false, Relaxed);
    if local.escape.load(Relaxed).is_null() {
        return;
    }
    let works = local.works.load(Relaxed);
    if local.works_before.swap(works, Relaxed) != works {
        return watch(local);
    }
    // SAFETY: all below the red zone of what was interrupted is free, or the page of a guard; what hangs does
    // not go on (condition 16).
    unsafe {
        let registers = delivery.registers_mut();
        registers.rsp = ((registers.rsp - RED_ZONE) & !15) - 8;
        ptr::with_exposed_provenance_mut::<u64>(registers.rsp as usize).write(registers.rip);
        registers.rip = hangs as *const () as u64;
    }
}

/// In the stead of what hangs.
extern "C" fn hangs() -> ! {
    // Who has a lock may have the console's.
    if local::current().locks.load(Relaxed) == 0 {
        println!("a task has not come back for {} s: the program ends", WATCH_NS / 1_000_000_000);
    }
    exit_with_backtrace(STATUS)
}
