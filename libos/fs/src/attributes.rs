//! What is known of a file beside its contents.

use crate::caller::{Access, Caller};
use crate::errno::Errno;
use crate::listing::NodeType;
use crate::node::{Body, NodeId};
use crate::vfs::{MountAccess, Vfs};
use core::time::Duration;
use linux_raw_sys::general::IN_ATTRIB;

/// When something happened, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    /// Seconds; before 1970 they are negative.
    pub seconds: i64,
    /// Nanoseconds of the next second.
    pub nanoseconds: u32,
}

impl From<Duration> for FileTime {
    /// The time this long after 1970 began.
    fn from(since: Duration) -> FileTime {
        FileTime { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }
}

/// What `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which file system it is in.
    pub device: u64,
    /// Its number there.
    pub number: u64,
    /// What it is.
    pub kind: NodeType,
    /// The lowest twelve bits of `st_mode`.
    pub permissions: u32,
    /// How many names it has.
    pub links: u32,
    /// Whose it is.
    pub user: u32,
    /// Of which group.
    pub group: u32,
    /// Of a device, which one.
    pub rdev: u64,
    /// Bytes of its contents.
    pub size: u64,
    /// Blocks of 512 bytes that it takes.
    pub blocks: u64,
    /// When it was read.
    pub accessed: FileTime,
    /// When its contents changed.
    pub modified: FileTime,
    /// When anything about it changed.
    pub changed: FileTime,
    /// When it was made.
    pub born: FileTime,
}

impl Attributes {
    /// What `st_mode` says.
    pub fn mode(&self) -> u32 {
        self.kind.mode() | self.permissions
    }
}

/// A change of owner: who is not named stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The new owner.
    pub user: Option<u32>,
    /// The new group.
    pub group: Option<u32>,
}

/// A time that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Not at all.
    Omit,
    /// To the time of the call.
    Now,
    /// To this time.
    At(FileTime),
}

/// What `statfs` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFacts {
    /// Which kind of file system it is, by Linux's magic number.
    pub magic: u64,
    /// Pages that it may have.
    pub pages: u64,
    /// Pages that are left.
    pub pages_free: u64,
    /// Files that it has.
    pub files: u64,
    /// What may be done with it.
    pub access: MountAccess,
}

impl Vfs {
    /// What `stat` tells.
    ///
    /// # Errors
    /// `ENOENT` for a process that has ended, and for a file that nobody has any more.
    pub fn attributes(&self, caller: &Caller<'_>, node: NodeId) -> Result<Attributes, Errno> {
        let id = match node {
            NodeId::Stored(id) => id,
            NodeId::Proc(node) => return self.proc_attributes(caller, node),
            NodeId::Host(id) => return self.host_attributes(id),
        };
        let inode = self.known_inode(id).ok_or(Errno::ENOENT)?;
        let (size, blocks, rdev) = match &inode.body {
            Body::File(contents) => (contents.len(), contents.blocks(), 0),
            Body::Link(target) => (target.len() as u64, 0, 0),
            Body::Directory(directory) => (directory.size(), 0, 0),
            Body::Device { number, .. } => (0, 0, *number),
            Body::Fifo | Body::Socket => (0, 0, 0),
        };
        Ok(Attributes {
            device: self.device_of(inode.mount),
            number: inode.number,
            kind: inode.node_type(),
            permissions: inode.permissions,
            links: inode.links,
            user: inode.user,
            group: inode.group,
            rdev,
            size,
            blocks,
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
            born: inode.born,
        })
    }

    /// Whether the caller may do this, as `access(2)` asks for one with the credentials of its choice.
    ///
    /// # Errors
    /// `EACCES`; `EROFS` for writing where nobody can.
    pub fn access(&self, caller: &Caller<'_>, node: NodeId, wanted: Access) -> Result<(), Errno> {
        match node {
            NodeId::Stored(id) => caller.credentials.check(self.inode(id), wanted),
            NodeId::Proc(node) => self.proc_check(caller, node, wanted),
            NodeId::Host(id) => self.host_access(caller.credentials, id, wanted),
        }
    }

    /// Sets the lowest twelve bits of the mode.
    ///
    /// # Errors
    /// `EPERM` for those whose file it is not, and in `/proc`.
    pub fn set_permissions(
        &mut self,
        caller: &Caller<'_>,
        node: NodeId,
        permissions: u32,
    ) -> Result<(), Errno> {
        if let NodeId::Host(id) = node {
            return self.host_set_permissions(caller, id, permissions);
        }
        let id = node.stored().ok_or(Errno::EPERM)?;
        let credentials = caller.credentials;
        let inode = self.inode_mut(id);
        credentials.check_owner(&inode.rights())?;
        if matches!(inode.body, Body::Link(_)) {
            return Err(Errno::EOPNOTSUPP);
        }
        inode.permissions = permissions & 0o7777;
        if !credentials.is_root() && !credentials.is_in(inode.group) {
            inode.permissions &= !0o2000;
        }
        inode.changed = caller.now;
        self.tell_of(node, IN_ATTRIB);
        Ok(())
    }

    /// Gives a file to others.
    ///
    /// # Errors
    /// `EPERM`: only root gives away, and an owner chooses among its own groups.
    pub fn set_owner(&mut self, caller: &Caller<'_>, node: NodeId, to: Ownership) -> Result<(), Errno> {
        if let NodeId::Host(id) = node {
            return self.host_set_owner(caller, id, to);
        }
        let id = node.stored().ok_or(Errno::EPERM)?;
        let credentials = caller.credentials;
        let inode = self.inode_mut(id);
        credentials.check_new_owner(&inode.rights(), to)?;
        (inode.user, inode.group) = (to.user.unwrap_or(inode.user), to.group.unwrap_or(inode.group));
        // Who gets a program must not get its former owner's rights with it.
        if !inode.is_directory() && to != Ownership::default() {
            inode.drop_set_id(credentials);
        }
        inode.changed = caller.now;
        self.tell_of(node, IN_ATTRIB);
        Ok(())
    }

    /// Sets when a file was read and changed.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`: only its owner names a time; who may write it may say that it is now.
    pub fn set_times(
        &mut self,
        caller: &Caller<'_>,
        node: NodeId,
        accessed: Stamp,
        modified: Stamp,
    ) -> Result<(), Errno> {
        if (accessed, modified) == (Stamp::Omit, Stamp::Omit) {
            return Ok(());
        }
        if let NodeId::Host(id) = node {
            return self.host_set_times(caller, id, accessed, modified);
        }
        let id = node.stored().ok_or(Errno::EPERM)?;
        let inode = self.inode_mut(id);
        caller.credentials.check_times(&inode.rights(), accessed, modified)?;
        let at = |stamp: Stamp, before: FileTime| match stamp {
            Stamp::Omit => before,
            Stamp::Now => caller.now,
            Stamp::At(time) => time,
        };
        inode.accessed = at(accessed, inode.accessed);
        inode.modified = at(modified, inode.modified);
        inode.changed = caller.now;
        self.tell_of(node, IN_ATTRIB);
        Ok(())
    }

    /// What `statfs` tells of the file system that a node is in.
    pub fn space(&self, node: NodeId) -> SpaceFacts {
        let mount = match node {
            NodeId::Host(id) => match self.host_space(id) {
                Some(space) => return space,
                None => Some(self.mount(self.host_mount(id))),
            },
            NodeId::Stored(id) => Some(self.mount(self.inode(id).mount)),
            NodeId::Proc(_) => self.proc_mount(),
        };
        let (pages, pages_free) = self.pages();
        let magic = mount.map_or(linux_raw_sys::general::PROC_SUPER_MAGIC.into(), |mount| mount.magic);
        let access = mount.map_or(MountAccess::ReadWrite, |mount| mount.access);
        SpaceFacts { magic, pages, pages_free, files: self.files(), access }
    }
}
