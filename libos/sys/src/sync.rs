//! A mutual exclusion lock for cores of one program.
//!
//! Short critical sections only. Who finds it free pays one atomic operation, and a plain store to unlock;
//! that operation locks memory only if the program has, or had, more than one core.
//! Who finds it taken looks again a few times, since the holder is about to be done; if it is not, it was
//! preempted with its core, and the waiting core sleeps rather than spins, so that whoever is in the way
//! may run. Nobody wakes it: the sleeps are short, and unlocking need not ask whether somebody sleeps.

use crate::{cores, events, local};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use lock_api::{GuardNoSend, RawMutex};

/// Attempts between two sleeps.
const ATTEMPTS: u32 = 200;

/// A sleep: long beside a critical section, short beside the time for which a hypervisor or the kernel
/// takes a core away.
const SLEEP_NS: u64 = 50_000;

/// A value that one core at a time can reach.
pub type Mutex<T> = lock_api::Mutex<RawLock, T>;

/// The lock's word: 0, or one more than the number of the core that holds it.
#[derive(Debug)]
pub struct RawLock(AtomicU64);

// SAFETY: `try_lock` succeeds only by changing the word from 0, and only `unlock` changes it back, so one
// core at a time holds the lock; acquire and release order its accesses.
unsafe impl RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait's way to say how a lock starts")]
    const INIT: RawLock = RawLock(AtomicU64::new(0));
    type GuardMarker = GuardNoSend;

    /// Takes the lock.
    ///
    /// # Panics
    /// If the core holds it already, because an upcall handler wants what the computation that it
    /// interrupted has: waiting would never end. Handlers use `try_lock` and do not allocate.
    fn lock(&self) {
        count(1);
        let me = local::current().core.load(Ordering::Relaxed) + 1;
        let mut attempts = 0;
        while let Err(holder) = self.take(me) {
            assert!(holder != me, "core {} waits for a lock that it holds itself", me - 1);
            attempts += 1;
            if attempts % ATTEMPTS == 0 {
                events::rest(SLEEP_NS);
            }
            core::hint::spin_loop();
        }
    }

    fn try_lock(&self) -> bool {
        count(1);
        let me = local::current().core.load(Ordering::Relaxed) + 1;
        let is_taken = self.take(me).is_ok();
        if !is_taken {
            count(-1);
        }
        is_taken
    }

    unsafe fn unlock(&self) {
        self.0.store(0, Ordering::Release);
        count(-1);
    }
}

impl RawLock {
    /// Takes it for who is `me`, if nobody has it; the error is who has. To be called where the core counts
    /// one lock more, so that nobody else of the core comes in between, by whom there could be another core.
    #[inline]
    fn take(&self, me: u64) -> Result<(), u64> {
        if cores::are_several() {
            return self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).map(drop);
        }
        let mut holder = 0_u64;
        // SAFETY: the word is an atomic that is changed while shared, by this core alone: it is the only one,
        // and an upcall comes before the instruction or after it.
        unsafe {
            asm!(
                "cmpxchg [{word}], {me}",
                word = in(reg) self.0.as_ptr(),
                me = in(reg) me,
                inout("rax") holder,
                options(nostack),
            );
        }
        if holder == 0 { Ok(()) } else { Err(holder) }
    }
}

/// Counts the core's locks, so that whoever has one is not interrupted for others of the core, who would wait
/// for it in vain. A guard cannot go to another core, so the sum is right.
#[inline]
fn count(change: i64) {
    let locks = &local::current().locks;
    // A handler that comes in between leaves the number as it was.
    locks.store(locks.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}
