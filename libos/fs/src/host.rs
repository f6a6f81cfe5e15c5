//! Directories that the host lends, by 9P2000.L (`nom-ninep`).
//!
//! Nothing of them is kept here: each call asks the host, once, and what it refuses is refused with the
//! host's own error number. What the caller may do is decided here first, by the owners and permissions that
//! the host tells; the host decides once more, as for whoever started the machine.
//!
//! A node has a handle of the host's for its path, and one more while it is open. Both go back when nobody
//! holds the node any more and many others are known. The host follows a handle's path each time that it is
//! asked about it; so a name that was looked up before is looked up again by asking what its handle leads to,
//! and walked to if that is another file than it was.

use crate::attributes::{Attributes, FileTime, Ownership, SpaceFacts, Stamp};
use crate::caller::{Access, Caller, Credentials, Rights};
use crate::data::Seek;
use crate::errno::Errno;
use crate::listing::{DirectoryEntry, NodeType};
use crate::node::{Body, InodeId, NodeId};
use crate::packed::device_parts;
use crate::rename::Replace;
use crate::vfs::{Mount, MountAccess, Vfs};
use crate::walk::{Found, LastLink};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefMut;
use core::ops::ControlFlow;
use linux_raw_sys::general::{
    AT_REMOVEDIR, O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY, V9FS_MAGIC,
};
use nom_ninep::{Change, Client, Fid, LentAttributes, LentEntry};
use slotmap::SlotMap;

slotmap::new_key_type! {
    /// Names a file of a directory that the host lends.
    pub struct HostId;
}

/// Nodes that are kept though nobody holds them.
const UNHELD_MAX: usize = 1024;

/// Rights of the owner and the group that a program has, whoever runs it.
const SET_ID: u32 = 0o6000;

/// How far a file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
    ReadWrite,
}

impl Mode {
    fn flags(self) -> u32 {
        match self {
            Mode::Read => O_RDONLY,
            Mode::Write => O_WRONLY,
            Mode::ReadWrite => O_RDWR,
        }
    }

    /// Whether it is enough for what `other` is for.
    fn covers(self, other: Mode) -> bool {
        self == other || self == Mode::ReadWrite
    }
}

/// A file of the host's.
#[derive(Debug)]
struct HostNode {
    /// Which directory that is lent it is in.
    client: usize,
    mount: usize,
    number: u64,
    kind: NodeType,
    device: u64,
    fid: Fid,
    /// The directory that it was found in, and its name there; the root is in none.
    parent: Option<HostId>,
    name: Box<[u8]>,
    /// Nodes that were found in it by the names that they have still, in the order of those.
    children: Vec<HostId>,
    /// Nodes whose [`HostNode::parent`] it is.
    below: usize,
    /// What was said of it last, and when, in [`HostFiles::moment`]s: 0 if that was outside of a call.
    facts: LentAttributes,
    told_at: u64,
    holds: u32,
    open: Option<(Fid, Mode)>,
}

impl HostNode {
    /// Takes what is said if it is of this node, and not of what has its path now; whether it is.
    fn takes(&mut self, facts: &LentAttributes, told_at: u64) -> bool {
        let is_meant = facts.qid.path == self.number && NodeType::from_mode(facts.mode) == Some(self.kind);
        if is_meant {
            (self.facts, self.told_at) = (*facts, told_at);
        }
        is_meant
    }
}

/// What is known of directories that the host lends.
#[derive(Debug, Default)]
pub(crate) struct HostFiles {
    clients: Vec<Client>,
    nodes: SlotMap<HostId, HostNode>,
    numbers: BTreeMap<(usize, u64), HostId>,
    /// Counts calls, and changes within a call: what was said at this moment holds still.
    moment: u64,
    /// Whether a call is under way.
    is_in_call: bool,
}

impl From<nom_ninep::Error> for Errno {
    /// What the host says; a host that says nothing that makes sense is an input or output error.
    fn from(error: nom_ninep::Error) -> Errno {
        match error {
            nom_ninep::Error::Refused(number) => Errno::from_code(number).unwrap_or(Errno::EIO),
            nom_ninep::Error::Broken => Errno::EIO,
        }
    }
}

impl HostFiles {
    /// A node, and the client of its directory, to ask for something.
    fn get(&mut self, id: HostId) -> (&mut HostNode, &mut Client) {
        let node = &mut self.nodes[id];
        let client = &mut self.clients[node.client];
        (node, client)
    }

    /// The same, to change something: what was said before holds no more.
    fn get_to_change(&mut self, id: HostId) -> (&mut HostNode, &mut Client) {
        self.moment += 1;
        self.get(id)
    }

    /// Asks what has a node's path now: whether that is the node, whose facts are as the host says then.
    fn ask(&mut self, id: HostId) -> Result<bool, Errno> {
        let told_at = self.present();
        let (node, client) = self.get(id);
        match client.attributes(node.fid).map_err(Errno::from) {
            Ok(facts) => Ok(node.takes(&facts, told_at)),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The moment at which something is told; 0 outside of a call.
    fn present(&self) -> u64 {
        if self.is_in_call { self.moment } else { 0 }
    }

    /// What is known of a node. Of one that has lost its path the host knows it by its other handle; if it
    /// does not, that was the last of its names, and the rest is as before.
    fn facts(&mut self, id: HostId) -> Result<&LentAttributes, Errno> {
        let present = self.present();
        let is_told = present > 0 && self.nodes[id].told_at == present;
        if !is_told && !self.ask(id)? {
            let (node, client) = self.get(id);
            let by_other = node.open.and_then(|(fid, _)| client.attributes(fid).ok());
            if !by_other.is_some_and(|facts| node.takes(&facts, present)) {
                if node.holds == 0 {
                    return Err(Errno::ENOENT);
                }
                node.facts.links = 0;
            }
        }
        Ok(&self.nodes[id].facts)
    }

    /// What a name in a directory leads to.
    fn look_up(&mut self, directory: HostId, name: &[u8]) -> Result<Option<HostId>, Errno> {
        if let Ok(place) = self.child(directory, name) {
            let id = self.nodes[directory].children[place];
            if self.ask(id) == Ok(true) {
                return Ok(Some(id));
            }
        }
        let (node, client) = self.get(directory);
        let fid = match client.walk(node.fid, Some(name)).map_err(Errno::from) {
            Ok(fid) => fid,
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.enter(directory, name, fid).map(Some)
    }

    /// The node of a handle that was just made.
    fn enter(&mut self, directory: HostId, name: &[u8], fid: Fid) -> Result<HostId, Errno> {
        let (node, client) = self.get(directory);
        let (index, mount) = (node.client, node.mount);
        let attributes = match client.attributes(fid) {
            Ok(attributes) => attributes,
            Err(error) => {
                client.clunk(fid);
                return Err(error.into());
            }
        };
        let Some(kind) = NodeType::from_mode(attributes.mode) else {
            client.clunk(fid);
            return Err(Errno::EIO);
        };
        let told_at = self.present();
        let known = self.numbers.get(&(index, attributes.qid.path)).copied();
        let id = match known.filter(|id| self.nodes[*id].kind == kind) {
            Some(id) => {
                let (node, client) = self.get(id);
                node.takes(&attributes, told_at);
                client.clunk(core::mem::replace(&mut node.fid, fid));
                id
            }
            None => self.insert((index, mount), fid, kind, attributes),
        };
        self.put(id, directory, name);
        Ok(id)
    }

    /// A new node that is in no directory.
    fn insert(
        &mut self,
        (client, mount): (usize, usize),
        fid: Fid,
        kind: NodeType,
        facts: LentAttributes,
    ) -> HostId {
        let (number, told_at) = (facts.qid.path, self.present());
        let id = self.nodes.insert(HostNode {
            client,
            mount,
            number,
            kind,
            device: facts.rdev,
            fid,
            parent: None,
            name: Box::default(),
            children: Vec::new(),
            below: 0,
            facts,
            told_at,
            holds: 0,
            open: None,
        });
        self.numbers.insert((client, number), id);
        id
    }

    /// The place of a name among those of a directory's nodes: where it is, or where it would be.
    fn child(&self, directory: HostId, name: &[u8]) -> Result<usize, usize> {
        self.nodes[directory].children.binary_search_by(|child| (*self.nodes[*child].name).cmp(name))
    }

    /// A node has this name now.
    fn put(&mut self, id: HostId, directory: HostId, name: &[u8]) {
        self.take_out(id);
        let place = self.child(directory, name);
        let node = &mut self.nodes[id];
        node.name = name.into();
        let before = node.parent.replace(directory);
        self.leave(before);
        let above = &mut self.nodes[directory];
        above.below += 1;
        match place {
            Ok(place) => above.children[place] = id,
            Err(place) => above.children.insert(place, id),
        }
    }

    /// A node is not below this one any more.
    fn leave(&mut self, parent: Option<HostId>) {
        if let Some(parent) = parent {
            self.nodes[parent].below -= 1;
        }
    }

    /// A node's name does not lead to it any more.
    fn take_out(&mut self, id: HostId) {
        let node = &self.nodes[id];
        let Some(parent) = node.parent else { return };
        if let Ok(place) = self.child(parent, &node.name)
            && self.nodes[parent].children[place] == id
        {
            self.nodes[parent].children.remove(place);
        }
    }

    /// A handle of a node that is open for this at least.
    fn opened(&mut self, id: HostId, mode: Mode) -> Result<(Fid, &mut Client), Errno> {
        let (node, client) = self.get(id);
        if let Some((fid, _)) = node.open.filter(|(_, has)| has.covers(mode)) {
            return Ok((fid, client));
        }
        let mode = if node.open.is_some() { Mode::ReadWrite } else { mode };
        let directory = if node.kind.is_directory() { O_DIRECTORY } else { 0 };
        let fid = client.walk(node.fid, None)?;
        if let Err(error) = client.open(fid, mode.flags() | directory) {
            client.clunk(fid);
            return Err(error.into());
        }
        if let Some((before, _)) = node.open.replace((fid, mode)) {
            client.clunk(before);
        }
        Ok((fid, client))
    }

    /// A node has lost its name: another that gets its number is another.
    fn forget(&mut self, id: HostId) {
        self.take_out(id);
        let node = &self.nodes[id];
        let number = (node.client, node.number);
        if self.numbers.get(&number) == Some(&id) {
            self.numbers.remove(&number);
        }
    }

    /// Gives back what nobody holds, if that is much.
    fn tidy(&mut self) {
        if self.nodes.len() <= UNHELD_MAX {
            return;
        }
        let unheld = |(id, node): (HostId, &HostNode)| {
            (node.holds == 0 && node.parent.is_some() && node.below == 0).then_some(id)
        };
        let unheld: Vec<HostId> = self.nodes.iter().filter_map(unheld).collect();
        for id in unheld {
            self.forget(id);
            let Some(node) = self.nodes.remove(id) else { continue };
            self.leave(node.parent);
            let client = &mut self.clients[node.client];
            client.clunk(node.fid);
            if let Some((fid, _)) = node.open {
                client.clunk(fid);
            }
        }
    }
}

/// Times as the host has them.
fn file_time((seconds, nanoseconds): (u64, u64)) -> FileTime {
    FileTime { seconds: seconds as i64, nanoseconds: nanoseconds as u32 }
}

fn rights(attributes: &LentAttributes) -> Rights {
    Rights {
        user: attributes.user,
        group: attributes.group,
        permissions: attributes.mode & 0o7777,
        is_directory: NodeType::from_mode(attributes.mode) == Some(NodeType::Directory),
    }
}

impl Vfs {
    /// Covers a directory, which is made if it is absent, with one that the host lends.
    ///
    /// # Errors
    /// If its name leads to something else than a directory, or to one that is covered already; if the host
    /// does not answer, or lends no directory.
    pub fn mount_host(
        &mut self,
        caller: &Caller<'_>,
        path: &[u8],
        (mut client, fid): (Client, Fid),
        access: MountAccess,
    ) -> Result<(), Errno> {
        self.make_directories_to(caller, path)?;
        let at = self.mount_point(caller, path)?;
        let attributes = client.attributes(fid)?;
        if NodeType::from_mode(attributes.mode) != Some(NodeType::Directory) {
            return Err(Errno::ENOTDIR);
        }
        self.add_host(client, (fid, NodeType::Directory, attributes), (at, access));
        self.cover(at);
        Ok(())
    }

    /// Covers a file, which is made if it is absent, with one of the name `name` in a directory that the host
    /// lends.
    ///
    /// # Errors
    /// If its path leads to something else than a file, or to one that is covered already; if the host does
    /// not answer, or has no such file.
    pub fn mount_host_file(
        &mut self,
        caller: &Caller<'_>,
        path: &[u8],
        (mut client, directory): (Client, Fid),
        (name, access): (&[u8], MountAccess),
    ) -> Result<(), Errno> {
        self.make_directories_to(caller, path)?;
        match self.make_node(caller, caller.root, path, NodeType::File, 0o644, 0) {
            Ok(_) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
        let at = self.resolve(caller, caller.root, path, LastLink::Follow)?;
        let at = at.stored().ok_or(Errno::EBUSY)?;
        if self.inode(at).node_type() != NodeType::File {
            return Err(Errno::EISDIR);
        }
        let fid = client.walk(directory, Some(name))?;
        let attributes = client.attributes(fid)?;
        if NodeType::from_mode(attributes.mode) != Some(NodeType::File) {
            return Err(Errno::EINVAL);
        }
        self.covered_files.push((at, self.mounts_len()));
        self.add_host(client, (fid, NodeType::File, attributes), (at, access));
        Ok(())
    }

    fn make_directories_to(&mut self, caller: &Caller<'_>, path: &[u8]) -> Result<(), Errno> {
        let slashes = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        for (end, _) in slashes {
            match self.make_directory(caller, caller.root, &path[..end], 0o755) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One more file system, whose root is what the host calls `fid`, for what is at `at`.
    fn add_host(
        &mut self,
        client: Client,
        (fid, kind, facts): (Fid, NodeType, LentAttributes),
        (at, access): (InodeId, MountAccess),
    ) {
        let mount = self.mounts_len();
        let files = self.host.get_mut();
        let index = files.clients.len();
        files.clients.push(client);
        let root = files.insert((index, mount), fid, kind, facts);
        let (root, magic) = (NodeId::Host(root), V9FS_MAGIC.into());
        self.add_mount_of(Mount { root, at: Some(at), magic, kind: "9p", access });
    }

    /// What is known of directories that the host lends. No two calls have it at the same time.
    fn host_files(&self) -> RefMut<'_, HostFiles> {
        self.host.borrow_mut()
    }

    pub(crate) fn host_kind(&self, id: HostId) -> NodeType {
        self.host.borrow().nodes[id].kind
    }

    pub(crate) fn host_mount(&self, id: HostId) -> usize {
        self.host.borrow().nodes[id].mount
    }

    pub(crate) fn host_device(&self, id: HostId) -> u64 {
        self.host.borrow().nodes[id].device
    }

    /// The directory that it was found in, and its name there; nothing for a root.
    pub(crate) fn host_place(&self, id: HostId) -> Option<(HostId, Vec<u8>)> {
        let files = self.host.borrow();
        let node = &files.nodes[id];
        node.parent.map(|parent| (parent, node.name.to_vec()))
    }

    pub(crate) fn host_hold(&mut self, id: HostId) {
        self.host.get_mut().nodes[id].holds += 1;
    }

    pub(crate) fn host_release(&mut self, id: HostId) {
        let (node, client) = self.host.get_mut().get(id);
        node.holds = node.holds.checked_sub(1).expect("only what is held is released");
        if let Some((fid, _)) = node.open.take_if(|_| node.holds == 0) {
            client.clunk(fid);
        }
    }

    /// Gives back nodes that nobody holds, between two calls.
    pub(crate) fn host_tidy(&mut self) {
        self.host.get_mut().tidy();
    }

    pub(crate) fn host_step(&self, directory: HostId, name: &[u8]) -> Result<Option<NodeId>, Errno> {
        Ok(self.host_files().look_up(directory, name)?.map(NodeId::Host))
    }

    fn host_rights(&self, id: HostId) -> Result<Rights, Errno> {
        self.host_files().facts(id).map(rights)
    }

    /// Does something in which nobody else changes what is asked for: the host is asked once what is known of
    /// a file, however often that is looked at, unless `act` changes something.
    pub fn in_one_call<R>(&mut self, act: impl FnOnce(&mut Vfs) -> R) -> R {
        self.host_call(true);
        let result = act(self);
        self.host_call(false);
        result
    }

    /// Not inlined: there is one [`Vfs::in_one_call`] for each call of a program.
    #[inline(never)]
    fn host_call(&mut self, is_under_way: bool) {
        let files = self.host.get_mut();
        files.moment += 1;
        files.is_in_call = is_under_way;
    }

    pub(crate) fn host_attributes(&self, id: HostId) -> Result<Attributes, Errno> {
        let mut files = self.host_files();
        let facts = files.facts(id)?;
        let (facts, mount, kind) = (*facts, files.nodes[id].mount, files.nodes[id].kind);
        drop(files);
        let [accessed, modified, changed] = facts.times.map(file_time);
        Ok(Attributes {
            device: self.device_of(mount),
            number: facts.qid.path,
            kind,
            permissions: facts.mode & 0o7777,
            links: u32::try_from(facts.links).unwrap_or(u32::MAX),
            user: facts.user,
            group: facts.group,
            rdev: facts.rdev,
            size: facts.size,
            blocks: facts.blocks,
            accessed,
            modified,
            changed,
            born: changed,
        })
    }

    pub(crate) fn host_access(&self, who: &Credentials, id: HostId, wanted: Access) -> Result<(), Errno> {
        // Root may go through any directory, which is asked for each name of a path.
        if who.is_root() && wanted == Access::EXECUTE && self.host_kind(id).is_directory() {
            return Ok(());
        }
        who.check_rights(&self.host_rights(id)?, wanted)?;
        // What is written to a pipe, a socket or a device is not written there.
        let is_stored = matches!(self.host_kind(id), NodeType::File | NodeType::Directory | NodeType::Link);
        let is_fixed = self.mount(self.host_mount(id)).access == MountAccess::ReadOnly;
        if wanted.includes(Access::WRITE) && is_stored && is_fixed { Err(Errno::EROFS) } else { Ok(()) }
    }

    fn host_change(&self, id: HostId, change: &Change) -> Result<(), Errno> {
        let mut files = self.host_files();
        let (node, client) = files.get_to_change(id);
        Ok(client.change(node.fid, change)?)
    }

    pub(crate) fn host_set_permissions(&self, caller: &Caller<'_>, id: HostId, to: u32) -> Result<(), Errno> {
        let facts = self.host_rights(id)?;
        caller.credentials.check_owner(&facts)?;
        if self.host_kind(id).is_link() {
            return Err(Errno::EOPNOTSUPP);
        }
        let keeps_group = caller.credentials.is_root() || caller.credentials.is_in(facts.group);
        let to = to & if keeps_group { 0o7777 } else { 0o5777 };
        self.host_change(id, &Change { mode: Some(to), ..Change::default() })
    }

    pub(crate) fn host_set_owner(&self, caller: &Caller<'_>, id: HostId, to: Ownership) -> Result<(), Errno> {
        if to == Ownership::default() {
            return Ok(());
        }
        let facts = self.host_rights(id)?;
        caller.credentials.check_new_owner(&facts, to)?;
        if to.user.unwrap_or(facts.user) == facts.user && to.group.unwrap_or(facts.group) == facts.group {
            return Ok(());
        }
        self.host_change(id, &Change { user: to.user, group: to.group, ..Change::default() })
    }

    pub(crate) fn host_set_times(
        &self,
        caller: &Caller<'_>,
        id: HostId,
        accessed: Stamp,
        modified: Stamp,
    ) -> Result<(), Errno> {
        let facts = self.host_rights(id)?;
        caller.credentials.check_times(&facts, accessed, modified)?;
        let at = |stamp: Stamp| match stamp {
            Stamp::Omit => None,
            Stamp::Now => Some((caller.now.seconds as u64, caller.now.nanoseconds.into())),
            Stamp::At(time) => Some((time.seconds as u64, time.nanoseconds.into())),
        };
        self.host_change(id, &Change { accessed: at(accessed), modified: at(modified), ..Change::default() })
    }

    /// A file that stores something.
    fn host_file(&self, id: HostId) -> Result<(), Errno> {
        match self.host_kind(id) {
            NodeType::File => Ok(()),
            NodeType::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Opens a file as far as that is asked for; nothing for what is not opened there.
    pub(crate) fn host_open(&self, id: HostId, wanted: Access) -> Result<(), Errno> {
        let kind = self.host_kind(id);
        if kind != NodeType::File && !kind.is_directory() {
            return Ok(());
        }
        let mode = match (wanted.includes(Access::READ), wanted.includes(Access::WRITE)) {
            (_, false) => Mode::Read,
            (false, true) => Mode::Write,
            (true, true) => Mode::ReadWrite,
        };
        self.host_files().opened(id, mode).map(drop)
    }

    pub(crate) fn host_read(&self, id: HostId, offset: u64, target: &mut [u8]) -> Result<usize, Errno> {
        self.host_file(id)?;
        let mut files = self.host_files();
        let (fid, client) = files.opened(id, Mode::Read)?;
        let mut done = 0;
        while done < target.len() {
            let most = client.piece_bytes().min(target.len() - done);
            match client.read(fid, offset + done as u64, &mut target[done..]) {
                Ok(count) => {
                    done += count;
                    // The file ends there: the host reads as much as there is.
                    if count < most {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    pub(crate) fn host_write(&self, id: HostId, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.host_file(id)?;
        let mut files = self.host_files();
        files.moment += 1;
        let (fid, client) = files.opened(id, Mode::Write)?;
        let mut done = 0;
        while done < bytes.len() {
            match client.write_at(fid, offset + done as u64, &bytes[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        let facts = &mut files.nodes[id].facts;
        facts.size = facts.size.max(offset + done as u64);
        Ok(done)
    }

    pub(crate) fn host_size(&self, id: HostId) -> Result<u64, Errno> {
        self.host_files().facts(id).map(|facts| facts.size)
    }

    pub(crate) fn host_truncate(&self, id: HostId, len: u64) -> Result<(), Errno> {
        self.host_file(id)?;
        self.host_change(id, &Change { size: Some(len), ..Change::default() })
    }

    /// The host does not say where holes are: all of a file is data, and behind it there is one.
    pub(crate) fn host_seek(&self, id: HostId, offset: u64, what: Seek) -> Result<u64, Errno> {
        self.host_file(id)?;
        let size = self.host_size(id)?;
        match what {
            _ if offset >= size => Err(Errno::ENXIO),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    pub(crate) fn host_space(&self, id: HostId) -> Option<SpaceFacts> {
        let access = self.mount(self.host_mount(id)).access;
        let mut files = self.host_files();
        let (node, client) = files.get(id);
        let space = client.space(node.fid).ok()?;
        let pages = |blocks: u64| blocks.saturating_mul(space.block_bytes.into()) / crate::contents::PAGE;
        Some(SpaceFacts {
            magic: V9FS_MAGIC.into(),
            pages: pages(space.blocks),
            pages_free: pages(space.available),
            files: space.files,
            access,
        })
    }

    pub(crate) fn host_link_target(&self, id: HostId) -> Result<Vec<u8>, Errno> {
        let mut files = self.host_files();
        let (node, client) = files.get(id);
        Ok(client.read_link(node.fid)?)
    }

    pub(crate) fn host_list(
        &self,
        id: HostId,
        position: u64,
        see: &mut dyn FnMut(DirectoryEntry<'_>) -> Option<()>,
    ) -> Result<(), Errno> {
        let mut files = self.host_files();
        let (fid, client) = files.opened(id, Mode::Read)?;
        let mut tell = |entry: LentEntry<'_>| {
            let kind = NodeType::of_entry(entry.kind).unwrap_or(NodeType::File);
            see(DirectoryEntry { name: entry.name, number: entry.qid.path, kind, next: entry.next })
        };
        let mut position = Some(position);
        while let Some(from) = position {
            position = client.list(fid, from, &mut tell)?;
        }
        Ok(())
    }

    /// Has what was written to a node be on the host's disk when this returns: its data and what is needed to
    /// read them, if `what` is [`Durable::Data`].
    ///
    /// # Errors
    /// The host's: then it may not be there.
    pub fn sync(&self, node: NodeId, what: Durable) -> Result<(), Errno> {
        let NodeId::Host(id) = node else { return Ok(()) };
        let kind = self.host_kind(id);
        if kind != NodeType::File && !kind.is_directory() {
            return Err(Errno::EINVAL);
        }
        let mut files = self.host_files();
        let mode = files.nodes[id].open.map_or(Mode::Read, |(_, mode)| mode);
        let (fid, client) = files.opened(id, mode)?;
        Ok(client.sync(fid, if what == Durable::Data { 1 } else { 0 })?)
    }

    /// Has what was written to all files that are open be on the host's disk, as far as the host can.
    pub fn sync_all(&self) {
        let open = |(id, node): (HostId, &HostNode)| node.open.map(|_| NodeId::Host(id));
        let all: Vec<NodeId> = self.host_files().nodes.iter().filter_map(open).collect();
        for node in all {
            // As Linux: who asks for all is told of no error of one.
            let _ = self.sync(node, Durable::All);
        }
    }

    /// Whether the caller may put names into a directory, and take them away.
    fn host_check_directory(&self, caller: &Caller<'_>, directory: HostId) -> Result<(), Errno> {
        self.host_access(caller.credentials, directory, Access::WRITE.and(Access::EXECUTE))
    }

    /// Whether the caller may take what a node is out of a directory.
    fn host_check_removable(
        &self,
        caller: &Caller<'_>,
        directory: HostId,
        node: NodeId,
    ) -> Result<HostId, Errno> {
        let above = self.host_rights(directory)?;
        caller.credentials.check_rights(&above, Access::WRITE.and(Access::EXECUTE))?;
        // What covers a directory is in use.
        let NodeId::Host(id) = node else { return Err(Errno::EBUSY) };
        if self.host_mount(id) != self.host_mount(directory) || self.host_place(id).is_none() {
            return Err(Errno::EBUSY);
        }
        let is_sticky = above.permissions & 0o1000 != 0;
        if is_sticky && !caller.credentials.is_root() {
            let user = caller.credentials.user;
            if user != above.user && user != self.host_rights(id)?.user {
                return Err(Errno::EPERM);
            }
        }
        Ok(id)
    }

    /// Makes something new; the caller has looked that there is nothing.
    pub(crate) fn host_create(
        &self,
        caller: &Caller<'_>,
        directory: HostId,
        name: &[u8],
        body: &Body,
        permissions: u32,
    ) -> Result<NodeId, Errno> {
        self.host_check_directory(caller, directory)?;
        let above = self.host_rights(directory)?;
        let inherits = above.permissions & 0o2000 != 0;
        let group = if inherits { above.group } else { caller.credentials.group };
        let mut files = self.host_files();
        let (node, client) = files.get_to_change(directory);
        let at = node.fid;
        let mut opened = None;
        let mut make =
            |kind: NodeType, device| client.make_node(at, name, kind.mode() | permissions, device, group);
        match body {
            Body::File(_) => {
                let fid = client.walk(at, None)?;
                if let Err(error) = client.create(fid, name, O_RDWR | O_CREAT | O_EXCL, permissions, group) {
                    client.clunk(fid);
                    return Err(error.into());
                }
                opened = Some((fid, Mode::ReadWrite));
            }
            Body::Directory(_) => {
                let kept = if inherits { 0o2000 } else { 0 };
                client.make_directory(at, name, permissions | kept, group)?;
            }
            Body::Link(target) => client.make_link(at, name, target, group)?,
            Body::Device { kind, number } => make(*kind, device_parts(*number))?,
            Body::Fifo => make(NodeType::Fifo, (0, 0))?,
            Body::Socket => make(NodeType::Socket, (0, 0))?,
        }
        let id = match files.look_up(directory, name) {
            Ok(Some(id)) => id,
            found => {
                let (_, client) = files.get(directory);
                opened.into_iter().for_each(|(fid, _)| client.clunk(fid));
                return Err(found.err().unwrap_or(Errno::ENOENT));
            }
        };
        let (node, client) = files.get_to_change(id);
        if let Some((before, _)) = opened.and_then(|opened| node.open.replace(opened)) {
            client.clunk(before);
        }
        if !caller.credentials.is_root() {
            let owner = Change { user: Some(caller.credentials.user), ..Change::default() };
            // A host that is not root gives nothing away: what it makes is its own.
            let _ = client.change(node.fid, &owner);
            if permissions & SET_ID != 0 && !node.kind.is_link() {
                // Who is given a program does not get its former owner's rights with it; these are its own.
                let mode = Change { mode: Some(permissions), ..Change::default() };
                let _ = client.change(node.fid, &mode);
            }
        }
        Ok(NodeId::Host(id))
    }

    pub(crate) fn host_link(
        &self,
        caller: &Caller<'_>,
        id: HostId,
        directory: HostId,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.host_check_directory(caller, directory)?;
        if self.host_kind(id).is_directory() {
            return Err(Errno::EPERM);
        }
        let mut files = self.host_files();
        let (at, file) = (files.nodes[directory].fid, files.nodes[id].fid);
        let (_, client) = files.get_to_change(id);
        Ok(client.link(at, file, name)?)
    }

    pub(crate) fn host_remove(
        &self,
        caller: &Caller<'_>,
        (directory, name): (HostId, &[u8]),
        node: NodeId,
        wanted: NodeType,
    ) -> Result<(), Errno> {
        let id = self.host_check_removable(caller, directory, node)?;
        let is_directory = self.host_kind(id).is_directory();
        let flags = match (is_directory, wanted == NodeType::Directory) {
            (true, true) => AT_REMOVEDIR,
            (false, false) => 0,
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
        };
        let mut files = self.host_files();
        let (node, client) = files.get_to_change(directory);
        client.unlink(node.fid, name, flags)?;
        files.forget(id);
        Ok(())
    }

    /// Gives what is in one directory that the host lends a name in another; nothing if neither is one.
    ///
    /// # Errors
    /// As `rename(2)`; two names cannot change places.
    pub(crate) fn host_rename(
        &self,
        caller: &Caller<'_>,
        (old, old_name): (&Found, &[u8]),
        (new, new_name): (&Found, &[u8]),
        moved: NodeId,
        replace: Replace,
    ) -> ControlFlow<Result<(), Errno>> {
        let (NodeId::Host(from), NodeId::Host(to)) = (old.directory, new.directory) else {
            return ControlFlow::Continue(());
        };
        let rename = || {
            if replace == Replace::Exchange {
                return Err(Errno::EINVAL);
            }
            let id = self.host_check_removable(caller, from, moved)?;
            match new.node {
                Some(node) => {
                    self.host_check_removable(caller, to, node)?;
                    self.check_kinds(moved, node)?;
                }
                None => self.host_check_directory(caller, to)?,
            }
            if self.host_kind(id).is_directory() && from != to {
                // Its `..` changes.
                self.host_access(caller.credentials, id, Access::WRITE)?;
            }
            let mut files = self.host_files();
            let (at, there) = (files.nodes[from].fid, files.nodes[to].fid);
            let (_, client) = files.get_to_change(id);
            client.rename((at, old_name), (there, new_name))?;
            if let Some(NodeId::Host(other)) = new.node {
                files.forget(other);
            }
            files.put(id, to, new_name);
            Ok(())
        };
        ControlFlow::Break(rename())
    }
}

/// What of a file is to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Its data, and what is needed to read them: `fdatasync(2)`.
    Data,
    /// All of it: `fsync(2)`.
    All,
}
