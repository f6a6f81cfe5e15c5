//! `rename(2)`.

use crate::caller::{Access, Caller};
use crate::errno::Errno;
use crate::node::{Body, InodeId, NodeId};
use crate::vfs::Vfs;
use crate::walk::{Found, LastName};
use core::ops::ControlFlow;

/// What happens to what has the new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It loses it.
    Yes,
    /// It keeps it, and the call fails: `RENAME_NOREPLACE`.
    No,
    /// It gets the old one: `RENAME_EXCHANGE`.
    Exchange,
}

impl Vfs {
    /// Gives what has the name `from` the name `to`; each path with where it begins.
    ///
    /// # Errors
    /// As `rename(2)` and `renameat2(2)`.
    pub fn rename(
        &mut self,
        caller: &Caller<'_>,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        replace: Replace,
    ) -> Result<(), Errno> {
        let old = self.find_entry(caller, from.0, from.1)?;
        let new = self.find_entry(caller, to.0, to.1)?;
        self.check_one_mount(&old, &new)?;
        let LastName::Name(old_name) = &old.last else { return Err(Errno::EBUSY) };
        let LastName::Name(new_name) = &new.last else {
            return Err(if replace == Replace::No { Errno::EEXIST } else { Errno::EBUSY });
        };
        let moved = self.entry(caller, &old)?.ok_or(Errno::ENOENT)?;
        let new = Found { node: self.entry(caller, &new)?, ..new.clone() };
        match (replace, new.node) {
            (Replace::No, Some(_)) => return Err(Errno::EEXIST),
            (Replace::Exchange, None) => return Err(Errno::ENOENT),
            _ => {}
        }
        self.check_slashes(&old, &new, moved, replace)?;
        self.check_loop(&old, &new, moved, replace)?;
        if new.node == Some(moved) {
            return Ok(());
        }
        if let ControlFlow::Break(done) =
            self.host_rename(caller, (&old, old_name), (&new, new_name), moved, replace)
        {
            return done;
        }
        let (old_directory, id) = self.removable(caller, old.directory, moved)?;
        let NodeId::Stored(new_directory) = new.directory else { return Err(Errno::EXDEV) };
        let other = self.check_target(caller, &new, id, replace)?;
        self.check_turn(caller, id, old_directory, new_directory)?;
        if replace != Replace::Exchange && other.is_some_and(|other| self.has_entries(other)) {
            return Err(Errno::ENOTEMPTY);
        }
        if let (Replace::Exchange, Some(other)) = (replace, other) {
            self.check_turn(caller, other, new_directory, old_directory)?;
            self.take_away(caller, new_directory, new_name, other);
            self.take_away(caller, old_directory, old_name, id);
            self.link_in(caller, old_directory, old_name, other);
            self.inode_mut(other).changed = caller.now;
            self.tell_of_move((new_directory, new_name), (old_directory, old_name), other);
        } else {
            if let Some(other) = other {
                self.take_out(caller, new_directory, new_name);
                match self.inode(other).is_directory() {
                    true => self.drop_directory(caller, new_directory, other),
                    false => self.drop_link(caller, other),
                }
            }
            self.take_away(caller, old_directory, old_name, id);
        }
        self.link_in(caller, new_directory, new_name, id);
        self.inode_mut(id).changed = caller.now;
        self.tell_of_move((old_directory, old_name), (new_directory, new_name), id);
        Ok(())
    }

    fn check_one_mount(&self, old: &Found, new: &Found) -> Result<(), Errno> {
        match (old.directory, new.directory) {
            (NodeId::Stored(old), NodeId::Stored(new)) if self.inode(old).mount == self.inode(new).mount => {
                Ok(())
            }
            (NodeId::Host(old), NodeId::Host(new)) if self.host_mount(old) == self.host_mount(new) => Ok(()),
            _ => Err(Errno::EXDEV),
        }
    }

    /// A slash behind a name says that it is a directory's.
    fn check_slashes(&self, old: &Found, new: &Found, moved: NodeId, replace: Replace) -> Result<(), Errno> {
        let is_directory = self.kind(moved).is_directory();
        let is_other_file =
            replace == Replace::Exchange && new.node.is_some_and(|node| !self.kind(node).is_directory());
        let is_wanted = old.is_directory_wanted || (replace != Replace::Exchange && new.is_directory_wanted);
        if (is_wanted && !is_directory) || (is_other_file && new.is_directory_wanted) {
            return Err(Errno::ENOTDIR);
        }
        Ok(())
    }

    /// No directory goes into itself.
    fn check_loop(&self, old: &Found, new: &Found, moved: NodeId, replace: Replace) -> Result<(), Errno> {
        if self.is_within(new.directory, moved) {
            return Err(Errno::EINVAL);
        }
        if new.node.is_some_and(|other| self.is_within(old.directory, other)) {
            return Err(if replace == Replace::Exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        Ok(())
    }

    fn is_within(&self, mut directory: NodeId, ancestor: NodeId) -> bool {
        loop {
            if directory == ancestor {
                return true;
            }
            match self.parent(directory) {
                parent if parent == directory => return false,
                parent => directory = parent,
            }
        }
    }

    /// What has the new name, if it can lose it; else whether the name can be made.
    fn check_target(
        &self,
        caller: &Caller<'_>,
        new: &Found,
        moved: InodeId,
        replace: Replace,
    ) -> Result<Option<InodeId>, Errno> {
        let Some(node) = new.node else {
            let directory = self.inode(new.directory.stored().ok_or(Errno::EXDEV)?);
            if directory.links == 0 {
                return Err(Errno::ENOENT);
            }
            caller.credentials.check(directory, Access::WRITE.and(Access::EXECUTE))?;
            return Ok(None);
        };
        let (_, other) = self.removable(caller, new.directory, node)?;
        if replace == Replace::Exchange {
            return Ok(Some(other));
        }
        self.check_kinds(NodeId::Stored(moved), node)?;
        Ok(Some(other))
    }

    /// Only a directory takes the name of one.
    pub(crate) fn check_kinds(&self, moved: NodeId, other: NodeId) -> Result<(), Errno> {
        match (self.kind(moved).is_directory(), self.kind(other).is_directory()) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            _ => Ok(()),
        }
    }

    /// Whether it is a directory with something in it.
    fn has_entries(&self, id: InodeId) -> bool {
        matches!(&self.inode(id).body, Body::Directory(directory) if !directory.is_empty())
    }

    /// A directory that changes its parent must be writable, since its `..` changes.
    fn check_turn(&self, caller: &Caller<'_>, id: InodeId, from: InodeId, to: InodeId) -> Result<(), Errno> {
        let inode = self.inode(id);
        if inode.is_directory() && from != to {
            return caller.credentials.check(inode, Access::WRITE);
        }
        Ok(())
    }

    /// Takes a name out without giving up what it led to.
    fn take_away(&mut self, caller: &Caller<'_>, directory: InodeId, name: &[u8], id: InodeId) {
        self.take_out(caller, directory, name);
        if self.inode(id).is_directory() {
            self.inode_mut(directory).links -= 1;
        }
    }
}
