//! The tree: what is stored, and which file systems lie where.

use crate::attributes::FileTime;
use crate::caller::Caller;
use crate::contents::PAGE;
use crate::directory::Directory;
use crate::disk::RootDisk;
use crate::errno::Errno;
use crate::extended::ExtendedAttributes;
use crate::host::HostFiles;
use crate::listing::NodeType;
use crate::node::{Body, Inode, InodeId, NodeId};
use crate::proc::ProcNode;
use crate::seals::Seals;
use crate::watch::Watches;
use crate::{devices, sys};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use linux_raw_sys::general::{SYSFS_MAGIC, TMPFS_MAGIC};
use slotmap::SlotMap;

/// Where numbers of file systems begin: those before are real devices'.
const FIRST_DEVICE: u64 = 0x10;

/// A file system and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub root: NodeId,
    /// The directory that it covers; the first covers none.
    pub at: Option<InodeId>,
    pub magic: u64,
    pub kind: &'static str,
    pub access: MountAccess,
}

/// What may be done with a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    /// Read it.
    ReadOnly,
    /// Read and write it.
    ReadWrite,
}

impl MountAccess {
    /// As `/proc/mounts` says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            MountAccess::ReadOnly => "ro",
            MountAccess::ReadWrite => "rw",
        }
    }
}

/// Says how much memory there is, beside what a tree is told when it is made.
pub trait MemoryRoom {
    /// Bytes that files may take now. If these are fewer than `wanted`, others have given back what they only
    /// keep.
    fn bytes(&self, wanted: u64) -> u64;
}

/// The files of a family of processes.
pub struct Vfs {
    inodes: SlotMap<InodeId, Inode>,
    mounts: Vec<Mount>,
    /// Files that others cover, with what these are mounted as; a directory knows itself.
    pub(crate) covered_files: Vec<(InodeId, usize)>,
    pub(crate) host: RefCell<HostFiles>,
    pub(crate) watches: Watches,
    pub(crate) extended: ExtendedAttributes,
    pub(crate) seals: Seals,
    next_number: u64,
    pages: u64,
    pages_max: u64,
    /// Without it there is as much memory as `pages_max` says.
    pub(crate) room: Option<Box<dyn MemoryRoom>>,
    /// Files that it came with: only those that were made since are limited.
    came: usize,
    /// Where contents of files lie, if that is a disk.
    pub(crate) disk: Option<Rc<RootDisk>>,
}

impl fmt::Debug for Vfs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Vfs({} files, {} of {} pages)", self.inodes.len(), self.pages, self.pages_max)
    }
}

impl Vfs {
    /// A tree with nothing but its root; what is written to files may take `pages_max` pages of 4 KiB.
    pub fn new(now: FileTime, pages_max: u64) -> Vfs {
        let mut vfs = Vfs {
            inodes: SlotMap::with_key(),
            mounts: Vec::new(),
            covered_files: Vec::new(),
            host: RefCell::default(),
            watches: Watches::default(),
            extended: ExtendedAttributes::default(),
            seals: Seals::default(),
            next_number: 1,
            pages: 0,
            pages_max,
            room: None,
            came: 0,
            disk: None,
        };
        vfs.add_mount(None, now, u64::from(TMPFS_MAGIC), "rootfs");
        vfs
    }

    /// The root of the tree.
    pub fn root(&self) -> NodeId {
        self.mounts[0].root
    }

    /// Covers `/dev`, `/proc`, `/sys` and `/dev/shm` with what belongs there on a machine with so many
    /// processors, and makes the directories.
    ///
    /// # Errors
    /// If one of these names leads to something else than a directory.
    pub fn mount_system(&mut self, caller: &Caller<'_>, cores: u32) -> Result<(), Errno> {
        let dev = self.mount_memory(caller, b"/dev", TMPFS_MAGIC.into(), "devtmpfs")?;
        devices::fill(self, caller, dev)?;
        let shm = self.mount_memory(caller, b"/dev/shm", TMPFS_MAGIC.into(), "tmpfs")?;
        self.set_permissions(caller, shm, 0o1777)?;
        let sys = self.mount_memory(caller, b"/sys", SYSFS_MAGIC.into(), "sysfs")?;
        sys::fill(self, caller, sys, cores)?;
        let at = self.mount_point(caller, b"/proc")?;
        let magic = u64::from(linux_raw_sys::general::PROC_SUPER_MAGIC);
        let (root, access) = (NodeId::Proc(ProcNode::Root), MountAccess::ReadWrite);
        self.mounts.push(Mount { root, at: Some(at), magic, kind: "proc", access });
        self.cover(at);
        Ok(())
    }

    /// Covers a directory, which is made if it is absent, with an empty one in memory.
    ///
    /// # Errors
    /// If its name leads to something else than a directory.
    fn mount_memory(
        &mut self,
        caller: &Caller<'_>,
        path: &[u8],
        magic: u64,
        kind: &'static str,
    ) -> Result<NodeId, Errno> {
        let at = self.mount_point(caller, path)?;
        let root = self.add_mount(Some(at), caller.now, magic, kind);
        self.cover(at);
        Ok(root)
    }

    pub(crate) fn mount_point(&mut self, caller: &Caller<'_>, path: &[u8]) -> Result<InodeId, Errno> {
        match self.make_directory(caller, caller.root, path, 0o755) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
        let node = self.resolve(caller, caller.root, path, crate::LastLink::Follow)?;
        let at = node.stored().filter(|id| self.inode(*id).is_directory()).ok_or(Errno::ENOTDIR)?;
        let is_covering = self.mounts.iter().any(|mount| mount.root == node);
        if is_covering { Err(Errno::EBUSY) } else { Ok(at) }
    }

    pub(crate) fn cover(&mut self, at: InodeId) {
        let last = self.mounts.len() - 1;
        self.directory_mut(at).expect("a mount point is a directory").covered = Some(last);
    }

    fn add_mount(&mut self, at: Option<InodeId>, now: FileTime, magic: u64, kind: &'static str) -> NodeId {
        let mount = self.mounts.len();
        let number = self.take_number();
        let root = self.inodes.insert_with_key(|id| Inode {
            body: Body::Directory(Directory::new(id)),
            number,
            mount,
            permissions: 0o755,
            user: 0,
            group: 0,
            links: 2,
            holds: 1,
            accessed: now,
            modified: now,
            changed: now,
            born: now,
        });
        let root = NodeId::Stored(root);
        self.mounts.push(Mount { root, at, magic, kind, access: MountAccess::ReadWrite });
        root
    }

    /// One more file system, which covers what [`Vfs::cover`] is then told.
    pub(crate) fn add_mount_of(&mut self, mount: Mount) {
        self.mounts.push(mount);
    }

    pub(crate) fn mounts_len(&self) -> usize {
        self.mounts.len()
    }

    /// Mounted file systems, each with its path.
    pub(crate) fn mounted(&self) -> impl Iterator<Item = (&Mount, Vec<u8>)> {
        self.mounts.iter().map(|mount| (mount, self.path_of(self.root(), mount.root)))
    }

    pub(crate) fn mount(&self, index: usize) -> &Mount {
        &self.mounts[index]
    }

    /// The file system of `/proc`.
    pub(crate) fn proc_mount(&self) -> Option<&Mount> {
        self.mounts.iter().find(|mount| matches!(mount.root, NodeId::Proc(_)))
    }

    pub(crate) fn device_of(&self, mount: usize) -> u64 {
        FIRST_DEVICE + mount as u64
    }

    pub(crate) fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    pub(crate) fn inode(&self, id: InodeId) -> &Inode {
        &self.inodes[id]
    }

    /// The same of what somebody names who does not hold it.
    pub(crate) fn known_inode(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(id)
    }

    pub(crate) fn inode_mut(&mut self, id: InodeId) -> &mut Inode {
        &mut self.inodes[id]
    }

    pub(crate) fn directory(&self, id: InodeId) -> Result<&Directory, Errno> {
        match &self.inodes[id].body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn directory_mut(&mut self, id: InodeId) -> Result<&mut Directory, Errno> {
        match &mut self.inodes[id].body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = InodeId> {
        self.inodes.keys()
    }

    /// Files there are.
    pub(crate) fn files(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// Pages that files may have, and those that are left.
    pub(crate) fn pages(&self) -> (u64, u64) {
        (self.pages_max, self.pages_max - self.pages)
    }

    /// From now on what is made or written needs memory that there is, and what is made is counted.
    pub fn set_room(&mut self, room: Box<dyn MemoryRoom>) {
        self.room = Some(room);
        self.came = self.inodes.len();
    }

    /// Gives back a part of what it keeps of a disk, to be read again when it is wanted; whether there was
    /// anything.
    pub fn give_back(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.give_back())
    }

    /// Whether files may have so many pages more.
    ///
    /// # Errors
    /// `ENOSPC` if the tree was not given so many, `ENOMEM` if they are not there.
    pub(crate) fn check_room(&self, pages: u64) -> Result<(), Errno> {
        if pages > self.pages_max - self.pages {
            return Err(Errno::ENOSPC);
        }
        self.check_memory(pages * PAGE)
    }

    /// Whether there are so many bytes of memory for files.
    fn check_memory(&self, bytes: u64) -> Result<(), Errno> {
        let Some(room) = self.room.as_ref().filter(|_| bytes > 0) else { return Ok(()) };
        while room.bytes(bytes) < bytes {
            if !self.give_back() {
                return Err(Errno::ENOMEM);
            }
        }
        Ok(())
    }

    /// Whether there may be one more file, directory or the like: as many as pages, as tmpfs has it.
    ///
    /// # Errors
    /// `ENOSPC`, `ENOMEM`.
    pub(crate) fn check_new(&self) -> Result<(), Errno> {
        let made = self.inodes.len().saturating_sub(self.came) as u64;
        if self.room.is_some() && made >= self.pages_max {
            return Err(Errno::ENOSPC);
        }
        self.check_memory(PAGE)
    }

    /// Changes the contents of a file, and books its pages; there is room for them.
    pub(crate) fn change<T>(
        &mut self,
        id: InodeId,
        change: impl FnOnce(&mut crate::contents::Contents) -> T,
    ) -> Result<T, Errno> {
        let Body::File(contents) = &mut self.inodes[id].body else { return Err(Errno::EINVAL) };
        let before = contents.pages();
        let value = change(contents);
        self.pages = self.pages + contents.pages() - before;
        Ok(value)
    }

    /// Holds a node: it stays though all its names go. Each hold is given back by [`Vfs::release`].
    pub fn hold(&mut self, node: NodeId) {
        match node {
            NodeId::Stored(id) => self.inodes[id].holds += 1,
            NodeId::Host(id) => self.host_hold(id),
            NodeId::Proc(_) => {}
        }
    }

    /// Gives a hold back.
    ///
    /// # Panics
    /// If nobody holds it.
    pub fn release(&mut self, node: NodeId) {
        match node {
            NodeId::Stored(id) => {
                let inode = &mut self.inodes[id];
                inode.holds = inode.holds.checked_sub(1).expect("only what is held is released");
                self.collect(id);
            }
            NodeId::Host(id) => self.host_release(id),
            NodeId::Proc(_) => {}
        }
    }

    /// Frees what has neither name nor holder: a directory, and then those above that only it held.
    pub(crate) fn collect(&mut self, id: InodeId) {
        let mut next = Some(id);
        while let Some(id) = next.take() {
            let inode = &self.inodes[id];
            if inode.links > 0 || inode.holds > 0 {
                return;
            }
            match &inode.body {
                Body::File(contents) => self.pages -= contents.pages(),
                Body::Directory(directory) => next = Some(directory.parent),
                _ => {}
            }
            self.tell_of_end(id);
            self.extended.forget(id);
            self.seals.forget(id);
            self.inodes.remove(id);
            if let Some(parent) = next {
                self.inodes[parent].holds -= 1;
            }
        }
    }

    /// What somebody is to know of a node without a `stat`: its kind.
    pub fn kind(&self, node: NodeId) -> NodeType {
        match node {
            NodeId::Stored(id) => self.inode(id).node_type(),
            NodeId::Proc(node) => node.kind(),
            NodeId::Host(id) => self.host_kind(id),
        }
    }

    /// The number of a device, if it is one.
    pub fn device_number(&self, node: NodeId) -> Option<u64> {
        if let NodeId::Host(id) = node {
            let is_device = matches!(self.host_kind(id), NodeType::Character | NodeType::Block);
            return is_device.then(|| self.host_device(id));
        }
        match self.inode(node.stored()?).body {
            Body::Device { number, .. } => Some(number),
            _ => None,
        }
    }

    /// A file without a name, as of `memfd_create` and `O_TMPFILE`; held.
    pub fn nameless(&mut self, caller: &Caller<'_>, permissions: u32) -> NodeId {
        let body = Body::File(crate::contents::Contents::default());
        let id = self.make(caller, body, 0, permissions);
        let inode = self.inode_mut(id);
        (inode.links, inode.holds) = (0, 1);
        NodeId::Stored(id)
    }

    /// The inode of something new, which the caller then owns.
    pub(crate) fn make(
        &mut self,
        caller: &Caller<'_>,
        body: Body,
        mount: usize,
        permissions: u32,
    ) -> InodeId {
        let number = self.take_number();
        let links = if matches!(body, Body::Directory(_)) { 2 } else { 1 };
        self.inodes.insert(Inode {
            body,
            number,
            mount,
            permissions: permissions & 0o7777,
            user: caller.credentials.user,
            group: caller.credentials.group,
            links,
            holds: 0,
            accessed: caller.now,
            modified: caller.now,
            changed: caller.now,
            born: caller.now,
        })
    }

    /// Pages that are left if a file changes in this way.
    pub(crate) fn check_write(&self, id: InodeId, offset: u64, len: u64) -> Result<(), Errno> {
        let Body::File(contents) = &self.inode(id).body else { return Err(Errno::EINVAL) };
        if len.div_ceil(PAGE) > self.pages_max {
            return Err(Errno::ENOSPC);
        }
        self.check_room(contents.missing(offset, len))
    }
}
