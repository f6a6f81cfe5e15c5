//! Files and directories that are open.

use super::locks::FileLocks;
use super::mapped::MappedFiles;
use crate::family::ProcessFamily;
use crate::memory::{ProcessMemory, Touch};
use crate::process::file_time;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use nom_fs::{Caller, Credentials, Errno, NodeId, Vfs};

/// A node of the tree of files, held.
pub(crate) struct OpenNode {
    vfs: Rc<RefCell<Vfs>>,
    /// Where who has it open finds locks on it.
    pub locks: Rc<FileLocks>,
    /// What processes have mapped shared of files.
    mapped: Rc<MappedFiles>,
    /// The node.
    pub node: NodeId,
    /// Of a file in `/proc`, what it said when it was opened.
    text: Option<Vec<u8>>,
}

impl fmt::Debug for OpenNode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "OpenNode({:?})", self.node)
    }
}

impl OpenNode {
    /// One that [`Vfs::open`] returned, or that is held otherwise: this gives the hold back.
    pub fn held(family: &ProcessFamily, node: NodeId, text: Option<Vec<u8>>) -> OpenNode {
        OpenNode {
            vfs: family.vfs.clone(),
            locks: family.locks.clone(),
            mapped: family.mapped.clone(),
            node,
            text,
        }
    }

    /// Reads from an offset on.
    ///
    /// # Errors
    /// As [`Vfs::read`].
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<usize, Errno> {
        let Some(text) = &self.text else {
            let count = self.vfs.borrow().read(self.node, offset, target)?;
            self.mapped.with(self.node, |pages| pages.overlay(offset, &mut target[..count]));
            return Ok(count);
        };
        let start = offset.min(text.len() as u64) as usize;
        let count = (text.len() - start).min(target.len());
        target[..count].copy_from_slice(&text[start..start + count]);
        Ok(count)
    }

    /// Whether its bytes lie in memory, and not with the host, in the text of a file in `/proc`, or where
    /// processes have it mapped.
    pub fn is_stored(&self) -> bool {
        self.text.is_none() && matches!(self.node, NodeId::Stored(_)) && !self.mapped.has(self.node)
    }

    /// Reads from an offset of a file that is stored to where the process has `to`; says how many bytes.
    ///
    /// # Errors
    /// `EFAULT`; as [`Vfs::show`].
    pub fn read_stored(
        &self,
        memory: &ProcessMemory,
        offset: u64,
        to: u64,
        len: u64,
    ) -> Result<usize, Errno> {
        let there = self.size()?.saturating_sub(offset).min(len);
        let mut target = memory.reached(to, there, Touch::Write)?;
        self.vfs.borrow().show(self.node, offset, there, &mut |bytes| target.put(bytes))
    }

    /// Writes at an offset. What is written to `/proc` is taken and forgotten.
    ///
    /// # Errors
    /// As [`Vfs::write`].
    pub fn write(
        &self,
        vfs: &mut Vfs,
        caller: &Caller<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        match self.text {
            Some(_) => Ok(bytes.len()),
            None => {
                let count = vfs.write(self.node, offset, bytes, caller)?;
                self.mapped.with(self.node, |pages| pages.put(offset, &bytes[..count]));
                Ok(count)
            }
        }
    }

    /// Tells who watches it of something that was done to it.
    pub fn tell_of(&self, event: u32) {
        self.vfs.borrow_mut().tell_of(self.node, event);
    }

    /// Bytes that it has.
    ///
    /// # Errors
    /// As [`Vfs::size`].
    pub fn size(&self) -> Result<u64, Errno> {
        match &self.text {
            Some(text) => Ok(text.len() as u64),
            None => self.vfs.borrow().size(self.node),
        }
    }
}

impl Drop for OpenNode {
    fn drop(&mut self) {
        self.vfs.borrow_mut().release(self.node);
    }
}

impl crate::memory::Contents for OpenNode {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.read(offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let vfs = &mut *self.vfs.borrow_mut();
        let (credentials, root) = (Credentials::default(), vfs.root());
        // Whoever mapped it had it open for writing, and may have gone since.
        let caller = Caller::first(&credentials, root, file_time());
        vfs.write(self.node, offset, bytes, &caller).map(drop)
    }

    fn len(&self) -> u64 {
        self.size().unwrap_or(0)
    }

    fn unchanging(&self) -> Option<&'static [u8]> {
        if self.is_stored() { self.vfs.borrow().packed(self.node) } else { None }
    }

    fn first_name(&self) -> Option<u64> {
        if self.is_stored() { self.vfs.borrow().first_name(self.node) } else { None }
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }
}
