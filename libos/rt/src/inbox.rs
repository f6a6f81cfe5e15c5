//! What other cores send to a core: a lock-free queue, and a doorbell that is rung only if the core sleeps.
//!
//! A sender pushes and then looks whether the receiver sleeps; a receiver says that it sleeps and then looks
//! whether something was pushed. Between the two steps each has a sequentially consistent fence, so at
//! least one of them sees the other (OSv, section 2.4, has the same order for its incoming wake-ups).

use crate::handle::Handle;
use crate::meter::Activity;
use crate::task::TaskId;
use crate::threads::ThreadId;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crossbeam_queue::SegQueue;
use nom_port::world::Doorbell;

pub(crate) enum Message {
    /// Run it, charged to the activity.
    Call(Activity, Box<dyn FnOnce(&Handle) + Send>),
    /// Let the task go on.
    Wake(TaskId),
    /// Let the thread go on.
    WakeThread(ThreadId),
}

/// The receiving end of one core, shared with all senders.
pub(crate) struct Inbox {
    core: usize,
    doorbell: Arc<dyn Doorbell>,
    messages: SegQueue<Message>,
    /// Something was sent since the core last began to receive: to ask the queue costs more, and a fence.
    has_messages: AtomicBool,
    is_asleep: AtomicBool,
    rings: AtomicU64,
}

impl Inbox {
    pub fn new(core: usize, doorbell: Arc<dyn Doorbell>) -> Self {
        let (messages, rings) = (SegQueue::new(), AtomicU64::new(0));
        let [has_messages, is_asleep] = [false, false].map(AtomicBool::new);
        Self { core, doorbell, messages, has_messages, is_asleep, rings }
    }

    pub fn send(&self, message: Message) {
        self.messages.push(message);
        self.has_messages.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        // The first sender takes the flag down: one ring a sleep.
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed) {
            self.rings.fetch_add(1, Ordering::Relaxed);
            self.doorbell.ring(self.core);
        }
    }

    /// Whether nobody has sent anything since the core last began to receive.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_messages.load(Ordering::Acquire)
    }

    /// Begins to receive. `false` if there is nothing.
    #[inline]
    pub fn begin(&self) -> bool {
        // In one step, and before the queue is asked: who sends behind its answer is heard the next time.
        !self.is_empty() && self.has_messages.swap(false, Ordering::SeqCst)
    }

    /// Leaves the rest for the next time.
    pub fn leave_rest(&self) {
        self.has_messages.store(true, Ordering::Release);
    }

    pub fn receive(&self) -> Option<Message> {
        self.messages.pop()
    }

    /// Asks senders for the doorbell. `false` if there are messages already: do not sleep.
    pub fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_empty = self.messages.is_empty();
        if !is_empty {
            self.wake_up();
        }
        is_empty
    }

    /// Tells senders not to ring any more.
    pub fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// How often the doorbell was rung.
    pub fn rings(&self) -> u64 {
        self.rings.load(Ordering::Relaxed)
    }
}

/// A core's event loop, as other cores reach it.
#[derive(Clone)]
pub struct Remote {
    inbox: Arc<Inbox>,
}

impl Remote {
    /// The way to a core that has no loop yet: [`crate::EventLoop::reached_by`] makes it. `doorbell` knows
    /// the core as `core`.
    #[must_use]
    pub fn new(core: usize, doorbell: Arc<dyn Doorbell>) -> Self {
        Self::to(Arc::new(Inbox::new(core, doorbell)))
    }

    pub(crate) fn to(inbox: Arc<Inbox>) -> Self {
        Self { inbox }
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Which core it is.
    #[must_use]
    pub fn core(&self) -> usize {
        self.inbox.core
    }

    /// Runs `call` as an event of that core, paid for by `activity`. Calls of one sender arrive in order.
    /// There is no bound on how many may wait; a loop that has ended runs none.
    pub fn post(&self, activity: Activity, call: impl FnOnce(&Handle) + Send + 'static) {
        self.inbox.send(Message::Call(activity, Box::new(call)));
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Remote(core {})", self.inbox.core)
    }
}

#[cfg(test)]
mod tests;
