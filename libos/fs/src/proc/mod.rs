//! `/proc`: nothing of it is stored. Its files say what [`Processes`] know at the time they are opened.

mod global;
mod nodes;
mod process;

use crate::attributes::{Attributes, FileTime};
use crate::caller::{Access, Caller};
use crate::errno::Errno;
use crate::listing::DirectoryEntry;
use crate::locks::{Lock, LockTable};
use crate::node::NodeId;
use crate::vfs::Vfs;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
pub use nodes::{GlobalFile, OS_RELEASE, ProcNode, ProcessFile, ProcessLink, Tunable};

/// How many limits a process has (getrlimit(2)).
pub const LIMITS: usize = 16;

/// Names a process.
pub type Pid = u32;

/// What `/proc` tells of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The name of its first thread, at most 15 bytes.
    pub name: Vec<u8>,
    /// Its state, as `stat` has it: R, S, T, Z.
    pub state: char,
    /// Its parent.
    pub parent: Pid,
    /// Its process group.
    pub group: Pid,
    /// Its session.
    pub session: Pid,
    /// Real, effective and saved user, and the one for files.
    pub users: [u32; 4],
    /// The same of groups.
    pub user_groups: [u32; 4],
    /// Further groups.
    pub groups: Vec<u32>,
    /// Its threads.
    pub threads: Vec<Pid>,
    /// Bytes of its address space.
    pub virtual_bytes: u64,
    /// Bytes of memory that it has.
    pub resident_bytes: u64,
    /// When it began, since boot.
    pub started_ns: u64,
    /// How long it ran.
    pub ran_ns: u64,
    /// Signals: pending, blocked, ignored, caught.
    pub signals: [u64; 4],
    /// Permissions that what it makes does not get.
    pub umask: u32,
    /// Its limits, each as it holds and as far as the process may raise it, in the order of `RLIMIT_*`;
    /// `u64::MAX` is none.
    pub limits: [[u64; 2]; LIMITS],
    /// Processors that it may run on, a bit each.
    pub affinity: u64,
}

/// A range of a process's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its first address.
    pub start: u64,
    /// The first behind it.
    pub end: u64,
    /// Such as `r-xp`.
    pub permissions: [u8; 4],
    /// Where it begins in its file.
    pub offset: u64,
    /// Its file, if it has one.
    pub node: Option<NodeId>,
    /// What is shown in place of a file's path, such as `[heap]`.
    pub label: Vec<u8>,
}

/// What an open descriptor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorFacts {
    /// What it was opened as, if that is a node.
    pub node: Option<NodeId>,
    /// What is shown of one that is not, such as `pipe:[17]`.
    pub label: Vec<u8>,
    /// Where it is read next.
    pub position: u64,
    /// Its flags, as `open` takes them.
    pub flags: u32,
}

/// What `/proc` tells of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// Its name.
    pub host: Vec<u8>,
    /// Processors.
    pub cores: u32,
    /// Memory in all.
    pub memory_bytes: u64,
    /// Memory that nobody uses.
    pub free_bytes: u64,
    /// Memory of programs that lies in large pages.
    pub large_bytes: u64,
    /// Time since boot.
    pub uptime_ns: u64,
    /// How much of it, of all processors, nothing ran.
    pub idle_ns: u64,
    /// Since 1970.
    pub booted_seconds: u64,
    /// Of the processors, in kHz.
    pub frequency_khz: u64,
    /// What the processors call themselves.
    pub model: Vec<u8>,
    /// Who made them.
    pub vendor: Vec<u8>,
    /// What they can do, as Linux names it.
    pub flags: Vec<u8>,
    /// Sixteen random bytes, drawn at boot.
    pub boot_id: [u8; 16],
}

/// Who knows the processes.
pub trait Processes {
    /// All there are, in order.
    fn list(&self) -> Vec<Pid>;
    /// What is known of one; `None` if there is none of that name.
    fn facts(&self, process: Pid) -> Option<ProcessFacts>;
    /// Its arguments, each with a zero behind it.
    fn command_line(&self, process: Pid) -> Vec<u8>;
    /// Its environment as it began, each with a zero behind it.
    fn environment(&self, process: Pid) -> Vec<u8>;
    /// Its auxiliary vector.
    fn auxiliary(&self, process: Pid) -> Vec<u8>;
    /// Its address space, in order.
    fn mapped(&self, process: Pid) -> Vec<Mapped>;
    /// The program that it runs.
    fn program(&self, process: Pid) -> Option<NodeId>;
    /// Where its relative and absolute paths begin.
    fn directories(&self, process: Pid) -> Option<(NodeId, NodeId)>;
    /// Its descriptors, in order.
    fn descriptors(&self, process: Pid) -> Vec<u32>;
    /// What one of them is.
    fn descriptor(&self, process: Pid, descriptor: u32) -> Option<DescriptorFacts>;
    /// The locks of files that are held, each with its file and whether it is of its records.
    fn locks(&self) -> Vec<(NodeId, LockTable, Lock)>;
    /// The machine.
    fn machine(&self) -> MachineFacts;
}

/// Nobody: for when no process has begun.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProcesses;

impl Processes for NoProcesses {
    fn list(&self) -> Vec<Pid> {
        Vec::new()
    }
    fn facts(&self, _: Pid) -> Option<ProcessFacts> {
        None
    }
    fn command_line(&self, _: Pid) -> Vec<u8> {
        Vec::new()
    }
    fn environment(&self, _: Pid) -> Vec<u8> {
        Vec::new()
    }
    fn auxiliary(&self, _: Pid) -> Vec<u8> {
        Vec::new()
    }
    fn mapped(&self, _: Pid) -> Vec<Mapped> {
        Vec::new()
    }
    fn program(&self, _: Pid) -> Option<NodeId> {
        None
    }
    fn directories(&self, _: Pid) -> Option<(NodeId, NodeId)> {
        None
    }
    fn descriptors(&self, _: Pid) -> Vec<u32> {
        Vec::new()
    }
    fn descriptor(&self, _: Pid, _: u32) -> Option<DescriptorFacts> {
        None
    }
    fn locks(&self) -> Vec<(NodeId, LockTable, Lock)> {
        Vec::new()
    }
    fn machine(&self) -> MachineFacts {
        MachineFacts::default()
    }
}

/// Text that is being written.
#[derive(Debug, Default)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

impl Vfs {
    /// What a file of `/proc` says now; empty for what is no file there.
    ///
    /// # Errors
    /// `ESRCH` if the process has ended.
    pub fn text(&self, caller: &Caller<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        let mut text = Text::default();
        match node {
            NodeId::Proc(ProcNode::Global(file)) => self.write_global(caller, file, &mut text),
            NodeId::Proc(ProcNode::Tunable(tunable)) => {
                text.bytes(&tunable.value(&caller.processes.machine()))
            }
            NodeId::Proc(ProcNode::File(process, file)) => {
                self.write_process(caller, process, file, &mut text)?
            }
            NodeId::Proc(ProcNode::DescriptorInfo(process, descriptor)) => {
                let facts = caller.processes.descriptor(process, descriptor).ok_or(Errno::ENOENT)?;
                process::write_descriptor(&facts, &mut text);
            }
            _ => {}
        }
        Ok(text.0)
    }

    pub(crate) fn proc_attributes(&self, caller: &Caller<'_>, node: ProcNode) -> Result<Attributes, Errno> {
        let (user, group) = match node.process() {
            None => (0, 0),
            Some(process) => {
                let facts = caller.processes.facts(process).ok_or(Errno::ENOENT)?;
                (facts.users[1], facts.user_groups[1])
            }
        };
        let kind = node.kind();
        let booted = caller.processes.machine().booted_seconds as i64;
        let time = FileTime { seconds: booted, nanoseconds: 0 };
        Ok(Attributes {
            device: 4,
            number: node.number(),
            kind,
            permissions: node.permissions(),
            links: if kind.is_directory() { 2 } else { 1 },
            user,
            group,
            rdev: 0,
            size: 0,
            blocks: 0,
            accessed: time,
            modified: time,
            changed: time,
            born: time,
        })
    }

    /// Whether the caller may do this with something in `/proc`, as its permissions say: what is about a
    /// process is its user's, and its own.
    pub(crate) fn proc_check(
        &self,
        caller: &Caller<'_>,
        node: ProcNode,
        wanted: Access,
    ) -> Result<(), Errno> {
        let user = caller.credentials.user;
        let is_owner = node.process().is_some_and(|process| {
            let facts = || caller.processes.facts(process);
            process == caller.process || facts().is_some_and(|facts| facts.users[1] == user)
        });
        let permissions = node.permissions();
        let owners = if is_owner || caller.credentials.is_root() { permissions >> 6 } else { 0 };
        // What it leads to has no permissions of its own; whoever may follow the link may open it.
        let is_free = matches!(node, ProcNode::Opened(..));
        if is_free || (permissions | owners) & 7 & wanted.bits() == wanted.bits() {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// Whether the caller may look at what a process keeps to itself (ptrace(2), "Ptrace access mode
    /// checking"): who is root, of that process, or has the user and the group that are all of that
    /// process's.
    ///
    /// # Errors
    /// `EACCES`; `ENOENT` if the process has ended.
    pub(crate) fn proc_check_kept(&self, caller: &Caller<'_>, node: ProcNode) -> Result<(), Errno> {
        let Some(process) = node.process().filter(|_| node.is_kept()) else { return Ok(()) };
        if caller.credentials.is_root() || process == caller.process {
            return Ok(());
        }
        let facts = caller.processes.facts(process).ok_or(Errno::ENOENT)?;
        let (user, group) = (caller.credentials.user, caller.credentials.group);
        let is_same = facts.users[..3] == [user; 3] && facts.user_groups[..3] == [group; 3];
        if is_same { Ok(()) } else { Err(Errno::EACCES) }
    }

    pub(crate) fn proc_lookup(&self, caller: &Caller<'_>, node: ProcNode, name: &[u8]) -> Option<ProcNode> {
        let number = || -> Option<u32> {
            let is_plain = name.first() != Some(&b'0') || name.len() == 1;
            core::str::from_utf8(name).ok().filter(|name| is_plain && !name.starts_with('+'))?.parse().ok()
        };
        let known = |process: &Pid| caller.processes.facts(*process).is_some();
        match node {
            ProcNode::Root => match number() {
                Some(process) => Some(process).filter(known).map(ProcNode::Process),
                None => node.child(name),
            },
            ProcNode::Descriptors(process) | ProcNode::DescriptorInfos(process) => {
                let descriptor = number()?;
                caller.processes.descriptor(process, descriptor)?;
                Some(match node {
                    ProcNode::Descriptors(_) => ProcNode::Descriptor(process, descriptor),
                    _ => ProcNode::DescriptorInfo(process, descriptor),
                })
            }
            ProcNode::Threads(process) => {
                let thread = number()?;
                let threads = caller.processes.facts(process)?.threads;
                threads.contains(&thread).then_some(ProcNode::Thread(process, thread))
            }
            _ => node.child(name),
        }
    }

    pub(crate) fn proc_list(
        &self,
        caller: &Caller<'_>,
        node: ProcNode,
        position: u64,
        see: &mut dyn FnMut(DirectoryEntry<'_>) -> Option<()>,
    ) -> Result<(), Errno> {
        let processes = caller.processes;
        let numbers = match node {
            ProcNode::Root => processes.list(),
            ProcNode::Descriptors(process) | ProcNode::DescriptorInfos(process) => {
                processes.descriptors(process)
            }
            ProcNode::Threads(process) => processes.facts(process).ok_or(Errno::ENOENT)?.threads,
            _ => Vec::new(),
        };
        if node.process().is_some_and(|process| processes.facts(process).is_none()) {
            return Err(Errno::ENOENT);
        }
        let dots = [(b".".to_vec(), node), (b"..".to_vec(), node.parent())];
        let named = node.children().into_iter().map(|(name, child)| (name.to_vec(), child));
        let numbered = numbers.into_iter().filter_map(|number| {
            let name = alloc::format!("{number}").into_bytes();
            let child = self.proc_lookup(caller, node, &name)?;
            Some((name, child))
        });
        let entries = dots.into_iter().chain(named).chain(numbered);
        for (next, (name, child)) in (1..).zip(entries).skip(position as usize) {
            let entry = DirectoryEntry { name: &name, number: child.number(), kind: child.kind(), next };
            if see(entry).is_none() {
                break;
            }
        }
        Ok(())
    }

    /// What a symbolic link of `/proc` shows.
    pub(crate) fn proc_link(&self, caller: &Caller<'_>, node: ProcNode) -> Result<Vec<u8>, Errno> {
        let decimal = |number: u32| alloc::format!("{number}").into_bytes();
        match self.proc_leads_to(caller, node)? {
            Some(NodeId::Proc(ProcNode::Opened(process, descriptor))) => {
                let facts = caller.processes.descriptor(process, descriptor);
                return facts.map(|facts| facts.label).ok_or(Errno::ENOENT);
            }
            Some(target) => return Ok(self.path_of(caller.root, target)),
            None => {}
        }
        match node {
            ProcNode::SelfLink => Ok(decimal(caller.process)),
            ProcNode::ThreadSelfLink => {
                let (process, thread) = (caller.process, caller.thread);
                Ok(alloc::format!("{process}/task/{thread}").into_bytes())
            }
            ProcNode::Mounts => Ok(b"self/mounts".to_vec()),
            _ => Err(Errno::ENOENT),
        }
    }

    /// The node that a symbolic link of `/proc` leads to, if it leads to one rather than by its text.
    ///
    /// # Errors
    /// `EACCES` for those to whom it is not told.
    pub(crate) fn proc_leads_to(&self, caller: &Caller<'_>, node: ProcNode) -> Result<Option<NodeId>, Errno> {
        self.proc_check_kept(caller, node)?;
        let processes = caller.processes;
        Ok(match node {
            ProcNode::Link(process, ProcessLink::Program) => {
                Some(processes.program(process).ok_or(Errno::ENOENT)?)
            }
            ProcNode::Link(process, ProcessLink::Directory) => {
                Some(processes.directories(process).ok_or(Errno::ENOENT)?.0)
            }
            ProcNode::Link(process, ProcessLink::Root) => {
                Some(processes.directories(process).ok_or(Errno::ENOENT)?.1)
            }
            ProcNode::Descriptor(process, descriptor) => {
                let facts = processes.descriptor(process, descriptor).ok_or(Errno::ENOENT)?;
                // What has no node is opened once more by its descriptor.
                Some(facts.node.unwrap_or(NodeId::Proc(ProcNode::Opened(process, descriptor))))
            }
            _ => None,
        })
    }
}

/// The text of a number of kibibytes, as `status` and `meminfo` align it.
pub(crate) fn kibibytes(bytes: u64) -> String {
    alloc::format!("{:>8} kB", bytes >> 10)
}
