//! Pipes: bytes in order from who writes to who reads (pipe(7)).

use super::open::{Description, Stream};
use super::ready::{Events, Waiters};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::task::Waker;
use nom_fs::{Errno, NodeType};

/// Bytes that a pipe takes.
pub(crate) const PIPE_BYTES: usize = 64 << 10;
/// Writes of at most so many bytes go wholly or not at all.
const ATOMIC_BYTES: usize = 4096;

/// Descriptors, and the numbers of the bytes that they were put in with.
type Attached = (Range<u64>, Vec<Rc<Description>>);

/// Bytes on their way, and how many have each end.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: RefCell<VecDeque<u8>>,
    /// How many were taken out so far.
    taken: Cell<u64>,
    /// What goes along with the first of the bytes of these numbers, in order.
    attached: RefCell<VecDeque<Attached>>,
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
        // What went along with them is closed.
        self.read_with(target, &mut Vec::new())
    }

    /// Takes bytes out, and what goes along with one of them: behind the bytes that were put in with that, no
    /// more are taken (unix(7), "Ancillary messages").
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn read_with(&self, target: &mut [u8], attached: &mut Vec<Rc<Description>>) -> Result<usize, Errno> {
        let mut bytes = self.bytes.borrow_mut();
        if bytes.is_empty() {
            let is_over = self.writers.get() == 0 || target.is_empty();
            return if is_over { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        let (taken, mut count) = (self.taken.get(), bytes.len().min(target.len()));
        let end = taken + count as u64;
        if let Some((range, first)) = self.attached.borrow_mut().pop_front_if(|(range, _)| range.start < end)
        {
            attached.extend(first);
            count = count.min((range.end - taken) as usize);
        }
        for (to, from) in target.iter_mut().zip(bytes.drain(..count)) {
            *to = from;
        }
        self.taken.update(|taken| taken + count as u64);
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
        self.write_with(source, &[])
    }

    /// Puts bytes in, with something that goes along with the first of them.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    pub fn write_with(&self, source: &[u8], attached: &[Rc<Description>]) -> Result<usize, Errno> {
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
        if count > 0 && !attached.is_empty() {
            let at = self.taken.get() + bytes.len() as u64;
            self.attached.borrow_mut().push_back((at..at + count as u64, attached.to_vec()));
        }
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
pub(crate) struct ReadEnd(Rc<Buffer>);
/// The end that is written.
#[derive(Debug)]
pub(crate) struct WriteEnd(Rc<Buffer>);

/// A pipe's two ends.
pub(crate) fn pipe() -> (ReadEnd, WriteEnd) {
    let buffer = Rc::new(Buffer::default());
    (ReadEnd::new(&buffer), WriteEnd::new(&buffer))
}

impl ReadEnd {
    /// One more end of a buffer.
    pub fn new(buffer: &Rc<Buffer>) -> ReadEnd {
        buffer.readers.update(|count| count + 1);
        ReadEnd(buffer.clone())
    }

    /// The bytes.
    pub fn buffer(&self) -> &Rc<Buffer> {
        &self.0
    }
}

impl WriteEnd {
    /// One more end of a buffer.
    pub fn new(buffer: &Rc<Buffer>) -> WriteEnd {
        buffer.writers.update(|count| count + 1);
        WriteEnd(buffer.clone())
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general::O_RDONLY;

    #[test]
    fn what_goes_along_comes_with_its_bytes_and_no_later_ones() {
        let (reader, writer) = pipe();
        let passed = Description::of(pipe().0, O_RDONLY);
        writer.buffer().write(b"ab").expect("room");
        writer.buffer().write_with(b"cd", core::slice::from_ref(&passed)).expect("room");
        writer.buffer().write_with(b"ef", &[passed.clone(), passed.clone()]).expect("room");
        assert_eq!(Rc::strong_count(&passed), 4);
        let (mut bytes, mut attached) = ([0; 16], Vec::new());
        let mut read = |attached: &mut Vec<Rc<Description>>| {
            attached.clear();
            let count = reader.buffer().read_with(&mut bytes, attached).expect("bytes");
            (bytes[..count].to_vec(), attached.len())
        };
        assert_eq!(read(&mut attached), (b"abcd".to_vec(), 1));
        attached.clear();
        assert_eq!(reader.buffer().read(&mut [0; 1]), Ok(1));
        assert_eq!(Rc::strong_count(&passed), 1, "what nobody asked for is closed");
        assert_eq!(reader.buffer().read(&mut [0; 9]), Ok(1));
    }
}
