//! Every way into the kernel and out again, in Rust: `trap.S` has saved the registers, the pure kernel
//! decides.

use crate::area::{self, CoreArea};
use crate::control::{End, end};
use crate::lock::{Guard, Lock};
use crate::platform::Platform;
use crate::serial::log;
use crate::{apic, backtrace, clock, cpu, power, shootdown, tables};
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use nom_abi::board::{DmaProtection, Hazards};
use nom_kernel_pure::contexts::events::{Fault, PAGE_FAULT};
use nom_kernel_pure::kernel::{Kernel, Next, PLATFORM_VECTOR};
use nom_kernel_pure::machine::{Level, Machine};

/// The kernel, once [`install`] has put it there.
static KERNEL: Lock<Option<&'static mut Kernel<'static, Platform>>> = Lock::new(None);

/// Exceptions have the vectors below this one.
const EXCEPTIONS: u64 = 32;
const DEBUG: u64 = 1;
const NON_MASKABLE: u64 = 2;

/// Interruptions of the kernel that nobody asked for, and how many of them have been reported.
static STRAYS: AtomicU64 = AtomicU64::new(0);
static STRAYS_REPORTED: AtomicU64 = AtomicU64::new(0);

/// Includes `trap.S`, with the offsets of an application's registers in its core's area, and two macros that
/// move those that are only moved.
macro_rules! entries {
    ($($moved:ident)+; $($other:ident)+) => {
        global_asm!(
            ".macro SAVE_GENERAL",
            $(concat!("movq %", stringify!($moved), ", %gs:{", stringify!($moved), "}"),)+
            ".endm",
            ".macro LOAD_GENERAL",
            $(concat!("movq %gs:{", stringify!($moved), "}, %", stringify!($moved)),)+
            ".endm",
            include_str!("asm/trap.S"),
            $($moved = const offset_of!(CoreArea, registers.$moved),)+
            $($other = const offset_of!(CoreArea, registers.$other),)+
            stack_top = const area::STACK_TOP,
            reflected_below = const area::REFLECTED_BELOW,
            reflected_entry = const area::REFLECTED_ENTRY,
            reflected_word = const area::REFLECTED_WORD,
            flags_allowed = const tables::FLAGS_ALLOWED,
            user_code = const tables::USER_CODE,
            user_data = const tables::USER_DATA,
            user_syscall = sym user_syscall,
            user_trap = sym user_trap,
            kernel_trap = sym kernel_trap,
            options(att_syntax),
        );
    };
}
entries!(rbx rdx rsi rdi rbp r8 r9 r10 r12 r13 r14 r15; rax rcx rsp r11 rip rflags);

unsafe extern "C" {
    fn enter_application(after_syscall: u64) -> !;
}

/// Hands the kernel over to the entries.
pub fn install(kernel: &'static mut Kernel<'static, Platform>) {
    *KERNEL.wait() = Some(kernel);
}

/// The kernel under its lock.
struct Inside(Guard<'static, Option<&'static mut Kernel<'static, Platform>>>);

impl Inside {
    #[inline(always)]
    fn enter() -> Inside {
        KERNEL.try_lock().map_or_else(Inside::enter_late, Inside)
    }

    /// Waits for the lock, and handles the interrupts that came while this core halted.
    #[cold]
    fn enter_late() -> Inside {
        let mut inside = Inside(KERNEL.wait());
        let pending = CoreArea::with(|area| core::mem::take(&mut area.pending));
        for (word, mut bits) in pending.into_iter().enumerate() {
            while bits != 0 {
                interrupt(inside.kernel(), (word * 64) as u8 + bits.trailing_zeros() as u8);
                bits &= bits - 1;
            }
        }
        inside
    }

    fn kernel(&mut self) -> &mut Kernel<'static, Platform> {
        self.0.as_mut().expect("cores enter after `install`")
    }
}

extern "C" fn user_syscall() -> u64 {
    let mut inside = Inside::enter();
    let core = CoreArea::core();
    let answered = CoreArea::with(|area| inside.kernel().syscall(core, &mut area.registers));
    leave(inside, answered)
}

extern "C" fn user_trap(vector: u64, code: u64) -> u64 {
    let address = if vector == PAGE_FAULT { cpu::cr2() } else { 0 };
    shootdown::answer(false);
    end_own(vector);
    let mut inside = Inside::enter();
    // A device can send the vector of an exception. An error code, which page faults of ring 3 always have,
    // comes with exceptions only.
    if vector < EXCEPTIONS && !(code == 0 && apic::is_in_service(vector as u8)) {
        let fault = Fault { vector, code, address };
        CoreArea::with(|area| inside.kernel().fault(area.core, &mut area.registers, fault));
    } else {
        report_strays();
        interrupt(inside.kernel(), vector as u8);
    }
    leave(inside, false)
}

/// Tells the pure kernel of an interrupt that this core took. It passes over vectors that it gave nobody.
fn interrupt(kernel: &mut Kernel<'static, Platform>, vector: u8) {
    if vector < apic::OWN {
        apic::end_of_interrupt();
    }
    match vector {
        apic::KICK | apic::SPURIOUS => {}
        apic::TIMER => {
            apic::timer_fired();
            kernel.timer(CoreArea::core());
        }
        PLATFORM_VECTOR if power::is_pressed(kernel.machine()) => kernel.shut_down(),
        vector => kernel.interrupt(CoreArea::core(), vector),
    }
}

/// Ends an interrupt of the kernel's own class before this core waits for anything: in service, it would keep
/// a kick waiting. Others are level-triggered, maybe, and would come again at once.
#[inline(always)]
fn end_own(vector: u64) {
    let is_spurious = || vector == apic::SPURIOUS.into() && !apic::is_in_service(apic::SPURIOUS);
    if vector >= apic::OWN.into() && !is_spurious() {
        apic::end_of_interrupt();
    }
}

/// Leaves the kernel: into an application (the return value is for `resume`), through as many halts as it
/// takes.
fn leave(mut inside: Inside, answered: bool) -> u64 {
    let mut answered = answered;
    loop {
        let core = CoreArea::core();
        match CoreArea::with(|area| inside.kernel().next(core, &mut area.registers, answered)) {
            Next::Run { after_syscall } => {
                if !ENTERED.load(Relaxed) {
                    first_entry(inside.kernel());
                }
                return after_syscall.into();
            }
            Next::Halt => inside = halt(inside),
            Next::End { status } => end(End::Orderly, status),
        }
        answered = false;
    }
}

/// Halts outside the lock until an interrupt, if there is nothing to do, then handles all that came.
#[inline(never)]
fn halt(mut inside: Inside) -> Inside {
    let rests = !inside.kernel().takes_back();
    drop(inside);
    if rests {
        cpu::halt_until_interrupt();
    }
    shootdown::answer(true);
    let inside = Inside::enter_late();
    report_strays();
    inside
}

/// Whether an application has begun.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Notes when the first application began: what boot took.
#[cold]
fn first_entry(kernel: &mut Kernel<'static, Platform>) {
    ENTERED.store(true, Relaxed);
    let board = kernel.board();
    let clock = &board.clock;
    let protection = board.machine.dma_protection.load(Relaxed);
    let (dma, interrupts) = (DmaProtection::name(protection), DmaProtection::interrupts(protection));
    let source = nom_abi::board::ClockSource::name(clock.source.load(Relaxed));
    let hz = clock.tsc_hz.load(Relaxed);
    let tsc = cpu::rdtsc();
    clock.first_user_tsc.store(tsc, Relaxed);
    let (boot, unmitigated) = (clock::boot(), Hazards(board.machine.unmitigated.load(Relaxed)));
    kernel.machine().control(format_args!(
        "boot kernel_tsc={boot} user_tsc={tsc} tsc_hz={hz} clock={source} dma={dma} interrupts={interrupts} \
         unmitigated={unmitigated}"
    ));
}

/// Says, under the kernel's lock, that strays came; seldom, however many they are.
#[inline(always)]
fn report_strays() {
    let strays = STRAYS.load(Relaxed);
    if strays > 0 && strays >= 2 * STRAYS_REPORTED.load(Relaxed) {
        STRAYS_REPORTED.store(strays, Relaxed);
        let what = "non-maskable interrupts or late debug exceptions";
        log(Level::Warn, format_args!("{strays} {what}, or interrupts in their place, ignored"));
    }
}

/// An interrupt or exception in the kernel itself, and from anywhere those with a stack of their own. Until
/// it is known which, GS may be the application's.
extern "C" fn kernel_trap(vector: u64, code: u64, rip: u64, frame: u64) {
    if vector < EXCEPTIONS && apic::is_in_service(vector as u8) {
        apic::end_of_interrupt();
        STRAYS.fetch_add(1, Relaxed);
        return;
    }
    if vector == DEBUG || vector == NON_MASKABLE {
        cpu::no_breakpoints();
        STRAYS.fetch_add(1, Relaxed);
        return;
    }
    if vector >= EXCEPTIONS {
        end_own(vector);
        return CoreArea::with(|area| area.pending[vector as usize / 64] |= 1 << (vector % 64));
    }
    let fault = Fault { vector, code, address: if vector == PAGE_FAULT { cpu::cr2() } else { 0 } };
    backtrace::die(rip, frame, || log(Level::Error, format_args!("kernel fault: {fault}")))
}

/// A core's first way into an application, from the boot code.
pub fn begin() -> ! {
    let flag = leave(Inside::enter(), false);
    // SAFETY: 1. The core's area is installed and holds a context's registers. 2. GS holds the kernel's base,
    // as after an entry. 3. The boot stack is not needed any more.
    unsafe { enter_application(flag) }
}
