//! Processes: execve(2), wait4(2), and who a process is.

use super::system::usage_words;
use crate::call::Call;
use crate::descriptors::calls::process::named_by;
use crate::process::{Exit, Process};
use crate::stops::StateChange;
use crate::table::SystemCall;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use nom_fs::{Errno, LastLink, NodeType};

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        abi::__NR_execve,
        "execve",
        &["path", "arguments", "environment"],
        execute,
        "a thread that is not its process's first keeps its identifier (gettid)",
    ),
    SystemCall::partial(
        abi::__NR_execveat,
        "execveat",
        &["directory", "path", "arguments", "environment", "flags"],
        execute_at,
        "as execve",
    ),
    SystemCall::partial(
        abi::__NR_wait4,
        "wait4",
        &["process", "status", "options", "usage"],
        wait,
        "the usage is the time that it had of the core",
    ),
    SystemCall::partial(
        abi::__NR_waitid,
        "waitid",
        &["kind", "identifier", "info", "options", "usage"],
        wait_of_kind,
        "as wait4",
    ),
    SystemCall::complete(abi::__NR_getpid, "getpid", &[], |call| Ok(call.process().id.into())),
    SystemCall::complete(abi::__NR_getppid, "getppid", &[], |call| Ok(call.process().parent().into())),
    SystemCall::complete(abi::__NR_getpgrp, "getpgrp", &[], |call| Ok(call.process().group.get().into())),
    SystemCall::complete(abi::__NR_getpgid, "getpgid", &["process"], |call| {
        other(call).map(|process| process.group.get().into())
    }),
    SystemCall::complete(abi::__NR_getsid, "getsid", &["process"], |call| {
        other(call).map(|process| process.session.get().into())
    }),
    SystemCall::partial(
        abi::__NR_setpgid,
        "setpgid",
        &["process", "group"],
        set_group,
        "also of a child that has a program of its own",
    ),
    SystemCall::complete(abi::__NR_setsid, "setsid", &[], set_session),
];

/// Most bytes of a path, and most arguments or variables.
const PATH_MAX: usize = 4096;
const STRINGS_MAX: usize = 1 << 17;
const STRING_MAX: usize = 1 << 17;
/// Bytes of the library's that a string takes beside its own, at most: also of what comes of it.
const STRING_EXTRA: u64 = 128;

fn strings(call: &Call<'_>, address: u64) -> Result<Vec<Vec<u8>>, Errno> {
    if address == 0 {
        return Ok(Vec::new());
    }
    let pointers = call.memory().read_pointers(address, STRINGS_MAX)?;
    call.family().check_room(pointers.len() as u64 * STRING_EXTRA)?;
    let (mut strings, mut left) = (Vec::with_capacity(pointers.len()), crate::load::STRINGS_MAX);
    for at in pointers {
        let string = call.memory().read_string(at, STRING_MAX.min(left)).map_err(too_big)?;
        left -= string.len();
        strings.push(string);
    }
    Ok(strings)
}

fn too_big(errno: Errno) -> Errno {
    if errno == Errno::ENAMETOOLONG { Errno::E2BIG } else { errno }
}

fn execute(call: &Call<'_>) -> Result<u64, Errno> {
    let [path, arguments, environment, ..] = call.arguments;
    begin_program(call, &call.memory().read_string(path, PATH_MAX)?, arguments, environment)
}

/// A program in a directory that is open, or an open one, by the name that execveat(2) says scripts get.
fn execute_at(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, path, arguments, environment, flags, _] = call.arguments;
    let (descriptor, flags) = (call.int(0), flags as u32);
    if flags & !(abi::AT_EMPTY_PATH | abi::AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = call.memory().read_string(path, PATH_MAX)?;
    let is_elsewhere = descriptor != abi::AT_FDCWD && !path.starts_with(b"/");
    let path = match path.is_empty() {
        true if flags & abi::AT_EMPTY_PATH == 0 => return Err(Errno::ENOENT),
        true => format!("/proc/self/fd/{descriptor}").into_bytes(),
        false if is_elsewhere => [format!("/proc/self/fd/{descriptor}/").as_bytes(), &path].concat(),
        false => path,
    };
    if is_elsewhere {
        call.process().descriptors.borrow().get(descriptor)?;
    }
    if flags & abi::AT_SYMLINK_NOFOLLOW != 0 && flags & abi::AT_EMPTY_PATH == 0 {
        let kind = call.process().with_vfs(call.task().id, |vfs, caller| {
            vfs.resolve(caller, caller.directory, &path, LastLink::Keep).map(|node| vfs.kind(node))
        });
        if kind? == NodeType::Link {
            return Err(Errno::ELOOP);
        }
    }
    begin_program(call, &path, arguments, environment)
}

fn begin_program(call: &Call<'_>, path: &[u8], arguments: u64, environment: u64) -> Result<u64, Errno> {
    let (arguments, environment) = (strings(call, arguments)?, strings(call, environment)?);
    let (process, task) = (call.process(), call.task());
    let loaded = crate::load::load(process, task.id, path, &arguments, &environment).map_err(|error| {
        if !matches!(error, crate::LoadError::File(_, Errno::ENOENT)) {
            nom_app::println!("execve: {error}");
        }
        error.errno()
    })?;
    end_others(call)?;
    process.become_program(&loaded);
    task.name.set([0; 16]);
    let mut context = nom_sys::program::ProgramContext::new(loaded.registers);
    core::mem::swap(&mut *task.context.borrow_mut(), &mut context);
    task.clear_at_end.set(0);
    task.robust.set(0);
    task.alternate.set(crate::signals::Alternate::NONE);
    Ok(0)
}

/// Has the other threads of the process end, and waits until they have: what they leave in its memory they
/// leave in that of the old program. Errors: EINTR if another one has this one end so.
fn end_others(call: &Call<'_>) -> Result<(), Errno> {
    let (process, task) = (call.process(), call.task());
    if task.ends() {
        return Err(Errno::EINTR);
    }
    process.tasks().iter().filter(|other| other.id != task.id).for_each(|other| other.end());
    let is_over = || (process.tasks().len() == 1 || task.ends()).then_some(());
    if is_over().is_none() {
        call.thread().block_on(process.thread_ended.until(is_over));
    }
    if task.ends() { Err(Errno::EINTR) } else { Ok(()) }
}

/// What became of a child.
#[derive(Clone, Copy)]
enum ChildNews {
    Ended(Exit),
    Changed(StateChange),
}

impl ChildNews {
    fn wait_status(self) -> u32 {
        match self {
            ChildNews::Ended(exit) => exit.wait_status(),
            ChildNews::Changed(change) => change.wait_status(),
        }
    }

    fn child_code(self) -> (u32, u32) {
        match self {
            ChildNews::Ended(exit) => exit.child_code(),
            ChildNews::Changed(change) => change.child_code(),
        }
    }

    /// What there is to tell of a child, of that which `options` want to know.
    fn of(child: &Process, options: u32) -> Option<ChildNews> {
        if child.has_ended() {
            let exit = child.ending.get().unwrap_or(Exit::Status(0));
            return Some(ChildNews::Ended(exit)).filter(|_| options & abi::WEXITED != 0);
        }
        let is_wanted = |change: &StateChange| match change {
            StateChange::Stopped(_) => options & abi::WSTOPPED != 0,
            StateChange::Continued => options & abi::WCONTINUED != 0,
        };
        child.stops.untold().filter(is_wanted).map(ChildNews::Changed)
    }
}

/// Waits for news of a child that is meant. Who has ended is forgotten then, and what was told is not told
/// again, unless `WNOWAIT` says otherwise. Nothing if there is none and `WNOHANG` says not to wait.
fn await_child(
    call: &Call<'_>,
    options: u32,
    is_meant: impl Fn(&Process) -> bool,
) -> Result<Option<(Rc<Process>, ChildNews)>, Errno> {
    let (family, process) = (call.family(), call.process());
    // Children whose end is not told by SIGCHLD are waited for by who says so (wait(2), "Linux notes").
    let is_of_kind = |child: &Process| {
        options & abi::__WALL != 0 || child.ends_by_sigchld() == (options & abi::__WCLONE == 0)
    };
    let is_child = |child: &Rc<Process>| child.parent() == process.id && is_of_kind(child) && is_meant(child);
    let look = || {
        let children: Vec<_> = family.processes().into_iter().filter(is_child).collect();
        if children.is_empty() {
            return Some(Err(Errno::ECHILD));
        }
        let news = |child: Rc<Process>| ChildNews::of(&child, options).map(|news| (child, news));
        children.into_iter().find_map(news).map(Ok)
    };
    let found = match look() {
        None if options & abi::WNOHANG != 0 => return Ok(None),
        None => call.block_on(process.child_ended.until(look))?,
        Some(found) => found,
    };
    let (child, news) = found?;
    if options & abi::WNOWAIT == 0 {
        match news {
            ChildNews::Ended(_) => {
                process.keep_time_of_child(&child);
                family.remove(child.id);
            }
            ChildNews::Changed(_) => child.stops.tell(),
        }
    }
    Ok(Some((child, news)))
}

/// What a child used, if that is asked for and there is one.
fn write_usage(call: &Call<'_>, usage: u64, child: Option<&Process>) -> Result<(), Errno> {
    if usage == 0 {
        return Ok(());
    }
    let ran_ns = child.map_or(0, |child| child.ran_ns() + child.children_ran_ns());
    call.memory().write_value(usage, &usage_words(ran_ns, 0))
}

fn wait(call: &Call<'_>) -> Result<u64, Errno> {
    const KNOWN: u32 =
        abi::WNOHANG | abi::WUNTRACED | abi::WCONTINUED | abi::__WALL | abi::__WCLONE | abi::__WNOTHREAD;
    let [_, status, options, usage, ..] = call.arguments;
    if options as u32 & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let (wanted, group) = (call.int(0), call.process().group.get());
    let is_meant = |child: &Process| match wanted {
        -1 => true,
        0 => child.group.get() == group,
        wanted if wanted < 0 => child.group.get() == wanted.unsigned_abs(),
        wanted => child.id == wanted as u32,
    };
    let Some((child, news)) = await_child(call, options as u32 | abi::WEXITED, is_meant)? else {
        return Ok(0);
    };
    if status != 0 {
        call.memory().write_value(status, &news.wait_status())?;
    }
    write_usage(call, usage, Some(&*child))?;
    Ok(child.id.into())
}

fn wait_of_kind(call: &Call<'_>) -> Result<u64, Errno> {
    const STATES: u32 = abi::WEXITED | abi::WSTOPPED | abi::WCONTINUED;
    const KNOWN: u32 = STATES | abi::WNOHANG | abi::WNOWAIT | abi::__WALL | abi::__WCLONE | abi::__WNOTHREAD;
    let [kind, id, info, options, usage, _] = call.arguments;
    let (kind, id, options) = (kind as u32, id as u32, options as u32);
    let is_named = kind != abi::P_PID || id as i32 > 0;
    if options & STATES == 0 || options & !KNOWN != 0 || kind > abi::P_PIDFD || !is_named {
        return Err(Errno::EINVAL);
    }
    let (kind, id, is_nonblocking) = match kind {
        abi::P_PIDFD => {
            let (id, is_nonblocking) = named_by(call, id as i32)?;
            (abi::P_PID, id, is_nonblocking)
        }
        kind => (kind, id, false),
    };
    let own = call.process().group.get();
    let is_meant = |child: &Process| match kind {
        abi::P_PID => child.id == id,
        abi::P_PGID => child.group.get() == if id == 0 { own } else { id },
        _ => true,
    };
    let asked = if is_nonblocking { options | abi::WNOHANG } else { options };
    let found = await_child(call, asked, is_meant)?;
    if found.is_none() && options & abi::WNOHANG == 0 {
        return Err(Errno::EAGAIN);
    }
    write_usage(call, usage, found.as_ref().map(|(child, _)| &**child))?;
    if info != 0 {
        let told = found.map(|(child, news)| {
            let (code, status) = news.child_code();
            [abi::SIGCHLD, 0, code, 0, child.id, child.user(), status]
        });
        call.memory().write_value(info, &told.unwrap_or_default())?;
    }
    Ok(0)
}

/// The process that the first argument names; 0 is who asks.
fn other(call: &Call<'_>) -> Result<Rc<Process>, Errno> {
    match call.arguments[0] as u32 {
        0 => Ok(call.process().clone()),
        id => call.family().process(id).ok_or(Errno::ESRCH),
    }
}

fn set_group(call: &Call<'_>) -> Result<u64, Errno> {
    let (process, own) = (other(call)?, call.process());
    let group = match call.int(1) {
        group if group < 0 => return Err(Errno::EINVAL),
        0 => process.id,
        group => group as u32,
    };
    if process.id != own.id && process.parent() != own.id {
        return Err(Errno::ESRCH);
    }
    let session = own.session.get();
    let is_member = |other: &Rc<Process>| other.group.get() == group && other.session.get() == session;
    let is_there = group == process.id || call.family().processes().iter().any(is_member);
    if process.session.get() != session || process.session.get() == process.id || !is_there {
        return Err(Errno::EPERM);
    }
    process.group.set(group);
    Ok(0)
}

fn set_session(call: &Call<'_>) -> Result<u64, Errno> {
    let process = call.process();
    if process.group.get() == process.id && process.id != 1 {
        return Err(Errno::EPERM);
    }
    process.group.set(process.id);
    process.session.set(process.id);
    Ok(process.id.into())
}
