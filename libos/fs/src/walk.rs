//! From paths to nodes (path_resolution(7)), and back.

use crate::caller::{Access, Caller, Scope};
use crate::errno::Errno;
use crate::node::{Body, InodeId, NodeId};
use crate::proc::ProcNode;
use crate::vfs::Vfs;
use alloc::vec::Vec;

/// Longest path, with the zero behind it.
const PATH_MAX: usize = 4096;
/// Longest name in a directory.
const NAME_MAX: usize = 255;
/// Most symbolic links on one way.
const LINKS_MAX: usize = 40;

/// What is done with a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// The path leads to where it leads.
    Follow,
    /// The path leads to the link.
    Keep,
}

/// When a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Following {
    Always,
    /// If a slash follows its name.
    BeforeSlash,
    /// The name itself is what matters: something is made of it, or it is taken away.
    Never,
}

impl From<LastLink> for Following {
    fn from(link: LastLink) -> Following {
        match link {
            LastLink::Follow => Following::Always,
            LastLink::Keep => Following::BeforeSlash,
        }
    }
}

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastName {
    Name(Vec<u8>),
    /// `.`, `..` or `/`, which nobody can make or remove.
    Fixed(Fixed),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    Dot,
    DotDot,
    Root,
}

/// Where a path ends.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The directory that its last name is in.
    pub directory: NodeId,
    pub last: LastName,
    /// What the last name leads to.
    pub node: Option<NodeId>,
    /// Whether a slash follows the last name.
    pub is_directory_wanted: bool,
}

/// What is still to be walked; symbolic links are put in front of it.
struct Route {
    bytes: Vec<u8>,
    at: usize,
    links: usize,
    /// Whether something may be made of the last name, which is a file: then no slash follows it, neither in
    /// the path nor in a link that the path ends with.
    is_for_file: bool,
}

impl Route {
    /// The next name, and whether a slash follows.
    fn next(&mut self) -> Option<(core::ops::Range<usize>, bool)> {
        self.skip_slashes();
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|byte| *byte != b'/') {
            self.at += 1;
        }
        let name = start..self.at;
        let has_slash = self.skip_slashes();
        (!name.is_empty()).then_some((name, has_slash))
    }

    fn skip_slashes(&mut self) -> bool {
        let start = self.at;
        while self.bytes.get(self.at) == Some(&b'/') {
            self.at += 1;
        }
        self.at > start
    }

    fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Goes by a link's target first. `has_slash`: one followed the link's name.
    fn insert(&mut self, target: &[u8], has_slash: bool) -> Result<(), Errno> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::ELOOP);
        }
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        let mut bytes = target.to_vec();
        if has_slash {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(&self.bytes[self.at..]);
        (self.bytes, self.at) = (bytes, 0);
        Ok(())
    }
}

impl Vfs {
    /// What a path leads to; `at` is where relative ones begin. Not held.
    ///
    /// # Errors
    /// Those of path_resolution(7): `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`.
    pub fn resolve(
        &self,
        caller: &Caller<'_>,
        at: NodeId,
        path: &[u8],
        link: LastLink,
    ) -> Result<NodeId, Errno> {
        let found = self.find(caller, at, path, link)?;
        let node = found.node.ok_or(Errno::ENOENT)?;
        if found.is_directory_wanted && !self.kind(node).is_directory() {
            return Err(Errno::ENOTDIR);
        }
        Ok(node)
    }

    /// Where a path ends, be there something or not.
    pub(crate) fn find(
        &self,
        caller: &Caller<'_>,
        at: NodeId,
        path: &[u8],
        link: LastLink,
    ) -> Result<Found, Errno> {
        self.follow(caller, at, path, link.into(), false)
    }

    /// The same for a file that is made if it is not there.
    ///
    /// # Errors
    /// `EISDIR` if a slash follows the last name, whatever that leads to (`open(2)` with `O_CREAT`).
    pub(crate) fn find_file(
        &self,
        caller: &Caller<'_>,
        at: NodeId,
        path: &[u8],
        link: LastLink,
    ) -> Result<Found, Errno> {
        self.follow(caller, at, path, link.into(), true)
    }

    /// The entry of a directory that a path names, to be made or taken away; what it leads to is not looked
    /// up yet ([`Vfs::entry`]), since other things are complained of first.
    pub(crate) fn find_entry(&self, caller: &Caller<'_>, at: NodeId, path: &[u8]) -> Result<Found, Errno> {
        self.follow(caller, at, path, Following::Never, false)
    }

    /// What the last name of what [`Vfs::find_entry`] found leads to.
    pub(crate) fn entry(&self, caller: &Caller<'_>, found: &Found) -> Result<Option<NodeId>, Errno> {
        match &found.last {
            LastName::Name(name) => self.step(caller, found.directory, name),
            LastName::Fixed(_) => Ok(found.node),
        }
    }

    fn follow(
        &self,
        caller: &Caller<'_>,
        at: NodeId,
        path: &[u8],
        following: Following,
        is_for_file: bool,
    ) -> Result<Found, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut route = Route { bytes: path.to_vec(), at: 0, links: 0, is_for_file };
        let mut directory = at;
        loop {
            if route.at == 0 && route.bytes[0] == b'/' {
                if caller.scope.bars(Scope::BENEATH) {
                    return Err(Errno::EXDEV);
                }
                // Where a path itself begins is no way from anywhere.
                let is_jump = route.links > 0;
                let from = if is_jump { directory } else { caller.root };
                self.check_crossing(caller.scope, from, caller.root)?;
                directory = caller.root;
            }
            if let Some(found) = self.walk(caller, &mut directory, &mut route, following)? {
                return Ok(found);
            }
        }
    }

    /// Walks until the end, which it returns, or a symbolic link, which then is the route's beginning.
    fn walk(
        &self,
        caller: &Caller<'_>,
        directory: &mut NodeId,
        route: &mut Route,
        following: Following,
    ) -> Result<Option<Found>, Errno> {
        loop {
            let Some((name, has_slash)) = route.next() else {
                // Nothing but slashes.
                let last = LastName::Fixed(Fixed::Root);
                let is_directory_wanted = false;
                return Ok(Some(Found {
                    directory: *directory,
                    last,
                    node: Some(*directory),
                    is_directory_wanted,
                }));
            };
            let is_last = route.is_at_end();
            if is_last
                && has_slash
                && route.is_for_file
                && !matches!(&route.bytes[name.clone()], b"." | b"..")
            {
                self.check_way(caller, *directory)?;
                return Err(Errno::EISDIR);
            }
            let node = match is_last && following == Following::Never {
                true => self.check_way(caller, *directory).map(|()| None)?,
                false => self.step(caller, *directory, &route.bytes[name.clone()])?,
            };
            let is_followed = match following {
                _ if !is_last => true,
                Following::Always => true,
                Following::BeforeSlash => has_slash,
                Following::Never => false,
            };
            if let Some(node) = node.filter(|_| is_followed) {
                let target = self.target(caller, node)?;
                check_link(caller.scope, node, &target)?;
                match target {
                    Target::Path(target) => {
                        route.insert(&target, has_slash)?;
                        return Ok(None);
                    }
                    Target::Node(target) => {
                        self.check_crossing(caller.scope, *directory, target)?;
                        if is_last {
                            let last = LastName::Name(route.bytes[name].to_vec());
                            let (directory, node) = (*directory, Some(target));
                            return Ok(Some(Found { directory, last, node, is_directory_wanted: has_slash }));
                        }
                        *directory = target;
                        continue;
                    }
                    Target::None => {}
                }
            }
            if is_last {
                let last = match &route.bytes[name] {
                    b"." => LastName::Fixed(Fixed::Dot),
                    b".." => LastName::Fixed(Fixed::DotDot),
                    name => LastName::Name(name.to_vec()),
                };
                return Ok(Some(Found { directory: *directory, last, node, is_directory_wanted: has_slash }));
            }
            *directory = node.ok_or(Errno::ENOENT)?;
        }
    }

    /// Whether a path may lead from one node to another, whatever file systems they are of.
    fn check_crossing(&self, scope: Scope, from: NodeId, to: NodeId) -> Result<(), Errno> {
        let is_barred = scope.bars(Scope::ONE_FILE_SYSTEM) && self.mount_of(from) != self.mount_of(to);
        if is_barred { Err(Errno::EXDEV) } else { Ok(()) }
    }

    /// Number of the file system that a node is of; none for that of processes.
    fn mount_of(&self, node: NodeId) -> Option<usize> {
        match node {
            NodeId::Stored(id) => Some(self.inode(id).mount),
            NodeId::Host(id) => Some(self.host_mount(id)),
            NodeId::Proc(_) => None,
        }
    }

    /// Whether the caller may go through a directory.
    fn check_way(&self, caller: &Caller<'_>, directory: NodeId) -> Result<(), Errno> {
        match self.kind(directory).is_directory() {
            true => self.access(caller, directory, Access::EXECUTE),
            false => Err(Errno::ENOTDIR),
        }
    }

    /// What a name in a directory leads to, if there is something.
    fn step(&self, caller: &Caller<'_>, directory: NodeId, name: &[u8]) -> Result<Option<NodeId>, Errno> {
        let node = self.step_anywhere(caller, directory, name)?;
        node.iter().try_for_each(|node| self.check_crossing(caller.scope, directory, *node))?;
        Ok(node)
    }

    fn step_anywhere(
        &self,
        caller: &Caller<'_>,
        directory: NodeId,
        name: &[u8],
    ) -> Result<Option<NodeId>, Errno> {
        self.check_way(caller, directory)?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        match (name, directory) {
            (b".", _) => Ok(Some(directory)),
            (b"..", _) if directory == caller.root && caller.scope.bars(Scope::BENEATH) => Err(Errno::EXDEV),
            (b"..", _) if directory == caller.root => Ok(Some(directory)),
            (b"..", _) => Ok(Some(self.parent(directory))),
            (_, NodeId::Host(id)) => self.host_step(id, name),
            (_, NodeId::Proc(node)) => Ok(self.proc_lookup(caller, node, name).map(NodeId::Proc)),
            (_, NodeId::Stored(id)) => Ok(self.directory(id)?.get(name).map(|child| self.uncovered(child))),
        }
    }

    /// What lies over a directory or a file, or the node itself.
    fn uncovered(&self, id: InodeId) -> NodeId {
        let mount = match &self.inode(id).body {
            Body::Directory(directory) => directory.covered,
            _ => self.covered_files.iter().find(|(covered, _)| *covered == id).map(|(_, mount)| *mount),
        };
        mount.map_or(NodeId::Stored(id), |mount| self.mount(mount).root)
    }

    /// The directory that a directory is in.
    pub(crate) fn parent(&self, node: NodeId) -> NodeId {
        match node {
            NodeId::Stored(id) => {
                let inode = self.inode(id);
                match self.mount(inode.mount) {
                    mount if mount.root == node => {
                        mount.at.map_or(node, |at| self.parent(NodeId::Stored(at)))
                    }
                    _ => NodeId::Stored(self.directory(id).map_or(id, |directory| directory.parent)),
                }
            }
            NodeId::Host(id) => match self.host_place(id) {
                Some((parent, _)) => NodeId::Host(parent),
                None => {
                    let at = self.mount(self.host_mount(id)).at.map(NodeId::Stored);
                    at.and_then(|at| self.known_parent(at)).unwrap_or(node)
                }
            },
            NodeId::Proc(ProcNode::Root) => {
                let at = self.proc_mount().and_then(|mount| mount.at);
                at.map_or(node, |at| self.parent(NodeId::Stored(at)))
            }
            NodeId::Proc(node) => NodeId::Proc(node.parent()),
        }
    }

    fn target(&self, caller: &Caller<'_>, node: NodeId) -> Result<Target, Errno> {
        match node {
            NodeId::Stored(id) => Ok(match &self.inode(id).body {
                Body::Link(target) => Target::Path(target.to_vec()),
                _ => Target::None,
            }),
            NodeId::Host(id) if !self.host_kind(id).is_link() => Ok(Target::None),
            NodeId::Host(id) => self.host_link_target(id).map(Target::Path),
            NodeId::Proc(node) if !node.kind().is_link() => Ok(Target::None),
            NodeId::Proc(node) => match self.proc_leads_to(caller, node)? {
                Some(target) => Ok(Target::Node(target)),
                None => Ok(Target::Path(self.proc_link(caller, node)?)),
            },
        }
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn read_link(&self, caller: &Caller<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        match node {
            NodeId::Stored(id) => match &self.inode(id).body {
                Body::Link(target) => Ok(target.to_vec()),
                _ => Err(Errno::EINVAL),
            },
            NodeId::Host(id) if self.host_kind(id).is_link() => self.host_link_target(id),
            NodeId::Host(_) => Err(Errno::EINVAL),
            NodeId::Proc(node) if node.kind().is_link() => self.proc_link(caller, node),
            NodeId::Proc(_) => Err(Errno::EINVAL),
        }
    }

    /// The path from `root` to a directory, or to a file that has a name; of a file that has none left, the
    /// name that it had is not known, and the path is `/ (deleted)`.
    pub fn path_of(&self, root: NodeId, node: NodeId) -> Vec<u8> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = node;
        while at != root {
            let parent = match self.known_parent(at) {
                Some(parent) if parent != at => parent,
                _ => break,
            };
            names.push(self.name_in(parent, at).unwrap_or_else(|| b" (deleted)".to_vec()));
            at = parent;
        }
        if names.is_empty() {
            return b"/".to_vec();
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        path
    }

    /// The directory that a directory is in; of a file, one that has a name for it.
    fn known_parent(&self, node: NodeId) -> Option<NodeId> {
        match node {
            NodeId::Stored(id) if !self.inode(id).is_directory() => {
                let holds = |directory: &InodeId| {
                    self.directory(*directory).is_ok_and(|directory| directory.name_of(id).is_some())
                };
                let directory = self.ids().find(holds);
                Some(directory.map_or(self.root(), NodeId::Stored))
            }
            _ => Some(self.parent(node)),
        }
    }

    fn name_in(&self, parent: NodeId, node: NodeId) -> Option<Vec<u8>> {
        let covered = match node {
            NodeId::Stored(id) if self.mount(self.inode(id).mount).root == node => {
                self.mount(self.inode(id).mount).at?
            }
            NodeId::Stored(id) => id,
            NodeId::Host(id) => match self.host_place(id) {
                Some((_, name)) => return Some(name),
                None => self.mount(self.host_mount(id)).at?,
            },
            NodeId::Proc(ProcNode::Root) => self.proc_mount()?.at?,
            NodeId::Proc(node) => return Some(node.name()),
        };
        self.directory(parent.stored()?).ok()?.name_of(covered).map(<[u8]>::to_vec)
    }
}

/// Whether a symbolic link may be followed.
fn check_link(scope: Scope, link: NodeId, target: &Target) -> Result<(), Errno> {
    let is_link = !matches!(target, Target::None);
    let is_magic = is_link && matches!(link, NodeId::Proc(ProcNode::Link(..) | ProcNode::Descriptor(..)));
    match scope {
        _ if is_link && scope.bars(Scope::NO_LINKS) => Err(Errno::ELOOP),
        _ if is_magic && scope.bars(Scope::NO_MAGIC_LINKS) => Err(Errno::ELOOP),
        // It says nothing of where what it leads to lies.
        _ if is_magic && scope.is_within() => Err(Errno::EXDEV),
        _ => Ok(()),
    }
}

/// Where a symbolic link leads.
enum Target {
    /// It is none.
    None,
    Path(Vec<u8>),
    /// One of `/proc`, which leads to a file rather than to a path.
    Node(NodeId),
}
