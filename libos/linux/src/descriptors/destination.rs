//! Where a program wants what it reads: places in its memory, one behind the other.
//!
//! Whoever has the bytes says first how many there are, has so much memory made there, and copies each byte
//! from where it lies. So a program may offer far more than it has touched, and nothing is consumed that
//! cannot be put anywhere. Others read into a buffer, which is copied.

use super::source::total;
use crate::buffers::{CallBuffer, CallBuffers};
use crate::call::Call;
use crate::memory::{ProcessMemory, ReachedPieces, Touch};
use alloc::rc::Rc;
use core::cell::RefCell;
use nom_fs::Errno;

/// Places of a program's memory for what one call reads.
pub(crate) struct Destination<'c> {
    memory: &'c ProcessMemory,
    buffers: &'c Rc<CallBuffers>,
    /// Address and length of each.
    pieces: &'c [(u64, u64)],
    /// Bytes of the pieces in front of these.
    before: u64,
    len: usize,
    /// What is read by way of one has it from the first attempt on: whoever waits attempts several times.
    buffer: RefCell<Option<CallBuffer>>,
}

impl<'c> Destination<'c> {
    /// These places, of which at most `most` bytes are filled by the call.
    pub fn new(call: &'c Call<'_>, pieces: &'c [(u64, u64)], most: u64) -> Destination<'c> {
        let (memory, buffers) = (call.memory(), &call.family().buffers);
        Destination::from(memory, buffers, pieces, 0, most)
    }

    /// All of these places.
    #[cfg(test)]
    pub fn of(
        memory: &'c ProcessMemory,
        buffers: &'c Rc<CallBuffers>,
        pieces: &'c [(u64, u64)],
    ) -> Destination<'c> {
        Destination::from(memory, buffers, pieces, 0, u64::MAX)
    }

    /// Bytes that there is room for.
    pub fn len(&self) -> usize {
        self.len
    }

    fn from(
        memory: &'c ProcessMemory,
        buffers: &'c Rc<CallBuffers>,
        pieces: &'c [(u64, u64)],
        before: u64,
        most: u64,
    ) -> Destination<'c> {
        let len = (total(pieces) - before).min(most) as usize;
        Destination { memory, buffers, pieces, before, len, buffer: RefCell::new(None) }
    }

    /// The places behind the first `count` bytes of these, of which at most `most` bytes are filled.
    pub fn behind(&self, count: usize, most: u64) -> Destination<'c> {
        Destination::from(self.memory, self.buffers, self.pieces, self.before + count as u64, most)
    }

    /// Has the first `count` bytes be there, to be written.
    ///
    /// # Errors
    /// `EFAULT` unless the program could write all of them itself.
    pub fn reached(&self, count: usize) -> Result<ReachedPieces<'_>, Errno> {
        self.memory.reached_pieces(self.pieces, self.before, count as u64, Touch::Write)
    }

    /// What `read` says, which puts bytes into a buffer; `count` tells how many of them are the program's.
    ///
    /// # Errors
    /// What `read` says; `EFAULT`.
    pub fn by_buffer<T>(
        &self,
        read: impl FnOnce(&mut [u8]) -> Result<T, Errno>,
        count: impl FnOnce(&T) -> usize,
    ) -> Result<T, Errno> {
        let mut taken = self.buffer.borrow_mut();
        let buffer = taken.get_or_insert_with(|| self.buffers.take(self.len));
        let result = read(buffer)?;
        let bytes = &buffer[..count(&result)];
        self.reached(bytes.len())?.put(bytes);
        Ok(result)
    }
}
