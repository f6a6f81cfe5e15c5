//! More processors for the program.

use crate::local::{self, Local};
use crate::memory::Pages;
use crate::{events, heap, raw};
use alloc::boxed::Box;
use core::arch::naked_asm;
use core::cell::Cell;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use nom_abi::error::Result;
use nom_abi::{PageSize, Syscall};

/// Bytes of a further core's stack.
const STACK_BYTES: u64 = 64 * 1024;
/// Lets the kernel choose the core.
const ANY_CORE: u64 = u64::MAX;
/// Exit status if the kernel lets nobody release what turned out to be the last core: work that ended.
const STATUS_LAST_CORE: u32 = 0;

/// Work on another core. Dropping it lets the work go on by itself; its stack then stays in use.
#[derive(Debug)]
pub struct Core {
    launch: NonNull<Launch>,
    stack: ManuallyDrop<Pages>,
    number: u64,
}

/// What both cores share about the work.
#[derive(Debug)]
struct Launch {
    local: Local,
    /// 1 as soon as the core has left its stack and this block for good.
    finished: AtomicU32,
    stack: [u64; 2],
    work: Work,
}

struct Work(Cell<Option<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Work")
    }
}

/// The running core's number on the board.
pub fn current() -> usize {
    local::current().core.load(Ordering::Relaxed) as usize
}

/// Acquires one more core and runs `work` there; the core is released when the work returns.
///
/// # Errors
/// As `core_acquire` says: NoCore, OutOfMemory; and as for the memory of the stack.
pub fn acquire(work: impl FnOnce() + Send + 'static) -> Result<Core> {
    acquire_near(ANY_CORE, work)
}

/// As [`acquire`], on core `hint` if the board shows it free.
///
/// # Errors
/// As [`acquire`].
pub fn acquire_near(hint: u64, work: impl FnOnce() + Send + 'static) -> Result<Core> {
    let stack = Pages::new(PageSize::Small, STACK_BYTES / PageSize::Small.bytes())?;
    let top = stack.address() + stack.len() as u64;
    let launch = NonNull::from(Box::leak(Box::new(Launch {
        local: Local::new(),
        finished: AtomicU32::new(0),
        stack: [stack.address(), top],
        work: Work(Cell::new(Some(Box::new(work)))),
    })));
    // SAFETY: `entry` is made for the way the kernel starts a core; stack and launch stay until the core
    // has set `finished`.
    let acquired = unsafe { raw::core_acquire(entry as *const () as u64, top, launch.as_ptr() as u64, hint) };
    match acquired {
        Ok(number) => Ok(Core { launch, stack: ManuallyDrop::new(stack), number }),
        Err(error) => {
            // SAFETY: no core was started, so nobody else has the pointer that `Box::leak` gave.
            drop(unsafe { Box::from_raw(launch.as_ptr()) });
            Err(error)
        }
    }
}

/// Ends the present or the next sleep of this program's core number `core`.
///
/// # Errors
/// NoCore.
pub fn notify(core: usize) -> Result<()> {
    // SAFETY: an event is made pending; no memory is concerned.
    unsafe { raw::core_notify(core as u64) }?;
    Ok(())
}

impl Core {
    /// The core's number on the board.
    pub fn number(&self) -> usize {
        self.number as usize
    }

    /// Whether the work has returned.
    pub fn is_finished(&self) -> bool {
        // SAFETY: the launch lives until `drop`; the flag is an atomic.
        unsafe { &(*self.launch.as_ptr()).finished }.load(Ordering::Acquire) == 1
    }

    /// Waits for the work to return, spinning: for work that is about to end. The core is released at that
    /// moment or a few instructions later.
    pub fn join(self) {
        while !self.is_finished() {
            events::yield_core();
            core::hint::spin_loop();
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.is_finished() {
            // SAFETY: the core has left launch and stack for good, and `self` is not used again.
            unsafe {
                drop(Box::from_raw(self.launch.as_ptr()));
                ManuallyDrop::drop(&mut self.stack);
            }
        }
    }
}

// SAFETY: what the launch holds is only reached by the core that it starts, until that has finished; the
// work itself is `Send`.
unsafe impl Send for Core {}

/// Where the kernel starts a core: `rdi` is the launch, `rsi` the core's number, `rsp` its stack's top.
///
/// # Safety
/// Only the kernel may enter here.
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    naked_asm!(
        "xor ebp, ebp",
        "call {run}",
        // From the next store on stack and launch may be gone: registers only.
        "mov dword ptr [rax], 1",
        "mov eax, {core_release}",
        "syscall",
        // The program's last core cannot be released, only end the program.
        "mov edi, {status}",
        "mov eax, {exit}",
        "syscall",
        "ud2",
        run = sym run,
        core_release = const Syscall::CoreRelease as u32,
        status = const STATUS_LAST_CORE,
        exit = const Syscall::Exit as u32,
    )
}

/// Runs the work of a core; returns the address of the flag to set when the core is off its stack.
///
/// # Safety
/// `launch` is the one that this core was started for.
unsafe extern "C" fn run(launch: *const Launch, core: u64) -> *const AtomicU32 {
    // SAFETY: whoever acquired the core keeps the launch until the flag is set.
    let launch = unsafe { &*launch };
    // SAFETY: the same holds for the block in it.
    unsafe { launch.local.install(core, launch.stack) };
    if let Some(work) = launch.work.0.take() {
        work();
    }
    heap::leave();
    // SAFETY: upcalls wait from here on, so nothing runs on the upcall stack when it is freed.
    let _ = unsafe { raw::upcall_register(0, 0) };
    &launch.finished
}
