//! The kernel's one lock.
//!
//! The kernel is off the data path, so one lock is enough, and it leaves nothing to reason about but itself.
//! It goes round: of the cores that wait, the next after the one that had it last is to take it. But a
//! processor that the host does not run just then cannot: if it lets the free lock lie, whoever else waits
//! takes it ([`PATIENCE`]), so that nobody waits for the host but for the one that holds the lock. A core
//! that waits goes on answering TLB shootdowns, because the core that asks for one holds the lock.
//!
//! It spins for about as long as a call takes. If it waits longer, the holder may be a processor that the
//! host does not run, maybe because this one spins (lock-holder preemption): it halts, and whoever gives the
//! lock back wakes one of those that do (as paravirtual spinlocks do: Friebel, Biemueller, Xen Summit 2008).

use crate::area::CoreArea;
use crate::{apic, cpu, shootdown};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use nom_kernel_pure::ids::CoreId;

/// How often a core sees the lock free before it takes it out of turn.
const PATIENCE: u32 = 64;
/// How often a core looks before it halts.
const LOOKS: u64 = 2_000;

/// What is made of the lock: nobody has it; somebody has; somebody has and will wake who halts meanwhile.
const FREE: u8 = 0;
const HELD: u8 = 1;
const WANTED: u8 = 2;

/// A lock around `T`.
pub struct Lock<T> {
    /// One of the three.
    state: AtomicU8,
    /// Who had it last.
    last: AtomicU32,
    /// Cores that wait, one bit each.
    waiting: AtomicU64,
    /// Cores among them that halt, and nobody has woken yet.
    halted: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out one reference at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        Lock {
            state: AtomicU8::new(FREE),
            last: AtomicU32::new(0),
            waiting: AtomicU64::new(0),
            halted: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock if nobody has it, nor waits for it. Interrupts are off in the kernel, so the holder is
    /// never interrupted.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let is_taken = self.waiting.load(Relaxed) == 0 && self.take(HELD);
        is_taken.then(|| Guard { lock: self }) // No guard is made, and dropped, of a lock that is not taken.
    }

    fn take(&self, state: u8) -> bool {
        self.state.compare_exchange(FREE, state, SeqCst, Relaxed).is_ok()
    }

    /// Waits for the lock. Interrupts that this core takes while it halts are noted in its area: the caller
    /// handles them.
    #[cold]
    pub fn wait(&self) -> Guard<'_, T> {
        let core = CoreArea::core();
        self.waiting.fetch_or(core.bit(), SeqCst);
        let (mut free, mut looks) = (0, 0_u64);
        loop {
            // Only reads until it is free, so that the holder keeps the cache line.
            if self.state.load(Relaxed) == FREE {
                free += 1;
                let state = if self.halted.load(SeqCst) == 0 { HELD } else { WANTED };
                if (self.is_next(core) || free > PATIENCE) && self.take(state) {
                    break;
                }
            }
            shootdown::answer(false);
            core::hint::spin_loop();
            looks += 1;
            if looks % LOOKS == 0 {
                // If it is held, its holder is to see that this core halts. Who takes it afterwards sees it
                // in `halted`, which is set first.
                self.halted.fetch_or(core.bit(), SeqCst);
                if self.state.compare_exchange(HELD, WANTED, SeqCst, SeqCst) != Err(FREE) {
                    cpu::halt_until_interrupt();
                }
                self.halted.fetch_and(!core.bit(), SeqCst);
            }
        }
        self.waiting.fetch_and(!core.bit(), Relaxed);
        self.last.store(core.index() as u32, Relaxed);
        Guard { lock: self }
    }

    /// Wakes the next of those that halt.
    #[cold]
    fn wake(&self) {
        let first = self.last.load(Relaxed) + 1;
        let order = self.halted.load(SeqCst).rotate_right(first);
        if order != 0 {
            let core = CoreId::new(((first + order.trailing_zeros()) % u64::BITS) as usize);
            self.halted.fetch_and(!core.bit(), SeqCst);
            apic::kick(shootdown::apic_id(core));
        }
    }

    /// Whether no other core that waits comes before this one, going round from the last.
    fn is_next(&self, core: CoreId) -> bool {
        let first = self.last.load(Relaxed) + 1;
        let order = self.waiting.load(Relaxed).rotate_right(first);
        order.trailing_zeros() == (core.index() as u32).wrapping_sub(first) % u64::BITS
    }
}

/// Holds the lock.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard's existence means that this core holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if self.lock.state.swap(FREE, SeqCst) != HELD {
            self.lock.wake();
        }
    }
}
