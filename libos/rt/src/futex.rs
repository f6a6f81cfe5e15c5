//! Futexes: a table of wait queues, by address, for tasks and threads of all cores of a program.
//!
//! As with Linux's (futex(2)) there is no state but the caller's own word: who waits says that the word is
//! still what it was, and is woken by who changes it. A queue's place in the table is a keyed hash of the
//! address, so that nobody who chooses addresses makes one of them long. Whoever waits holds no lock
//! meanwhile: the lock of a queue is taken to look at it, and the look at the word is made under it, so that
//! no wake-up is lost between a look and the wait. Wake-ups go out when it is free again, to another core by
//! its inbox, without a lock.
//!
//! ```
//! # use nom_rt::futex::{Changed, FutexTable};
//! # use parking_lot::RawMutex;
//! # use std::sync::atomic::{AtomicU32, Ordering};
//! async fn until_changed(futexes: &FutexTable<RawMutex>, word: &AtomicU32, seen: u32) {
//!     let address = std::ptr::from_ref(word) as u64;
//!     let is_unchanged = || word.load(Ordering::SeqCst) == seen;
//!     if futexes.wait(address, u32::MAX, is_unchanged).await == Err(Changed) {
//!         return; // It is not what it was.
//!     }
//!     // Somebody woke it, maybe because the word has changed.
//! }
//! ```

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};
use lock_api::{Mutex, RawMutex};

/// The word had changed before the wait began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed;

impl fmt::Display for Changed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the word had changed before the wait began")
    }
}

impl core::error::Error for Changed {}

/// What who waits and who wakes know of each other.
struct Ticket {
    /// Where it waits: changed only under the locks of the old place and the new one.
    address: AtomicU64,
    is_woken: AtomicBool,
}

struct Waiter {
    ticket: Arc<Ticket>,
    waker: Waker,
    bits: u32,
}

impl Waiter {
    fn is_at(&self, address: u64) -> bool {
        self.ticket.address.load(Ordering::Relaxed) == address
    }
}

/// Those who wait in one place of the table, in the order in which they came: at several addresses, maybe.
type Bucket = VecDeque<Waiter>;

/// The wait queues of a program. `R` is its world's lock.
pub struct FutexTable<R> {
    buckets: Box<[Mutex<R, Bucket>]>,
    key: u64,
}

impl<R: RawMutex> FutexTable<R> {
    /// A table of at least `places`, which nobody who does not know `key` can fill unevenly.
    #[must_use]
    pub fn new(places: usize, key: u64) -> FutexTable<R> {
        let places = places.next_power_of_two();
        FutexTable { buckets: (0..places).map(|_| Mutex::new(Bucket::new())).collect(), key: key | 1 }
    }

    /// Waits at `address` until somebody wakes one of `bits` there, if `unchanged` says so: it is asked once,
    /// when this is first polled, and must not use the table.
    ///
    /// # Errors
    /// If the word had changed.
    pub fn wait<F: FnOnce() -> bool>(&self, address: u64, bits: u32, unchanged: F) -> FutexWait<'_, R, F> {
        FutexWait { futexes: self, address, bits, unchanged: Some(unchanged), ticket: None }
    }

    /// Wakes at most `count` of those that wait at `address` for any of `bits`, who came first. Returns how
    /// many.
    pub fn wake(&self, address: u64, count: usize, bits: u32) -> usize {
        let woken = take(&mut self.bucket(address).lock(), address, count, bits);
        let count = woken.len();
        woken.into_iter().for_each(Waker::wake);
        count
    }

    /// Wakes at most `wakes` of those that wait at `from`, and has at most `moves` of the rest wait at `to`,
    /// if `unchanged` says so. Returns how many were woken and moved.
    ///
    /// # Errors
    /// If the word had changed; nobody is woken or moved.
    pub fn requeue(
        &self,
        from: u64,
        to: u64,
        wakes: usize,
        moves: usize,
        unchanged: impl FnOnce() -> bool,
    ) -> Result<(usize, usize), Changed> {
        let (first, second) = (self.place(from), self.place(to));
        // Always in the same order, so that no two wait for each other.
        let mut low = self.buckets[first.min(second)].lock();
        let mut high = (first != second).then(|| self.buckets[first.max(second)].lock());
        if !unchanged() {
            return Err(Changed);
        }
        let (source, target) = match &mut high {
            None => (&mut *low, None),
            Some(high) if first < second => (&mut *low, Some(&mut **high)),
            Some(high) => (&mut **high, Some(&mut *low)),
        };
        let woken = take(source, from, wakes, u32::MAX);
        let moved = if from == to { 0 } else { shift(source, target, from, to, moves) };
        drop(high);
        drop(low);
        let count = woken.len();
        woken.into_iter().for_each(Waker::wake);
        Ok((count, moved))
    }

    /// How many wait at `address`.
    #[must_use]
    pub fn waiting(&self, address: u64) -> usize {
        self.bucket(address).lock().iter().filter(|waiter| waiter.is_at(address)).count()
    }

    fn bucket(&self, address: u64) -> &Mutex<R, Bucket> {
        &self.buckets[self.place(address)]
    }

    /// Multiply-shift hashing (Dietzfelbinger et al., J. Algorithms 25, 1997): the upper bits of a product.
    fn place(&self, address: u64) -> usize {
        let bits = self.buckets.len().trailing_zeros();
        let product = (address ^ self.key.rotate_left(32)).wrapping_mul(self.key);
        product.checked_shr(64 - bits).unwrap_or(0) as usize
    }

    /// Does something under the lock of the place where a ticket waits, wherever it was moved meanwhile.
    fn with_bucket<T>(&self, ticket: &Ticket, act: impl FnOnce(&mut Bucket) -> T) -> T {
        loop {
            let address = ticket.address.load(Ordering::Relaxed);
            let mut bucket = self.bucket(address).lock();
            if ticket.address.load(Ordering::Relaxed) == address {
                return act(&mut bucket);
            }
        }
    }
}

/// Takes those out that are to be woken, and says so to them.
fn take(bucket: &mut Bucket, address: u64, count: usize, bits: u32) -> Vec<Waker> {
    let mut woken = Vec::new();
    let mut index = 0;
    while woken.len() < count && index < bucket.len() {
        if bucket[index].is_at(address) && bucket[index].bits & bits != 0 {
            let waiter = bucket.remove(index).expect("it is there");
            waiter.ticket.is_woken.store(true, Ordering::Release);
            woken.push(waiter.waker);
        } else {
            index += 1;
        }
    }
    woken
}

/// Moves those that waited longest at `from` behind those at `to`; returns how many. Without a target both
/// are in one place.
fn shift(source: &mut Bucket, target: Option<&mut Bucket>, from: u64, to: u64, count: usize) -> usize {
    let (mut moved, mut index) = (Bucket::new(), 0);
    while moved.len() < count && index < source.len() {
        if source[index].is_at(from) {
            let waiter = source.remove(index).expect("it is there");
            waiter.ticket.address.store(to, Ordering::Relaxed);
            moved.push_back(waiter);
        } else {
            index += 1;
        }
    }
    let count = moved.len();
    target.unwrap_or(source).append(&mut moved);
    count
}

impl<R> fmt::Debug for FutexTable<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FutexTable({} places)", self.buckets.len())
    }
}

/// Waits at an address: [`FutexTable::wait`]. If it goes away after it was woken, without having said so, the
/// next one is woken instead.
#[must_use = "nobody waits until this is awaited"]
pub struct FutexWait<'a, R: RawMutex, F> {
    futexes: &'a FutexTable<R>,
    address: u64,
    bits: u32,
    /// Until it was asked.
    unchanged: Option<F>,
    /// While it waits.
    ticket: Option<Arc<Ticket>>,
}

impl<R: RawMutex, F: FnOnce() -> bool + Unpin> Future for FutexWait<'_, R, F> {
    type Output = Result<(), Changed>;

    /// # Panics
    /// If it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(ticket) = &self.ticket else {
            let unchanged = self.unchanged.take().expect("it is not ready yet");
            let mut bucket = self.futexes.bucket(self.address).lock();
            if !unchanged() {
                return Poll::Ready(Err(Changed));
            }
            let address = AtomicU64::new(self.address);
            let ticket = Arc::new(Ticket { address, is_woken: AtomicBool::new(false) });
            let waker = context.waker().clone();
            bucket.push_back(Waiter { ticket: ticket.clone(), waker, bits: self.bits });
            drop(bucket);
            self.ticket = Some(ticket);
            return Poll::Pending;
        };
        let is_woken = self.futexes.with_bucket(ticket, |bucket| {
            let own = bucket.iter_mut().find(|waiter| Arc::ptr_eq(&waiter.ticket, ticket));
            // Who is not there any more was woken.
            own.map(|waiter| waiter.waker.clone_from(context.waker())).is_none()
        });
        if !is_woken {
            return Poll::Pending;
        }
        self.ticket = None;
        Poll::Ready(Ok(()))
    }
}

impl<R: RawMutex, F> Drop for FutexWait<'_, R, F> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let address = self.futexes.with_bucket(&ticket, |bucket| {
            bucket.retain(|waiter| !Arc::ptr_eq(&waiter.ticket, &ticket));
            ticket.address.load(Ordering::Relaxed)
        });
        if ticket.is_woken.load(Ordering::Acquire) {
            self.futexes.wake(address, 1, self.bits);
        }
    }
}

impl<R: RawMutex, F> fmt::Debug for FutexWait<'_, R, F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FutexWait").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
