//! Pipes: bytes in order from who writes to who reads (pipe(7)).

use super::buffer::Buffer;
use super::destination::Destination;
use super::open::{Happened, Stream};
use super::ready::Events;
use alloc::rc::Rc;
use core::task::Waker;
use linux_raw_sys::general::{O_ACCMODE, O_RDONLY, O_WRONLY};
use nom_fs::{Errno, NodeType};

/// The end that is read.
#[derive(Debug)]
pub(crate) struct ReadEnd(Rc<Buffer>);
/// The end that is written.
#[derive(Debug)]
pub(crate) struct WriteEnd(Rc<Buffer>);

/// How many packets may wait in a pipe of those at first, as on Linux (pipe(7), "Pipe capacity": its pages).
const PACKETS_MAX: usize = 16;

/// A pipe's two ends.
pub(crate) fn pipe() -> (ReadEnd, WriteEnd) {
    ends(Buffer::default())
}

/// Those of one in which what is written at a time is read so (`O_DIRECT`).
pub(crate) fn pipe_of_packets() -> (ReadEnd, WriteEnd) {
    ends(Buffer::of_packets(PACKETS_MAX))
}

fn ends(buffer: Buffer) -> (ReadEnd, WriteEnd) {
    let buffer = Rc::new(buffer);
    (ReadEnd::new(&buffer), WriteEnd::new(&buffer))
}

/// An end of a pipe that is read and written: one that was opened once more by its descriptor.
#[derive(Debug)]
struct BothEnds(ReadEnd, WriteEnd);

/// One more end of a pipe, for what the flags of open(2) say.
pub(crate) fn opened_again(buffer: &Rc<Buffer>, flags: u32) -> Rc<dyn Stream> {
    match flags & O_ACCMODE {
        O_RDONLY => Rc::new(ReadEnd::new(buffer)),
        O_WRONLY => Rc::new(WriteEnd::new(buffer)),
        _ => Rc::new(BothEnds(ReadEnd::new(buffer), WriteEnd::new(buffer))),
    }
}

impl ReadEnd {
    /// One more end of a buffer.
    pub fn new(buffer: &Rc<Buffer>) -> ReadEnd {
        buffer.count_readers(1);
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
        buffer.count_writers(1);
        WriteEnd(buffer.clone())
    }

    /// The bytes.
    pub fn buffer(&self) -> &Rc<Buffer> {
        &self.0
    }
}

impl Drop for ReadEnd {
    fn drop(&mut self) {
        self.0.count_readers(-1);
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        self.0.count_writers(-1);
    }
}

impl Stream for ReadEnd {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        // No packet goes for that.
        if target.is_empty() { Ok(0) } else { self.0.read(target) }
    }

    fn read_to(&self, to: &Destination<'_>) -> Result<usize, Errno> {
        if to.len() == 0 { Ok(0) } else { self.0.read_to(to) }
    }

    fn ready(&self) -> Events {
        self.0.readable()
    }

    fn wake(&self, waker: &Waker) {
        self.0.wake_for_bytes(waker);
    }

    fn happened(&self) -> Happened {
        Happened { arrived: self.0.arrived(), fills: 0 }
    }

    fn kind(&self) -> NodeType {
        NodeType::Fifo
    }

    fn pipe(&self) -> Option<&Rc<Buffer>> {
        Some(&self.0)
    }

    fn unread(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

impl Stream for WriteEnd {
    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.0.has_packets() {
            true => self.0.write_packets(bytes),
            false => self.0.write(bytes),
        }
    }

    fn ready(&self) -> Events {
        self.0.writable()
    }

    fn wake(&self, waker: &Waker) {
        self.0.wake_for_room(waker);
    }

    fn happened(&self) -> Happened {
        Happened { fills: self.0.fills(), arrived: 0 }
    }

    fn kind(&self) -> NodeType {
        NodeType::Fifo
    }

    fn pipe(&self) -> Option<&Rc<Buffer>> {
        Some(&self.0)
    }
}

impl Stream for BothEnds {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        self.0.read(target)
    }

    fn read_to(&self, to: &Destination<'_>) -> Result<usize, Errno> {
        self.0.read_to(to)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.1.write(bytes)
    }

    fn ready(&self) -> Events {
        self.0.ready().with(self.1.ready())
    }

    fn wake(&self, waker: &Waker) {
        self.0.wake(waker);
        self.1.wake(waker);
    }

    fn happened(&self) -> Happened {
        Happened { arrived: self.0.happened().arrived, fills: self.1.happened().fills }
    }

    fn kind(&self) -> NodeType {
        NodeType::Fifo
    }

    fn pipe(&self) -> Option<&Rc<Buffer>> {
        self.0.pipe()
    }

    fn unread(&self) -> Option<usize> {
        self.0.unread()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general::O_RDWR;

    #[test]
    fn an_end_that_is_opened_again_is_one_of_its_own() {
        let (reader, writer) = pipe();
        let buffer = reader.buffer();
        let [reads, writes, both] = [O_RDONLY, O_WRONLY, O_RDWR].map(|flags| opened_again(buffer, flags));
        let mut bytes = [0; 4];
        assert_eq!(writes.write(b"ab"), Ok(2));
        assert_eq!((writes.read(&mut bytes), reads.write(b"x")), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
        assert_eq!((both.unread(), both.write(b"cd")), (Some(2), Ok(2)));
        assert_eq!((reads.read(&mut bytes[..1]), both.read(&mut bytes[1..])), (Ok(1), Ok(3)));
        assert_eq!(&bytes, b"abcd");
        drop((writer, writes));
        assert_eq!(reads.read(&mut bytes), Err(Errno::EAGAIN), "one may write still");
        drop(both);
        assert_eq!(reads.read(&mut bytes), Ok(0));
    }
}
