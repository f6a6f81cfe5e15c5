//! Giving a core back in the middle of its work.
//!
//! What work is made of is its stack, on top of which lie the registers that a function keeps for its
//! caller, and its core's block. Both stay in memory while no core runs the work. The core leaves them by
//! one store, of the stack pointer; whoever takes that away has the work, and starts a core on the stack,
//! which goes on as if the function had returned.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicU64, Ordering};
use nom_abi::Syscall;
use nom_abi::error::Result;

/// A core runs the work.
const AT_WORK: u64 = 0;
/// A core runs the work, and its next pause is over before it begins.
const CALLED: u64 = 1;
/// Nobody runs the work but whoever has ended its pause, until it is at work.
const RETURNING: u64 = 2;

/// What [`leave`] returns if it has not left: no core's number.
const STAYED: u64 = u64::MAX;

/// Whether a core's work pauses: one of the values above, or the stack pointer of work that nobody runs,
/// which is a multiple of 16 and none of them.
#[derive(Debug)]
pub(crate) struct Pause(AtomicU64);

impl Pause {
    /// Of work that a core runs.
    pub const fn new() -> Pause {
        Pause(AtomicU64::new(AT_WORK))
    }

    pub fn is_on(&self) -> bool {
        !matches!(self.0.load(Ordering::Relaxed), AT_WORK | CALLED | RETURNING)
    }

    /// Pauses the running core's work, whose own this is, outside of an upcall handler and with no handler
    /// registered. `arrive` is called with the number of the core that goes on, before anything else.
    /// Returns whether the work left its core at all.
    pub fn begin(&self, arrive: impl FnOnce(u64)) -> bool {
        // SAFETY: the work's core calls, so nobody else runs on this stack, nor is there an upcall that
        // could; `self` is part of the block, which stays.
        let core = unsafe { leave(&self.0) };
        let has_left = core != STAYED;
        if has_left {
            arrive(core);
        }
        self.0.store(AT_WORK, Ordering::Release);
        has_left
    }

    /// Ends the present or the next pause. If the work has left, `start` is to start a core on the stack
    /// pointer that it is given, and what that returns is returned; if it fails, the pause goes on.
    pub fn end(&self, start: impl FnOnce(u64) -> Result<u64>) -> Result<Option<u64>> {
        let take = |state| match state {
            AT_WORK => Some(CALLED),
            CALLED | RETURNING => None,
            _ => Some(RETURNING),
        };
        match self.0.try_update(Ordering::AcqRel, Ordering::Relaxed, take) {
            Err(_) | Ok(AT_WORK) => Ok(None),
            Ok(stack_top) => {
                start(stack_top).map(Some).inspect_err(|_| self.0.store(stack_top, Ordering::Release))
            }
        }
    }
}

/// Leaves the stack, if the pause was not ended before, and gives the core back. Returns on another core,
/// with its number; [`STAYED`] if it has not left.
///
/// The registers are those that a function keeps (System V ABI for x86-64, section 3.2.1): six general ones,
/// MXCSR's and the x87 unit's control bits. A core begins with no others that anybody could miss.
///
/// # Safety
/// `pause` is that of the work that runs, which no upcall interrupts from here on.
#[unsafe(naked)]
unsafe extern "C" fn leave(pause: *const AtomicU64) -> u64 {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov rsi, {stayed}",
        "mov eax, {at_work}",
        "lock cmpxchg [rdi], rsp",
        "jne {come_back}",
        // From here on another core may run on this stack: registers only.
        "mov eax, {core_release}",
        crate::raw::note_call!(),
        "syscall",
        // The program's first core never leaves, so this one is not the last.
        "ud2",
        stayed = const STAYED,
        at_work = const AT_WORK,
        come_back = sym come_back,
        noted = const Syscall::CoreRelease as u8,
        core_release = const Syscall::CoreRelease as u32,
    )
}

/// Where the kernel starts a core that takes work over: `rsi` is the core's number, `rsp` where [`leave`]
/// left the stack.
///
/// # Safety
/// Only the kernel may enter here, with a stack pointer that was taken from a [`Pause`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn come_back() {
    naked_asm!(
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "mov rax, rsi",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_abi::error::Error;

    const TOP: u64 = 0x7000_0000;

    fn paused() -> Pause {
        Pause(AtomicU64::new(TOP))
    }

    fn nobody(stack_top: u64) -> Result<u64> {
        panic!("nothing pauses at {stack_top:#x}")
    }

    #[test]
    fn what_pauses_is_started_once_where_it_left() {
        let pause = paused();
        assert!(pause.is_on());
        let started = pause.end(|stack_top| {
            assert_eq!((stack_top, pause.is_on()), (TOP, false));
            // Whoever comes meanwhile has nothing to do.
            assert_eq!(pause.end(nobody), Ok(None));
            Ok(3)
        });
        assert_eq!(started, Ok(Some(3)));
        assert_eq!(pause.end(nobody), Ok(None), "it is on its way");
    }

    #[test]
    fn without_a_core_it_goes_on_pausing() {
        let pause = paused();
        for _ in 0..3 {
            assert_eq!(pause.end(|_| Err(Error::NoCore)), Err(Error::NoCore));
            assert!(pause.is_on());
        }
        assert_eq!(pause.end(|_| Ok(1)), Ok(Some(1)));
    }

    #[test]
    fn a_pause_that_was_ended_before_is_none() {
        let pause = Pause::new();
        assert_eq!(pause.end(nobody), Ok(None));
        assert_eq!(pause.end(nobody), Ok(None));
        // Twice is once: were the next one not over, it would be one for good, by a system call that is
        // another one's here.
        assert!(!pause.begin(|core| panic!("nobody left, and came back as {core}")));
        assert!(!pause.is_on());
        assert_eq!(pause.0.load(Ordering::Relaxed), AT_WORK);
    }
}
