//! The locks of files as processes share them, and those who wait for one.

use super::ready::{Waiters, until_ready};
use crate::call::Call;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;
use nom_fs::{Errno, Lock, LockOwner, LockTable, Locks, NodeId};

/// The locks of all files, and who waits.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    locks: RefCell<Locks>,
    waiters: Waiters,
}

impl FileLocks {
    /// All that are held.
    pub fn held(&self) -> Vec<(NodeId, LockTable, Lock)> {
        self.locks.borrow().iter().map(|(node, table, lock)| (node, table, lock.clone())).collect()
    }

    /// The lock that is in the way of one.
    pub fn conflict(&self, node: NodeId, table: LockTable, wanted: &Lock) -> Option<Lock> {
        self.locks.borrow().conflict(node, table, wanted).cloned()
    }

    /// Takes a lock.
    ///
    /// # Errors
    /// As [`Locks::acquire`].
    pub fn acquire(&self, node: NodeId, table: LockTable, wanted: &Lock) -> Result<(), Errno> {
        self.locks.borrow_mut().acquire(node, table, wanted.clone())?;
        // An exclusive lock may have become a shared one.
        self.waiters.wake();
        Ok(())
    }

    /// Takes a lock, once it can be had.
    ///
    /// # Errors
    /// `EINTR`; `EDEADLK` where processes would wait for each other's records.
    pub fn acquire_later(
        &self,
        call: &Call<'_>,
        node: NodeId,
        table: LockTable,
        wanted: &Lock,
    ) -> Result<(), Errno> {
        // Only records of processes are looked at for a deadlock, as on Linux.
        let process = match wanted.owner {
            LockOwner::Process(process) => Some(process),
            LockOwner::Description(_) => None,
        };
        let attempt = || {
            let result = self.acquire(node, table, wanted);
            if let (Err(Errno::EAGAIN), Some(process)) = (result, process) {
                self.locks.borrow_mut().wait(process, node, wanted)?;
            }
            result
        };
        let result = call.block_on(until_ready(attempt, |waker| self.waiters.add(waker)));
        if let Some(process) = process {
            self.locks.borrow_mut().waits_no_more(process);
        }
        result?
    }

    /// Gives up what an owner has of a range.
    pub fn release(&self, node: NodeId, table: LockTable, owner: LockOwner, range: &Range<u64>) {
        if self.locks.borrow_mut().release(node, table, owner, range) {
            self.waiters.wake();
        }
    }

    /// Gives up all that an owner has of a file, which is asked at each end of a descriptor.
    pub fn release_all(&self, node: NodeId, owner: LockOwner) {
        let mut locks = self.locks.borrow_mut();
        if !locks.is_empty() && locks.release_all(node, owner) {
            drop(locks);
            self.waiters.wake();
        }
    }
}
