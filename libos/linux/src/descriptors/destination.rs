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
use alloc::vec::Vec;
use core::cell::RefCell;
use nom_fs::Errno;

/// Places of a program's memory for what one call reads.
pub(crate) struct Destination<'c> {
    memory: &'c ProcessMemory,
    buffers: &'c Rc<CallBuffers>,
    /// Address and length of each.
    pieces: &'c [(u64, u64)],
    len: usize,
    /// What is read by way of one has it from the first attempt on: whoever waits attempts several times.
    buffer: RefCell<Option<CallBuffer>>,
}

impl<'c> Destination<'c> {
    /// These places, of which at most `most` bytes are filled by the call.
    pub fn new(call: &'c Call<'_>, pieces: &'c [(u64, u64)], most: u64) -> Destination<'c> {
        let (memory, buffers) = (call.memory(), &call.family().buffers);
        let len = total(pieces).min(most) as usize;
        Destination { memory, buffers, pieces, len, buffer: RefCell::new(None) }
    }

    /// All of these places.
    #[cfg(test)]
    pub fn of(
        memory: &'c ProcessMemory,
        buffers: &'c Rc<CallBuffers>,
        pieces: &'c [(u64, u64)],
    ) -> Destination<'c> {
        Destination { memory, buffers, pieces, len: total(pieces) as usize, buffer: RefCell::new(None) }
    }

    /// Bytes that there is room for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The places behind the first `count` bytes, however many one call fills.
    pub fn behind(&self, count: u64) -> Vec<(u64, u64)> {
        let mut passed = 0;
        let behind = self.pieces.iter().filter_map(|(address, len)| {
            let skipped = count.saturating_sub(passed).min(*len);
            passed += len;
            (skipped < *len).then_some((address + skipped, len - skipped))
        });
        behind.collect()
    }

    /// Has the first `count` bytes be there, to be written.
    ///
    /// # Errors
    /// `EFAULT` unless the program could write all of them itself.
    pub fn reached(&self, count: usize) -> Result<ReachedPieces<'_>, Errno> {
        self.memory.reached_pieces(self.pieces, 0, count as u64, Touch::Write)
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
