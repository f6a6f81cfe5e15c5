//! Pipes: bytes in order from who writes to who reads (pipe(7)).

use super::open::Stream;
use super::ready::{Events, Waiters};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::task::Waker;
use nom_fs::{Errno, NodeType};

/// Bytes that a pipe takes.
pub(crate) const PIPE_BYTES: usize = 64 << 10;
/// Writes of at most so many bytes go wholly or not at all.
const ATOMIC_BYTES: usize = 4096;

/// Bytes on their way, and how many have each end.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: RefCell<VecDeque<u8>>,
    readers: Cell<u32>,
    writers: Cell<u32>,
    waiters: Waiters,
}

impl Buffer {
    /// Takes bytes out.
    ///
    /// # Errors
    /// `EAGAIN` if there are none, and somebody may still write.
    pub fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        let mut bytes = self.bytes.borrow_mut();
        if bytes.is_empty() {
            let is_over = self.writers.get() == 0 || target.is_empty();
            return if is_over { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        let count = bytes.len().min(target.len());
        for (to, from) in target.iter_mut().zip(bytes.drain(..count)) {
            *to = from;
        }
        drop(bytes);
        self.waiters.wake();
        Ok(count)
    }

    /// Copies bytes, which stay.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn peek(&self, target: &mut [u8]) -> Result<usize, Errno> {
        let bytes = self.bytes.borrow();
        if bytes.is_empty() {
            return if self.is_finished() { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        for (to, from) in target.iter_mut().zip(bytes.iter()) {
            *to = *from;
        }
        Ok(bytes.len().min(target.len()))
    }

    /// Puts bytes in.
    ///
    /// # Errors
    /// `EPIPE` if nobody reads; `EAGAIN` if there is no room.
    pub fn write(&self, source: &[u8]) -> Result<usize, Errno> {
        if self.readers.get() == 0 {
            return Err(Errno::EPIPE);
        }
        let mut bytes = self.bytes.borrow_mut();
        let room = PIPE_BYTES - bytes.len();
        let is_whole = source.len() <= ATOMIC_BYTES;
        if !source.is_empty() && (room == 0 || is_whole && room < source.len()) {
            return Err(Errno::EAGAIN);
        }
        let count = room.min(source.len());
        bytes.extend(&source[..count]);
        drop(bytes);
        self.waiters.wake();
        Ok(count)
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.bytes.borrow().len()
    }

    /// What who reads can do.
    pub fn readable(&self) -> Events {
        Events::IN.when(self.len() > 0).with(Events::HANG_UP.when(self.writers.get() == 0))
    }

    /// What who writes can do.
    pub fn writable(&self) -> Events {
        let is_over = self.readers.get() == 0;
        let has_room = PIPE_BYTES - self.len() >= ATOMIC_BYTES;
        Events::OUT.when(has_room || is_over).with(Events::ERROR.when(is_over))
    }

    /// Wakes when that may have changed.
    pub fn wake(&self, waker: &Waker) {
        self.waiters.add(waker);
    }

    /// Whether nobody writes any more.
    pub fn is_finished(&self) -> bool {
        self.writers.get() == 0
    }
}

/// The end that is read.
#[derive(Debug)]
pub(crate) struct ReadEnd(Rc<Buffer>, u64);
/// The end that is written.
#[derive(Debug)]
pub(crate) struct WriteEnd(Rc<Buffer>, u64);

/// A pipe's two ends; `number` is what `/proc` shows.
pub(crate) fn pipe(number: u64) -> (ReadEnd, WriteEnd) {
    let buffer = Rc::new(Buffer::default());
    (ReadEnd::new(&buffer, number), WriteEnd::new(&buffer, number))
}

impl ReadEnd {
    /// One more end of a buffer.
    pub fn new(buffer: &Rc<Buffer>, number: u64) -> ReadEnd {
        buffer.readers.update(|count| count + 1);
        ReadEnd(buffer.clone(), number)
    }

    /// The bytes.
    pub fn buffer(&self) -> &Rc<Buffer> {
        &self.0
    }
}

impl WriteEnd {
    /// One more end of a buffer.
    pub fn new(buffer: &Rc<Buffer>, number: u64) -> WriteEnd {
        buffer.writers.update(|count| count + 1);
        WriteEnd(buffer.clone(), number)
    }

    /// The bytes.
    pub fn buffer(&self) -> &Rc<Buffer> {
        &self.0
    }
}

impl Drop for ReadEnd {
    fn drop(&mut self) {
        self.0.readers.update(|count| count - 1);
        self.0.waiters.wake();
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        self.0.writers.update(|count| count - 1);
        self.0.waiters.wake();
    }
}

impl Stream for ReadEnd {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        self.0.read(target)
    }

    fn ready(&self) -> Events {
        self.0.readable()
    }

    fn wake(&self, waker: &Waker) {
        self.0.wake(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::Fifo
    }

    fn label(&self) -> Vec<u8> {
        format!("pipe:[{}]", self.1).into_bytes()
    }

    fn unread(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

impl Stream for WriteEnd {
    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.0.write(bytes)
    }

    fn ready(&self) -> Events {
        self.0.writable()
    }

    fn wake(&self, waker: &Waker) {
        self.0.wake(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::Fifo
    }

    fn label(&self) -> Vec<u8> {
        format!("pipe:[{}]", self.1).into_bytes()
    }
}
