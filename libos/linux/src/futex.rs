//! Futexes (futex(2)): who waits at which address, hashed by nothing but the address. No lock is held while
//! anybody waits, and looking at the word and waiting are one, since one core runs one of them at a time.

use crate::memory::ProcessMemory;
use crate::process::OwnMemory;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use linux_raw_sys::general::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS};

/// Which memory, or which pages that several have mapped, and where in them.
type Key = (*const (), u64);

fn key(memory: &ProcessMemory, address: u64) -> Key {
    match memory.shared_word(address) {
        Some((pages, offset)) => (pages.cast(), offset),
        None => (core::ptr::from_ref(memory).cast(), address),
    }
}

/// Somebody who waits.
struct Waiter {
    key: Cell<Key>,
    bits: u32,
    is_woken: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// All who wait, at each address in the order in which they came.
#[derive(Default)]
pub struct Futexes {
    waiting: RefCell<BTreeMap<Key, Vec<Rc<Waiter>>>>,
}

impl fmt::Debug for Futexes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Futexes({} addresses)", self.waiting.borrow().len())
    }
}

impl Futexes {
    /// Waits at an address until somebody wakes one of `bits` there.
    pub fn wait(&self, memory: &ProcessMemory, address: u64, bits: u32) -> Wait<'_> {
        let key = key(memory, address);
        let waiter =
            Waiter { key: Cell::new(key), bits, is_woken: Cell::new(false), waker: RefCell::new(None) };
        let waiter = Rc::new(waiter);
        self.waiting.borrow_mut().entry(key).or_default().push(waiter.clone());
        Wait { futexes: self, waiter }
    }

    /// Wakes up to `most` of those who wait at an address for one of `bits`: how many.
    pub fn wake(&self, memory: &ProcessMemory, address: u64, most: u32, bits: u32) -> u32 {
        let key = key(memory, address);
        let mut woken = Vec::new();
        let mut waiting = self.waiting.borrow_mut();
        let Some(there) = waiting.get_mut(&key) else { return 0 };
        there.retain(|waiter| {
            let is_woken = woken.len() < most as usize && waiter.bits & bits != 0;
            if is_woken {
                woken.push(waiter.clone());
            }
            !is_woken
        });
        if there.is_empty() {
            waiting.remove(&key);
        }
        drop(waiting);
        for waiter in &woken {
            waiter.is_woken.set(true);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
        woken.len() as u32
    }

    /// Has up to `most` of those who wait at an address wait at another instead: how many.
    pub fn move_waiters(&self, memory: &ProcessMemory, from: u64, to: u64, most: u32) -> u32 {
        let (from, to) = (key(memory, from), key(memory, to));
        let mut waiting = self.waiting.borrow_mut();
        let Some(mut there) = waiting.remove(&from) else { return 0 };
        let moved: Vec<_> = there.drain(..there.len().min(most as usize)).collect();
        if !there.is_empty() {
            waiting.insert(from, there);
        }
        let count = moved.len() as u32;
        moved.iter().for_each(|waiter| waiter.key.set(to));
        waiting.entry(to).or_default().extend(moved);
        count
    }

    fn leave(&self, waiter: &Rc<Waiter>) {
        let key = waiter.key.get();
        let mut waiting = self.waiting.borrow_mut();
        if let Some(there) = waiting.get_mut(&key) {
            there.retain(|other| !Rc::ptr_eq(other, waiter));
            if there.is_empty() {
                waiting.remove(&key);
            }
        }
    }
}

/// Waits at an address: [`Futexes::wait`].
#[must_use = "who does not await it does not wait"]
pub struct Wait<'f> {
    futexes: &'f Futexes,
    waiter: Rc<Waiter>,
}

impl fmt::Debug for Wait<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Wait({:#x})", self.waiter.key.get().1)
    }
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.waiter.is_woken.get() {
            return Poll::Ready(());
        }
        *self.waiter.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if !self.waiter.is_woken.get() {
            self.futexes.leave(&self.waiter);
        }
    }
}

/// Most futexes that a thread's list is followed over, as on Linux.
const ROBUST_MAX: usize = 2048;

/// A thread ends: whoever waits for a robust futex of its list is told that its owner died
/// (set_robust_list(2)).
pub(crate) fn leave_robust(futexes: &Futexes, memory: &Rc<OwnMemory>, head: u64, thread: u32) {
    if head == 0 {
        return;
    }
    let word = |at: u64| memory.read_value::<u64>(at).ok();
    let (Some(mut next), Some(offset)) = (word(head), word(head.wrapping_add(8))) else { return };
    let pending = word(head.wrapping_add(16)).unwrap_or(0);
    for _ in 0..ROBUST_MAX {
        // Bit 0 says that it is one with priority inheritance.
        let entry = next & !1;
        if entry == head || entry == 0 {
            break;
        }
        let Some(following) = word(entry) else { break };
        if entry != pending {
            die(futexes, memory, entry.wrapping_add(offset), thread);
        }
        next = following;
    }
    if pending != 0 {
        die(futexes, memory, (pending & !1).wrapping_add(offset), thread);
    }
}

fn die(futexes: &Futexes, memory: &Rc<OwnMemory>, address: u64, thread: u32) {
    let Ok(word) = memory.read_value::<u32>(address) else { return };
    if word & FUTEX_TID_MASK != thread {
        return;
    }
    let left = word & FUTEX_WAITERS | FUTEX_OWNER_DIED;
    if memory.write_value(address, &left).is_ok() && word & FUTEX_WAITERS != 0 {
        futexes.wake(memory, address, 1, u32::MAX);
    }
}
