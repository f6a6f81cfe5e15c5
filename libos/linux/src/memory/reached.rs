//! Bytes of a process that were made there for a call, and are copied from or to where they are wanted: a
//! file's pages are read and written without a buffer in between.

use super::{PageSource, ProcessMemory, State, Touch};
use core::cell::Ref;
use core::fmt;
use nom_fs::Errno;

/// Bytes in a process's memory, of which each is copied once, one behind the other. Nobody maps or unmaps
/// anything meanwhile.
pub struct Reached<'m> {
    pages: &'m dyn PageSource,
    next: u64,
    end: u64,
    _unchanged: Ref<'m, State>,
}

impl fmt::Debug for Reached<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Reached({:#x}..{:#x})", self.next, self.end)
    }
}

/// The same of several places, which are read or written one behind the other.
pub struct ReachedPieces<'m> {
    pages: &'m dyn PageSource,
    /// Address and length of each, of which the first has been begun with.
    pieces: &'m [(u64, u64)],
    /// Bytes of the first that are done with.
    done: u64,
    /// Bytes that are left.
    left: u64,
    _unchanged: Ref<'m, State>,
}

impl fmt::Debug for ReachedPieces<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ReachedPieces({} bytes)", self.left)
    }
}

impl ProcessMemory {
    /// Makes `bytes` of several places, each an address and a length, there to be read or to be written:
    /// those behind the first `done`.
    ///
    /// # Errors
    /// `EFAULT` unless the process could do so with all of them itself.
    pub fn reached_pieces<'m>(
        &'m self,
        mut pieces: &'m [(u64, u64)],
        mut done: u64,
        bytes: u64,
        touch: Touch,
    ) -> Result<ReachedPieces<'m>, Errno> {
        while let [(_, len), rest @ ..] = pieces
            && *len <= done
            && done > 0
        {
            (pieces, done) = (rest, done - len);
        }
        let (mut left, mut passed) = (bytes, done);
        for (address, len) in pieces {
            let part = left.min(*len - passed);
            self.reach(address.wrapping_add(passed), part, touch)?;
            (left, passed) = (left - part, 0);
        }
        let (pages, left) = (&*self.pages, bytes - left);
        Ok(ReachedPieces { pages, pieces, done, left, _unchanged: self.state.borrow() })
    }

    /// Makes `bytes` at `address` there, to be read or to be written.
    ///
    /// # Errors
    /// `EFAULT` unless the process could do so with all of that itself.
    pub fn reached(&self, address: u64, bytes: u64, touch: Touch) -> Result<Reached<'_>, Errno> {
        self.reach(address, bytes, touch)?;
        let (next, end) = (address, address.saturating_add(bytes));
        Ok(Reached { pages: &*self.pages, next, end, _unchanged: self.state.borrow() })
    }
}

impl Reached<'_> {
    /// Copies the next bytes from the process.
    ///
    /// # Panics
    /// If they are more than were asked for.
    pub fn get(&mut self, bytes: &mut [u8]) {
        let address = self.take(bytes.len());
        self.pages.read(address, bytes);
    }

    /// Copies to the process's next bytes.
    ///
    /// # Panics
    /// If they are more than were asked for.
    pub fn put(&mut self, bytes: &[u8]) {
        let address = self.take(bytes.len());
        self.pages.write(address, bytes);
    }

    fn take(&mut self, bytes: usize) -> u64 {
        let address = self.next;
        assert!(bytes as u64 <= self.end - address, "no more than was asked for");
        self.next += bytes as u64;
        address
    }
}

impl ReachedPieces<'_> {
    /// Copies to the process's next bytes.
    ///
    /// # Panics
    /// If they are more than were asked for.
    pub fn put(&mut self, mut bytes: &[u8]) {
        while let Some((address, count)) = self.next(bytes.len()) {
            let (now, later) = bytes.split_at(count);
            self.pages.write(address, now);
            bytes = later;
        }
    }

    /// Copies the next bytes from the process.
    ///
    /// # Panics
    /// If they are more than were asked for.
    pub fn get(&mut self, mut bytes: &mut [u8]) {
        while let Some((address, count)) = self.next(bytes.len()) {
            let (now, later) = bytes.split_at_mut(count);
            self.pages.read(address, now);
            bytes = later;
        }
    }

    /// Where the next of `wanted` bytes are, and how many there; nothing if none is wanted.
    #[inline]
    fn next(&mut self, wanted: usize) -> Option<(u64, usize)> {
        if wanted == 0 {
            return None;
        }
        assert!(wanted as u64 <= self.left, "no more than was asked for");
        loop {
            let (address, len) = self.pieces[0];
            let (start, count) = (address.wrapping_add(self.done), (len - self.done).min(wanted as u64));
            self.done += count;
            if self.done == len {
                (self.pieces, self.done) = (&self.pieces[1..], 0);
            }
            if count > 0 {
                self.left -= count;
                return Some((start, count as usize));
            }
        }
    }
}
