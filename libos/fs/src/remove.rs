//! Taking names away.

use crate::caller::{Access, Caller};
use crate::errno::Errno;
use crate::listing::NodeType;
use crate::node::{Body, InodeId, NodeId};
use crate::vfs::Vfs;
use crate::walk::{Fixed, LastName};
use linux_raw_sys::general::IN_DELETE;

impl Vfs {
    /// `unlink(2)`: what nobody holds and no other name leads to is gone.
    ///
    /// # Errors
    /// As there.
    pub fn unlink(&mut self, caller: &Caller<'_>, at: NodeId, path: &[u8]) -> Result<(), Errno> {
        let found = self.find_entry(caller, at, path)?;
        let LastName::Name(name) = &found.last else { return Err(Errno::EISDIR) };
        let node = self.entry(caller, &found)?.ok_or(Errno::ENOENT)?;
        let is_directory = self.kind(node).is_directory();
        if found.is_directory_wanted {
            return Err(if is_directory { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        if let NodeId::Host(directory) = found.directory {
            return self.host_remove(caller, (directory, name), node, NodeType::File);
        }
        let (directory, id) = self.removable(caller, found.directory, node)?;
        if is_directory {
            return Err(Errno::EISDIR);
        }
        self.take_out(caller, directory, name);
        self.tell_of_links(id);
        self.tell_of_name(directory, name, id, IN_DELETE);
        self.drop_link(caller, id);
        Ok(())
    }

    /// `rmdir(2)`.
    ///
    /// # Errors
    /// As there.
    pub fn remove_directory(&mut self, caller: &Caller<'_>, at: NodeId, path: &[u8]) -> Result<(), Errno> {
        let found = self.find_entry(caller, at, path)?;
        let name = match &found.last {
            LastName::Name(name) => name,
            LastName::Fixed(Fixed::Dot) => return Err(Errno::EINVAL),
            LastName::Fixed(Fixed::DotDot) => return Err(Errno::ENOTEMPTY),
            LastName::Fixed(Fixed::Root) => return Err(Errno::EBUSY),
        };
        let node = self.entry(caller, &found)?.ok_or(Errno::ENOENT)?;
        if let NodeId::Host(directory) = found.directory {
            return self.host_remove(caller, (directory, name), node, NodeType::Directory);
        }
        let (directory, id) = self.removable(caller, found.directory, node)?;
        if !self.directory(id)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.take_out(caller, directory, name);
        self.tell_of_name(directory, name, id, IN_DELETE);
        self.drop_directory(caller, directory, id);
        Ok(())
    }

    /// A directory and what is in it, if the caller may take that out.
    pub(crate) fn removable(
        &self,
        caller: &Caller<'_>,
        directory: NodeId,
        node: NodeId,
    ) -> Result<(InodeId, InodeId), Errno> {
        let NodeId::Stored(directory) = directory else { return Err(Errno::EPERM) };
        let inode = self.inode(directory);
        caller.credentials.check(inode, Access::WRITE.and(Access::EXECUTE))?;
        // What covers a directory is in use.
        let NodeId::Stored(id) = node else { return Err(Errno::EBUSY) };
        let is_root = self.mount(self.inode(id).mount).root == node;
        if is_root {
            return Err(Errno::EBUSY);
        }
        let is_sticky = inode.permissions & 0o1000 != 0;
        let user = caller.credentials.user;
        let is_owner = user == inode.user || user == self.inode(id).user;
        if is_sticky && !is_owner && !caller.credentials.is_root() {
            return Err(Errno::EPERM);
        }
        Ok((directory, id))
    }

    pub(crate) fn take_out(&mut self, caller: &Caller<'_>, directory: InodeId, name: &[u8]) {
        let inode = self.inode_mut(directory);
        inode.touch(caller.now);
        if let Body::Directory(entries) = &mut inode.body {
            entries.remove(name);
        }
    }

    /// A file has a name less.
    pub(crate) fn drop_link(&mut self, caller: &Caller<'_>, id: InodeId) {
        let inode = self.inode_mut(id);
        inode.links -= 1;
        inode.changed = caller.now;
        self.collect(id);
    }

    /// A directory, which was in another, is gone from the tree. As long as somebody has it, its `..` leads
    /// there: so it holds the one that it was in ([`Vfs::collect`] gives that back).
    pub(crate) fn drop_directory(&mut self, caller: &Caller<'_>, parent: InodeId, id: InodeId) {
        let above = self.inode_mut(parent);
        above.links -= 1;
        above.holds += 1;
        let inode = self.inode_mut(id);
        inode.links = 0;
        inode.changed = caller.now;
        self.collect(id);
    }
}
