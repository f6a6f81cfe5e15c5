//! What a name leads to.

use crate::attributes::FileTime;
use crate::caller::{Caller, Credentials, Rights};
use crate::contents::Contents;
use crate::directory::Directory;
use crate::host::HostId;
use crate::listing::NodeType;
use crate::proc::ProcNode;
use alloc::boxed::Box;

slotmap::new_key_type! {
    /// Names what is stored in memory.
    pub struct InodeId;
}

/// Names a file, a directory, or whatever else a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeId {
    /// One that is stored in memory.
    Stored(InodeId),
    /// One of `/proc`, made when somebody looks.
    Proc(ProcNode),
    /// One of a directory that the host lends.
    Host(HostId),
}

impl NodeId {
    pub(crate) fn stored(self) -> Option<InodeId> {
        match self {
            NodeId::Stored(id) => Some(id),
            NodeId::Proc(_) | NodeId::Host(_) => None,
        }
    }
}

/// What is stored.
#[derive(Debug)]
pub(crate) enum Body {
    File(Contents),
    Directory(Directory),
    Link(Box<[u8]>),
    Device { kind: NodeType, number: u64 },
    Fifo,
    Socket,
}

#[derive(Debug)]
pub(crate) struct Inode {
    pub body: Body,
    /// Its number in its file system.
    pub number: u64,
    /// The file system.
    pub mount: usize,
    pub permissions: u32,
    pub user: u32,
    pub group: u32,
    pub links: u32,
    /// How often it is held by who has it open.
    pub holds: u32,
    pub accessed: FileTime,
    pub modified: FileTime,
    pub changed: FileTime,
    pub born: FileTime,
}

impl Inode {
    pub fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    pub fn rights(&self) -> Rights {
        Rights {
            user: self.user,
            group: self.group,
            permissions: self.permissions,
            is_directory: self.is_directory(),
        }
    }

    pub fn node_type(&self) -> NodeType {
        match &self.body {
            Body::File(_) => NodeType::File,
            Body::Directory(_) => NodeType::Directory,
            Body::Link(_) => NodeType::Link,
            Body::Device { kind, .. } => *kind,
            Body::Fifo => NodeType::Fifo,
            Body::Socket => NodeType::Socket,
        }
    }

    /// Its contents were changed.
    pub fn touch(&mut self, now: FileTime) {
        (self.modified, self.changed) = (now, now);
    }

    /// Its contents were changed, by somebody whose program it need not be (inode(7)).
    pub fn change_contents(&mut self, caller: &Caller<'_>) {
        self.touch(caller.now);
        if !caller.credentials.is_root() {
            self.drop_set_id(caller.credentials);
        }
    }

    /// Takes the rights of its owner and group from a program.
    pub fn drop_set_id(&mut self, credentials: &Credentials) {
        self.permissions &= !0o4000;
        // Without the right to execute, that bit means something else.
        let is_program = self.permissions & 0o010 != 0;
        if is_program || !(credentials.is_root() || credentials.is_in(self.group)) {
            self.permissions &= !0o2000;
        }
    }
}
