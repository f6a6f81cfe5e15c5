//! Being told of changed files: inotify(7).

use super::open::Stream;
use super::ready::{Events, Waiters};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::task::Waker;
use linux_raw_sys::general::IN_Q_OVERFLOW;
use nom_fs::{Errno, FileEvent, NodeId, NodeType, Vfs, Watcher};

/// Most events that wait, as `/proc/sys/fs/inotify/max_queued_events` has it on Linux.
const EVENTS_MAX: usize = 16_384;
/// Bytes of an event without its name, whose length is a multiple of that.
const HEADER_BYTES: usize = 16;

/// What happened and was not read yet.
#[derive(Debug, Default)]
struct Queue {
    events: RefCell<VecDeque<Vec<u8>>>,
    waiters: Waiters,
}

/// An event as it is read: `struct inotify_event`.
fn bytes_of(event: &FileEvent<'_>) -> Vec<u8> {
    let padded = match event.name.len() {
        0 => 0,
        len => (len + 1).next_multiple_of(HEADER_BYTES),
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + padded);
    bytes.extend(event.watch.to_ne_bytes());
    for word in [event.mask, event.cookie, padded as u32] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(event.name);
    bytes.resize(HEADER_BYTES + padded, 0);
    bytes
}

impl Watcher for Queue {
    fn tell(&self, event: &FileEvent<'_>) {
        let mut events = self.events.borrow_mut();
        let full = FileEvent { watch: -1, mask: IN_Q_OVERFLOW, cookie: 0, name: &[] };
        let bytes = match events.len() {
            EVENTS_MAX.. => bytes_of(&full),
            _ => bytes_of(event),
        };
        // The same once more is told once.
        if events.back() != Some(&bytes) {
            events.push_back(bytes);
        }
        drop(events);
        self.waiters.wake();
    }
}

/// A set of watches, and what they told.
pub(crate) struct Notices {
    vfs: Rc<RefCell<Vfs>>,
    queue: Rc<Queue>,
    watcher: Rc<dyn Watcher>,
    last: Cell<i32>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Notices({} to be read)", self.queue.events.borrow().len())
    }
}

impl Notices {
    /// One without watches.
    pub fn new(vfs: Rc<RefCell<Vfs>>) -> Notices {
        let queue = Rc::new(Queue::default());
        Notices { vfs, watcher: queue.clone(), queue, last: Cell::new(0) }
    }

    /// Watches a node, by a number that is returned.
    ///
    /// # Errors
    /// As [`Vfs::watch`].
    pub fn watch(&self, vfs: &mut Vfs, node: NodeId, mask: u32) -> Result<i32, Errno> {
        let next = self.last.get().checked_add(1).ok_or(Errno::ENOSPC)?;
        let number = vfs.watch(node, mask, &self.watcher, next)?;
        self.last.set(self.last.get().max(number));
        Ok(number)
    }

    /// Ends a watch.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn end(&self, vfs: &mut Vfs, number: i32) -> Result<(), Errno> {
        vfs.end_watch(&self.watcher, number)
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.vfs.borrow_mut().end_watches(&self.watcher);
    }
}

impl Stream for Notices {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        let mut events = self.queue.events.borrow_mut();
        let first = events.front().ok_or(Errno::EAGAIN)?;
        if first.len() > target.len() {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        while let Some(event) = events.pop_front_if(|event| done + event.len() <= target.len()) {
            target[done..done + event.len()].copy_from_slice(&event);
            done += event.len();
        }
        Ok(done)
    }

    fn ready(&self) -> Events {
        Events::IN.when(!self.queue.events.borrow().is_empty())
    }

    fn wake(&self, waker: &Waker) {
        self.queue.waiters.add(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::File
    }

    fn unread(&self) -> Option<usize> {
        Some(self.queue.events.borrow().iter().map(Vec::len).sum())
    }

    fn notices(&self) -> Option<&Notices> {
        Some(self)
    }
}
