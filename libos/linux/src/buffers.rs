//! Buffers between a program's memory and files or sockets.
//!
//! Programs ask for far more than there is: redis reads up to 16 KiB to get a command of 40 bytes. Clearing
//! that much for each call would cost more than all the rest of it, so that buffers are cleared once, and
//! lie here for the next call. What an earlier call left in one is no secret within a family, and is not told
//! to programs either: they get as many bytes as were received.

use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::{Deref, DerefMut};

/// Bytes of each that is kept.
const BYTES: usize = 64 << 10;
/// How many are kept: as many as calls wait at the same time, usually.
const KEPT: usize = 8;

/// Buffers that nobody has at present.
#[derive(Debug, Default)]
pub struct CallBuffers {
    free: RefCell<Vec<Vec<u8>>>,
}

/// A buffer with bytes of any value, for one call.
#[derive(Debug)]
pub struct CallBuffer {
    bytes: Vec<u8>,
    len: usize,
    home: Rc<CallBuffers>,
}

impl CallBuffers {
    /// A buffer of `len` bytes, whatever they are.
    pub fn take(self: &Rc<CallBuffers>, len: usize) -> CallBuffer {
        let kept = if len > BYTES { None } else { self.free.borrow_mut().pop() };
        let bytes = kept.unwrap_or_else(|| vec![0; len.max(BYTES)]);
        CallBuffer { bytes, len, home: self.clone() }
    }

    /// Forgets those that nobody has; whether there were any.
    pub fn give_back(&self) -> bool {
        !self.free.take().is_empty()
    }
}

impl Deref for CallBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for CallBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for CallBuffer {
    fn drop(&mut self) {
        let mut free = self.home.free.borrow_mut();
        if self.bytes.len() == BYTES && free.len() < KEPT {
            free.push(core::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_made_once_and_has_the_length_that_was_asked_for() {
        let buffers = Rc::new(CallBuffers::default());
        let mut first = buffers.take(10);
        first.fill(7);
        let place = first.as_ptr();
        drop(first);
        let again = buffers.take(20);
        assert_eq!((again.len(), again.as_ptr()), (20, place), "it is the same one");
        assert_eq!(again[..11], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0], "and nobody cleared it");
        let other = buffers.take(20);
        assert_ne!(other.as_ptr(), place, "nobody else has it meanwhile");
    }

    #[test]
    fn few_are_kept_and_none_that_is_large() {
        let buffers = Rc::new(CallBuffers::default());
        drop(buffers.take(BYTES + 1));
        assert_eq!(buffers.free.borrow().len(), 0);
        let many: Vec<CallBuffer> = (0..2 * KEPT).map(|_| buffers.take(BYTES)).collect();
        drop(many);
        assert_eq!(buffers.free.borrow().len(), KEPT);
    }
}
