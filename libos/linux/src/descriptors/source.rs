//! What a program gives in one call: bytes at places of its memory, one behind the other.
//!
//! Whoever can send from where he chooses copies each byte there, once; others write from a buffer, which is
//! filled when it is wanted first.

use crate::buffers::{CallBuffer, CallBuffers};
use crate::call::Call;
use crate::memory::{ProcessMemory, ReachedPieces, Touch};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use nom_fs::Errno;

/// Bytes of a program's memory that are to be sent or written.
pub(crate) struct Source<'c> {
    memory: &'c ProcessMemory,
    buffers: &'c Rc<CallBuffers>,
    /// Address and length of each.
    pieces: &'c [(u64, u64)],
    /// Bytes of the pieces in front of these.
    before: u64,
    len: usize,
    /// Of these, how many are gone.
    gone: Cell<usize>,
    /// What is written by way of one has it from the first attempt on: whoever waits attempts several times.
    buffer: RefCell<Option<CallBuffer>>,
}

impl<'c> Source<'c> {
    /// At most `most` bytes of these places, without the first `before`: programs may name more than there is
    /// memory for.
    pub fn new(call: &'c Call<'_>, pieces: &'c [(u64, u64)], before: u64, most: u64) -> Source<'c> {
        let (memory, buffers) = (call.memory(), &call.family().buffers);
        let len = (total(pieces) - before).min(most) as usize;
        Source { memory, buffers, pieces, before, len, gone: Cell::new(0), buffer: RefCell::new(None) }
    }

    /// Bytes that are left.
    pub fn len(&self) -> usize {
        self.len - self.gone.get()
    }

    /// The first `count` of those that are left are gone.
    pub fn pass(&self, count: usize) {
        self.gone.update(|gone| gone + count);
    }

    /// Has those that are left be there, to be read.
    ///
    /// # Errors
    /// `EFAULT` unless the program could read all of them itself.
    pub fn reached(&self) -> Result<ReachedPieces<'_>, Errno> {
        let before = self.before + self.gone.get() as u64;
        self.memory.reached_pieces(self.pieces, before, self.len() as u64, Touch::Read)
    }

    /// What `write` says, which is given those that are left.
    ///
    /// # Errors
    /// What `write` says; `EFAULT`.
    pub fn by_buffer<T>(&self, write: impl FnOnce(&[u8]) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut filled = self.buffer.borrow_mut();
        if filled.is_none() {
            let mut buffer = self.buffers.take(self.len);
            let gone = self.gone.get();
            self.reached()?.get(&mut buffer[gone..]);
            *filled = Some(buffer);
        }
        write(&filled.as_ref().expect("it was filled just now")[self.gone.get()..])
    }
}

/// Bytes of all pieces, as long as that can be said.
pub(super) fn total(pieces: &[(u64, u64)]) -> u64 {
    pieces.iter().fold(0, |sum, (_, len)| sum.saturating_add(*len))
}
