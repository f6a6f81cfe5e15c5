//! Interrupting computations of a core, so that others of the program have it in between.
//!
//! Whoever computes says so: [`port::Interrupter`](crate::port::Interrupter) keeps, in the core's block, what
//! is to run when it is interrupted. The upcall handler makes the computation take a detour, as if it had
//! called a function between two of its instructions: [`detour`] stores all registers on the computation's
//! own stack, runs that, and goes on. The handler is over before: whatever runs on the detour may switch
//! stacks, wait, and be told things. All else of the program is left alone: nothing is interrupted while it
//! has a lock or changes the core's free blocks, nor outside of such a computation.

use crate::events::WAITED_FOR;
use crate::local::{self, Local};
use crate::upcall::{self, Delivery, Handler};
use crate::{contain, raw, thread_pointer, time};
use core::arch::naked_asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
use nom_abi::Upcall;

/// Bytes below the stack pointer that a computation may use (System V ABI for x86-64, section 3.2.2).
const RED_ZONE: u64 = 128;

/// Who cannot be interrupted now is asked again after this time.
const AGAIN_NS: u64 = 20_000;

/// What runs when a computation is interrupted: on its stack, in its stead.
pub(crate) struct Interruption<'a>(&'a dyn Fn());

/// See [`nom_port::world::Preemption::preemptible`].
pub(crate) fn preemptible(compute: &mut (dyn FnMut() + Send), interrupted: &dyn Fn()) {
    let interruption = Interruption(interrupted);
    listen();
    let outer = local::current().interruption();
    allow(ptr::from_ref(&interruption).cast_mut());
    compute();
    compiler_fence(SeqCst);
    local::current().set_interruption(outer);
}

/// Whatever computes from here on may be interrupted. What happened while it was not has interrupted it
/// already.
fn allow(interruption: *mut Interruption<'_>) {
    loop {
        let local = local::current();
        local.set_interruption(interruption.cast());
        if interruption.is_null() || !local.has_missed.swap(false, Relaxed) {
            return;
        }
        local.set_interruption(ptr::null_mut());
        // SAFETY: it is that of the computation that goes on here.
        unsafe { run(interruption) };
    }
}

/// Runs what interrupts a computation, whose FS is as before afterwards.
///
/// # Safety
/// `interruption` is that of the computation on whose stack this runs.
unsafe fn run(interruption: *mut Interruption<'_>) {
    let thread_pointer = thread_pointer::get();
    // SAFETY: `preemptible` keeps it until the computation, which this is part of, is over.
    unsafe { (*interruption).0() };
    if thread_pointer::get() != thread_pointer {
        thread_pointer::set(thread_pointer);
    }
}

/// See [`nom_port::world::Preemption::undisturbed`].
pub(crate) fn undisturbed(section: &mut dyn FnMut()) {
    let interruption = local::current().set_interruption(ptr::null_mut());
    section();
    compiler_fence(SeqCst);
    allow(interruption.cast());
}

/// Has the core told `Timer`; without the right to that call nobody is interrupted by time alone.
pub(crate) fn set_alarm(deadline_ns: Option<u64>) {
    // Before it can come: nobody else would notice that it did.
    listen();
    // SAFETY: the call makes an event pending later; no memory is concerned.
    let _ = unsafe { raw::core_timer(deadline_ns.unwrap_or(u64::MAX)) };
}

/// Hears of what happens on this core from now on, beside the handler that there is.
fn listen() {
    let local = local::current();
    if local.preempts.load(Relaxed).is_null() {
        begin_to_listen(local);
    }
}

#[cold]
fn begin_to_listen(local: &Local) {
    fn nothing(_: &mut Delivery) {}
    measure_vectors();
    let before = local.handler.load(Relaxed);
    let next = if before.is_null() { nothing as Handler as *mut () } else { before };
    local.preempts.store(next, Relaxed);
    if upcall::register(handle).is_err() {
        // Without memory for the stack of a handler nothing is interrupted.
        local.preempts.store(ptr::null_mut(), Relaxed);
    }
}

/// The core's handler from then on.
fn handle(delivery: &mut Delivery) {
    let next = local::current().preempts.load(Relaxed);
    // SAFETY: `begin_to_listen` stored a `Handler` there before this one was registered.
    let next: Handler = unsafe { core::mem::transmute(next) };
    next(delivery);
    if delivery.events().pending & (WAITED_FOR | Upcall::Timer.mask()) == 0 {
        return;
    }
    let local = local::current();
    if delivery.events().pending & Upcall::Timer.mask() != 0 && local.is_watched.load(Relaxed) {
        contain::look(local, delivery);
    }
    let interruption = local.interruption();
    if interruption.is_null() {
        return local.has_missed.store(true, Relaxed);
    }
    if local.locks.load(Relaxed) > 0 || local.cache.is_busy() {
        return set_alarm(Some(time::now_ns().saturating_add(AGAIN_NS)));
    }
    local.set_interruption(ptr::null_mut());
    // SAFETY: 1. What was interrupted is a computation, on whose stack all below the red zone is free: this
    // is outside of `undisturbed`. 2. `detour` takes the two words away and goes on as if nothing had been
    // (condition 15).
    unsafe {
        let registers = delivery.registers_mut();
        registers.rsp -= RED_ZONE + 16;
        let words = ptr::with_exposed_provenance_mut::<[u64; 2]>(registers.rsp as usize);
        words.write_unaligned([interruption.expose_provenance() as u64, registers.rip]);
        registers.rip = detour as *const () as u64;
    }
}

/// Bytes that `xsave64` writes with all that the kernel has turned on; 0 without it.
static VECTOR_BYTES: AtomicU64 = AtomicU64::new(0);

fn measure_vectors() {
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid(1).ecx & OSXSAVE != 0 {
        VECTOR_BYTES.store(__cpuid_count(0xd, 0).ebx.into(), Relaxed);
    }
}

/// Where an interrupted computation goes on: two words on top of its stack are the interruption and where it
/// was. Direction flag and alignment of the stack are the computation's until here.
///
/// # Safety
/// Only [`handle`] may lead here.
#[unsafe(naked)]
unsafe extern "C" fn detour() {
    naked_asm!(
        "pushfq",
        "push rax; push rcx; push rdx; push rbx; push rbp",
        "push rsi; push rdi; push r8; push r9; push r10",
        "push r11; push r12; push r13; push r14; push r15",
        "mov rbp, rsp",
        "mov rdi, [rsp + 128]",
        "cld",
        "mov rbx, [rip + {vector_bytes}]",
        "test rbx, rbx",
        "jz 3f",
        "sub rsp, rbx",
        "and rsp, -64",
        // The area's header has to be what XRSTOR takes (Intel SDM vol. 1, section 13.4.2).
        "xor eax, eax",
        "mov [rsp + 512], rax; mov [rsp + 520], rax; mov [rsp + 528], rax; mov [rsp + 536], rax",
        "mov [rsp + 544], rax; mov [rsp + 552], rax; mov [rsp + 560], rax; mov [rsp + 568], rax",
        "mov eax, -1",
        "mov edx, -1",
        "xsave64 [rsp]",
        "call {interrupted}",
        "mov eax, -1",
        "mov edx, -1",
        "xrstor64 [rsp]",
        "jmp 4f",
        "3:",
        "sub rsp, 512",
        "and rsp, -64",
        "fxsave64 [rsp]",
        "call {interrupted}",
        "fxrstor64 [rsp]",
        "4:",
        "mov rsp, rbp",
        "pop r15; pop r14; pop r13; pop r12; pop r11",
        "pop r10; pop r9; pop r8; pop rdi; pop rsi",
        "pop rbp; pop rbx; pop rdx; pop rcx; pop rax",
        "popfq",
        "lea rsp, [rsp + 8]",
        "ret {red_zone}",
        vector_bytes = sym VECTOR_BYTES,
        interrupted = sym interrupted,
        red_zone = const RED_ZONE,
    )
}

/// # Safety
/// `interruption` is that of the computation on whose stack this runs.
unsafe extern "C" fn interrupted(interruption: *mut Interruption<'_>) {
    // SAFETY: the caller's promise.
    unsafe { run(interruption) };
    allow(interruption);
}
