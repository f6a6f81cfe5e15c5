//! The kernel's one lock.
//!
//! The kernel is off the data path, so one lock is enough, and it leaves nothing to reason about but itself.
//! Whoever comes first when it is free gets it. A lock that is handed on in order of arrival would be handed
//! to processors that the host is not running, and everyone would wait for the host. A core that waits goes
//! on answering TLB shootdowns, because the core that asks for one holds the lock.

use crate::shootdown;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering::*};

/// A test-and-set lock around `T`.
pub struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out one reference at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock. Interrupts are off in the kernel, so the holder is never interrupted.
    pub fn lock(&self) -> Guard<'_, T> {
        while self.held.swap(true, Acquire) {
            // Only reads until it is free, so that the holder keeps the cache line.
            while self.held.load(Relaxed) {
                shootdown::answer();
                core::hint::spin_loop();
            }
        }
        Guard { lock: self }
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
