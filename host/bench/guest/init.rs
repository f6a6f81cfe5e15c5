//! The first process of the Linux guest that nom is compared with: a static program without a library.
//!
//! Its very first instruction reads the time-stamp counter. It then says what it measured on QEMU's
//! debug console (port 0xe9), in the control-line format of nom's own kernel, and ends QEMU through
//! `isa-debug-exit` (port 0xf4). The first argument chooses what it does between the two:
//!
//! - `boot`: writes one line to the console and ends;
//! - `measure`: times a null system call, a switch of address space, a round trip between two processes
//!   and a fault delivered to a handler, and prints one `figure` line each.
//!
//! `nom bench` compiles it with plain `rustc`; it is not a package of the workspace.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm, x86_64::_rdtsc};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

// Linux enters a static program with the stack holding argc, argv.., 0. Nothing may come before `rdtsc`.
global_asm!(
    ".globl _start",
    "_start:",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "mov rdi, rax",
    "mov rsi, rsp",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {main}",
    "ud2",
    main = sym main,
);

// Linux returns from a signal handler through this, which has no stack frame of its own.
global_asm!(".globl signal_restorer", "signal_restorer:", "mov eax, 15", "syscall", "ud2");

const DEBUG_CONSOLE: u16 = 0xe9;
const DEBUG_EXIT: u16 = 0xf4;
/// What QEMU turns into exit status 33: an orderly end, as nom's kernel says it.
const ORDERLY: u8 = 0x10;

/// Rounds of each figure; large enough that reading the counter does not matter.
const ROUNDS: u64 = 20_000;

mod nr {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const MMAP: usize = 9;
    pub const RT_SIGACTION: usize = 13;
    pub const PIPE: usize = 22;
    pub const SCHED_YIELD: usize = 24;
    pub const GETPID: usize = 39;
    pub const FORK: usize = 57;
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const IOPERM: usize = 173;
    pub const CLOCK_GETTIME: usize = 228;
}

extern "C" fn main(first_tsc: u64, stack: *const usize) -> ! {
    for port in [DEBUG_CONSOLE, DEBUG_EXIT] {
        syscall(nr::IOPERM, [port as usize, 1, 1, 0]);
    }
    // SAFETY: `stack` is the entry stack pointer, where Linux keeps argc and then argv.
    let measures = unsafe { *stack > 1 && **stack.add(2).cast::<*const u8>() == b'm' };
    if measures {
        measure();
    } else {
        let text = b"hello from Linux\n";
        syscall(nr::WRITE, [1, text.as_ptr() as usize, text.len(), 0]);
    }
    let end_tsc = now();
    line("boot", &[("user_tsc", first_tsc)]);
    line("exited app=init status=0", &[("tsc", end_tsc)]);
    text(b"halt status=0\n");
    // SAFETY: `ioperm` opened the port; QEMU ends here.
    unsafe { asm!("out dx, al", in("dx") DEBUG_EXIT, in("al") ORDERLY) };
    syscall(nr::EXIT, [1, 0, 0, 0]);
    loop {}
}

fn measure() {
    line("clock", &[("tsc_hz", tsc_hz())]);
    figure("null_syscall", null_syscall());
    figure("address_space_switch", address_space_switch());
    figure("ipc_round_trip", pipe_round_trip());
    figure("fault_upcall", fault_to_handler());
}

/// Cycles of one `getpid`, the call that does nothing.
fn null_syscall() -> u64 {
    cycles_per(ROUNDS, || {
        syscall(nr::GETPID, [0; 4]);
    })
}

/// Cycles from one process to another that shares nothing but the page that counts the switches.
fn address_space_switch() -> u64 {
    const READ_WRITE: usize = 3;
    const SHARED_ANONYMOUS: usize = 0x21;
    let page = mmap(4096, READ_WRITE, SHARED_ANONYMOUS);
    // SAFETY: the new mapping is page-aligned, zeroed and lives as long as the program.
    let [runner, switches] = unsafe { &*(page as *const [AtomicU64; 2]) };
    let yields = |me: u64| {
        for _ in 0..ROUNDS {
            // Only one processor runs: the two processes never do this at once.
            if runner.swap(me, Relaxed) != me {
                switches.fetch_add(1, Relaxed);
            }
            syscall(nr::SCHED_YIELD, [0; 4]);
        }
    };
    let start = now();
    with_child(|| yields(1), || yields(2));
    (now() - start) / switches.load(Relaxed).max(1)
}

/// Cycles for one byte to go through a pipe to another process and back.
fn pipe_round_trip() -> u64 {
    let (there, back) = (pipe(), pipe());
    let echo = || {
        for _ in 0..ROUNDS {
            transfer(nr::READ, there[0]);
            transfer(nr::WRITE, back[1]);
        }
    };
    let mut cycles = 0;
    with_child(echo, || {
        cycles = cycles_per(ROUNDS, || {
            transfer(nr::WRITE, there[1]);
            transfer(nr::READ, back[0]);
        });
    });
    cycles
}

/// Cycles from a faulting instruction through its handler back to the next instruction.
fn fault_to_handler() -> u64 {
    const SIGILL: usize = 4;
    const SIGINFO_RESTORER: usize = 0x0400_0004;
    unsafe extern "C" {
        fn signal_restorer();
    }
    let action = [skip_ud2 as *const () as usize, SIGINFO_RESTORER, signal_restorer as *const () as usize, 0];
    syscall(nr::RT_SIGACTION, [SIGILL, action.as_ptr() as usize, 0, 8]);
    cycles_per(ROUNDS, || {
        // SAFETY: the handler just registered steps over the two bytes of `ud2`.
        unsafe { asm!("ud2") }
    })
}

/// Handler of the illegal instruction: steps over it.
extern "C" fn skip_ud2(_signal: i32, _info: usize, context: *mut u64) {
    /// `uc_mcontext.gregs[REG_RIP]` of x86-64's `ucontext_t`, in words.
    const RIP: usize = 5 + 16;
    // SAFETY: Linux passes a whole `ucontext_t`.
    unsafe { *context.add(RIP) += 2 };
}

/// Runs `child` in a new process beside `parent`, and waits for its end.
fn with_child(child: impl FnOnce(), parent: impl FnOnce()) {
    let pid = syscall(nr::FORK, [0; 4]);
    if pid == 0 {
        child();
        syscall(nr::EXIT, [0; 4]);
    }
    parent();
    syscall(nr::WAIT4, [pid as usize, 0, 0, 0]);
}

/// The counter's frequency, read against Linux's own clock over 50 ms.
fn tsc_hz() -> u64 {
    let (start_tsc, start_ns) = (now(), monotonic_ns());
    let (mut tsc, mut ns) = (start_tsc, start_ns);
    while ns - start_ns < 50_000_000 {
        (tsc, ns) = (now(), monotonic_ns());
    }
    ((tsc - start_tsc) as u128 * 1_000_000_000 / (ns - start_ns) as u128) as u64
}

fn monotonic_ns() -> u64 {
    const MONOTONIC_RAW: usize = 4;
    let time = [0u64; 2];
    syscall(nr::CLOCK_GETTIME, [MONOTONIC_RAW, time.as_ptr() as usize, 0, 0]);
    core::hint::black_box(&time);
    // SAFETY: the array lives; volatile because the kernel wrote behind the compiler's back.
    let [seconds, ns] = unsafe { core::ptr::read_volatile(&time) };
    seconds * 1_000_000_000 + ns
}

fn cycles_per(rounds: u64, mut body: impl FnMut()) -> u64 {
    let start = now();
    for _ in 0..rounds {
        body();
    }
    (now() - start) / rounds
}

fn now() -> u64 {
    // SAFETY: reading the counter touches nothing.
    unsafe { _rdtsc() }
}

fn transfer(call: usize, descriptor: i32) {
    let byte = 0u8;
    syscall(call, [descriptor as usize, &raw const byte as usize, 1, 0]);
}

fn pipe() -> [i32; 2] {
    let ends = [0i32; 2];
    syscall(nr::PIPE, [ends.as_ptr() as usize, 0, 0, 0]);
    // SAFETY: the array lives; volatile because the kernel wrote behind the compiler's back.
    unsafe { core::ptr::read_volatile(&ends) }
}

fn mmap(bytes: usize, protection: usize, flags: usize) -> usize {
    let result: usize;
    // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing.
    unsafe {
        asm!("syscall", inlateout("rax") nr::MMAP => result, in("rdi") 0, in("rsi") bytes, in("rdx") protection,
             in("r10") flags, in("r8") -1isize, in("r9") 0, out("rcx") _, out("r11") _);
    }
    result
}

fn syscall(number: usize, arguments: [usize; 4]) -> isize {
    let result;
    // SAFETY: every caller passes pointers to memory that lives through the call.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") arguments[0], in("rsi") arguments[1],
             in("rdx") arguments[2], in("r10") arguments[3], out("rcx") _, out("r11") _);
    }
    result
}

fn figure(name: &str, cycles: u64) {
    text(b"figure name=");
    line(name, &[("cycles", cycles)]);
}

/// Writes one control line: `head key=value..`.
fn line(head: &str, pairs: &[(&str, u64)]) {
    text(head.as_bytes());
    for (key, value) in pairs {
        text(b" ");
        text(key.as_bytes());
        text(b"=");
        number(*value);
    }
    text(b"\n");
}

fn number(value: u64) {
    if value >= 10 {
        number(value / 10);
    }
    text(&[b'0' + (value % 10) as u8]);
}

fn text(bytes: &[u8]) {
    for &byte in bytes {
        // SAFETY: `ioperm` opened the port; the debug console takes any byte.
        unsafe { asm!("out dx, al", in("dx") DEBUG_CONSOLE, in("al") byte) };
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    syscall(nr::EXIT, [1, 0, 0, 0]);
    loop {}
}
