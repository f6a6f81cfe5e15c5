//! What there is in `/proc`, and how it is called.

use super::{MachineFacts, Pid};
use crate::listing::NodeType;
use alloc::vec::Vec;

/// A file about the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the file of its name")]
pub enum GlobalFile {
    CpuInfo,
    MemInfo,
    Stat,
    LoadAvg,
    Uptime,
    Version,
    FileSystems,
    CmdLine,
    Swaps,
    Locks,
}

/// A file about one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the file of its name")]
pub enum ProcessFile {
    Maps,
    Smaps,
    Status,
    Stat,
    Statm,
    Comm,
    CmdLine,
    Environ,
    Auxv,
    Limits,
    Mounts,
    MountInfo,
    Cgroup,
    OomScoreAdj,
}

/// A symbolic link of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcessLink {
    /// `exe`.
    Program,
    /// `cwd`.
    Directory,
    /// `root`.
    Root,
}

/// A file of `/proc/sys`, by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tunable(u8);

/// One thing in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcNode {
    /// `/proc`.
    Root,
    /// `self`.
    SelfLink,
    /// `thread-self`.
    ThreadSelfLink,
    /// `mounts`, a link.
    Mounts,
    /// A file about the machine.
    Global(GlobalFile),
    /// `sys`, or a directory in it: what its path begins with, as one of the table does, to this length.
    Tunables(Tunable, u8),
    /// A file in `sys`.
    Tunable(Tunable),
    /// The directory of a process.
    Process(Pid),
    /// A file about a process.
    File(Pid, ProcessFile),
    /// A link of a process.
    Link(Pid, ProcessLink),
    /// `fd`.
    Descriptors(Pid),
    /// A link in `fd`.
    Descriptor(Pid, u32),
    /// What a descriptor is that has no node: to open it is to have that descriptor once more.
    Opened(Pid, u32),
    /// `fdinfo`.
    DescriptorInfos(Pid),
    /// A file in `fdinfo`.
    DescriptorInfo(Pid, u32),
    /// `task`.
    Threads(Pid),
    /// The directory of a thread.
    Thread(Pid, Pid),
}

const GLOBAL: [(&[u8], GlobalFile); 10] = [
    (b"cpuinfo", GlobalFile::CpuInfo),
    (b"meminfo", GlobalFile::MemInfo),
    (b"stat", GlobalFile::Stat),
    (b"loadavg", GlobalFile::LoadAvg),
    (b"uptime", GlobalFile::Uptime),
    (b"version", GlobalFile::Version),
    (b"filesystems", GlobalFile::FileSystems),
    (b"cmdline", GlobalFile::CmdLine),
    (b"swaps", GlobalFile::Swaps),
    (b"locks", GlobalFile::Locks),
];

const FILES: [(&[u8], ProcessFile); 14] = [
    (b"maps", ProcessFile::Maps),
    (b"smaps", ProcessFile::Smaps),
    (b"status", ProcessFile::Status),
    (b"stat", ProcessFile::Stat),
    (b"statm", ProcessFile::Statm),
    (b"comm", ProcessFile::Comm),
    (b"cmdline", ProcessFile::CmdLine),
    (b"environ", ProcessFile::Environ),
    (b"auxv", ProcessFile::Auxv),
    (b"limits", ProcessFile::Limits),
    (b"mounts", ProcessFile::Mounts),
    (b"mountinfo", ProcessFile::MountInfo),
    (b"cgroup", ProcessFile::Cgroup),
    (b"oom_score_adj", ProcessFile::OomScoreAdj),
];

const LINKS: [(&[u8], ProcessLink); 3] =
    [(b"exe", ProcessLink::Program), (b"cwd", ProcessLink::Directory), (b"root", ProcessLink::Root)];

/// What a tunable says.
enum Value {
    Text(&'static str),
    HostName,
    BootId,
    /// Another one each time; of nothing but the time since boot, for those that want a name and no secret.
    Uuid,
}

/// The files of `/proc/sys`, in order.
const TUNABLES: [(&str, Value); 31] = [
    ("fs/epoll/max_user_watches", Value::Text("1048576")),
    ("fs/file-max", Value::Text("1048576")),
    ("fs/file-nr", Value::Text("0\t0\t1048576")),
    ("fs/nr_open", Value::Text("1048576")),
    ("fs/pipe-max-size", Value::Text("1048576")),
    ("kernel/cap_last_cap", Value::Text("40")),
    ("kernel/core_pattern", Value::Text("core")),
    ("kernel/hostname", Value::HostName),
    ("kernel/msgmax", Value::Text("8192")),
    ("kernel/msgmnb", Value::Text("16384")),
    ("kernel/msgmni", Value::Text("256")),
    ("kernel/ngroups_max", Value::Text("65536")),
    ("kernel/osrelease", Value::Text(OS_RELEASE)),
    ("kernel/ostype", Value::Text("Linux")),
    ("kernel/overflowgid", Value::Text("65534")),
    ("kernel/overflowuid", Value::Text("65534")),
    ("kernel/pid_max", Value::Text("32768")),
    ("kernel/random/boot_id", Value::BootId),
    ("kernel/random/entropy_avail", Value::Text("256")),
    ("kernel/random/uuid", Value::Uuid),
    ("kernel/randomize_va_space", Value::Text("2")),
    ("kernel/sem", Value::Text("32000\t256000\t500\t4096")),
    ("kernel/shmmni", Value::Text("4096")),
    ("kernel/threads-max", Value::Text("32768")),
    ("net/core/rmem_max", Value::Text("16777216")),
    ("net/core/somaxconn", Value::Text("4096")),
    ("net/core/wmem_max", Value::Text("16777216")),
    ("net/ipv4/ip_local_port_range", Value::Text("49152\t65534")),
    ("vm/max_map_count", Value::Text("65530")),
    ("vm/overcommit_memory", Value::Text("1")),
    ("vm/swappiness", Value::Text("0")),
];

/// The release of Linux whose calls are there, as `uname` tells it.
pub const OS_RELEASE: &str = "6.1.0-nom";

impl Tunable {
    fn path(self) -> &'static str {
        TUNABLES[usize::from(self.0)].0
    }

    pub(crate) fn value(self, machine: &MachineFacts) -> Vec<u8> {
        let mut value = match &TUNABLES[usize::from(self.0)].1 {
            Value::Text(text) => text.as_bytes().to_vec(),
            Value::HostName => machine.host.clone(),
            Value::BootId => uuid(machine.boot_id),
            Value::Uuid => {
                uuid((u128::from_ne_bytes(machine.boot_id) ^ u128::from(machine.uptime_ns)).to_ne_bytes())
            }
        };
        value.push(b'\n');
        value
    }
}

/// The text of a random UUID (RFC 9562 section 5.4).
fn uuid(mut bytes: [u8; 16]) -> Vec<u8> {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = Vec::new();
    for (index, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push(b'-');
        }
        text.extend_from_slice(alloc::format!("{byte:02x}").as_bytes());
    }
    text
}

/// What a directory of `sys` has: each name once, with a tunable of that name or one in the directory.
fn tunables(within: Tunable, len: u8) -> Vec<(&'static [u8], ProcNode)> {
    let prefix = &within.path()[..usize::from(len)];
    let mut children: Vec<(&'static [u8], ProcNode)> = Vec::new();
    for (index, (path, _)) in (0..).zip(&TUNABLES) {
        let Some(rest) = path.strip_prefix(prefix) else { continue };
        let (name, child) = match rest.split_once('/') {
            None => (rest, ProcNode::Tunable(Tunable(index))),
            Some((name, _)) => {
                let len = prefix.len() + name.len() + 1;
                let Ok(len) = u8::try_from(len) else { continue };
                (name, ProcNode::Tunables(first_below(&path[..usize::from(len)]), len))
            }
        };
        if children.last().is_none_or(|(last, _)| *last != name.as_bytes()) {
            children.push((name.as_bytes(), child));
        }
    }
    children
}

/// The first that is in a directory, so that a directory has one name.
fn first_below(prefix: &str) -> Tunable {
    let index = TUNABLES.iter().position(|(path, _)| path.starts_with(prefix));
    Tunable(index.unwrap_or_default() as u8)
}

impl ProcNode {
    pub(crate) fn kind(self) -> NodeType {
        match self {
            ProcNode::Root
            | ProcNode::Tunables(..)
            | ProcNode::Process(_)
            | ProcNode::Descriptors(_)
            | ProcNode::DescriptorInfos(_)
            | ProcNode::Threads(_)
            | ProcNode::Thread(..) => NodeType::Directory,
            ProcNode::SelfLink
            | ProcNode::ThreadSelfLink
            | ProcNode::Mounts
            | ProcNode::Link(..)
            | ProcNode::Descriptor(..) => NodeType::Link,
            ProcNode::Opened(..) => NodeType::Character,
            ProcNode::Global(_)
            | ProcNode::Tunable(_)
            | ProcNode::File(..)
            | ProcNode::DescriptorInfo(..) => NodeType::File,
        }
    }

    pub(crate) fn permissions(self) -> u32 {
        match self {
            ProcNode::Descriptors(_) | ProcNode::DescriptorInfos(_) => 0o500,
            ProcNode::File(_, ProcessFile::Environ | ProcessFile::Auxv) => 0o400,
            ProcNode::File(_, ProcessFile::OomScoreAdj | ProcessFile::Comm) => 0o644,
            ProcNode::Opened(..) => 0o666,
            _ => match self.kind() {
                NodeType::Directory => 0o555,
                NodeType::Link => 0o777,
                _ => 0o444,
            },
        }
    }

    /// Whether what it says is told to those alone who may look into the process (proc(5)), whatever its
    /// permissions are.
    pub(crate) fn is_kept(self) -> bool {
        use ProcessFile::{Auxv, Environ, Maps, Smaps};
        matches!(self, ProcNode::File(_, Environ | Auxv | Maps | Smaps))
            || matches!(self, ProcNode::Link(..) | ProcNode::Descriptor(..) | ProcNode::Opened(..))
            || matches!(self, ProcNode::DescriptorInfo(..))
    }

    /// The process that it is about.
    pub(crate) fn process(self) -> Option<Pid> {
        match self {
            ProcNode::Process(process)
            | ProcNode::File(process, _)
            | ProcNode::Link(process, _)
            | ProcNode::Descriptors(process)
            | ProcNode::Descriptor(process, _)
            | ProcNode::Opened(process, _)
            | ProcNode::DescriptorInfos(process)
            | ProcNode::DescriptorInfo(process, _)
            | ProcNode::Threads(process)
            | ProcNode::Thread(process, _) => Some(process),
            _ => None,
        }
    }

    /// A number that tells it from all others: FNV-1a of what it is.
    pub(crate) fn number(self) -> u64 {
        use core::hash::{Hash, Hasher};
        struct Fnv(u64);
        impl Hasher for Fnv {
            fn finish(&self) -> u64 {
                self.0
            }
            fn write(&mut self, bytes: &[u8]) {
                for byte in bytes {
                    self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
        if self == ProcNode::Root {
            return 1;
        }
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        self.hash(&mut hasher);
        hasher.finish() >> 16
    }

    /// The directory that it is in.
    pub(crate) fn parent(self) -> ProcNode {
        match self {
            ProcNode::Tunables(within, len) => {
                match within.path()[..usize::from(len).saturating_sub(1)].rfind('/') {
                    Some(slash) => {
                        let prefix = &within.path()[..=slash];
                        ProcNode::Tunables(first_below(prefix), prefix.len() as u8)
                    }
                    None if len == 0 => ProcNode::Root,
                    None => ProcNode::Tunables(Tunable(0), 0),
                }
            }
            ProcNode::Tunable(tunable) => {
                let prefix = tunable.path().rfind('/').map_or("", |slash| &tunable.path()[..=slash]);
                ProcNode::Tunables(first_below(prefix), prefix.len() as u8)
            }
            ProcNode::File(process, _)
            | ProcNode::Link(process, _)
            | ProcNode::Descriptors(process)
            | ProcNode::DescriptorInfos(process)
            | ProcNode::Threads(process) => ProcNode::Process(process),
            ProcNode::Descriptor(process, _) | ProcNode::Opened(process, _) => ProcNode::Descriptors(process),
            ProcNode::DescriptorInfo(process, _) => ProcNode::DescriptorInfos(process),
            ProcNode::Thread(process, _) => ProcNode::Threads(process),
            _ => ProcNode::Root,
        }
    }

    /// Its name in its directory.
    pub(crate) fn name(self) -> Vec<u8> {
        let decimal = |number: u32| alloc::format!("{number}").into_bytes();
        match self {
            ProcNode::Process(process) => decimal(process),
            ProcNode::Thread(_, thread) => decimal(thread),
            ProcNode::Descriptor(_, descriptor)
            | ProcNode::Opened(_, descriptor)
            | ProcNode::DescriptorInfo(_, descriptor) => decimal(descriptor),
            _ => {
                let siblings = self.parent().children();
                siblings
                    .iter()
                    .find(|(_, child)| *child == self)
                    .map_or(Vec::new(), |(name, _)| name.to_vec())
            }
        }
    }

    pub(crate) fn child(self, name: &[u8]) -> Option<ProcNode> {
        self.children().into_iter().find(|(child, _)| *child == name).map(|(_, node)| node)
    }

    /// What is in a directory beside what is numbered.
    pub(crate) fn children(self) -> Vec<(&'static [u8], ProcNode)> {
        match self {
            ProcNode::Root => {
                let mut children: Vec<(&'static [u8], ProcNode)> = Vec::from([
                    (&b"self"[..], ProcNode::SelfLink),
                    (b"thread-self", ProcNode::ThreadSelfLink),
                    (b"mounts", ProcNode::Mounts),
                    (b"sys", ProcNode::Tunables(Tunable(0), 0)),
                ]);
                children.extend(GLOBAL.map(|(name, file)| (name, ProcNode::Global(file))));
                children
            }
            ProcNode::Tunables(within, len) => tunables(within, len),
            ProcNode::Process(process) => process_children(process, true),
            ProcNode::Thread(process, _) => process_children(process, false),
            _ => Vec::new(),
        }
    }
}

fn process_children(process: Pid, has_threads: bool) -> Vec<(&'static [u8], ProcNode)> {
    let mut children: Vec<(&'static [u8], ProcNode)> = Vec::new();
    children.extend(FILES.map(|(name, file)| (name, ProcNode::File(process, file))));
    children.extend(LINKS.map(|(name, link)| (name, ProcNode::Link(process, link))));
    children.push((b"fd", ProcNode::Descriptors(process)));
    children.push((b"fdinfo", ProcNode::DescriptorInfos(process)));
    if has_threads {
        children.push((b"task", ProcNode::Threads(process)));
    }
    children
}
