//! Listing directories.

use crate::caller::Caller;
use crate::directory::FIRST_COOKIE;
use crate::errno::Errno;
use crate::node::NodeId;
use crate::vfs::Vfs;
use linux_raw_sys::general::{
    DT_BLK, DT_CHR, DT_DIR, DT_FIFO, DT_LNK, DT_REG, DT_SOCK, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK,
    S_IFMT, S_IFREG, S_IFSOCK,
};

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device of characters.
    Character,
    /// A device of blocks.
    Block,
    /// A pipe that has a name.
    Fifo,
    /// A socket that has a name.
    Socket,
}

impl NodeType {
    /// As `st_mode` has it.
    pub fn mode(self) -> u32 {
        match self {
            NodeType::File => S_IFREG,
            NodeType::Directory => S_IFDIR,
            NodeType::Link => S_IFLNK,
            NodeType::Character => S_IFCHR,
            NodeType::Block => S_IFBLK,
            NodeType::Fifo => S_IFIFO,
            NodeType::Socket => S_IFSOCK,
        }
    }

    /// What a mode says; none means a file, as `mknod(2)` has it.
    pub fn from_mode(mode: u32) -> Option<NodeType> {
        Some(match mode & S_IFMT {
            0 | S_IFREG => NodeType::File,
            S_IFDIR => NodeType::Directory,
            S_IFLNK => NodeType::Link,
            S_IFCHR => NodeType::Character,
            S_IFBLK => NodeType::Block,
            S_IFIFO => NodeType::Fifo,
            S_IFSOCK => NodeType::Socket,
            _ => return None,
        })
    }

    /// As `d_type` of `getdents64` has it.
    pub fn entry_type(self) -> u8 {
        (match self {
            NodeType::File => DT_REG,
            NodeType::Directory => DT_DIR,
            NodeType::Link => DT_LNK,
            NodeType::Character => DT_CHR,
            NodeType::Block => DT_BLK,
            NodeType::Fifo => DT_FIFO,
            NodeType::Socket => DT_SOCK,
        }) as u8
    }

    /// What `d_type` says.
    pub(crate) fn of_entry(kind: u8) -> Option<NodeType> {
        let all = [
            NodeType::File,
            NodeType::Directory,
            NodeType::Link,
            NodeType::Character,
            NodeType::Block,
            NodeType::Fifo,
            NodeType::Socket,
        ];
        all.into_iter().find(|node| node.entry_type() == kind)
    }

    /// Whether it is a directory.
    pub fn is_directory(self) -> bool {
        self == NodeType::Directory
    }

    /// Whether it is a symbolic link.
    pub fn is_link(self) -> bool {
        self == NodeType::Link
    }
}

/// What a directory says of one of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'e> {
    /// Its name.
    pub name: &'e [u8],
    /// The number of what it leads to.
    pub number: u64,
    /// What that is.
    pub kind: NodeType,
    /// Where the listing goes on behind it.
    pub next: u64,
}

impl Vfs {
    /// Tells `see` of a directory's entries from `position` on (0 is the beginning), until it has no more
    /// room and says `None`.
    ///
    /// # Errors
    /// `ENOTDIR`; `ENOENT` for one that was removed, or whose process has ended.
    pub fn list(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        position: u64,
        mut see: impl FnMut(DirectoryEntry<'_>) -> Option<()>,
    ) -> Result<(), Errno> {
        let id = match node {
            NodeId::Stored(id) => id,
            NodeId::Proc(node) => return self.proc_list(caller, node, position, &mut see),
            NodeId::Host(id) => return self.host_list(id, position, &mut see),
        };
        let directory = self.directory(id)?;
        if self.inode(id).links == 0 {
            return Err(Errno::ENOENT);
        }
        for (name, cookie, node) in [(&b"."[..], 1, node), (b"..", 2, self.parent(node))] {
            let number = node.stored().map_or(1, |id| self.inode(id).number);
            let entry = DirectoryEntry { name, number, kind: NodeType::Directory, next: cookie };
            if cookie > position && see(entry).is_none() {
                return Ok(());
            }
        }
        for (next, name, id) in directory.from(position.max(FIRST_COOKIE)) {
            let inode = self.inode(id);
            let entry = DirectoryEntry { name, number: inode.number, kind: inode.node_type(), next };
            if see(entry).is_none() {
                break;
            }
        }
        Ok(())
    }
}
