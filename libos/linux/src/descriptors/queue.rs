//! Queues of messages by name: mq_overview(7). Of those that wait the one with the highest priority is read
//! first, and of those the first that came.

use super::open::Stream;
use super::ready::{Events, Waiters};
use crate::signals::Info;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::cmp::Reverse;
use core::task::Waker;
use nom_fs::{Errno, NodeType};

/// Who is told, once, that a message came where none was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    /// The process.
    pub process: u32,
    /// What it is sent; nothing if it only holds the place.
    pub info: Option<Info>,
}

/// A message's place: its priority, the highest first, and when it came.
type Rank = (Reverse<u32>, u64);

/// A queue.
#[derive(Debug)]
pub(crate) struct MessageQueue {
    /// Whose it is: user and group.
    pub owner: (u32, u32),
    /// Permissions.
    pub mode: u32,
    /// Most messages that wait, and most bytes of each.
    pub messages_max: u64,
    /// Most bytes of a message.
    pub bytes_max: u64,
    /// By priority, the highest first, and by when they came.
    messages: RefCell<BTreeMap<Rank, Vec<u8>>>,
    arrivals: Cell<u64>,
    /// How many wait for a message.
    receivers: Cell<u32>,
    notification: Cell<Option<Notification>>,
    waiters: Waiters,
}

impl MessageQueue {
    /// One that is empty.
    pub fn new(owner: (u32, u32), mode: u32, messages_max: u64, bytes_max: u64) -> MessageQueue {
        let (messages, arrivals, receivers, notification, waiters) = Default::default();
        MessageQueue {
            owner,
            mode,
            messages_max,
            bytes_max,
            messages,
            arrivals,
            receivers,
            notification,
            waiters,
        }
    }

    /// Bytes that its messages may take, as `RLIMIT_MSGQUEUE` counts them.
    pub fn cost(&self) -> u64 {
        cost(self.messages_max, self.bytes_max)
    }

    /// How many messages wait.
    pub fn len(&self) -> u64 {
        self.messages.borrow().len() as u64
    }

    /// Adds a message; returned is who is to be told of it.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room.
    pub fn send(&self, priority: u32, bytes: &[u8]) -> Result<Option<Notification>, Errno> {
        let was_empty = self.len() == 0;
        if self.len() >= self.messages_max {
            return Err(Errno::EAGAIN);
        }
        let arrival = self.arrivals.replace(self.arrivals.get() + 1);
        self.messages.borrow_mut().insert((Reverse(priority), arrival), bytes.to_vec());
        self.waiters.wake();
        let is_news = was_empty && self.receivers.get() == 0;
        Ok(if is_news { self.notification.take() } else { None })
    }

    /// Takes a message, with its priority.
    ///
    /// # Errors
    /// `EAGAIN` if there is none.
    pub fn receive(&self) -> Result<(u32, Vec<u8>), Errno> {
        let ((Reverse(priority), _), bytes) = self.messages.borrow_mut().pop_first().ok_or(Errno::EAGAIN)?;
        self.waiters.wake();
        Ok((priority, bytes))
    }

    /// Counts who waits for a message while what it returns lives.
    pub fn wait_to_receive(&self) -> WaitsToReceive<'_> {
        self.receivers.set(self.receivers.get() + 1);
        WaitsToReceive(self)
    }

    /// Has a process be told of the next message.
    ///
    /// # Errors
    /// `EBUSY` if another is to be.
    pub fn notify(&self, notification: Notification) -> Result<(), Errno> {
        if self.notification.get().is_some() {
            return Err(Errno::EBUSY);
        }
        self.notification.set(Some(notification));
        Ok(())
    }

    /// A process is not to be told any more.
    pub fn forget(&self, process: u32) {
        if self.notification.get().is_some_and(|who| who.process == process) {
            self.notification.set(None);
        }
    }
}

/// Bytes that so many messages of so many bytes may take (mq_overview(7), "Resource limits").
pub(crate) fn cost(messages_max: u64, bytes_max: u64) -> u64 {
    const MESSAGE_BYTES: u64 = 48;
    const TREE_BYTES: u64 = 48;
    messages_max.saturating_mul(bytes_max.saturating_add(MESSAGE_BYTES + TREE_BYTES))
}

/// Somebody waits for a message.
#[derive(Debug)]
pub(crate) struct WaitsToReceive<'a>(&'a MessageQueue);

impl Drop for WaitsToReceive<'_> {
    fn drop(&mut self) {
        self.0.receivers.set(self.0.receivers.get() - 1);
    }
}

/// A queue that is open.
#[derive(Debug)]
pub(crate) struct OpenQueue(pub Rc<MessageQueue>);

impl Stream for OpenQueue {
    fn ready(&self) -> Events {
        let (queue, messages) = (&self.0, self.0.len());
        Events::IN.when(messages > 0).with(Events::OUT.when(messages < queue.messages_max))
    }

    fn wake(&self, waker: &Waker) {
        self.0.waiters.add(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::File
    }

    fn queue(&self) -> Option<&Rc<MessageQueue>> {
        Some(&self.0)
    }
}

/// All queues that have names.
#[derive(Debug, Default)]
pub(crate) struct MessageQueues(pub RefCell<BTreeMap<Vec<u8>, Rc<MessageQueue>>>);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list that is sorted by priority and keeps the order of those that have the same.
        #[test]
        fn messages_are_taken_by_priority(
            steps in proptest::collection::vec((0..4_u32, any::<bool>()), 0..60),
        ) {
            let queue = MessageQueue::new((0, 0), 0o600, 8, 16);
            let mut model: Vec<(u32, u8)> = Vec::new();
            for (count, (priority, sends)) in steps.into_iter().enumerate() {
                if sends {
                    let sent = queue.send(priority, &[count as u8]).map(|told| told.is_some());
                    let fits = model.len() < 8;
                    prop_assert_eq!(sent, if fits { Ok(false) } else { Err(Errno::EAGAIN) });
                    if fits {
                        let behind = model.iter().take_while(|(other, _)| *other >= priority).count();
                        model.insert(behind, (priority, count as u8));
                    }
                } else {
                    let expected = if model.is_empty() { None } else { Some(model.remove(0)) };
                    let taken = queue.receive().ok().map(|(priority, bytes)| (priority, bytes[0]));
                    prop_assert_eq!(taken, expected);
                }
            }
        }
    }

    #[test]
    fn who_waits_for_a_message_is_told_instead_of_who_wants_to_hear_of_it() {
        let queue = MessageQueue::new((0, 0), 0o600, 2, 16);
        queue.notify(Notification { process: 1, info: None }).expect("nobody is");
        assert_eq!(queue.notify(Notification { process: 2, info: None }), Err(Errno::EBUSY));
        let waits = queue.wait_to_receive();
        assert!(queue.send(0, b"a").expect("there is room").is_none());
        drop(waits);
        assert!(queue.send(0, b"b").expect("there is room").is_none(), "one waits already");
        assert_eq!([queue.receive(), queue.receive()].map(|taken| taken.is_ok()), [true; 2]);
        queue.forget(2);
        assert!(queue.send(0, b"c").expect("there is room").is_some());
        assert!(queue.receive().is_ok() && queue.send(0, b"d").expect("room").is_none(), "it was told once");
    }
}
