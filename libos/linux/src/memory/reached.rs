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

/// The same of several places, which are written one behind the other.
pub struct ReachedPieces<'m> {
    pages: &'m dyn PageSource,
    /// Address and length of each, of which the first has been begun with.
    pieces: &'m [(u64, u64)],
    /// Bytes of the first that are written.
    done: u64,
    /// Bytes that may be written yet.
    left: u64,
    _unchanged: Ref<'m, State>,
}

impl fmt::Debug for ReachedPieces<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ReachedPieces({} bytes)", self.left)
    }
}

impl ProcessMemory {
    /// Makes the first `bytes` of several places, each an address and a length, there to be written.
    ///
    /// # Errors
    /// `EFAULT` unless the process could write all of that itself.
    pub fn reached_pieces<'m>(
        &'m self,
        pieces: &'m [(u64, u64)],
        bytes: u64,
    ) -> Result<ReachedPieces<'m>, Errno> {
        let mut left = bytes;
        for (address, len) in pieces {
            let part = left.min(*len);
            self.reach(*address, part, Touch::Write)?;
            left -= part;
        }
        Ok(ReachedPieces {
            pages: &*self.pages,
            pieces,
            done: 0,
            left: bytes - left,
            _unchanged: self.state.borrow(),
        })
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
        assert!(bytes.len() as u64 <= self.left, "no more than was asked for");
        self.left -= bytes.len() as u64;
        while !bytes.is_empty() {
            let (address, len) = self.pieces[0];
            let count = (len - self.done).min(bytes.len() as u64);
            if count > 0 {
                self.pages.write(address + self.done, &bytes[..count as usize]);
            }
            bytes = &bytes[count as usize..];
            self.done += count;
            if self.done == len {
                (self.pieces, self.done) = (&self.pieces[1..], 0);
            }
        }
    }
}
