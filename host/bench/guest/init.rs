//! The first process of the Linux guest that nom is compared with: a static program without a library.
//!
//! Its very first instruction reads the time-stamp counter. It then says what it measured on QEMU's
//! debug console (port 0xe9), in the control-line format of nom's own kernel, and ends QEMU through
//! `isa-debug-exit` (port 0xf4). The first argument chooses what it does between the two:
//!
//! - `boot` writes one line to the console and ends;
//! - `crossings`, on one processor, times a system call, a fault delivered to a handler, a switch of
//!   address space, and a message to another process and back through pipes;
//! - `messages`, on two processors, times a message to another process and back: through shared memory
//!   with both ends awake, and through pipes with both ends asleep until it comes.
//!
//! What is timed is printed as `figure name=.. cycles=..`, the median of many batches: the names, and how
//! they are taken, are those of nom's own guest program `measure`.
//!
//! `nom bench` compiles it with plain `rustc`; it is not a package of the workspace.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm, x86_64::_rdtsc};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

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

const BATCHES: usize = 101;
/// Repetitions in one batch: enough to make reading the counter cheap beside them; a tenth of it where one
/// takes long.
const REPETITIONS: u64 = 100;

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
    pub const KILL: usize = 62;
    pub const IOPERM: usize = 173;
    pub const SCHED_SETSCHEDULER: usize = 144;
    pub const SCHED_SETAFFINITY: usize = 203;
    pub const CLOCK_GETTIME: usize = 228;
}

extern "C" fn main(first_tsc: u64, stack: *const usize) -> ! {
    for port in [DEBUG_CONSOLE, DEBUG_EXIT] {
        syscall(nr::IOPERM, [port as usize, 1, 1, 0]);
    }
    // SAFETY: `stack` is the entry stack pointer, where Linux keeps argc and then argv.
    let mode = unsafe { if *stack > 1 { **stack.add(2).cast::<*const u8>() } else { 0 } };
    match mode {
        b'c' => crossings(),
        b'm' => messages(),
        _ => say(b"hello from Linux\n"),
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

/// Writes to the console.
fn say(text: &[u8]) {
    syscall(nr::WRITE, [1, text.as_ptr() as usize, text.len(), 0]);
}

fn crossings() {
    line("clock", &[("tsc_hz", tsc_hz())]);
    figure("system_call", REPETITIONS, || {
        syscall(nr::GETPID, [0; 4]);
    });
    handle_illegal_instructions();
    // SAFETY: the handler just registered steps over the two bytes of `ud2`.
    figure("upcall_round_trip", REPETITIONS, || unsafe { asm!("ud2") });
    switches();
    pipes("ipc_round_trip_one_processor", 0);
}

/// One yield is a switch to the other process and one back, if both are of one real-time priority: ordinary
/// ones may go on although they yield.
fn switches() {
    const FIFO: usize = 1;
    let lowest_priority = 1u32;
    syscall(nr::SCHED_SETSCHEDULER, [0, FIFO, &raw const lowest_priority as usize, 0]);
    let [turns, _] = shared_words();
    let child = start(|| {
        loop {
            turns.fetch_add(1, Relaxed);
            syscall(nr::SCHED_YIELD, [0; 4]);
        }
    });
    let cycles = median(REPETITIONS, || {
        syscall(nr::SCHED_YIELD, [0; 4]);
    });
    if turns.load(Relaxed) >= BATCHES as u64 * REPETITIONS {
        line("figure name=address_space_switch", &[("cycles", cycles / 2)]);
    }
    kill(child);
}

fn messages() {
    pin_to_processor(0);
    awake();
    pipes("ipc_round_trip_asleep", 1);
}

/// The two ends change one word each and watch the other's.
fn awake() {
    let [request, answer] = shared_words();
    let child = start(|| {
        pin_to_processor(1);
        loop {
            answer.store(request.load(Acquire), Release);
            core::hint::spin_loop();
        }
    });
    figure("ipc_round_trip_awake", REPETITIONS, || {
        let message = answer.load(Relaxed) + 1;
        request.store(message, Release);
        while answer.load(Acquire) != message {
            core::hint::spin_loop();
        }
    });
    kill(child);
}

/// The two ends read one byte from a pipe each and answer, the other end on `processor`.
fn pipes(name: &str, processor: u32) {
    let (there, back) = (pipe(), pipe());
    let child = start(|| {
        pin_to_processor(processor);
        loop {
            transfer(nr::READ, there[0]);
            transfer(nr::WRITE, back[1]);
        }
    });
    figure(name, REPETITIONS / 10, || {
        transfer(nr::WRITE, there[1]);
        transfer(nr::READ, back[0]);
    });
    kill(child);
}

/// Steps over `ud2` from now on.
fn handle_illegal_instructions() {
    const SIGILL: usize = 4;
    const SIGINFO_RESTORER: usize = 0x0400_0004;
    unsafe extern "C" {
        fn signal_restorer();
    }
    let (handler, restorer) = (skip_ud2 as *const () as usize, signal_restorer as *const () as usize);
    let action = [handler, SIGINFO_RESTORER, restorer, 0];
    syscall(nr::RT_SIGACTION, [SIGILL, action.as_ptr() as usize, 0, 8]);
}

/// Handler of the illegal instruction: steps over it.
extern "C" fn skip_ud2(_signal: i32, _info: usize, context: *mut u64) {
    /// `uc_mcontext.gregs[REG_RIP]` of x86-64's `ucontext_t`, in words.
    const RIP: usize = 5 + 16;
    // SAFETY: Linux passes a whole `ucontext_t`.
    unsafe { *context.add(RIP) += 2 };
}

/// Runs `child` in a new process and returns its number.
fn start(child: impl FnOnce()) -> usize {
    let process = syscall(nr::FORK, [0; 4]);
    if process == 0 {
        child();
        syscall(nr::EXIT, [0; 4]);
    }
    process as usize
}

fn kill(process: usize) {
    const SIGKILL: usize = 9;
    syscall(nr::KILL, [process, SIGKILL, 0, 0]);
}

fn pin_to_processor(number: u32) {
    let mask = 1u64 << number;
    syscall(nr::SCHED_SETAFFINITY, [0, 8, &raw const mask as usize, 0]);
}

/// Two words on cache lines of their own that later children share.
fn shared_words() -> [&'static AtomicU64; 2] {
    const READ_WRITE: usize = 3;
    const SHARED_ANONYMOUS: usize = 0x21;
    let page = mmap(4096, READ_WRITE, SHARED_ANONYMOUS);
    // SAFETY: the new mapping is page-aligned, zeroed, longer than both words and never unmapped.
    [0, 64].map(|offset| unsafe { &*((page + offset) as *const AtomicU64) })
}

/// The counter's frequency, read against Linux's own clock over 50 ms.
fn tsc_hz() -> u64 {
    let (start_tsc, start_ns) = both_clocks();
    while monotonic_ns() - start_ns < 50_000_000 {}
    let (tsc, ns) = both_clocks();
    ((tsc - start_tsc) as u128 * 1_000_000_000).checked_div((ns - start_ns) as u128).unwrap_or(0) as u64
}

/// The counter and Linux's clock at one time: of many readings the one in which least time passed between
/// the two.
fn both_clocks() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..100 {
        let (before, ns) = (now(), monotonic_ns());
        best = best.min((now() - before, before, ns));
    }
    (best.1, best.2)
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

/// Prints the median cost of `work`, see [`median`].
fn figure(name: &str, repetitions: u64, work: impl FnMut()) {
    text(b"figure name=");
    line(name, &[("cycles", median(repetitions, work))]);
}

/// The cycles of one `work`: the median of many batches of so many repetitions.
fn median(repetitions: u64, mut work: impl FnMut()) -> u64 {
    // Not on the stack, and not sorted: both would need a library's memory functions.
    static SAMPLES: [AtomicU64; BATCHES] = [const { AtomicU64::new(0) }; BATCHES];
    for sample in &SAMPLES {
        let start = now();
        for _ in 0..repetitions {
            work();
        }
        sample.store((now() - start).checked_div(repetitions).unwrap_or(0), Relaxed);
    }
    let samples = || SAMPLES.iter().map(|sample| sample.load(Relaxed));
    let is_median = |value: &u64| {
        let (below, not_above) =
            (samples().filter(|x| x < value).count(), samples().filter(|x| x <= value).count());
        below <= BATCHES / 2 && BATCHES / 2 < not_above
    };
    samples().find(is_median).unwrap_or(0)
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
        asm!("syscall", inlateout("rax") nr::MMAP => result,
            in("rdi") 0, in("rsi") bytes, in("rdx") protection,
             in("r10") flags, in("r8") -1isize, in("r9") 0, out("rcx") _, out("r11") _);
    }
    result
}

fn syscall(number: usize, arguments: [usize; 4]) -> isize {
    let result;
    // SAFETY: every caller passes pointers to memory that lives through the call.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1],
             in("rdx") arguments[2], in("r10") arguments[3], out("rcx") _, out("r11") _);
    }
    result
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
