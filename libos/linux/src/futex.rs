//! Futexes (futex(2)): who waits at which address. No lock is held while anybody waits, and looking at the
//! word and waiting are one, since all waits and wakes are made on one core. A wait and what ends it allocate
//! nothing: each thread has one [`FutexWaiter`], which stands in the place that its address hashes to.

use crate::memory::ProcessMemory;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use linux_raw_sys::general::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS};
use nom_app::sockets::CoreWaker;

/// Where a futex is: in which memory, or in which pages that several have mapped, and where in those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexKey(*const (), u64);

impl FutexKey {
    /// Of a word of which the caller says that no other process has it (`FUTEX_PRIVATE_FLAG`).
    pub fn private(memory: &ProcessMemory, address: u64) -> FutexKey {
        FutexKey(core::ptr::from_ref(memory).cast(), address)
    }

    /// Of a word that other processes may have, too.
    pub fn shared(memory: &ProcessMemory, address: u64) -> FutexKey {
        match memory.shared_word(address) {
            Some((pages, offset)) => FutexKey(pages.cast(), offset),
            None => FutexKey::private(memory, address),
        }
    }

    /// Its place among [`PLACES`]: the upper bits of a product (multiply-shift hashing).
    fn place(self) -> usize {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let bits = PLACES.trailing_zeros();
        ((self.1 ^ self.0.addr() as u64).wrapping_mul(FACTOR) >> (u64::BITS - bits)) as usize
    }
}

/// What has a thread look again at what it waits for.
pub trait ThreadWaker {
    /// Does so, if it waits.
    fn wake(&self);
}

impl ThreadWaker for CoreWaker {
    fn wake(&self) {
        CoreWaker::wake(self);
    }
}

/// A thread, as it waits for a futex.
#[derive(Debug)]
pub struct FutexWaiter<W = CoreWaker> {
    key: Cell<FutexKey>,
    bits: Cell<u32>,
    is_woken: Cell<bool>,
    waker: W,
}

impl FutexWaiter<CoreWaker> {
    /// How many nanoseconds the thread has had the core; nothing once it has ended.
    pub(crate) fn ran_ns(&self) -> Option<u64> {
        self.waker.ran_ns()
    }
}

impl<W: ThreadWaker> FutexWaiter<W> {
    /// A thread that does not wait yet, woken by `waker`.
    pub fn new(waker: W) -> Rc<FutexWaiter<W>> {
        let key = Cell::new(FutexKey(core::ptr::null(), 0));
        Rc::new(FutexWaiter { key, bits: Cell::new(0), is_woken: Cell::new(true), waker })
    }

    /// Has the thread look again at what it waits for.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

/// How many places there are; a power of two.
const PLACES: usize = 64;

/// All who wait, in each place in the order in which they came.
pub struct Futexes<W = CoreWaker> {
    places: [RefCell<Vec<Rc<FutexWaiter<W>>>>; PLACES],
}

impl<W> Default for Futexes<W> {
    fn default() -> Futexes<W> {
        Futexes { places: [const { RefCell::new(Vec::new()) }; PLACES] }
    }
}

impl<W> fmt::Debug for Futexes<W> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: usize = self.places.iter().map(|place| place.borrow().len()).sum();
        write!(out, "Futexes({waiting} wait)")
    }
}

impl<W: ThreadWaker> Futexes<W> {
    /// Waits at an address until somebody wakes one of `bits` there.
    pub fn wait<'f>(&'f self, key: FutexKey, bits: u32, waiter: &'f Rc<FutexWaiter<W>>) -> Wait<'f, W> {
        waiter.key.set(key);
        waiter.bits.set(bits);
        waiter.is_woken.set(false);
        self.places[key.place()].borrow_mut().push(waiter.clone());
        Wait { futexes: self, waiter }
    }

    /// Wakes up to `most` of those who wait at an address for one of `bits`: how many.
    pub fn wake(&self, key: FutexKey, most: u32, bits: u32) -> u32 {
        let mut place = self.places[key.place()].borrow_mut();
        let (mut woken, mut index) = (0, 0);
        while woken < most && index < place.len() {
            let waiter = &place[index];
            if waiter.key.get() != key || waiter.bits.get() & bits == 0 {
                index += 1;
                continue;
            }
            // The last, or the only one: nothing has to move up.
            let waiter = if index + 1 == place.len() { place.pop() } else { Some(place.remove(index)) };
            let Some(waiter) = waiter else { break };
            waiter.is_woken.set(true);
            waiter.wake();
            woken += 1;
        }
        woken
    }

    /// Has up to `most` of those who wait at an address wait at another instead: how many.
    pub fn move_waiters(&self, from: FutexKey, to: FutexKey, most: u32) -> u32 {
        let mut left = most;
        let is_moved = |waiter: &mut Rc<FutexWaiter<W>>| {
            let is_meant = left > 0 && waiter.key.get() == from;
            left -= u32::from(is_meant);
            is_meant
        };
        let moved: Vec<_> = self.places[from.place()].borrow_mut().extract_if(.., is_moved).collect();
        moved.iter().for_each(|waiter| waiter.key.set(to));
        self.places[to.place()].borrow_mut().extend(moved);
        most - left
    }

    fn leave(&self, waiter: &Rc<FutexWaiter<W>>) {
        self.places[waiter.key.get().place()].borrow_mut().retain(|other| !Rc::ptr_eq(other, waiter));
    }
}

/// Waits at an address: [`Futexes::wait`].
#[must_use = "who does not await it does not wait"]
pub struct Wait<'f, W: ThreadWaker = CoreWaker> {
    futexes: &'f Futexes<W>,
    waiter: &'f Rc<FutexWaiter<W>>,
}

impl<W: ThreadWaker + fmt::Debug> fmt::Debug for Wait<'_, W> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Wait({:?})", self.waiter)
    }
}

impl<W: ThreadWaker> Future for Wait<'_, W> {
    type Output = ();

    /// It is polled by the thread that waits, which [`FutexWaiter`] wakes without a waker.
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.waiter.is_woken.get() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<W: ThreadWaker> Drop for Wait<'_, W> {
    fn drop(&mut self) {
        if !self.waiter.is_woken.get() {
            self.futexes.leave(self.waiter);
        }
    }
}

/// Most futexes that a thread's list is followed over, as on Linux.
const ROBUST_MAX: usize = 2048;

/// A thread ends: whoever waits for a robust futex of its list is told that its owner died
/// (set_robust_list(2)).
pub(crate) fn leave_robust(
    futexes: &Futexes<impl ThreadWaker>,
    memory: &ProcessMemory,
    head: u64,
    thread: u32,
) {
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

fn die(futexes: &Futexes<impl ThreadWaker>, memory: &ProcessMemory, address: u64, thread: u32) {
    let is_its = |word: u32| word & FUTEX_TID_MASK == thread;
    let left = |word| is_its(word).then_some(word & FUTEX_WAITERS | FUTEX_OWNER_DIED);
    let word = memory.change_word(address, left);
    if word.is_ok_and(|word| is_its(word) && word & FUTEX_WAITERS != 0) {
        futexes.wake(FutexKey::shared(memory, address), 1, u32::MAX);
    }
}

#[cfg(test)]
mod tests;
