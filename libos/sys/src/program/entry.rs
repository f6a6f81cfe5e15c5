//! Into a program and out again. The kernel sends the program's `syscall`s to [`reflected`], and its faults
//! to the upcall handler, which has the core go on at [`faulted`]; from both `ProgramContext::run` returns.
//! So it does when anything else happens while the program's own code runs, the core's alarm among it: that
//! is how a program that makes no call is left for others.
//!
//! The library's own code is never left for another thread in between: an upcall that comes while any of this
//! runs goes back to where it was.

use super::context::{
    EXCEPTION, INTERRUPTED, Line, MXCSR, MXCSR_AT, PAGE_FAULT, ProgramContext, SSE_AT, Trap, VECTOR_BYTES,
};
use super::vectors;
use crate::events::WAITED_FOR;
use crate::local::{self, Local};
use crate::memory::Shared;
use crate::{preempt, raw, time, upcall};
use core::arch::{asm, naked_asm, x86_64};
use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
use nom_abi::PageSize;
use nom_abi::error::{Error, Result};
use nom_abi::layout::{APPLICATION_END, IMAGE_WINDOW, WINDOW_BYTES};
use nom_abi::upcall::{Registers, Upcall, UpcallFrame};

/// Flags with which the library's code runs, and those that a program keeps: the arithmetic ones, direction,
/// alignment check, identification.
const FLAGS: u64 = 0x202;
const FLAGS_KEPT: u64 = 0x24_0cd5;

/// Flags of a program's that the library's code does not run with: single steps, direction, nested task,
/// alignment check, identification.
const FLAGS_UNWANTED: u32 = 0x24_4500;
/// Those that a program keeps beside the arithmetic ones.
const FLAGS_RARE: u32 = 0x24_0400;
/// Which bit the flag of overflow is.
const OVERFLOW: u32 = 11;
/// Bits of MXCSR that say what has happened, rather than what is to.
const MXCSR_STICKY: u32 = 0x3f;

/// Events for which a program is left: others may be ready since.
const INTERRUPTING: u64 = WAITED_FOR | Upcall::Timer.mask();
/// Who is about to go on with its program is told of such an event again after this time: in the program.
const AGAIN_NS: u64 = 20_000;

/// What a core has for the program that it runs.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slots {
    /// The thread that runs.
    context: AtomicPtr<ProgramContext>,
    /// Where it goes on: so every register can be its own.
    resume: AtomicU64,
    /// Address of the word that the kernel tells where a `syscall` was.
    word: AtomicU64,
    /// The thread whose FS base, x87 and further vector registers the core has.
    owner: AtomicPtr<ProgramContext>,
    /// The space that the core is in.
    pub(super) space: AtomicU64,
    /// What the word is in.
    page: UnsafeCell<Option<Shared>>,
}

impl Slots {
    pub const fn new() -> Slots {
        Slots {
            context: AtomicPtr::new(ptr::null_mut()),
            resume: AtomicU64::new(0),
            word: AtomicU64::new(0),
            owner: AtomicPtr::new(ptr::null_mut()),
            space: AtomicU64::new(0),
            page: UnsafeCell::new(None),
        }
    }
}

/// The number of the space that the running core is in.
pub(super) fn running_space() -> &'static AtomicU64 {
    &local::current().program.space
}

/// Makes the running core one that can run programs.
///
/// # Errors
/// NotPermitted if the manifest does not say `makes_code`; InvalidArgument if the processor has no FSGSBASE;
/// as for the memory of a page.
pub fn start() -> Result<()> {
    // FSGSBASE is bit 0 of leaf 7's EBX.
    if x86_64::__cpuid(0).eax < 7 || x86_64::__cpuid_count(7, 0).ebx & 1 == 0 {
        return Err(Error::InvalidArgument);
    }
    vectors::learn();
    let page = Shared::new(PageSize::Small, 1)?;
    let word = page.region().address();
    // SAFETY: `reflected` is made for the kernel's way to enter it, and the word is used for nothing else and
    // stays: the core's block keeps its page.
    unsafe { raw::syscall_reflect(reflected as *const () as u64, word) }?;
    let slots = &local::current().program;
    slots.word.store(word, Relaxed);
    // SAFETY: this core alone reaches it (see `Sync for Local`), and nobody has a reference.
    unsafe { *slots.page.get() = Some(page) };
    upcall::register_if_none(|delivery| report(delivery.registers(), delivery.events()))
}

/// A fault of the library's own.
fn report(registers: &Registers, events: &nom_abi::Events) {
    if events.has(Upcall::PageFault) || events.has(Upcall::Exception) {
        let base = crate::start::info().image_base;
        crate::println!(
            "fault in the library: image+{:#x}, address or vector {:#x}, code {:#x}",
            registers.rip.wrapping_sub(base),
            events.fault_address,
            events.fault_code
        );
        crate::exit_with_backtrace(139);
    }
}

/// If an upcall tells something while this core runs a program, has the core go on in the library. A fault
/// of the program's is nobody else's and is taken out of what is told. Most cores run none, and what is done
/// here every upcall takes.
#[inline(always)]
pub(crate) fn intercept(frame: &mut UpcallFrame) {
    let context = local::current().program.context.load(Relaxed);
    if !context.is_null() {
        intercept_program(frame, context);
    }
}

fn intercept_program(frame: &mut UpcallFrame, context: *mut ProgramContext) {
    let events = &mut frame.events;
    let is_interrupting = events.pending & INTERRUPTING != 0;
    // Where a program jumps is its own matter: elsewhere beyond its end there is no code of the library's.
    if (IMAGE_WINDOW..IMAGE_WINDOW + WINDOW_BYTES).contains(&frame.registers.rip) {
        // The library's own code, on its way into the program or out of it, where nobody would look again.
        if is_interrupting {
            preempt::set_alarm(Some(time::now_ns().saturating_add(AGAIN_NS)));
        }
        return;
    }
    let kind = if events.has(Upcall::PageFault) {
        PAGE_FAULT
    } else if events.has(Upcall::Exception) {
        EXCEPTION
    } else if is_interrupting {
        INTERRUPTED
    } else {
        return;
    };
    events.pending &= !(Upcall::PageFault.mask() | Upcall::Exception.mask());
    // SAFETY: the program runs, so `run` on this core waits for it, which has the context and does not touch
    // it.
    let host_stack = unsafe {
        (*context).registers = frame.registers;
        (*context).trap = [kind, events.fault_address, events.fault_code];
        (*context).host_stack
    };
    frame.registers = Registers {
        rip: faulted as *const () as u64,
        rsp: host_stack,
        rcx: context as u64,
        rflags: FLAGS,
        ..Registers::default()
    };
}

impl ProgramContext {
    /// Goes on with the program on this core until it wants something; see [`Trap`]. Flags that are not a
    /// program's own are cleared. It does not begin if something happened since the last time that it would
    /// have been interrupted for.
    #[inline(always)]
    pub fn run(&mut self) -> Trap {
        let context = ptr::from_mut(self);
        let local = local::current();
        let slots = &local.program;
        if slots.owner.load(Relaxed) != context {
            self.take_over();
        }
        self.registers.rflags = self.registers.rflags & FLAGS_KEPT | FLAGS;
        slots.resume.store(self.registers.rip, Relaxed);
        slots.context.store(context, Relaxed);
        compiler_fence(SeqCst);
        // From here on an upcall finds the context; one that came before has left its mark.
        if local.has_missed.load(Relaxed) {
            slots.context.store(ptr::null_mut(), Relaxed);
            local.has_missed.store(false, Relaxed);
            return Trap::Interrupted;
        }
        // SAFETY: the context is this one's, of a core that `start` has prepared: `owner` is it. `go` keeps
        // what a function has to.
        unsafe { go(context) };
        let local = local::current();
        local.program.context.store(ptr::null_mut(), Relaxed);
        let trap = self.stopped();
        if trap == Trap::Interrupted {
            // The handler that was told, too, found no computation of the library's to interrupt.
            local.has_missed.store(false, Relaxed);
        }
        trap
    }

    /// Gives this core's FS base, x87 and further vector registers to this thread.
    fn take_over(&mut self) {
        let slots = &local::current().program;
        let before = slots.owner.swap(ptr::from_mut(self), Relaxed);
        // SAFETY: an owner is alive: who is dropped is none any more. Nobody else has a reference to it,
        // since whoever runs it on this core is in `run`, and not on this thread.
        let (uses_x87, extended) = match unsafe { before.as_mut() } {
            Some(before) => before.store(),
            // Nobody knows what was left.
            None => (true, u64::MAX),
        };
        // SAFETY: the base is canonical: `set_thread_pointer` made it so, or it was the processor's. The
        // library does not use FS. What is loaded was stored, or is as in a program that begins; of what
        // programs set, `set_vector` and `set_vector_area` cleared what no processor has.
        unsafe {
            asm!("wrfsbase {}", in(reg) self.thread_pointer, options(nostack, preserves_flags));
            vectors::load_extended(&self.extended, extended);
            if self.uses_x87 || uses_x87 {
                vectors::load_x87(&self.vector);
            }
        }
    }

    /// Stores what this thread has in the processor and uses, all but its SSE registers, which are stored
    /// already: whether x87's are among it, and which of those that XSAVE stores.
    fn store(&mut self) -> (bool, u64) {
        // SAFETY: FSGSBASE is there: `start` looked.
        unsafe {
            asm!("rdfsbase {}", out(reg) self.thread_pointer, options(nomem, nostack, preserves_flags));
        }
        let in_use = vectors::in_use();
        self.uses_x87 = vectors::store_x87(&mut self.vector, self.uses_x87, in_use);
        (self.uses_x87, vectors::store_extended(&mut self.extended, in_use))
    }

    fn is_owner(&self) -> bool {
        ptr::eq(local::current().program.owner.load(Relaxed), self)
    }

    /// The base of FS.
    pub fn thread_pointer(&self) -> u64 {
        if !self.is_owner() {
            return self.thread_pointer;
        }
        let base;
        // SAFETY: FSGSBASE is there: who is owner has run.
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
        base
    }

    /// Sets the base of FS, an address below the library's.
    pub fn set_thread_pointer(&mut self, address: u64) {
        self.thread_pointer = address.min(APPLICATION_END);
        if self.is_owner() {
            // SAFETY: it is canonical, and the library does not use FS.
            unsafe {
                asm!("wrfsbase {}", in(reg) self.thread_pointer, options(nostack, preserves_flags));
            }
        }
    }

    /// What this thread has in the processor is stored, and loaded again before it runs.
    pub(super) fn give_up(&mut self) {
        if self.is_owner() {
            self.store();
            local::current().program.owner.store(ptr::null_mut(), Relaxed);
        }
    }

    pub(super) fn extended_lines(&mut self) -> &[Line] {
        if self.is_owner() {
            self.store();
        }
        &self.extended
    }
}

impl Drop for ProgramContext {
    fn drop(&mut self) {
        let owner = &local::current().program.owner;
        if self.is_owner() {
            owner.store(ptr::null_mut(), Relaxed);
        }
    }
}

macro_rules! offset {
    ($register:ident) => {
        offset_of!(ProgramContext, registers.$register)
    };
}

/// Goes on with the program in the context.
///
/// # Safety
/// The core has the program's FS base and further vector registers, `resume` where it goes on.
#[unsafe(naked)]
unsafe extern "sysv64" fn go(context: *mut ProgramContext) {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "mov [rdi + {host_stack}], rsp",
        "movaps xmm0, [rdi + {sse} + 16 * 0]",
        "movaps xmm1, [rdi + {sse} + 16 * 1]",
        "movaps xmm2, [rdi + {sse} + 16 * 2]",
        "movaps xmm3, [rdi + {sse} + 16 * 3]",
        "movaps xmm4, [rdi + {sse} + 16 * 4]",
        "movaps xmm5, [rdi + {sse} + 16 * 5]",
        "movaps xmm6, [rdi + {sse} + 16 * 6]",
        "movaps xmm7, [rdi + {sse} + 16 * 7]",
        "movaps xmm8, [rdi + {sse} + 16 * 8]",
        "movaps xmm9, [rdi + {sse} + 16 * 9]",
        "movaps xmm10, [rdi + {sse} + 16 * 10]",
        "movaps xmm11, [rdi + {sse} + 16 * 11]",
        "movaps xmm12, [rdi + {sse} + 16 * 12]",
        "movaps xmm13, [rdi + {sse} + 16 * 13]",
        "movaps xmm14, [rdi + {sse} + 16 * 14]",
        "movaps xmm15, [rdi + {sse} + 16 * 15]",
        "ldmxcsr [rdi + {mxcsr}]",
        // POPFQ may change what the processor does next, so it takes long, where one is emulated above all.
        // The arithmetic flags, which are all that nearly any program has, can be had without: who has
        // FSGSBASE has SAHF, too.
        "mov eax, [rdi + {rflags}]",
        "test eax, {rare}",
        "jnz 3f",
        "mov ecx, eax",
        "shr ecx, {overflow}",
        "and ecx, 1",
        "mov ah, al",
        // Overflows with one alone.
        "add cl, 0x7f",
        "sahf",
        "2:",
        "mov rax, [rdi + {rax}]",
        "mov rbx, [rdi + {rbx}]",
        "mov rcx, [rdi + {rcx}]",
        "mov rdx, [rdi + {rdx}]",
        "mov rsi, [rdi + {rsi}]",
        "mov rbp, [rdi + {rbp}]",
        "mov r8, [rdi + {r8}]",
        "mov r9, [rdi + {r9}]",
        "mov r10, [rdi + {r10}]",
        "mov r11, [rdi + {r11}]",
        "mov r12, [rdi + {r12}]",
        "mov r13, [rdi + {r13}]",
        "mov r14, [rdi + {r14}]",
        "mov r15, [rdi + {r15}]",
        "mov rsp, [rdi + {rsp}]",
        "mov rdi, [rdi + {rdi}]",
        "jmp qword ptr gs:[{resume}]",
        "3:",
        "push qword ptr [rdi + {rflags}]",
        "popfq",
        "jmp 2b",
        host_stack = const offset_of!(ProgramContext, host_stack),
        sse = const offset_of!(ProgramContext, vector) + SSE_AT,
        mxcsr = const offset_of!(ProgramContext, vector) + MXCSR_AT,
        rflags = const offset!(rflags), rare = const FLAGS_RARE, overflow = const OVERFLOW,
        rax = const offset!(rax), rbx = const offset!(rbx), rcx = const offset!(rcx),
        rdx = const offset!(rdx), rsi = const offset!(rsi), rdi = const offset!(rdi),
        rbp = const offset!(rbp), rsp = const offset!(rsp),
        r8 = const offset!(r8), r9 = const offset!(r9), r10 = const offset!(r10),
        r11 = const offset!(r11),
        r12 = const offset!(r12), r13 = const offset!(r13), r14 = const offset!(r14),
        r15 = const offset!(r15),
        resume = const offset_of!(Local, program) + offset_of!(Slots, resume),
    )
}

/// Where the kernel sends a program's `syscall`: all registers are the program's but RCX, and R11 has its
/// flags.
///
/// # Safety
/// Only the kernel may enter here.
#[unsafe(naked)]
unsafe extern "sysv64" fn reflected() {
    naked_asm!(
        "mov rcx, gs:[{context}]",
        "mov [rcx + {rax}], rax",
        "mov [rcx + {rbx}], rbx",
        "mov [rcx + {rdx}], rdx",
        "mov [rcx + {rsi}], rsi",
        "mov [rcx + {rdi}], rdi",
        "mov [rcx + {rbp}], rbp",
        "mov [rcx + {rsp}], rsp",
        "mov [rcx + {r8}], r8",
        "mov [rcx + {r9}], r9",
        "mov [rcx + {r10}], r10",
        "mov [rcx + {r11}], r11",
        "mov [rcx + {r12}], r12",
        "mov [rcx + {r13}], r13",
        "mov [rcx + {r14}], r14",
        "mov [rcx + {r15}], r15",
        "mov [rcx + {rflags}], r11",
        "mov rax, gs:[{word}]",
        "mov rax, [rax]",
        "mov [rcx + {rip}], rax",
        "mov [rcx + {rcx}], rax",
        "mov qword ptr [rcx + {trap}], 0",
        "jmp {faulted}",
        context = const offset_of!(Local, program) + offset_of!(Slots, context),
        word = const offset_of!(Local, program) + offset_of!(Slots, word),
        rflags = const offset!(rflags), rip = const offset!(rip),
        rax = const offset!(rax), rbx = const offset!(rbx), rcx = const offset!(rcx),
        rdx = const offset!(rdx), rsi = const offset!(rsi), rdi = const offset!(rdi),
        rbp = const offset!(rbp), rsp = const offset!(rsp),
        r8 = const offset!(r8), r9 = const offset!(r9), r10 = const offset!(r10),
        r11 = const offset!(r11),
        r12 = const offset!(r12), r13 = const offset!(r13), r14 = const offset!(r14),
        r15 = const offset!(r15),
        trap = const offset_of!(ProgramContext, trap),
        faulted = sym faulted,
    )
}

/// Stores the SSE registers in the context that RCX points to, and returns from [`go`]. The library uses no
/// x87 registers: those stay where they are until another thread runs. (FXSAVE stores both, and where a
/// processor is emulated it takes longer than all else of a call.)
///
/// # Safety
/// Everything else of the program is in the context.
#[unsafe(naked)]
unsafe extern "sysv64" fn faulted() {
    naked_asm!(
        "movaps [rcx + {sse} + 16 * 0], xmm0",
        "movaps [rcx + {sse} + 16 * 1], xmm1",
        "movaps [rcx + {sse} + 16 * 2], xmm2",
        "movaps [rcx + {sse} + 16 * 3], xmm3",
        "movaps [rcx + {sse} + 16 * 4], xmm4",
        "movaps [rcx + {sse} + 16 * 5], xmm5",
        "movaps [rcx + {sse} + 16 * 6], xmm6",
        "movaps [rcx + {sse} + 16 * 7], xmm7",
        "movaps [rcx + {sse} + 16 * 8], xmm8",
        "movaps [rcx + {sse} + 16 * 9], xmm9",
        "movaps [rcx + {sse} + 16 * 10], xmm10",
        "movaps [rcx + {sse} + 16 * 11], xmm11",
        "movaps [rcx + {sse} + 16 * 12], xmm12",
        "movaps [rcx + {sse} + 16 * 13], xmm13",
        "movaps [rcx + {sse} + 16 * 14], xmm14",
        "movaps [rcx + {sse} + 16 * 15], xmm15",
        "stmxcsr [rcx + {mxcsr}]",
        "mov rsp, [rcx + {host_stack}]",
        // The program may have set alignment checks, direction, or how numbers are rounded: hardly any has.
        "test dword ptr [rcx + {rflags}], {unwanted}",
        "jz 2f",
        "push {flags}",
        "popfq",
        "2:",
        "mov eax, [rcx + {mxcsr}]",
        "and eax, {modes}",
        "cmp eax, {default}",
        "je 3f",
        "ldmxcsr [rip + {initial}]",
        "3:",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        sse = const offset_of!(ProgramContext, vector) + SSE_AT,
        mxcsr = const offset_of!(ProgramContext, vector) + MXCSR_AT,
        host_stack = const offset_of!(ProgramContext, host_stack),
        rflags = const offset!(rflags),
        unwanted = const FLAGS_UNWANTED,
        flags = const FLAGS,
        modes = const !MXCSR_STICKY,
        default = const MXCSR & !MXCSR_STICKY,
        initial = sym DEFAULT_MXCSR,
    )
}

static DEFAULT_MXCSR: u32 = MXCSR;

const _: () = assert!(VECTOR_BYTES == 512 && size_of::<Line>() == 64);
