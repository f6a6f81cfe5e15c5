//! The kernel's one lock.
//!
//! The kernel is off the data path, so one lock is enough, and it leaves nothing to reason about but itself.
//! It goes round: of the cores that wait, the next after the one that had it last is to take it. But a
//! processor that the host does not run just then cannot: if it lets the free lock lie, whoever else waits
//! takes it ([`PATIENCE`]), so that nobody waits for the host but for the one that holds the lock. A core
//! that waits goes on answering TLB shootdowns, because the core that asks for one holds the lock.

use crate::area::CoreArea;
use crate::shootdown;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// How often a core sees the lock free before it takes it out of turn.
const PATIENCE: u32 = 64;

/// A lock around `T`.
pub struct Lock<T> {
    held: AtomicBool,
    /// Who had it last.
    last: AtomicU32,
    /// Cores that wait, one bit each.
    waiting: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out one reference at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        Lock {
            held: AtomicBool::new(false),
            last: AtomicU32::new(0),
            waiting: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock. Interrupts are off in the kernel, so the holder is never interrupted.
    pub fn lock(&self) -> Guard<'_, T> {
        if self.waiting.load(Relaxed) != 0 || self.held.swap(true, Acquire) {
            self.wait(CoreArea::core() as u32);
        }
        Guard { lock: self }
    }

    #[cold]
    fn wait(&self, core: u32) {
        self.waiting.fetch_or(1 << core, SeqCst);
        let mut free = 0;
        loop {
            // Only reads until it is free, so that the holder keeps the cache line.
            if !self.held.load(Relaxed) {
                free += 1;
                if (self.is_next(core) || free > PATIENCE) && !self.held.swap(true, Acquire) {
                    break;
                }
            }
            shootdown::answer();
            core::hint::spin_loop();
        }
        self.waiting.fetch_and(!(1 << core), Relaxed);
        self.last.store(core, Relaxed);
    }

    /// Whether no other core that waits comes before this one, going round from the last.
    fn is_next(&self, core: u32) -> bool {
        let first = self.last.load(Relaxed) + 1;
        let order = self.waiting.load(Relaxed).rotate_right(first);
        order.trailing_zeros() == core.wrapping_sub(first) % u64::BITS
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
        self.lock.held.store(false, Release);
    }
}
