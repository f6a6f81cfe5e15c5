//! Seals of files in memory (fcntl(2), "File Sealing"): what nobody can do with one any more, so that who is
//! given it by somebody else can rely on it.

use crate::contents::PAGE;
use crate::errno::Errno;
use crate::node::{Body, InodeId, NodeId};
use crate::vfs::Vfs;
use alloc::collections::BTreeMap;
use linux_raw_sys::general::{F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE};

const ALL: u32 = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
/// Those by which nobody writes.
const WRITES: u32 = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

/// Whether a process could write to a file by a shared mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedMapping {
    /// One may have one.
    There,
    /// None has.
    Absent,
}

/// Seals of those files that may be sealed; all others are sealed against more seals.
#[derive(Debug, Default)]
pub(crate) struct Seals(BTreeMap<InodeId, u32>);

impl Seals {
    /// Its file has gone.
    pub fn forget(&mut self, id: InodeId) {
        self.0.remove(&id);
    }

    fn of(&self, id: InodeId) -> u32 {
        // Nearly always.
        if self.0.is_empty() { F_SEAL_SEAL } else { self.0.get(&id).copied().unwrap_or(F_SEAL_SEAL) }
    }
}

impl Vfs {
    /// From now on a file may be sealed (`MFD_ALLOW_SEALING`).
    ///
    /// # Panics
    /// If it is no file in memory.
    pub fn allow_seals(&mut self, node: NodeId) {
        let id = node.stored().expect("a file in memory");
        self.seals.0.insert(id, 0);
    }

    /// The seals of a file, `F_SEAL_*`.
    ///
    /// # Errors
    /// `EINVAL` if it is none in memory.
    pub fn seals(&self, node: NodeId) -> Result<u32, Errno> {
        let id = node.stored().filter(|id| matches!(self.inode(*id).body, Body::File(_)));
        Ok(self.seals.of(id.ok_or(Errno::EINVAL)?))
    }

    /// Adds seals.
    ///
    /// # Errors
    /// `EINVAL` (other seals, or no file in memory), `EPERM` (sealed against seals), `EBUSY`.
    pub fn add_seals(&mut self, node: NodeId, seals: u32, mapping: SharedMapping) -> Result<(), Errno> {
        let before = self.seals(node)?;
        if seals & !ALL != 0 {
            return Err(Errno::EINVAL);
        }
        if before & F_SEAL_SEAL != 0 {
            return Err(Errno::EPERM);
        }
        if seals & !before & F_SEAL_WRITE != 0 && mapping == SharedMapping::There {
            return Err(Errno::EBUSY);
        }
        if let Some(id) = node.stored() {
            self.seals.0.insert(id, before | seals);
        }
        Ok(())
    }

    /// Whether somebody may write to a file by mapping it.
    pub fn may_map_to_write(&self, node: NodeId) -> bool {
        node.stored().is_none_or(|id| self.check_sealed(id).is_ok())
    }

    /// Whether what is in a file may change.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_sealed(&self, id: InodeId) -> Result<(), Errno> {
        if self.seals.of(id) & WRITES != 0 { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// How many of `count` bytes may be written at `offset`: who may not let the file grow writes the pages
    /// before its end.
    ///
    /// # Errors
    /// `EPERM` if that is nothing.
    pub(crate) fn check_sealed_write(&self, id: InodeId, offset: u64, count: u64) -> Result<u64, Errno> {
        self.check_sealed(id)?;
        let Err(refused) = self.check_sealed_end(id, offset + count) else { return Ok(count) };
        let size = self.size(NodeId::Stored(id))?;
        let whole = (size - size % PAGE).saturating_sub(offset);
        if whole > 0 { Ok(whole) } else { Err(refused) }
    }

    /// Whether a file may be so long at least.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_sealed_end(&self, id: InodeId, end: u64) -> Result<(), Errno> {
        let grows = self.seals.of(id) & F_SEAL_GROW != 0 && end > self.size(NodeId::Stored(id))?;
        if grows { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Whether a file may have that length.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_sealed_length(&self, id: InodeId, len: u64) -> Result<(), Errno> {
        let shrinks = self.seals.of(id) & F_SEAL_SHRINK != 0 && len < self.size(NodeId::Stored(id))?;
        if shrinks { Err(Errno::EPERM) } else { self.check_sealed_end(id, len) }
    }
}
