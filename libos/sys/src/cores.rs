//! More processors for the program.

use crate::local::{self, Local};
use crate::memory::Pages;
use crate::pause::{self, Pause};
use crate::{events, heap, raw, start, thread_pointer, upcall};
use alloc::boxed::Box;
use core::arch::naked_asm;
use core::cell::Cell;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use nom_abi::error::{Error, Result};
use nom_abi::{PageSize, Syscall};

/// Lets the kernel choose the core.
const ANY_CORE: u64 = u64::MAX;
/// Exit status if the kernel lets nobody release what turned out to be the last core: work that ended.
const STATUS_LAST_CORE: u32 = 0;

/// Cores at the program's work: those that it holds but for the ones about to be released.
static AT_WORK: AtomicUsize = AtomicUsize::new(1);

/// Cores that the program has got in the course of time, or is about to get, beside its first; on a host
/// anybody may call anything.
static OTHERS: AtomicUsize = AtomicUsize::new(if cfg!(target_os = "none") { 0 } else { 1 });

/// Whether others of the program may be at work at the same time as the core that asks. Once they are, they
/// may be for ever.
#[inline]
pub(crate) fn are_several() -> bool {
    OTHERS.load(Ordering::Relaxed) > 0
}

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
    // As large as the first one, which the manifest says.
    let stack = Pages::new(PageSize::Small, start::info().stack_bytes / PageSize::Small.bytes())?;
    let top = stack.address() + stack.len() as u64;
    let launch = NonNull::from(Box::leak(Box::new(Launch {
        local: Local::new(Some(Pause::new())),
        finished: AtomicU32::new(0),
        work: Work(Cell::new(Some(Box::new(work)))),
    })));
    OTHERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `entry` is made for the way the kernel starts a core; stack and launch stay until the core
    // has set `finished`.
    let start = || unsafe { raw::core_acquire(entry as *const () as u64, top, launch.as_ptr() as u64, hint) };
    match with_those_that_leave(start) {
        Ok(number) => Ok(Core { launch, stack: ManuallyDrop::new(stack), number }),
        Err(error) => {
            OTHERS.fetch_sub(1, Ordering::SeqCst);
            // SAFETY: no core was started, so nobody else has the pointer that `Box::leak` gave.
            drop(unsafe { Box::from_raw(launch.as_ptr()) });
            Err(error)
        }
    }
}

/// Acquires a core by `acquire`. One that is about to be released, because its work has returned or pauses,
/// counts as free: it is waited for.
fn with_those_that_leave(acquire: impl Fn() -> Result<u64>) -> Result<u64> {
    let held = || crate::applications::own().cores.load(Ordering::Relaxed) as usize;
    loop {
        // The one that kept the kernel from granting a core may be gone by the time it has said so.
        let before = held();
        match acquire() {
            Err(Error::NoCore) if before.max(held()) > AT_WORK.load(Ordering::Relaxed) => {
                events::yield_core()
            }
            acquired => {
                AT_WORK.fetch_add(acquired.is_ok().into(), Ordering::Relaxed);
                return acquired;
            }
        }
    }
}

/// Gives the running core back in the middle of its work, which goes on when its [`Core`] is resumed, maybe
/// on another processor; not at all if that was dropped. Returns at once if it was resumed since its last
/// pause.
///
/// All that the work has stays its own, its upcall handler among it. Interrupts of devices are no longer
/// bound to the core, and what it was to be told meanwhile is lost, so that it should look at everything
/// when it returns. A lock that it holds stays taken and is not known as its own afterwards: it should hold
/// none.
///
/// # Errors
/// LastCore on the program's first core, which nobody could resume; WrongContext in an upcall handler.
pub fn pause() -> Result<()> {
    let local = local::current();
    let pause = local.pause.as_ref().ok_or(Error::LastCore)?;
    if local.is_handling.load(Ordering::Relaxed) {
        return Err(Error::WrongContext);
    }
    heap::leave();
    upcall::suspend();
    AT_WORK.fetch_sub(1, Ordering::Relaxed);
    let thread_pointer = thread_pointer::get();
    let has_left = pause.begin(|core| {
        // SAFETY: the block came here with the work, whose core it is; the launch keeps it.
        unsafe { local.arrive(core) };
        thread_pointer::set(thread_pointer);
    });
    // Whoever brings it back counts it.
    AT_WORK.fetch_add((!has_left).into(), Ordering::Relaxed);
    upcall::go_on();
    Ok(())
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
    /// The core's number on the board; while it pauses, the one that it had.
    pub fn number(&self) -> usize {
        self.number as usize
    }

    /// Whether the work has returned.
    pub fn is_finished(&self) -> bool {
        // SAFETY: the launch lives until `drop`; the flag is an atomic.
        unsafe { &(*self.launch.as_ptr()).finished }.load(Ordering::Acquire) == 1
    }

    /// Whether the work [pauses](pause): its core is released, or will be a few instructions later.
    pub fn is_paused(&self) -> bool {
        self.pause().is_on()
    }

    /// Ends the present or the next [`pause`] of the work; nothing happens if the next one was ended already.
    /// The work goes on on the processor that it had if nobody else holds that, else on the least loaded.
    ///
    /// # Errors
    /// As `core_acquire` says: NoCore, OutOfMemory. The work still pauses then.
    pub fn resume(&mut self) -> Result<()> {
        self.resume_near(self.number)
    }

    /// As [`Core::resume`], on core `hint` if the board shows it free.
    ///
    /// # Errors
    /// As [`Core::resume`].
    pub fn resume_near(&mut self, hint: u64) -> Result<()> {
        let acquired = self.pause().end(|stack_top| {
            let entry = pause::come_back as *const () as u64;
            // SAFETY: what pauses has left its stack with `stack_top`, as `come_back` wants it, and nobody
            // else resumes it; stack and launch stay until the work has finished.
            with_those_that_leave(|| unsafe { raw::core_acquire(entry, stack_top, 0, hint) })
        })?;
        self.number = acquired.unwrap_or(self.number);
        Ok(())
    }

    fn pause(&self) -> &Pause {
        // SAFETY: the launch lives until `drop`; what a pause has is atomic.
        let pause = unsafe { &(*self.launch.as_ptr()).local.pause };
        pause.as_ref().expect("whoever was acquired can pause")
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
        crate::raw::note_call!(),
        "syscall",
        // The program's last core cannot be released, only end the program.
        "mov edi, {status}",
        "mov eax, {exit}",
        "syscall",
        "ud2",
        run = sym run,
        core_release = const Syscall::CoreRelease as u32,
        status = const STATUS_LAST_CORE,
        noted = const Syscall::CoreRelease as u8,
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
    unsafe { launch.local.install(core) };
    if let Some(work) = launch.work.0.take() {
        work();
    }
    heap::leave();
    // From here on nothing runs on the upcall stack, which is freed with the launch.
    upcall::suspend();
    AT_WORK.fetch_sub(1, Ordering::Relaxed);
    &launch.finished
}
