//! Pipes that have names: fifo(7).

use super::buffer::Buffer;
use super::destination::Destination;
use super::node::OpenNode;
use super::open::{Happened, Stream};
use super::pipe::{ReadEnd, WriteEnd};
use super::ready::Events;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, RefCell};
use core::task::Waker;
use linux_raw_sys::general::{O_ACCMODE, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY};
use nom_fs::{Errno, NodeId, NodeType};

/// A pipe that has a name, as long as somebody has it open.
#[derive(Debug, Default)]
struct Fifo {
    buffer: Rc<Buffer>,
    /// How many opened it so far, to read and to write.
    readers_came: Cell<u64>,
    writers_came: Cell<u64>,
}

/// Those that are open.
#[derive(Debug, Default)]
pub(crate) struct Fifos(RefCell<BTreeMap<NodeId, Weak<Fifo>>>);

/// What one description has of a pipe with a name.
pub(crate) struct FifoEnd {
    fifo: Rc<Fifo>,
    reader: Option<ReadEnd>,
    writer: Option<WriteEnd>,
    /// How many had come when this one did, without one who was there still.
    readers_before: u64,
    writers_before: u64,
    held: OpenNode,
}

impl Fifos {
    fn at(&self, node: NodeId) -> Rc<Fifo> {
        let mut fifos = self.0.borrow_mut();
        fifos.retain(|_, fifo| fifo.strong_count() > 0);
        let known = fifos.get(&node).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let fifo = Rc::default();
            fifos.insert(node, Rc::downgrade(&fifo));
            fifo
        })
    }

    /// Opens one as `flags` say. Whoever has to wait for the other end does so by [`FifoEnd::partner`].
    ///
    /// # Errors
    /// `ENXIO` if it is to be written without waiting, and nobody reads.
    pub fn open(&self, held: OpenNode, flags: u32) -> Result<FifoEnd, Errno> {
        let fifo = self.at(held.node);
        let access = flags & O_ACCMODE;
        if access == O_WRONLY && flags & O_NONBLOCK != 0 && fifo.buffer.is_unread() {
            return Err(Errno::ENXIO);
        }
        let readers_before = fifo.readers_came.get() - u64::from(!fifo.buffer.is_unread());
        let writers_before = fifo.writers_came.get() - u64::from(!fifo.buffer.is_finished());
        let reads = access == O_RDONLY || access == O_RDWR;
        let writes = access == O_WRONLY || access == O_RDWR;
        fifo.readers_came.update(|count| count + u64::from(reads));
        fifo.writers_came.update(|count| count + u64::from(writes));
        let reader = reads.then(|| ReadEnd::new(&fifo.buffer));
        let writer = writes.then(|| WriteEnd::new(&fifo.buffer));
        Ok(FifoEnd { fifo, reader, writer, readers_before, writers_before, held })
    }
}

impl FifoEnd {
    /// Whether somebody has the other end, or had it since.
    ///
    /// # Errors
    /// `EAGAIN` if nobody has come.
    pub fn partner(&self) -> Result<(), Errno> {
        let buffer = &self.fifo.buffer;
        let is_there = match (&self.reader, &self.writer) {
            (Some(_), None) => !buffer.is_finished() || self.fifo.writers_came.get() > self.writers_before,
            (None, Some(_)) => !buffer.is_unread() || self.fifo.readers_came.get() > self.readers_before,
            _ => true,
        };
        if is_there { Ok(()) } else { Err(Errno::EAGAIN) }
    }
}

impl Stream for FifoEnd {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        self.fifo.buffer.read(target)
    }

    fn read_to(&self, to: &Destination<'_>) -> Result<usize, Errno> {
        self.fifo.buffer.read_to(to)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.fifo.buffer.write(bytes)
    }

    fn ready(&self) -> Events {
        let buffer = &self.fifo.buffer;
        // That nobody writes is told to those alone who have seen somebody.
        let is_new = self.fifo.writers_came.get() == self.writers_before;
        let hidden = if is_new { Events::HANG_UP } else { Events::NONE };
        let readable = self.reader.as_ref().map_or(Events::NONE, |_| buffer.readable());
        let writable = self.writer.as_ref().map_or(Events::NONE, |_| buffer.writable());
        Events(readable.0 & !hidden.0).with(writable)
    }

    fn wake(&self, waker: &Waker) {
        // Who opens waits for the other end by either.
        self.fifo.buffer.wake_for_bytes(waker);
        self.fifo.buffer.wake_for_room(waker);
    }

    fn happened(&self) -> Happened {
        let buffer = &self.fifo.buffer;
        let arrived = self.reader.as_ref().map_or(0, |_| buffer.arrived());
        let fills = self.writer.as_ref().map_or(0, |_| buffer.fills());
        Happened { arrived, fills }
    }

    fn kind(&self) -> NodeType {
        NodeType::Fifo
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.held.node)
    }

    fn unread(&self) -> Option<usize> {
        Some(self.fifo.buffer.len())
    }

    fn pipe(&self) -> Option<&Rc<Buffer>> {
        Some(&self.fifo.buffer)
    }
}
