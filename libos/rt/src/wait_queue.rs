//! Wait queues: tasks and threads of a core that wait until others of it have changed something.
//!
//! As with a futex there is no state but the caller's own: who waits says what for, and looks again whenever
//! it is woken; who has changed something wakes. Between a look and the wait nothing happens, since one core
//! runs one of them at a time.
//!
//! ```
//! # use nom_rt::WaitQueue;
//! # use std::cell::Cell;
//! # use std::rc::Rc;
//! struct Semaphore {
//!     free: Cell<u32>,
//!     queue: WaitQueue,
//! }
//!
//! impl Semaphore {
//!     async fn take(&self) {
//!         self.queue.until(|| self.free.get().checked_sub(1).map(|left| self.free.set(left))).await
//!     }
//!
//!     fn give(&self) {
//!         self.free.update(|free| free + 1);
//!         self.queue.wake_one();
//!     }
//! }
//! ```

use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

/// Those who wait, in the order in which they came.
#[derive(Default)]
pub struct WaitQueue {
    /// By their places, ascending: nearly always one comes last, and the first one leaves.
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    next: Cell<u64>,
}

impl WaitQueue {
    /// Nobody waits.
    #[must_use]
    pub const fn new() -> WaitQueue {
        WaitQueue { waiting: RefCell::new(VecDeque::new()), next: Cell::new(0) }
    }

    /// What `condition` says once it says something: it is asked now, and whenever this is woken. It must not
    /// use the queue.
    pub fn until<T, F: FnMut() -> Option<T>>(&self, condition: F) -> Until<'_, F> {
        Until { queue: self, condition, place: None }
    }

    /// Wakes who has waited longest. If it goes away without having looked, the next one is woken instead.
    pub fn wake_one(&self) {
        let first = self.waiting.borrow_mut().pop_front();
        first.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Wakes all who wait.
    pub fn wake_all(&self) {
        // None that comes while these are woken is among them.
        for _ in 0..self.len() {
            self.wake_one();
        }
    }

    /// Where somebody is, or would be.
    fn index_of(&self, place: u64) -> Result<usize, usize> {
        self.waiting.borrow().binary_search_by_key(&place, |(place, _)| *place)
    }

    /// Has somebody wait at a place, who may wait there already.
    fn put(&self, place: u64, waker: &Waker) {
        let index = self.index_of(place);
        let mut waiting = self.waiting.borrow_mut();
        match index {
            Ok(index) => waiting[index].1.clone_from(waker),
            Err(index) => waiting.insert(index, (place, waker.clone())),
        }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }
}

impl fmt::Debug for WaitQueue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "WaitQueue({} wait)", self.len())
    }
}

/// Waits for a condition: [`WaitQueue::until`].
#[must_use = "nobody waits until this is awaited"]
#[derive(Debug)]
pub struct Until<'a, F> {
    queue: &'a WaitQueue,
    condition: F,
    /// In the order of those who wait, from the first look on.
    place: Option<u64>,
}

impl<F> Until<'_, F> {
    /// Leaves the queue; `false` if it was woken.
    fn leave(&mut self) -> bool {
        let Some(place) = self.place.take() else { return true };
        let Ok(index) = self.queue.index_of(place) else { return false };
        self.queue.waiting.borrow_mut().remove(index).is_some()
    }
}

impl<T, F: FnMut() -> Option<T> + Unpin> Future for Until<'_, F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(value) = (self.condition)() {
            self.leave();
            return Poll::Ready(value);
        }
        let new = || self.queue.next.replace(self.queue.next.get() + 1);
        // Whoever was woken in vain keeps its place before those who came later.
        let place = self.place.unwrap_or_else(new);
        self.queue.put(place, context.waker());
        self.place = Some(place);
        Poll::Pending
    }
}

impl<F> Drop for Until<'_, F> {
    fn drop(&mut self) {
        if !self.leave() {
            self.queue.wake_one();
        }
    }
}

#[cfg(test)]
mod tests;
