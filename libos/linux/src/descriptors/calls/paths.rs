//! Calls that name files by paths.

use super::{directory, get, path, with_vfs};
use crate::call::Call;
use crate::descriptors::device::{Device, DeviceKind};
use crate::descriptors::node::OpenNode;
use crate::descriptors::open::{Description, Object, Stream};
use crate::descriptors::pipe::opened_again;
use crate::descriptors::ready::until_ready;
use crate::descriptors::table::OnExec;
use crate::held::HeldDirectory;
use crate::table::SystemCall;
use crate::terminal::TerminalEnd;
use alloc::rc::Rc;
use alloc::vec;
use linux_raw_sys::general as abi;
use nom_fs::proc::ProcNode;
use nom_fs::{
    Access, Caller, Credentials, Errno, LastLink, NodeId, NodeType, Ownership, PTMX, Replace, Scope, Stamp,
    TTY, Vfs, terminal_of,
};

const HERE: i32 = abi::AT_FDCWD;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_open, "open", &["path", "flags", "mode"], |call| open(call, HERE, 0)),
    SystemCall::complete(abi::__NR_openat, "openat", &["directory", "path", "flags", "mode"], |call| {
        open(call, call.int(0), 1)
    }),
    SystemCall::complete(abi::__NR_creat, "creat", &["path", "mode"], create),
    SystemCall::complete(abi::__NR_openat2, "openat2", &["directory", "path", "how", "size"], open_how),
    SystemCall::complete(abi::__NR_mkdir, "mkdir", &["path", "mode"], |call| make_directory(call, HERE, 0)),
    SystemCall::complete(abi::__NR_mkdirat, "mkdirat", &["directory", "path", "mode"], |call| {
        make_directory(call, call.int(0), 1)
    }),
    SystemCall::complete(abi::__NR_rmdir, "rmdir", &["path"], |call| {
        unlink(call, HERE, 0, abi::AT_REMOVEDIR)
    }),
    SystemCall::complete(abi::__NR_unlink, "unlink", &["path"], |call| unlink(call, HERE, 0, 0)),
    SystemCall::complete(abi::__NR_unlinkat, "unlinkat", &["directory", "path", "flags"], |call| {
        unlink(call, call.int(0), 1, call.arguments[2] as u32)
    }),
    SystemCall::complete(abi::__NR_rename, "rename", &["path", "new_path"], |call| {
        rename(call, (HERE, 0), (HERE, 1), 0)
    }),
    SystemCall::complete(
        abi::__NR_renameat,
        "renameat",
        &["directory", "path", "other", "new_path"],
        |call| rename(call, (call.int(0), 1), (call.int(2), 3), 0),
    ),
    SystemCall::complete(
        abi::__NR_renameat2,
        "renameat2",
        &["directory", "path", "other", "new_path", "flags"],
        |call| rename(call, (call.int(0), 1), (call.int(2), 3), call.arguments[4] as u32),
    ),
    SystemCall::complete(abi::__NR_link, "link", &["path", "new_path"], |call| {
        link(call, (HERE, 0), (HERE, 1), 0)
    }),
    SystemCall::complete(
        abi::__NR_linkat,
        "linkat",
        &["directory", "path", "other", "new_path", "flags"],
        |call| link(call, (call.int(0), 1), (call.int(2), 3), call.arguments[4] as u32),
    ),
    SystemCall::complete(abi::__NR_symlink, "symlink", &["target", "path"], |call| {
        symbolic_link(call, HERE, 1)
    }),
    SystemCall::complete(abi::__NR_symlinkat, "symlinkat", &["target", "directory", "path"], |call| {
        symbolic_link(call, call.int(1), 2)
    }),
    SystemCall::complete(abi::__NR_readlink, "readlink", &["path", "buffer", "length"], |call| {
        read_link(call, HERE, 0)
    }),
    SystemCall::complete(
        abi::__NR_readlinkat,
        "readlinkat",
        &["directory", "path", "buffer", "length"],
        |call| read_link(call, call.int(0), 1),
    ),
    SystemCall::complete(abi::__NR_access, "access", &["path", "mode"], |call| access(call, HERE, 0, 0)),
    SystemCall::complete(abi::__NR_faccessat, "faccessat", &["directory", "path", "mode"], |call| {
        access(call, call.int(0), 1, 0)
    }),
    SystemCall::complete(
        abi::__NR_faccessat2,
        "faccessat2",
        &["directory", "path", "mode", "flags"],
        |call| access(call, call.int(0), 1, call.arguments[3] as u32),
    ),
    SystemCall::complete(abi::__NR_chmod, "chmod", &["path", "mode"], |call| permit(call, HERE, 0)),
    SystemCall::complete(abi::__NR_fchmodat, "fchmodat", &["directory", "path", "mode"], |call| {
        permit(call, call.int(0), 1)
    }),
    SystemCall::complete(abi::__NR_fchmod, "fchmod", &["descriptor", "mode"], permit_open),
    SystemCall::complete(abi::__NR_chown, "chown", &["path", "user", "group"], |call| give(call, HERE, 0, 0)),
    SystemCall::complete(abi::__NR_lchown, "lchown", &["path", "user", "group"], |call| {
        give(call, HERE, 0, abi::AT_SYMLINK_NOFOLLOW)
    }),
    SystemCall::complete(
        abi::__NR_fchownat,
        "fchownat",
        &["directory", "path", "user", "group", "flags"],
        |call| give(call, call.int(0), 1, call.arguments[4] as u32),
    ),
    SystemCall::complete(abi::__NR_fchown, "fchown", &["descriptor", "user", "group"], give_open),
    SystemCall::complete(abi::__NR_truncate, "truncate", &["path", "length"], truncate),
    SystemCall::complete(
        abi::__NR_utimensat,
        "utimensat",
        &["directory", "path", "times", "flags"],
        set_times,
    ),
    SystemCall::complete(abi::__NR_utime, "utime", &["path", "times"], |call| {
        let seconds = |at: u64| call.memory().read_value(at).map(|seconds: i64| [seconds, 0]);
        let times = call.arguments[1];
        let stamps =
            (times != 0).then(|| Ok::<_, Errno>([seconds(times)?, seconds(times + 8)?])).transpose()?;
        set_times_at(call, (HERE, 0), LastLink::Follow, stamps)
    }),
    SystemCall::complete(abi::__NR_utimes, "utimes", &["path", "times"], |call| {
        set_times_at(call, (HERE, 0), LastLink::Follow, microseconds(call, call.arguments[1])?)
    }),
    SystemCall::complete(abi::__NR_futimesat, "futimesat", &["directory", "path", "times"], |call| {
        set_times_at(call, (call.int(0), 1), LastLink::Follow, microseconds(call, call.arguments[2])?)
    }),
    SystemCall::complete(abi::__NR_chdir, "chdir", &["path"], change_directory),
    SystemCall::complete(abi::__NR_fchdir, "fchdir", &["descriptor"], change_to_open),
    SystemCall::complete(abi::__NR_chroot, "chroot", &["path"], change_root),
    SystemCall::complete(abi::__NR_getcwd, "getcwd", &["buffer", "length"], current_directory),
    SystemCall::complete(abi::__NR_umask, "umask", &["mask"], |call| {
        let mask = call.arguments[0] as u32 & 0o777;
        Ok(core::mem::replace(&mut call.process().view.borrow_mut().umask, mask).into())
    }),
    SystemCall::complete(abi::__NR_mknod, "mknod", &["path", "mode", "device"], |call| {
        make_node(call, HERE, 0)
    }),
    SystemCall::complete(abi::__NR_mknodat, "mknodat", &["directory", "path", "mode", "device"], |call| {
        make_node(call, call.int(0), 1)
    }),
];

/// Does something with a path, which is an argument of the call.
fn at<T>(
    call: &Call<'_>,
    descriptor: i32,
    index: usize,
    act: impl FnOnce(&mut Vfs, &Caller<'_>, NodeId, &[u8]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let path = path(call, call.arguments[index])?;
    let directory = directory(call, descriptor, &path)?;
    with_vfs(call, |vfs, caller| act(vfs, caller, directory, &path))
}

fn following(flags: u32) -> LastLink {
    if flags & abi::AT_SYMLINK_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow }
}

/// How something is opened.
#[derive(Clone, Copy, Debug, Default)]
struct Opening {
    flags: u32,
    mode: u32,
    scope: Scope,
}

fn open(call: &Call<'_>, descriptor: i32, index: usize) -> Result<u64, Errno> {
    let (flags, mode) = (call.arguments[index + 1] as u32, call.arguments[index + 2] as u32);
    open_with(call, descriptor, index, Opening { flags, mode, ..Opening::default() })
}

/// openat2(2), which takes nothing that it does not know.
fn open_how(call: &Call<'_>) -> Result<u64, Errno> {
    /// Bytes of `struct open_how`, and most that there may be of one to come: those must be zero.
    const BYTES: u64 = 24;
    const BYTES_MAX: u64 = 4096;
    /// All flags of open(2), and those that may stand beside `O_PATH`.
    const FLAGS: u64 = 0o37_777_703;
    const OF_PATH: u32 = abi::O_PATH | abi::O_DIRECTORY | abi::O_NOFOLLOW | abi::O_CLOEXEC;
    const TEMPORARY: u32 = abi::O_TMPFILE & !abi::O_DIRECTORY;
    let [_, _, how, size, ..] = call.arguments;
    if size < BYTES {
        return Err(Errno::EINVAL);
    }
    if size > BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    let [flags, mode, resolve] = call.memory().read_value::<[u64; 3]>(how)?;
    let mut more = vec![0; (size - BYTES) as usize];
    // Where those were, more addresses follow.
    call.memory().read(how + BYTES, &mut more)?;
    if more.iter().any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    let scope = Scope::from_bits(resolve & !u64::from(abi::RESOLVE_CACHED))?;
    let (low, makes) = (flags as u32, abi::O_CREAT | TEMPORARY);
    let is_bad_mode = mode & !0o7777 != 0 || mode != 0 && low & makes == 0;
    if flags & !FLAGS != 0 || is_bad_mode || low & abi::O_PATH != 0 && low & !OF_PATH != 0 {
        return Err(Errno::EINVAL);
    }
    if resolve & u64::from(abi::RESOLVE_CACHED) != 0 && low & (makes | abi::O_TRUNC) != 0 {
        return Err(Errno::EAGAIN);
    }
    open_with(call, call.int(0), 1, Opening { flags: low, mode: mode as u32, scope })
}

fn create(call: &Call<'_>) -> Result<u64, Errno> {
    let flags = abi::O_CREAT | abi::O_WRONLY | abi::O_TRUNC;
    open_with(call, HERE, 0, Opening { flags, mode: call.arguments[1] as u32, ..Opening::default() })
}

fn open_with(call: &Call<'_>, descriptor: i32, index: usize, opening: Opening) -> Result<u64, Errno> {
    let Opening { flags, mode, scope } = opening;
    let path = path(call, call.arguments[index])?;
    // What is looked for within a directory is looked for there, though it begins with a slash.
    let directory = directory(call, descriptor, if scope.is_within() { b"" } else { &path })?;
    let opened = with_vfs(call, |vfs, caller| {
        let root = if scope.is_within() { directory } else { caller.root };
        let caller = &Caller { root, scope, ..*caller };
        let node = vfs.open(caller, directory, &path, flags, mode)?;
        let text = if matches!(node, NodeId::Proc(_)) { Some(vfs.text(caller, node)?) } else { None };
        Ok::<_, Errno>((node, text, vfs.kind(node), vfs.device_number(node)))
    });
    let (node, text, kind, number) = opened?;
    // From here on it is given back by whoever has it.
    let held = OpenNode::held(call.family(), node, text);
    let kept = flags & !(abi::O_CREAT | abi::O_EXCL | abi::O_TRUNC | abi::O_NOCTTY | abi::O_CLOEXEC);
    let is_path = flags & abi::O_PATH != 0;
    let description = match (node, kind, number) {
        (NodeId::Proc(ProcNode::Opened(process, other)), ..) => open_again(call, process, other, kept)?,
        (_, NodeType::Character, Some(number)) if !is_path => {
            Description::new(Object::Stream(open_device(call, number, held, flags)?), kept)
        }
        (_, NodeType::Fifo, _) if !is_path => open_fifo(call, held, kept)?,
        _ => Description::new(Object::Node(Rc::new(held)), kept),
    };
    let on_exec = OnExec::closes_if(flags & abi::O_CLOEXEC);
    let descriptors = call.process().descriptors.borrow().clone();
    descriptors.add(description, on_exec).map(|descriptor| descriptor as u64)
}

/// Opens the device of this number.
fn open_device(call: &Call<'_>, number: u64, held: OpenNode, flags: u32) -> Result<Rc<dyn Stream>, Errno> {
    let (family, process) = (call.family(), call.process());
    if number == PTMX {
        return Ok(Rc::new(family.terminals.create(family, process.user(), held)?));
    }
    let own = family.terminals.of_session(process.session.get()).filter(|_| number == TTY);
    if let Some(terminal) = own {
        return Ok(Rc::new(TerminalEnd::slave(terminal, held)));
    }
    if let Some(terminal) = terminal_of(number) {
        let slave = family.terminals.open(terminal, held)?;
        if flags & abi::O_NOCTTY == 0 {
            slave.opened_by(process);
        }
        return Ok(Rc::new(slave));
    }
    Ok(Rc::new(Device::new(DeviceKind::of_number(number)?, Some(held))))
}

/// Opens what a descriptor of a process is that has no name, by its link in `/proc`: as far as that is asked
/// for, and apart from who has it.
fn open_again(call: &Call<'_>, process: u32, descriptor: u32, flags: u32) -> Result<Rc<Description>, Errno> {
    let process = call.family().process(process).ok_or(Errno::ENOENT)?;
    let descriptors = process.descriptors.borrow().clone();
    let before = i32::try_from(descriptor).map_err(|_| Errno::ENOENT).and_then(|at| descriptors.get(at))?;
    let stream = before.stream().ok_or(Errno::ENXIO)?;
    let again = match stream.kind() {
        _ if flags & abi::O_PATH != 0 => stream.clone(),
        NodeType::Fifo => opened_again(stream.pipe().ok_or(Errno::ENXIO)?, flags),
        NodeType::Character => stream.clone(),
        _ if stream.queue().is_some() => stream.clone(),
        // Sockets, and what has neither place nor name: nobody knows how to open them.
        _ => return Err(Errno::ENXIO),
    };
    Ok(Description::new(Object::Stream(again), flags))
}

/// Opens a pipe that has a name: who does not say otherwise waits for somebody at the other end.
fn open_fifo(call: &Call<'_>, held: OpenNode, flags: u32) -> Result<Rc<Description>, Errno> {
    let end = Rc::new(call.family().fifos.open(held, flags)?);
    if flags & abi::O_NONBLOCK == 0 {
        call.block_on(until_ready(|| end.partner(), |waker| end.wake(waker)))??;
    }
    Ok(Description::new(Object::Stream(end), flags))
}

fn make_directory(call: &Call<'_>, descriptor: i32, index: usize) -> Result<u64, Errno> {
    let mode = call.arguments[index + 1] as u32;
    at(call, descriptor, index, |vfs, caller, at, path| vfs.make_directory(caller, at, path, mode))
        .map(|()| 0)
}

fn unlink(call: &Call<'_>, descriptor: i32, index: usize, flags: u32) -> Result<u64, Errno> {
    if flags & !abi::AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    at(call, descriptor, index, |vfs, caller, at, path| match flags {
        0 => vfs.unlink(caller, at, path),
        _ => vfs.remove_directory(caller, at, path),
    })
    .map(|()| 0)
}

fn rename(call: &Call<'_>, from: (i32, usize), to: (i32, usize), flags: u32) -> Result<u64, Errno> {
    let replace = match flags {
        0 => Replace::Yes,
        abi::RENAME_NOREPLACE => Replace::No,
        abi::RENAME_EXCHANGE => Replace::Exchange,
        _ => return Err(Errno::EINVAL),
    };
    let new = path(call, call.arguments[to.1])?;
    let new_at = directory(call, to.0, &new)?;
    at(call, from.0, from.1, |vfs, caller, at, path| vfs.rename(caller, (at, path), (new_at, &new), replace))
        .map(|()| 0)
}

fn link(call: &Call<'_>, from: (i32, usize), to: (i32, usize), flags: u32) -> Result<u64, Errno> {
    let new = path(call, call.arguments[to.1])?;
    let new_at = directory(call, to.0, &new)?;
    let follow = if flags & abi::AT_SYMLINK_FOLLOW != 0 { LastLink::Follow } else { LastLink::Keep };
    at(call, from.0, from.1, |vfs, caller, at, path| {
        let node = vfs.resolve(caller, at, path, follow)?;
        vfs.link(caller, node, new_at, &new)
    })
    .map(|()| 0)
}

fn symbolic_link(call: &Call<'_>, descriptor: i32, index: usize) -> Result<u64, Errno> {
    let target = path(call, call.arguments[0])?;
    at(call, descriptor, index, |vfs, caller, at, path| vfs.make_link(caller, &target, at, path)).map(|()| 0)
}

fn read_link(call: &Call<'_>, descriptor: i32, index: usize) -> Result<u64, Errno> {
    let (buffer, len) = (call.arguments[index + 1], call.arguments[index + 2]);
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let target = at(call, descriptor, index, |vfs, caller, at, path| {
        let node = if path.is_empty() { at } else { vfs.resolve(caller, at, path, LastLink::Keep)? };
        vfs.read_link(caller, node)
    })?;
    let count = target.len().min(len as usize);
    call.memory().write(buffer, &target[..count])?;
    Ok(count as u64)
}

fn access(call: &Call<'_>, descriptor: i32, index: usize, flags: u32) -> Result<u64, Errno> {
    const EFFECTIVE: u32 = 0x200;
    if flags & !(EFFECTIVE | abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = Access::from_bits(call.arguments[index + 1] as u32)?;
    let (user, group) = {
        let view = call.process().view.borrow();
        (view.users().real, view.groups().real)
    };
    at(call, descriptor, index, |vfs, caller, at, path| {
        // Asked is what the real user may (access(2)).
        let real = Credentials { user, group, ..caller.credentials.clone() };
        let real = if flags & EFFECTIVE != 0 { caller.credentials } else { &real };
        let caller = &Caller { credentials: real, ..*caller };
        let node = match path.is_empty() && flags & abi::AT_EMPTY_PATH != 0 {
            true => at,
            false => vfs.resolve(caller, at, path, following(flags))?,
        };
        vfs.access(caller, node, wanted)
    })
    .map(|()| 0)
}

fn permit(call: &Call<'_>, descriptor: i32, index: usize) -> Result<u64, Errno> {
    let mode = call.arguments[index + 1] as u32;
    at(call, descriptor, index, |vfs, caller, at, path| {
        let node = vfs.resolve(caller, at, path, LastLink::Follow)?;
        vfs.set_permissions(caller, node, mode)
    })
    .map(|()| 0)
}

/// The node that a descriptor was opened as.
fn open_node(call: &Call<'_>) -> Result<Option<NodeId>, Errno> {
    Ok(get(call, call.int(0))?.opened_as())
}

fn permit_open(call: &Call<'_>) -> Result<u64, Errno> {
    let Some(node) = open_node(call)? else { return Ok(0) };
    with_vfs(call, |vfs, caller| vfs.set_permissions(caller, node, call.arguments[1] as u32)).map(|()| 0)
}

fn ownership(user: u64, group: u64) -> Ownership {
    let given = |id: u64| Some(id as u32).filter(|id| *id != u32::MAX);
    Ownership { user: given(user), group: given(group) }
}

fn give(call: &Call<'_>, descriptor: i32, index: usize, flags: u32) -> Result<u64, Errno> {
    let to = ownership(call.arguments[index + 1], call.arguments[index + 2]);
    at(call, descriptor, index, |vfs, caller, at, path| {
        let node = match path.is_empty() && flags & abi::AT_EMPTY_PATH != 0 {
            true => at,
            false => vfs.resolve(caller, at, path, following(flags))?,
        };
        vfs.set_owner(caller, node, to)
    })
    .map(|()| 0)
}

fn give_open(call: &Call<'_>) -> Result<u64, Errno> {
    let Some(node) = open_node(call)? else { return Ok(0) };
    let to = ownership(call.arguments[1], call.arguments[2]);
    with_vfs(call, |vfs, caller| vfs.set_owner(caller, node, to)).map(|()| 0)
}

fn truncate(call: &Call<'_>) -> Result<u64, Errno> {
    let len = u64::try_from(call.arguments[1] as i64).map_err(|_| Errno::EINVAL)?;
    at(call, HERE, 0, |vfs, caller, at, path| {
        let node = vfs.resolve(caller, at, path, LastLink::Follow)?;
        vfs.access(caller, node, Access::WRITE)?;
        vfs.truncate(node, len, caller)
    })
    .map(|()| 0)
}

fn set_times(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, _, times, flags, ..] = call.arguments;
    let stamps = (times != 0).then(|| call.memory().read_value::<[[i64; 2]; 2]>(times)).transpose()?;
    set_times_at(call, (call.int(0), 1), following(flags as u32), stamps)
}

/// Two times in seconds and microseconds, as seconds and nanoseconds; none at address 0.
fn microseconds(call: &Call<'_>, times: u64) -> Result<Option<[[i64; 2]; 2]>, Errno> {
    if times == 0 {
        return Ok(None);
    }
    let stamps: [[i64; 2]; 2] = call.memory().read_value(times)?;
    let to_nanoseconds = |[seconds, microseconds]: [i64; 2]| match microseconds {
        0..1_000_000 => Ok([seconds, microseconds * 1000]),
        _ => Err(Errno::EINVAL),
    };
    Ok(Some([to_nanoseconds(stamps[0])?, to_nanoseconds(stamps[1])?]))
}

/// Sets when a file was read and changed last, in seconds and nanoseconds: now if there are no times. The
/// file is that of a path, which is the argument behind a directory's, or that of the descriptor if there is
/// none.
fn set_times_at(
    call: &Call<'_>,
    (directory, path): (i32, usize),
    link: LastLink,
    stamps: Option<[[i64; 2]; 2]>,
) -> Result<u64, Errno> {
    let stamp = |[seconds, nanoseconds]: [i64; 2]| {
        Ok(match nanoseconds {
            now if now == i64::from(abi::UTIME_NOW) => Stamp::Now,
            omit if omit == i64::from(abi::UTIME_OMIT) => Stamp::Omit,
            0..1_000_000_000 => Stamp::At(nom_fs::FileTime { seconds, nanoseconds: nanoseconds as u32 }),
            _ => return Err(Errno::EINVAL),
        })
    };
    let (accessed, modified) = match stamps {
        Some([accessed, modified]) => (stamp(accessed)?, stamp(modified)?),
        None => (Stamp::Now, Stamp::Now),
    };
    if path == 1 && call.arguments[path] == 0 {
        let node = open_node(call)?.ok_or(Errno::EINVAL)?;
        return with_vfs(call, |vfs, caller| vfs.set_times(caller, node, accessed, modified)).map(|()| 0);
    }
    at(call, directory, path, |vfs, caller, at, path| {
        let node = vfs.resolve(caller, at, path, link)?;
        vfs.set_times(caller, node, accessed, modified)
    })
    .map(|()| 0)
}

/// A directory that the caller may go to.
fn enterable(vfs: &Vfs, caller: &Caller<'_>, node: NodeId) -> Result<NodeId, Errno> {
    if !vfs.kind(node).is_directory() {
        return Err(Errno::ENOTDIR);
    }
    vfs.access(caller, node, Access::EXECUTE).map(|()| node)
}

/// A directory that the caller may go to, held.
fn held(vfs: &mut Vfs, caller: &Caller<'_>, node: NodeId) -> Result<NodeId, Errno> {
    enterable(vfs, caller, node).inspect(|node| vfs.hold(*node))
}

/// The process's directory, which is held, is another from now on.
fn enter(call: &Call<'_>, node: NodeId) -> u64 {
    call.process().view.borrow_mut().directory = HeldDirectory::of(&call.family().vfs, node);
    0
}

fn change_directory(call: &Call<'_>) -> Result<u64, Errno> {
    let node = at(call, HERE, 0, |vfs, caller, at, path| {
        let node = vfs.resolve(caller, at, path, LastLink::Follow)?;
        held(vfs, caller, node)
    })?;
    Ok(enter(call, node))
}

fn change_to_open(call: &Call<'_>) -> Result<u64, Errno> {
    let node = open_node(call)?.ok_or(Errno::ENOTDIR)?;
    let node = with_vfs(call, |vfs, caller| held(vfs, caller, node))?;
    Ok(enter(call, node))
}

fn change_root(call: &Call<'_>) -> Result<u64, Errno> {
    let node = at(call, HERE, 0, |vfs, caller, at, path| {
        let node = vfs.resolve(caller, at, path, LastLink::Follow)?;
        if !caller.credentials.is_root() {
            return Err(Errno::EPERM);
        }
        held(vfs, caller, node)
    })?;
    call.process().view.borrow_mut().root = HeldDirectory::of(&call.family().vfs, node);
    Ok(0)
}

fn current_directory(call: &Call<'_>) -> Result<u64, Errno> {
    let [buffer, len, ..] = call.arguments;
    let mut path = with_vfs(call, |vfs, caller| {
        // One that was removed is nowhere.
        match vfs.attributes(caller, caller.directory)?.links {
            0 => Err(Errno::ENOENT),
            _ => Ok(vfs.path_of(caller.root, caller.directory)),
        }
    })?;
    path.push(0);
    if path.len() as u64 > len {
        return Err(Errno::ERANGE);
    }
    call.memory().write(buffer, &path)?;
    Ok(path.len() as u64)
}

fn make_node(call: &Call<'_>, descriptor: i32, index: usize) -> Result<u64, Errno> {
    let (mode, number) = (call.arguments[index + 1] as u32, call.arguments[index + 2]);
    let kind = NodeType::from_mode(mode).ok_or(Errno::EINVAL)?;
    at(call, descriptor, index, |vfs, caller, at, path| {
        vfs.make_node(caller, at, path, kind, mode & 0o7777, number)
    })
    .map(|_| 0)
}
