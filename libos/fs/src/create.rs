//! Opening, and making something new.

use crate::caller::{Access, Caller, Credentials};
use crate::contents::Contents;
use crate::directory::Directory;
use crate::errno::Errno;
use crate::listing::NodeType;
use crate::node::{Body, InodeId, NodeId};
use crate::vfs::Vfs;
use crate::walk::{Fixed, Found, LastLink, LastName};
use linux_raw_sys::general::{
    IN_CREATE, IN_OPEN, O_ACCMODE, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_TRUNC,
    O_WRONLY,
};

/// Linux's `O_TMPFILE` without `O_DIRECTORY`.
const TEMPORARY: u32 = linux_raw_sys::general::O_TMPFILE & !O_DIRECTORY;
/// Most names of one file, as ext4 has it.
const LINKS_MAX: u32 = 65_000;

impl Vfs {
    /// Opens what a path leads to, as `open(2)` with `flags`, and makes it if they say so; held. A file in
    /// `/proc` or a device is opened by its node, too: what reading it does is its caller's.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open(
        &mut self,
        caller: &Caller<'_>,
        at: NodeId,
        path: &[u8],
        flags: u32,
        mode: u32,
    ) -> Result<NodeId, Errno> {
        self.host_tidy();
        if flags & O_PATH != 0 {
            return self.open_path(caller, at, path, flags);
        }
        if flags & (O_CREAT | O_DIRECTORY) == O_CREAT | O_DIRECTORY {
            return Err(Errno::EINVAL);
        }
        if flags & TEMPORARY != 0 {
            return self.open_temporary(caller, at, path, flags, mode);
        }
        let is_new_only = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        let link = if flags & O_NOFOLLOW != 0 || is_new_only { LastLink::Keep } else { LastLink::Follow };
        let found = match flags & O_CREAT {
            0 => self.find(caller, at, path, link)?,
            _ => self.find_file(caller, at, path, link)?,
        };
        let node = match found.node {
            None if flags & O_CREAT == 0 => return Err(Errno::ENOENT),
            None => {
                let node =
                    self.create(caller, &found, Body::File(Contents::default()), mode & !caller.umask)?;
                self.hold(node);
                self.tell_of(node, IN_OPEN);
                return Ok(node);
            }
            Some(_) if is_new_only => return Err(Errno::EEXIST),
            Some(node) => node,
        };
        if flags & O_CREAT != 0 && self.kind(node).is_directory() {
            return Err(Errno::EISDIR);
        }
        if found.is_directory_wanted && !self.kind(node).is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.open_found(caller, node, flags)
    }

    /// Opens the program that a path leads to, to be read; held. Whoever may execute a file need not be one
    /// who may read it.
    ///
    /// # Errors
    /// Those of `open(2)`; `EACCES` for what the caller may not execute, or is no file.
    pub fn open_program(&mut self, caller: &Caller<'_>, at: NodeId, path: &[u8]) -> Result<NodeId, Errno> {
        self.host_tidy();
        let node = self.resolve(caller, at, path, LastLink::Follow)?;
        if self.kind(node) != NodeType::File {
            return Err(Errno::EACCES);
        }
        self.access(caller, node, Access::EXECUTE)?;
        let root = Credentials::default();
        self.open_found(&Caller { credentials: &root, ..*caller }, node, O_RDONLY)
    }

    fn open_found(&mut self, caller: &Caller<'_>, node: NodeId, flags: u32) -> Result<NodeId, Errno> {
        self.check_open(caller, node, flags)?;
        self.hold(node);
        self.tell_of(node, IN_OPEN);
        Ok(node)
    }

    fn open_path(
        &mut self,
        caller: &Caller<'_>,
        at: NodeId,
        path: &[u8],
        flags: u32,
    ) -> Result<NodeId, Errno> {
        let link = if flags & O_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
        let node = self.resolve(caller, at, path, link)?;
        if flags & O_DIRECTORY != 0 && !self.kind(node).is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.hold(node);
        Ok(node)
    }

    fn open_temporary(
        &mut self,
        caller: &Caller<'_>,
        at: NodeId,
        path: &[u8],
        flags: u32,
        mode: u32,
    ) -> Result<NodeId, Errno> {
        if flags & O_DIRECTORY == 0 || flags & O_ACCMODE == O_RDONLY {
            return Err(Errno::EINVAL);
        }
        let directory = self.resolve(caller, at, path, LastLink::Follow)?;
        if !self.kind(directory).is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.access(caller, directory, Access::WRITE.and(Access::EXECUTE))?;
        directory.stored().ok_or(Errno::EOPNOTSUPP)?;
        Ok(self.nameless(caller, mode & !caller.umask))
    }

    /// What `open` looks at when the file is there; truncates it if `flags` say so.
    fn check_open(&mut self, caller: &Caller<'_>, node: NodeId, flags: u32) -> Result<(), Errno> {
        let kind = self.kind(node);
        if kind.is_link() {
            return Err(if flags & O_DIRECTORY != 0 { Errno::ENOTDIR } else { Errno::ELOOP });
        }
        if flags & O_DIRECTORY != 0 && !kind.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let writes = flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0;
        if kind.is_directory() && writes {
            return Err(Errno::EISDIR);
        }
        let wanted = match flags & O_ACCMODE {
            O_RDONLY => Access::READ,
            O_WRONLY => Access::WRITE,
            // The fourth value asks for both and gives neither.
            _ => Access::READ.and(Access::WRITE),
        };
        let wanted = if flags & O_TRUNC != 0 { wanted.and(Access::WRITE) } else { wanted };
        self.access(caller, node, wanted)?;
        match node {
            NodeId::Host(id) => self.host_open(id, wanted)?,
            NodeId::Proc(node) => self.proc_check_kept(caller, node)?,
            NodeId::Stored(_) => {}
        }
        match kind {
            NodeType::Socket => return Err(Errno::ENXIO),
            NodeType::File if flags & O_TRUNC != 0 => self.truncate(node, 0, caller)?,
            _ => {}
        }
        Ok(())
    }

    /// Puts something new where a path ended.
    pub(crate) fn create(
        &mut self,
        caller: &Caller<'_>,
        found: &Found,
        body: Body,
        permissions: u32,
    ) -> Result<NodeId, Errno> {
        if let (NodeId::Host(directory), LastName::Name(name), None) =
            (found.directory, &found.last, found.node)
        {
            return self.host_create(caller, directory, name, &body, permissions);
        }
        let (directory, name) = self.place(caller, found)?;
        self.check_new()?;
        let parent = self.inode(directory);
        let (mount, inherited) = (parent.mount, (parent.permissions & 0o2000 != 0).then_some(parent.group));
        let is_directory = matches!(body, Body::Directory(_));
        let id = self.make(caller, body, mount, permissions);
        if let Some(group) = inherited {
            let inode = self.inode_mut(id);
            inode.group = group;
            if is_directory {
                inode.permissions |= 0o2000;
            }
        }
        self.link_in(caller, directory, &name, id);
        self.tell_of_name(directory, &name, id, IN_CREATE);
        Ok(NodeId::Stored(id))
    }

    /// Where something new can be put: nothing is there, and the caller may write the directory.
    fn place(&self, caller: &Caller<'_>, found: &Found) -> Result<(InodeId, alloc::vec::Vec<u8>), Errno> {
        let name = match &found.last {
            LastName::Name(name) => name.clone(),
            LastName::Fixed(Fixed::Dot | Fixed::DotDot | Fixed::Root) => return Err(Errno::EEXIST),
        };
        if found.node.is_some() {
            return Err(Errno::EEXIST);
        }
        let NodeId::Stored(directory) = found.directory else { return Err(Errno::ENOENT) };
        let inode = self.inode(directory);
        // A directory that was removed takes nothing new.
        if inode.links == 0 {
            return Err(Errno::ENOENT);
        }
        caller.credentials.check(inode, Access::WRITE.and(Access::EXECUTE))?;
        Ok((directory, name))
    }

    /// A new name in a directory.
    pub(crate) fn link_in(&mut self, caller: &Caller<'_>, directory: InodeId, name: &[u8], id: InodeId) {
        if let Body::Directory(child) = &mut self.inode_mut(id).body {
            child.parent = directory;
            self.inode_mut(directory).links += 1;
        }
        let parent = self.inode_mut(directory);
        parent.touch(caller.now);
        if let Body::Directory(entries) = &mut parent.body {
            entries.insert(name, id);
        }
    }

    /// `mkdir(2)`.
    ///
    /// # Errors
    /// As there.
    pub fn make_directory(
        &mut self,
        caller: &Caller<'_>,
        at: NodeId,
        path: &[u8],
        mode: u32,
    ) -> Result<(), Errno> {
        let found = self.look_up(caller, self.find_entry(caller, at, path)?)?;
        // Whose entry it becomes is set when it is put there.
        let body = Body::Directory(Directory::new(InodeId::default()));
        self.create(caller, &found, body, mode & 0o1777 & !caller.umask).map(drop)
    }

    /// `symlink(2)`.
    ///
    /// # Errors
    /// As there.
    pub fn make_link(
        &mut self,
        caller: &Caller<'_>,
        target: &[u8],
        at: NodeId,
        path: &[u8],
    ) -> Result<(), Errno> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() >= 4096 {
            return Err(Errno::ENAMETOOLONG);
        }
        let found = self.find_to_make(caller, at, path)?;
        self.create(caller, &found, Body::Link(target.into()), 0o777).map(drop)
    }

    /// `mknod(2)`; a socket, too, which `bind` makes. The new node is returned, not held.
    ///
    /// # Errors
    /// As there.
    pub fn make_node(
        &mut self,
        caller: &Caller<'_>,
        at: NodeId,
        path: &[u8],
        kind: NodeType,
        mode: u32,
        number: u64,
    ) -> Result<NodeId, Errno> {
        let body = match kind {
            NodeType::File => Body::File(Contents::default()),
            NodeType::Fifo => Body::Fifo,
            NodeType::Socket => Body::Socket,
            NodeType::Character | NodeType::Block if caller.credentials.is_root() => {
                Body::Device { kind, number }
            }
            NodeType::Character | NodeType::Block => return Err(Errno::EPERM),
            NodeType::Directory => return Err(Errno::EPERM),
            NodeType::Link => return Err(Errno::EINVAL),
        };
        let found = self.find_to_make(caller, at, path)?;
        self.create(caller, &found, body, mode & !caller.umask)
    }

    fn look_up(&self, caller: &Caller<'_>, found: Found) -> Result<Found, Errno> {
        match found.last {
            LastName::Name(_) => Ok(Found { node: self.entry(caller, &found)?, ..found }),
            LastName::Fixed(_) => Err(Errno::EEXIST),
        }
    }

    /// Where something that is no directory is to be made.
    fn find_to_make(&self, caller: &Caller<'_>, at: NodeId, path: &[u8]) -> Result<Found, Errno> {
        let found = self.find_entry(caller, at, path)?;
        let found = self.look_up(caller, found)?;
        if found.node.is_none() && found.is_directory_wanted {
            return Err(Errno::ENOENT);
        }
        Ok(found)
    }

    /// `link(2)`: another name for a node.
    ///
    /// # Errors
    /// As there.
    pub fn link(&mut self, caller: &Caller<'_>, node: NodeId, at: NodeId, path: &[u8]) -> Result<(), Errno> {
        let found = self.find_to_make(caller, at, path)?;
        let same = match (found.directory, node) {
            (NodeId::Host(directory), NodeId::Host(id)) => match (&found.last, found.node) {
                (LastName::Name(name), None) if self.host_mount(directory) == self.host_mount(id) => {
                    return self.host_link(caller, id, directory, name);
                }
                (_, Some(_)) => return Err(Errno::EEXIST),
                _ => false,
            },
            (NodeId::Stored(directory), NodeId::Stored(id)) => {
                self.inode(directory).mount == self.inode(id).mount
            }
            _ => false,
        };
        if !same && found.node.is_none() {
            return Err(Errno::EXDEV);
        }
        let (directory, name) = self.place(caller, &found)?;
        self.check_new()?;
        let id = node.stored().ok_or(Errno::EXDEV)?;
        let inode = self.inode(id);
        if inode.is_directory() {
            return Err(Errno::EPERM);
        }
        if inode.links >= LINKS_MAX {
            return Err(Errno::EMLINK);
        }
        let inode = self.inode_mut(id);
        inode.links += 1;
        inode.changed = caller.now;
        self.link_in(caller, directory, &name, id);
        self.tell_of_links(id);
        self.tell_of_name(directory, &name, id, IN_CREATE);
        Ok(())
    }
}
