//! Reading and writing what is stored.

use crate::caller::Caller;
use crate::contents::PAGE;
use crate::errno::Errno;
use crate::node::{Body, InodeId, NodeId};
use crate::vfs::Vfs;
use linux_raw_sys::general::IN_MODIFY;

/// Where a file can end at most: Linux's offsets are signed.
const END_MAX: u64 = i64::MAX as u64;

/// What is looked for in a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Something that was written, `SEEK_DATA`.
    Data,
    /// Nothing, `SEEK_HOLE`.
    Hole,
}

impl Vfs {
    /// Copies a file's bytes from `offset`; says how many there were.
    ///
    /// # Errors
    /// `EISDIR`; `EINVAL` for what stores nothing.
    pub fn read(&self, node: NodeId, offset: u64, target: &mut [u8]) -> Result<usize, Errno> {
        if let NodeId::Host(id) = node {
            return self.host_read(id, offset, target);
        }
        match &self.inode(node.stored().ok_or(Errno::EINVAL)?).body {
            Body::File(contents) => contents.read(offset, target),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Shows up to `len` bytes of a file that is stored in memory where they lie, piece after piece, from
    /// `offset` on; says how many there were.
    ///
    /// # Errors
    /// `EISDIR`; `EINVAL` for what stores nothing in memory.
    pub fn show(
        &self,
        node: NodeId,
        offset: u64,
        len: u64,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, Errno> {
        match &self.inode(node.stored().ok_or(Errno::EINVAL)?).body {
            Body::File(contents) => contents.show(offset, len, show),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes at `offset`; says how many bytes, which are fewer when there is no room for all.
    ///
    /// # Errors
    /// `ENOSPC`, `ENOMEM`, `EFBIG`; `EINVAL` for what stores nothing.
    pub fn write(
        &mut self,
        node: NodeId,
        offset: u64,
        bytes: &[u8],
        caller: &Caller<'_>,
    ) -> Result<usize, Errno> {
        if let NodeId::Host(id) = node {
            return self.host_write(id, offset, bytes);
        }
        let mut rest = bytes;
        self.write_with(node, offset, bytes.len() as u64, caller, &mut |piece| {
            let (now, later) = rest.split_at(piece.len());
            piece.copy_from_slice(now);
            rest = later;
        })
    }

    /// Writes `len` bytes at `offset` of a file that is stored in memory, which `fill` puts where they are to
    /// lie, piece after piece; says how many, as [`Vfs::write`] does.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`; `EINVAL` for what stores nothing in memory.
    pub fn write_with(
        &mut self,
        node: NodeId,
        offset: u64,
        len: u64,
        caller: &Caller<'_>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<usize, Errno> {
        let id = node.stored().ok_or(Errno::EINVAL)?;
        if offset >= END_MAX && len > 0 {
            return Err(Errno::EFBIG);
        }
        let mut count = len.min(END_MAX - offset.min(END_MAX));
        if count > 0 {
            count = self.check_sealed_write(id, offset, count)?;
        }
        if matches!(self.check_write(id, offset, count), Err(Errno::ENOSPC | Errno::ENOMEM)) {
            // As far as the page that is there, or the last one that there is room for.
            count = count.min(PAGE - offset % PAGE);
            self.check_write(id, offset, count)?;
        }
        let count = self.change(id, |contents| contents.write(offset, count, fill))??;
        if count > 0 {
            self.inode_mut(id).change_contents(caller);
            self.tell_of(node, IN_MODIFY);
        }
        Ok(count as usize)
    }

    /// Bytes of a file's contents.
    ///
    /// # Errors
    /// The host's, of a file that it lends.
    pub fn size(&self, node: NodeId) -> Result<u64, Errno> {
        if let NodeId::Host(id) = node {
            return self.host_size(id);
        }
        Ok(match node.stored().map(|id| &self.inode(id).body) {
            Some(Body::File(contents)) => contents.len(),
            _ => 0,
        })
    }

    /// All of a file, if it is as it lies in the image: on pages of its own, which nobody changes.
    pub fn packed(&self, node: NodeId) -> Option<&'static [u8]> {
        match &self.inode(node.stored()?).body {
            Body::File(contents) => contents.untouched()?.in_memory(),
            _ => None,
        }
    }

    /// By which the first byte of a file is told from all others, and those behind it by the numbers that
    /// follow, if the file is as it came with the root: each byte with a name stays what it is.
    pub fn first_name(&self, node: NodeId) -> Option<u64> {
        match &self.inode(node.stored()?).body {
            Body::File(contents) => Some(contents.untouched()?.name()),
            _ => None,
        }
    }

    /// Cuts a file, or lets it end later.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`.
    pub fn truncate(&mut self, node: NodeId, len: u64, caller: &Caller<'_>) -> Result<(), Errno> {
        if let NodeId::Host(id) = node {
            return self.host_truncate(id, len);
        }
        let id = node.stored().ok_or(Errno::EACCES)?;
        if self.inode(id).is_directory() {
            return Err(Errno::EISDIR);
        }
        if len > END_MAX {
            return Err(Errno::EINVAL);
        }
        self.check_sealed_length(id, len)?;
        self.change(id, |contents| contents.truncate(len))?;
        self.inode_mut(id).change_contents(caller);
        self.tell_of(node, IN_MODIFY);
        Ok(())
    }

    /// Where the next data or hole is.
    ///
    /// # Errors
    /// `ENXIO` if there is none at or behind `offset`.
    pub fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<u64, Errno> {
        if let NodeId::Host(id) = node {
            return self.host_seek(id, offset, what);
        }
        let Body::File(contents) = &self.inode(node.stored().ok_or(Errno::EINVAL)?).body else {
            return Err(Errno::EINVAL);
        };
        if offset >= contents.len() {
            return Err(Errno::ENXIO);
        }
        match what {
            Seek::Data => contents.data_from(offset).ok_or(Errno::ENXIO),
            Seek::Hole => Ok(contents.hole_from(offset)),
        }
    }

    /// Takes room for a range, as `fallocate(2)` without flags.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EINVAL`.
    pub fn allocate(
        &mut self,
        node: NodeId,
        offset: u64,
        len: u64,
        caller: &Caller<'_>,
    ) -> Result<(), Errno> {
        let id = self.stored_contents(node)?;
        let end = offset.checked_add(len).filter(|end| *end <= END_MAX).ok_or(Errno::EFBIG)?;
        self.check_sealed_end(id, end)?;
        self.check_write(id, offset, len)?;
        self.change(id, |contents| {
            contents.allocate(offset, len)?;
            if end > contents.len() {
                contents.truncate(end);
            }
            Ok::<(), Errno>(())
        })??;
        self.inode_mut(id).change_contents(caller);
        Ok(())
    }

    /// What has contents in memory: elsewhere nobody takes room or makes holes. C libraries write zeros then.
    fn stored_contents(&self, node: NodeId) -> Result<InodeId, Errno> {
        match node {
            NodeId::Stored(id) => Ok(id),
            NodeId::Host(_) => Err(Errno::EOPNOTSUPP),
            NodeId::Proc(_) => Err(Errno::ENODEV),
        }
    }

    /// Makes a hole, as `fallocate(2)` with `FALLOC_FL_PUNCH_HOLE`.
    ///
    /// # Errors
    /// `ENOSPC` if a page of the image would have to be copied; `EINVAL`.
    pub fn punch(&mut self, node: NodeId, offset: u64, len: u64, caller: &Caller<'_>) -> Result<(), Errno> {
        let id = self.stored_contents(node)?;
        self.check_sealed(id)?;
        if self.first_name(node).is_some() {
            self.check_write(id, offset, len.min(self.size(node)?.saturating_sub(offset)))?;
        }
        self.change(id, |contents| contents.punch(offset, len))??;
        self.inode_mut(id).change_contents(caller);
        Ok(())
    }
}
