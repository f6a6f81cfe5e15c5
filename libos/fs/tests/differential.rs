//! The same random calls on this computer's files and on the tree in memory have the same results.

use linux_raw_sys::general::{
    O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY,
    SEEK_DATA, SEEK_HOLE,
};
use nom_fs::{
    Access, Caller, Credentials, DirectoryEntry, Errno, FileTime, LastLink, MountAccess, NoProcesses, NodeId,
    NodeType, Ownership, Replace, Scope, Seek, Vfs,
};
use proptest::prelude::*;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use std::os::unix::fs::PermissionsExt;

/// Directories above the one in which everything happens, so that `..` stays among what both have.
const ABOVE: [&str; 6] = ["1", "2", "3", "4", "5", "6"];
const SLOTS: usize = 3;
/// Whose files they are when nobody's rights are all.
const USER: u32 = 1000;

#[derive(Clone, Debug)]
enum Call {
    Open { slot: usize, path: String, flags: u32, mode: u32 },
    Close { slot: usize },
    Read { slot: usize, offset: u64, len: usize },
    Write { slot: usize, offset: u64, len: usize, byte: u8 },
    Truncate { slot: usize, len: u64 },
    Allocate { slot: usize, offset: u64, len: u64 },
    Punch { slot: usize, offset: u64, len: u64 },
    Seek { slot: usize, offset: u64, is_hole: bool },
    Status { slot: usize },
    Directory { path: String, mode: u32 },
    RemoveDirectory { path: String },
    Unlink { path: String },
    Link { from: String, to: String },
    SymbolicLink { target: String, path: String },
    ReadLink { path: String },
    Rename { from: String, to: String, replace: Replace },
    Look { path: String, is_followed: bool },
    Permit { path: String, mode: u32 },
    Give { path: String, group: u32, is_user: bool },
    Access { path: String, wanted: u32 },
    List { path: String },
    Node { path: String, kind: NodeType },
}

fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        6 => prop::sample::select(vec!["a", "b", "d", "e", "l"]).prop_map(str::to_owned),
        1 => Just(".".to_owned()),
        1 => Just("..".to_owned()),
    ];
    let names = prop::collection::vec(name, 1..4);
    let rare = prop_oneof![
        Just(String::new()),
        Just("n".repeat(256)),
        Just("n".repeat(255)),
        Just("d/".repeat(2047) + "d"),
        Just("d/".repeat(2048)),
        Just("d//a".to_owned()),
    ];
    let usual = (names, prop::bool::weighted(0.15)).prop_map(|(names, has_slash)| {
        let mut path = names.join("/");
        if has_slash {
            path.push('/');
        }
        path
    });
    prop_oneof![30 => usual, 1 => rare]
}

fn flags() -> impl Strategy<Value = u32> {
    let access = prop::sample::select(vec![O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_PATH]);
    let others = prop::sample::subsequence(
        vec![O_CREAT, O_CREAT, O_EXCL, O_TRUNC, O_DIRECTORY, O_NOFOLLOW, O_APPEND],
        0..4,
    );
    (access, others)
        .prop_map(|(access, others)| others.into_iter().fold(access, |flags, other| flags | other))
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..20u64, 4090..4100u64, 0..40_000u64]
}

fn mode() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0o777), 2 => Just(0o700), 2 => 0..0o1000u32, 1 => 0..0o10000u32]
}

fn call() -> impl Strategy<Value = Call> {
    let slot = 0..SLOTS;
    let replace = prop::sample::select(vec![Replace::Yes, Replace::Yes, Replace::No, Replace::Exchange]);
    // What opening a pipe does is its reader's and writer's.
    let kind = prop::sample::select(vec![NodeType::Socket, NodeType::File]);
    prop_oneof![
        6 => (slot.clone(), path(), flags(), mode())
            .prop_map(|(slot, path, flags, mode)| Call::Open { slot, path, flags, mode }),
        1 => slot.clone().prop_map(|slot| Call::Close { slot }),
        3 => (slot.clone(), offset(), 0..9000usize)
            .prop_map(|(slot, offset, len)| Call::Read { slot, offset, len }),
        3 => (slot.clone(), offset(), 0..9000usize, 1..255u8)
            .prop_map(|(slot, offset, len, byte)| Call::Write { slot, offset, len, byte }),
        2 => (slot.clone(), offset()).prop_map(|(slot, len)| Call::Truncate { slot, len }),
        1 => (slot.clone(), offset(), 1..9000u64)
            .prop_map(|(slot, offset, len)| Call::Allocate { slot, offset, len }),
        1 => (slot.clone(), offset(), 1..9000u64)
            .prop_map(|(slot, offset, len)| Call::Punch { slot, offset, len }),
        1 => (slot.clone(), offset(), any::<bool>())
            .prop_map(|(slot, offset, is_hole)| Call::Seek { slot, offset, is_hole }),
        1 => slot.prop_map(|slot| Call::Status { slot }),
        4 => (path(), mode()).prop_map(|(path, mode)| Call::Directory { path, mode }),
        2 => path().prop_map(|path| Call::RemoveDirectory { path }),
        2 => path().prop_map(|path| Call::Unlink { path }),
        2 => (path(), path()).prop_map(|(from, to)| Call::Link { from, to }),
        2 => (path(), path()).prop_map(|(target, path)| Call::SymbolicLink { target, path }),
        1 => path().prop_map(|path| Call::ReadLink { path }),
        5 => (path(), path(), replace).prop_map(|(from, to, replace)| Call::Rename { from, to, replace }),
        2 => (path(), any::<bool>()).prop_map(|(path, is_followed)| Call::Look { path, is_followed }),
        1 => (path(), mode()).prop_map(|(path, mode)| Call::Permit { path, mode }),
        1 => (path(), prop::sample::select(vec![USER, 7, 8]), any::<bool>())
            .prop_map(|(path, group, is_user)| Call::Give { path, group, is_user }),
        1 => (path(), 0..8u32).prop_map(|(path, wanted)| Call::Access { path, wanted }),
        2 => path().prop_map(|path| Call::List { path }),
        1 => (path(), kind).prop_map(|(path, kind)| Call::Node { path, kind }),
    ]
}

/// What a call says: text, or an error's number.
type Said = Result<String, i32>;

trait Files {
    fn call(&mut self, call: &Call) -> Said;
}

struct Linux {
    root: OwnedFd,
    slots: [Option<OwnedFd>; SLOTS],
}

fn said<T: std::fmt::Debug>(result: rustix::io::Result<T>) -> Said {
    result.map(|value| format!("{value:?}")).map_err(|error| error.raw_os_error())
}

fn status(found: &fs::Stat) -> String {
    let is_directory = found.st_mode & 0o170_000 == 0o040_000;
    let is_link = found.st_mode & 0o170_000 == 0o120_000;
    let size = if is_directory { 0 } else { found.st_size };
    let blocks = if is_directory || is_link { 0 } else { found.st_blocks };
    let owner = (found.st_uid, found.st_gid);
    format!("{:o} {} {owner:?} {size} {blocks}", found.st_mode, found.st_nlink)
}

impl Linux {
    fn slot(&self, slot: usize) -> rustix::io::Result<&OwnedFd> {
        self.slots[slot].as_ref().ok_or(rustix::io::Errno::BADF)
    }
}

impl Files for Linux {
    fn call(&mut self, call: &Call) -> Said {
        let root = &self.root;
        match call {
            Call::Open { slot, path, flags, mode } => {
                // Waiting for whoever opens a pipe's other end is not what is compared.
                let flags = OFlags::from_bits_retain(*flags) | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let opened = fs::openat(root, path, flags, Mode::from_raw_mode(*mode));
                let said = said(opened.as_ref().map(drop).map_err(|error| *error));
                if let Ok(opened) = opened {
                    self.slots[*slot] = Some(opened);
                }
                said
            }
            Call::Close { slot } => {
                self.slots[*slot] = None;
                Ok(String::new())
            }
            Call::Read { slot, offset, len } => {
                let mut bytes = vec![0; *len];
                let count = self.slot(*slot).and_then(|file| rustix::io::pread(file, &mut bytes, *offset));
                said(count.map(|count| bytes[..count].to_vec()))
            }
            Call::Write { slot, offset, len, byte } => {
                said(self.slot(*slot).and_then(|file| rustix::io::pwrite(file, &vec![*byte; *len], *offset)))
            }
            Call::Truncate { slot, len } => said(self.slot(*slot).and_then(|file| fs::ftruncate(file, *len))),
            Call::Allocate { slot, offset, len } => {
                let flags = FallocateFlags::empty();
                said(self.slot(*slot).and_then(|file| fs::fallocate(file, flags, *offset, *len)))
            }
            Call::Punch { slot, offset, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                said(self.slot(*slot).and_then(|file| fs::fallocate(file, flags, *offset, *len)))
            }
            Call::Seek { slot, offset, is_hole } => {
                let to = if *is_hole { fs::SeekFrom::Hole(*offset) } else { fs::SeekFrom::Data(*offset) };
                said(self.slot(*slot).and_then(|file| fs::seek(file, to)))
            }
            Call::Status { slot } => said(self.slot(*slot).and_then(fs::fstat).map(|found| status(&found))),
            other => self.call_by_path(other),
        }
    }
}

impl Linux {
    fn call_by_path(&self, call: &Call) -> Said {
        let root = &self.root;
        match call {
            Call::Directory { path, mode } => said(fs::mkdirat(root, path, Mode::from_raw_mode(*mode))),
            Call::RemoveDirectory { path } => said(fs::unlinkat(root, path, AtFlags::REMOVEDIR)),
            Call::Unlink { path } => said(fs::unlinkat(root, path, AtFlags::empty())),
            Call::Link { from, to } => said(fs::linkat(root, from, root, to, AtFlags::empty())),
            Call::SymbolicLink { target, path } => said(fs::symlinkat(target, root, path)),
            Call::ReadLink { path } => said(fs::readlinkat(root, path, Vec::new())),
            Call::Rename { from, to, replace } => {
                let flags = match replace {
                    Replace::Yes => RenameFlags::empty(),
                    Replace::No => RenameFlags::NOREPLACE,
                    Replace::Exchange => RenameFlags::EXCHANGE,
                };
                said(fs::renameat_with(root, from, root, to, flags))
            }
            Call::Look { path, is_followed } => {
                let flags = if *is_followed { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                said(fs::statat(root, path, flags).map(|found| status(&found)))
            }
            Call::Permit { path, mode } => {
                said(fs::chmodat(root, path, Mode::from_raw_mode(*mode), AtFlags::empty()))
            }
            Call::Give { path, group, is_user } => {
                let user = is_user.then(|| Uid::from_raw(USER));
                said(fs::chownat(root, path, user, Some(Gid::from_raw(*group)), AtFlags::empty()))
            }
            Call::Access { path, wanted } => {
                let wanted = fs::Access::from_bits_retain(*wanted);
                said(fs::accessat(root, path, wanted, AtFlags::EACCESS))
            }
            Call::List { path } => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let listed = fs::openat(root, path, flags, Mode::empty()).and_then(fs::Dir::new);
                said(listed.and_then(|directory| {
                    let mut names = Vec::new();
                    for entry in directory {
                        let entry = entry?;
                        names.push((
                            entry.file_name().to_string_lossy().into_owned(),
                            kind_of(entry.file_type()),
                        ));
                    }
                    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
                    Ok(names)
                }))
            }
            Call::Node { path, kind } => {
                let file_type = match kind {
                    NodeType::Socket => fs::FileType::Socket,
                    _ => fs::FileType::RegularFile,
                };
                said(fs::mknodat(root, path, file_type, Mode::from_raw_mode(0o777), 0))
            }
            _ => unreachable!("it names a slot"),
        }
    }
}

fn kind_of(file_type: fs::FileType) -> NodeType {
    NodeType::from_mode(file_type.as_raw_mode()).expect("a type")
}

struct Memory {
    vfs: Vfs,
    credentials: Credentials,
    directory: NodeId,
    slots: [Option<(NodeId, u32)>; SLOTS],
}

macro_rules! caller {
    ($memory:expr) => {
        Caller {
            credentials: &$memory.credentials,
            root: $memory.vfs.root(),
            directory: $memory.directory,
            umask: 0o022,
            process: 1,
            thread: 1,
            now: FileTime::default(),
            processes: &NoProcesses,
            scope: Scope::default(),
        }
    };
}

impl Memory {
    /// One whose files are in a directory that is lent by a server.
    fn lent(credentials: Credentials, directory: &std::path::Path) -> Memory {
        let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
        let root = vfs.root();
        let slots = [None; SLOTS];
        let mut memory = Memory { vfs, credentials: Credentials::default(), directory: root, slots };
        let server = nom_ninep_fake::FakeServer::new(directory);
        let lent = nom_ninep::Client::new(Box::new(server)).expect("attached");
        let path = format!("/v/{}", ABOVE.join("/"));
        let caller = caller!(memory);
        memory.vfs.mount_host(&caller, b"/v", lent, MountAccess::ReadWrite).expect("mounted");
        let node = memory.vfs.resolve(&caller, root, path.as_bytes(), LastLink::Keep).expect("there");
        memory.vfs.hold(node);
        vfs = memory.vfs;
        Memory { vfs, credentials, directory: node, slots }
    }

    fn new(credentials: Credentials) -> Memory {
        let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
        let root = vfs.root();
        let slots = [None; SLOTS];
        let mut memory = Memory { vfs, credentials: Credentials::default(), directory: root, slots };
        let mut path = String::new();
        for name in ABOVE {
            path = format!("{path}/{name}");
            let caller = caller!(memory);
            memory.vfs.make_directory(&caller, root, path.as_bytes(), 0o755).expect("made");
            let node = memory.vfs.resolve(&caller, root, path.as_bytes(), LastLink::Keep).expect("there");
            let to = Ownership { user: Some(credentials.user), group: Some(credentials.group) };
            memory.vfs.set_owner(&caller, node, to).expect("given");
            memory.directory = node;
        }
        vfs = memory.vfs;
        Memory { vfs, credentials, ..memory }
    }

    /// What is open there, for reading or writing.
    fn slot(&self, slot: usize, writes: Option<bool>) -> Result<NodeId, Errno> {
        let (node, flags) = self.slots[slot].ok_or(Errno::EBADF)?;
        let is_path = flags & O_PATH != 0;
        let access = flags & 3;
        let is_fit = match writes {
            None => true,
            Some(true) => !is_path && access != O_RDONLY,
            Some(false) => !is_path && access != O_WRONLY,
        };
        if is_fit { Ok(node) } else { Err(Errno::EBADF) }
    }

    fn answer(&mut self, call: &Call) -> Result<String, Errno> {
        let caller = caller!(self);
        let directory = self.directory;
        let vfs = &mut self.vfs;
        let text = |()| "()".to_owned();
        match call {
            Call::Open { slot, path, flags, mode } => {
                let node = vfs.open(&caller, directory, path.as_bytes(), *flags, *mode)?;
                let before = self.slots[*slot].replace((node, *flags));
                if let Some((before, _)) = before {
                    self.vfs.release(before);
                }
                Ok("()".to_owned())
            }
            Call::Close { slot } => {
                if let Some((node, _)) = self.slots[*slot].take() {
                    vfs.release(node);
                }
                Ok(String::new())
            }
            Call::Read { slot, offset, len } => {
                let mut bytes = vec![0; *len];
                let count = self.vfs.read(self.slot(*slot, Some(false))?, *offset, &mut bytes)?;
                Ok(format!("{:?}", &bytes[..count]))
            }
            Call::Write { slot, offset, len, byte } => {
                let node = self.slot(*slot, Some(true))?;
                let is_appended = self.slots[*slot].is_some_and(|(_, flags)| flags & O_APPEND != 0);
                let offset = if is_appended { self.vfs.size(node)? } else { *offset };
                let count = self.vfs.write(node, offset, &vec![*byte; *len], &caller)?;
                Ok(format!("{count}"))
            }
            Call::Truncate { slot, len } => {
                let node = self.slot(*slot, None)?;
                let is_writable = self.slot(*slot, Some(true)).is_ok();
                let is_path = self.slots[*slot].is_some_and(|(_, flags)| flags & O_PATH != 0);
                match (is_path, is_writable && self.vfs.kind(node) == NodeType::File) {
                    (true, _) => Err(Errno::EBADF),
                    (_, false) => Err(Errno::EINVAL),
                    _ => self.vfs.truncate(node, *len, &caller).map(text),
                }
            }
            Call::Allocate { slot, offset, len } => {
                let node = self.slot(*slot, Some(true))?;
                self.vfs.allocate(node, *offset, *len, &caller).map(text)
            }
            Call::Punch { slot, offset, len } => {
                let node = self.slot(*slot, Some(true))?;
                self.vfs.punch(node, *offset, *len, &caller).map(text)
            }
            Call::Seek { slot, offset, is_hole } => {
                if self.slots[*slot].is_some_and(|(_, flags)| flags & O_PATH != 0) {
                    return Err(Errno::EBADF);
                }
                let node = self.slot(*slot, None)?;
                let found = self.vfs.seek(node, *offset, if *is_hole { Seek::Hole } else { Seek::Data })?;
                Ok(format!("{found}"))
            }
            Call::Status { slot } => {
                let node = self.slot(*slot, None)?;
                Ok(format!("{:?}", attributes(&self.vfs, &caller, node)?))
            }
            other => self.answer_by_path(other),
        }
    }

    fn answer_by_path(&mut self, call: &Call) -> Result<String, Errno> {
        let caller = caller!(self);
        let directory = self.directory;
        let vfs = &mut self.vfs;
        let text = |()| "()".to_owned();
        match call {
            Call::Directory { path, mode } => {
                vfs.make_directory(&caller, directory, path.as_bytes(), *mode).map(text)
            }
            Call::RemoveDirectory { path } => {
                vfs.remove_directory(&caller, directory, path.as_bytes()).map(text)
            }
            Call::Unlink { path } => vfs.unlink(&caller, directory, path.as_bytes()).map(text),
            Call::Link { from, to } => {
                let node = vfs.resolve(&caller, directory, from.as_bytes(), LastLink::Keep)?;
                vfs.link(&caller, node, directory, to.as_bytes()).map(text)
            }
            Call::SymbolicLink { target, path } => {
                vfs.make_link(&caller, target.as_bytes(), directory, path.as_bytes()).map(text)
            }
            Call::ReadLink { path } => {
                let node = vfs.resolve(&caller, directory, path.as_bytes(), LastLink::Keep)?;
                let target = vfs.read_link(&caller, node)?;
                Ok(format!("{:?}", std::ffi::CString::new(target).expect("no zero")))
            }
            Call::Rename { from, to, replace } => vfs
                .rename(&caller, (directory, from.as_bytes()), (directory, to.as_bytes()), *replace)
                .map(text),
            Call::Look { path, is_followed } => {
                let link = if *is_followed { LastLink::Follow } else { LastLink::Keep };
                let node = vfs.resolve(&caller, directory, path.as_bytes(), link)?;
                Ok(format!("{:?}", attributes(vfs, &caller, node)?))
            }
            other => self.answer_of_rights(other),
        }
    }

    fn answer_of_rights(&mut self, call: &Call) -> Result<String, Errno> {
        let caller = caller!(self);
        let directory = self.directory;
        let vfs = &mut self.vfs;
        let text = |()| "()".to_owned();
        match call {
            Call::Permit { path, mode } => {
                let node = vfs.resolve(&caller, directory, path.as_bytes(), LastLink::Follow)?;
                vfs.set_permissions(&caller, node, *mode).map(text)
            }
            Call::Give { path, group, is_user } => {
                let node = vfs.resolve(&caller, directory, path.as_bytes(), LastLink::Follow)?;
                let to = Ownership { user: is_user.then_some(USER), group: Some(*group) };
                vfs.set_owner(&caller, node, to).map(text)
            }
            Call::Access { path, wanted } => {
                let node = vfs.resolve(&caller, directory, path.as_bytes(), LastLink::Follow)?;
                vfs.access(&caller, node, Access::from_bits(*wanted)?).map(text)
            }
            Call::List { path } => {
                let flags = O_RDONLY | O_DIRECTORY;
                let node = vfs.open(&caller, directory, path.as_bytes(), flags, 0)?;
                let mut names = Vec::new();
                let listed = vfs.list(&caller, node, 0, |entry: DirectoryEntry<'_>| {
                    names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.kind));
                    Some(())
                });
                vfs.release(node);
                listed?;
                names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
                Ok(format!("{names:?}"))
            }
            Call::Node { path, kind } => {
                vfs.make_node(&caller, directory, path.as_bytes(), *kind, 0o777, 0).map(|_| "()".to_owned())
            }
            _ => unreachable!("it is answered above"),
        }
    }
}

fn attributes(vfs: &Vfs, caller: &Caller<'_>, node: NodeId) -> Result<String, Errno> {
    let known = vfs.attributes(caller, node)?;
    let size = if known.kind.is_directory() { 0 } else { known.size };
    // In a volume a link's blocks are those of the computer's file system, which `status` leaves out.
    let is_link = known.mode() & 0o170_000 == 0o120_000;
    let blocks = if is_link { 0 } else { known.blocks };
    let owner = (known.user, known.group);
    Ok(format!("{:o} {} {owner:?} {size} {blocks}", known.mode(), known.links))
}

impl Files for Memory {
    fn call(&mut self, call: &Call) -> Said {
        self.answer(call).map_err(Errno::code)
    }
}

/// A directory on tmpfs, whose holes are pages, as here.
fn host(credentials: &Credentials) -> (tempfile::TempDir, Linux) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("opened");
    let mut path = directory.path().to_owned();
    for name in ABOVE {
        path.push(name);
        std::fs::create_dir(&path).expect("made");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("opened");
        std::os::unix::fs::chown(&path, Some(credentials.user), Some(credentials.group)).expect("given");
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = fs::open(&path, flags, Mode::empty()).expect("opened");
    (directory, Linux { root, slots: [None, None, None] })
}

/// A server that is root does not take these rights from a program that somebody else changes.
fn without_set_id(call: &Call) -> Call {
    let mut call = call.clone();
    if let Call::Open { mode, .. } | Call::Directory { mode, .. } | Call::Permit { mode, .. } = &mut call {
        *mode &= 0o1777;
    }
    call
}

/// The same calls in a directory that a server lends, but for what 9P has not: room and holes, names that
/// change places.
fn compare_lent(credentials: &Credentials, calls: &[Call]) {
    let (_directory, mut linux) = host(credentials);
    let (lent, _) = host(credentials);
    let mut volume = Memory::lent(credentials.clone(), lent.path());
    for (index, call) in calls.iter().enumerate() {
        let is_left_out = match call {
            Call::Allocate { .. } | Call::Punch { .. } | Call::Seek { .. } => true,
            Call::Rename { replace, .. } => *replace == Replace::Exchange,
            // Of what has lost the name that it was found by, and is not open, no server knows more.
            Call::Status { slot } => volume.slots[*slot].is_some_and(|(_, flags)| flags & O_PATH != 0),
            _ => false,
        };
        if is_left_out {
            continue;
        }
        let call = &without_set_id(call);
        let expected = as_user(credentials, || linux.call(call));
        let expected = expected.map(|text| text.trim_matches('"').to_owned());
        let found = volume.call(call).map(|text| text.trim_matches('"').to_owned());
        assert_eq!(found, expected, "{index}: {call:?} of {:#?}", &calls[..index]);
    }
}

fn compare(credentials: &Credentials, calls: &[Call]) {
    let (_directory, mut linux) = host(credentials);
    let mut memory = Memory::new(credentials.clone());
    let mut is_allocated = false;
    for (index, call) in calls.iter().enumerate() {
        // What was allocated is a hole on tmpfs until somebody reads it, and data here.
        is_allocated |= matches!(call, Call::Allocate { .. });
        if is_allocated && matches!(call, Call::Seek { .. }) {
            continue;
        }
        let expected = as_user(credentials, || linux.call(call));
        // Text that was made text twice has quotes.
        let expected = expected.map(|text| text.trim_matches('"').to_owned());
        let found = memory.call(call).map(|text| text.trim_matches('"').to_owned());
        assert_eq!(found, expected, "{index}: {call:?} of {:#?}", &calls[..index]);
    }
}

#[test]
fn a_file_is_not_made_of_what_a_slash_follows_be_it_in_a_link() {
    let credentials = Credentials::default();
    let link = |target: &str| Call::SymbolicLink { target: target.into(), path: "a".into() };
    let open = Call::Open { slot: 0, path: "a".into(), flags: O_CREAT, mode: 0o777 };
    for target in ["a/", "b/", "./", "../", "d/b"] {
        compare(&credentials, &[link(target), open.clone()]);
    }
}

/// A directory that its owner may not write, since its `..` would change, to what is no directory, and to one
/// that is not empty. Wants root, who becomes somebody else.
#[test]
fn a_directory_that_cannot_be_moved_is_complained_of_as_on_linux() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = |path: &str, mode| Call::Directory { path: path.into(), mode };
    let open = |path: &str| Call::Open { slot: 0, path: path.into(), flags: O_CREAT | 1, mode: 0o777 };
    let rename = |to: &str| Call::Rename { from: "a".into(), to: to.into(), replace: Replace::Yes };
    let calls = [
        directory("a", 0o500),
        directory("d", 0o777),
        directory("d/b", 0o777),
        open("d/b/a"),
        open("d/a"),
        rename("d/a"),
        rename("d/b"),
        rename("d/l"),
    ];
    let credentials = Credentials { user: USER, group: USER, groups: vec![7] };
    rustix::thread::set_thread_groups(&[Gid::from_raw(7)]).expect("root may");
    compare(&credentials, &calls);
    compare_lent(&credentials, &calls);
}

/// The last page goes as a whole, though the file ends within it.
#[test]
fn a_hole_to_the_end_of_a_file_takes_its_last_page() {
    let calls = [
        Call::Open { slot: 2, path: "a".into(), flags: O_CREAT | 1, mode: 0o777 },
        Call::Write { slot: 2, offset: 0, len: 4097, byte: 1 },
        Call::Punch { slot: 2, offset: 0, len: 8192 },
        Call::Status { slot: 2 },
        Call::Seek { slot: 2, offset: 0, is_hole: false },
    ];
    compare(&Credentials::default(), &calls);
}

#[test]
fn a_long_link_of_a_volume_is_the_same_link_whatever_blocks_it_takes() {
    let link = Call::SymbolicLink { target: "t".repeat(256), path: "a".into() };
    let look = Call::Look { path: "a".into(), is_followed: false };
    compare_lent(&Credentials::default(), &[link, look]);
}

/// With the rights of these credentials, of which nothing but this thread knows.
fn as_user<T>(credentials: &Credentials, act: impl FnOnce() -> T) -> T {
    if credentials.is_root() {
        return act();
    }
    let (root, user) = (Uid::ROOT, Uid::from_raw(credentials.user));
    let set = |user: Uid, group: Gid| {
        rustix::thread::set_thread_res_gid(Gid::ROOT, group, Gid::ROOT).expect("root may");
        rustix::thread::set_thread_res_uid(root, user, root).expect("root may");
    };
    set(user, Gid::from_raw(credentials.group));
    let value = act();
    rustix::thread::set_thread_res_uid(root, root, root).expect("it was root");
    set(root, Gid::ROOT);
    value
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Wants root, who gives files to others.
    #[test]
    fn root_sees_what_linux_has(calls in prop::collection::vec(call(), 1..60)) {
        if rustix::process::geteuid().is_root() {
            rustix::process::umask(Mode::from_raw_mode(0o022));
            rustix::thread::set_thread_groups(&[]).expect("root may");
            compare(&Credentials::default(), &calls);
        }
    }

    /// Wants root, who gives files to others.
    #[test]
    fn root_sees_in_a_volume_what_linux_has(calls in prop::collection::vec(call(), 1..60)) {
        if rustix::process::geteuid().is_root() {
            rustix::process::umask(Mode::from_raw_mode(0o022));
            rustix::thread::set_thread_groups(&[]).expect("root may");
            compare_lent(&Credentials::default(), &calls);
        }
    }

    /// Wants root, who becomes somebody else.
    #[test]
    fn a_user_may_in_a_volume_what_linux_lets_it(calls in prop::collection::vec(call(), 1..60)) {
        if rustix::process::geteuid().is_root() {
            rustix::process::umask(Mode::from_raw_mode(0o022));
            let groups = vec![7];
            rustix::thread::set_thread_groups(&[Gid::from_raw(7)]).expect("root may");
            compare_lent(&Credentials { user: USER, group: USER, groups }, &calls);
        }
    }

    /// Wants root, who becomes somebody else.
    #[test]
    fn a_user_may_what_linux_lets_it(calls in prop::collection::vec(call(), 1..60)) {
        if rustix::process::geteuid().is_root() {
            rustix::process::umask(Mode::from_raw_mode(0o022));
            let groups = vec![7];
            rustix::thread::set_thread_groups(&[Gid::from_raw(7)]).expect("root may");
            compare(&Credentials { user: USER, group: USER, groups }, &calls);
        }
    }
}

#[test]
fn names_of_constants_are_those_of_linux() {
    assert_eq!((SEEK_DATA, SEEK_HOLE), (3, 4));
    assert_eq!(Errno::ENOENT.code(), rustix::io::Errno::NOENT.raw_os_error());
}
