//! Event counters: eventfd(2).

use super::open::Stream;
use super::ready::{Events, Waiters};
use alloc::vec::Vec;
use core::cell::Cell;
use core::task::Waker;
use nom_fs::{Errno, NodeType};

/// Bytes of the counter.
const BYTES: usize = 8;

/// How much of the counter a read takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// All.
    All,
    /// One, as a semaphore: `EFD_SEMAPHORE`.
    One,
}

/// A counter.
#[derive(Debug)]
pub(crate) struct Counter {
    count: Cell<u64>,
    taking: Taking,
    waiters: Waiters,
}

impl Counter {
    /// One that begins at `count`.
    pub fn new(count: u64, taking: Taking) -> Counter {
        Counter { count: Cell::new(count), taking, waiters: Waiters::default() }
    }
}

impl Stream for Counter {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        let target = target.get_mut(..BYTES).ok_or(Errno::EINVAL)?;
        let count = self.count.get();
        if count == 0 {
            return Err(Errno::EAGAIN);
        }
        let taken = if self.taking == Taking::All { count } else { 1 };
        self.count.set(count - taken);
        target.copy_from_slice(&taken.to_ne_bytes());
        self.waiters.wake();
        Ok(BYTES)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let added = bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)?;
        if added == u64::MAX {
            return Err(Errno::EINVAL);
        }
        let count = self.count.get().checked_add(added).filter(|count| *count < u64::MAX);
        self.count.set(count.ok_or(Errno::EAGAIN)?);
        self.waiters.wake();
        Ok(BYTES)
    }

    fn ready(&self) -> Events {
        let count = self.count.get();
        Events::IN.when(count > 0).with(Events::OUT.when(count < u64::MAX - 1))
    }

    fn wake(&self, waker: &Waker) {
        self.waiters.add(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::File
    }

    fn label(&self) -> Vec<u8> {
        b"anon_inode:[eventfd]".to_vec()
    }
}
