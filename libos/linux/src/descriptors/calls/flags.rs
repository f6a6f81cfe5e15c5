//! Descriptors themselves: dup(2), fcntl(2), close(2), ioctl(2).

use super::{get, owners, with_vfs};
use crate::call::Call;
use crate::descriptors::interfaces;
use crate::descriptors::open::{Description, Stream};
use crate::descriptors::table::OnExec;
use crate::table::SystemCall;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use linux_raw_sys::ioctl::{FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD};
use nom_fs::{Durable, Errno, SharedMapping};

/// asm/sockios.h: whether what is received next is behind the urgent byte.
const SIOCATMARK: u32 = 0x8905;

/// Flags that `F_SETFL` changes.
const CHANGEABLE: u32 = abi::O_APPEND | abi::O_NONBLOCK | abi::O_DIRECT | abi::O_NOATIME | abi::FASYNC;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_close, "close", &["descriptor"], close),
    SystemCall::complete(abi::__NR_close_range, "close_range", &["first", "last", "flags"], close_range),
    SystemCall::complete(abi::__NR_dup, "dup", &["descriptor"], duplicate),
    SystemCall::complete(abi::__NR_dup2, "dup2", &["old", "new"], duplicate_as),
    SystemCall::complete(abi::__NR_dup3, "dup3", &["old", "new", "flags"], duplicate_with),
    SystemCall::partial(
        abi::__NR_fcntl,
        "fcntl",
        &["descriptor", "command", "argument"],
        control,
        "locks (who holds one outside the machine is not seen); seals; signals of what is ready (O_ASYNC), \
         but SIGURG within the machine alone; no leases",
    ),
    SystemCall::partial(
        abi::__NR_ioctl,
        "ioctl",
        &["descriptor", "request", "argument"],
        request,
        "FIONBIO, FIONREAD, FIOCLEX, FIONCLEX, SIOCATMARK; what netdevice(7) tells of interfaces; of \
         pseudoterminals those of ioctl_tty(2), but for exclusive mode; the console is no terminal (ENOTTY)",
    ),
    SystemCall::complete(abi::__NR_fsync, "fsync", &["descriptor"], |call| make_durable(call, Durable::All)),
    SystemCall::complete(abi::__NR_fdatasync, "fdatasync", &["descriptor"], |call| {
        make_durable(call, Durable::Data)
    }),
    SystemCall::complete(abi::__NR_sync, "sync", &[], |call| {
        with_vfs(call, |vfs, _| vfs.sync_all());
        Ok(0)
    }),
    SystemCall::complete(abi::__NR_syncfs, "syncfs", &["descriptor"], |call| {
        get(call, call.int(0))?;
        with_vfs(call, |vfs, _| vfs.sync_all());
        Ok(0)
    }),
    SystemCall::complete(abi::__NR_sync_file_range, "sync_file_range", &["descriptor"], |call| {
        make_durable(call, Durable::Data)
    }),
    SystemCall::complete(abi::__NR_ftruncate, "ftruncate", &["descriptor", "length"], truncate),
    SystemCall::partial(
        abi::__NR_fallocate,
        "fallocate",
        &["descriptor", "mode", "offset", "length"],
        allocate,
        "room and holes (PUNCH_HOLE); other modes are EOPNOTSUPP",
    ),
    SystemCall::complete(
        abi::__NR_fadvise64,
        "fadvise64",
        &["descriptor", "offset", "length", "advice"],
        advise,
    ),
    SystemCall::complete(abi::__NR_readahead, "readahead", &["descriptor"], |call| {
        get(call, call.int(0)).map(|_| 0)
    }),
];

/// What will be read, and what not: nothing is read ahead, nor forgotten.
fn advise(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let is_pipe = description.stream().is_some_and(|stream| stream.pipe().is_some());
    match call.arguments {
        _ if is_pipe => Err(Errno::ESPIPE),
        [_, _, len, advice, ..] if (len as i64) < 0 || advice as u32 > abi::POSIX_FADV_NOREUSE => {
            Err(Errno::EINVAL)
        }
        _ => Ok(0),
    }
}

fn close(call: &Call<'_>) -> Result<u64, Errno> {
    let descriptors = call.process().descriptors.borrow().clone();
    descriptors.close(call.int(0)).map(|()| 0)
}

/// linux/close_range.h: what would be closed is closed when another program begins.
const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

fn close_range(call: &Call<'_>) -> Result<u64, Errno> {
    let (first, last, flags) = (call.arguments[0] as u32, call.arguments[1] as u32, call.arguments[2] as u32);
    if first > last {
        return Err(Errno::EINVAL);
    }
    let descriptors = call.process().descriptors.borrow().clone();
    for descriptor in descriptors.list() {
        if (first..=last).contains(&(descriptor as u32)) {
            match flags & CLOSE_RANGE_CLOEXEC {
                0 => descriptors.close(descriptor)?,
                _ => descriptors.set_on_exec(descriptor, OnExec::Close)?,
            }
        }
    }
    Ok(0)
}

fn duplicate(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let descriptors = call.process().descriptors.borrow().clone();
    descriptors.add(description, OnExec::Keep).map(|descriptor| descriptor as u64)
}

fn duplicate_as(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    if call.int(0) != call.int(1) {
        let descriptors = call.process().descriptors.borrow().clone();
        descriptors.put(call.int(1), description, OnExec::Keep)?;
    }
    Ok(call.int(1) as u64)
}

fn duplicate_with(call: &Call<'_>) -> Result<u64, Errno> {
    let flags = call.arguments[2] as u32;
    if call.int(0) == call.int(1) || flags & !abi::O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let description = get(call, call.int(0))?;
    let descriptors = call.process().descriptors.borrow().clone();
    descriptors.put(call.int(1), description, OnExec::closes_if(flags & abi::O_CLOEXEC))?;
    Ok(call.int(1) as u64)
}

fn control(call: &Call<'_>) -> Result<u64, Errno> {
    let descriptor = call.int(0);
    let description = get(call, descriptor)?;
    let argument = call.arguments[2];
    let descriptors = call.process().descriptors.borrow().clone();
    let duplicate = |on_exec| {
        let added = descriptors.add_from(argument as i32, description.clone(), on_exec);
        added.map(|descriptor| descriptor as u64)
    };
    match call.arguments[1] as u32 {
        abi::F_DUPFD => duplicate(OnExec::Keep),
        abi::F_DUPFD_CLOEXEC => duplicate(OnExec::Close),
        abi::F_GETFD => Ok(u64::from(descriptors.on_exec(descriptor)? == OnExec::Close)),
        abi::F_SETFD => {
            let on_exec = OnExec::closes_if(argument as u32 & abi::FD_CLOEXEC);
            descriptors.set_on_exec(descriptor, on_exec).map(|()| 0)
        }
        abi::F_GETFL => Ok(description.flags.get().into()),
        abi::F_SETFL => {
            let kept = description.flags.get() & !CHANGEABLE;
            set_flags(call, &description, kept | argument as u32 & CHANGEABLE);
            Ok(0)
        }
        command if super::locks::is_command(command) => super::locks::record(call, &description, command),
        command if owners::is_command(command) => owners::answer(call, &description, command),
        abi::F_ADD_SEALS => seal(call, &description, argument as u32),
        abi::F_GET_SEALS => {
            let node = description.node().ok_or(Errno::EINVAL)?.node;
            with_vfs(call, |vfs, _| vfs.seals(node)).map(u64::from)
        }
        command @ (abi::F_GETPIPE_SZ | abi::F_SETPIPE_SZ) => {
            let pipe = description.stream().and_then(|stream| stream.pipe()).ok_or(Errno::EBADF)?;
            let capacity = match command {
                abi::F_GETPIPE_SZ => Ok(pipe.capacity()),
                _ => pipe.set_capacity(argument as u32 as usize),
            };
            capacity.map(|bytes| bytes as u64)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn seal(call: &Call<'_>, description: &Description, seals: u32) -> Result<u64, Errno> {
    description.check_write().map_err(|_| Errno::EPERM)?;
    let node = description.node().ok_or(Errno::EINVAL)?.node;
    let is_mapped = call.family().mapped.has(node);
    let mapping = if is_mapped { SharedMapping::There } else { SharedMapping::Absent };
    with_vfs(call, |vfs, _| vfs.add_seals(node, seals, mapping)).map(|()| 0)
}

fn request(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let argument = call.arguments[2];
    let of_terminal = description.stream().and_then(|stream| stream.terminal());
    if let Some(answer) = of_terminal.and_then(|end| crate::terminal::control::answer(call, end)) {
        return answer;
    }
    let descriptors = call.process().descriptors.borrow().clone();
    match call.arguments[1] as u32 {
        FIONBIO => {
            let is_on = call.memory().read_value::<i32>(argument)? != 0;
            let kept = description.flags.get() & !abi::O_NONBLOCK;
            description.flags.set(kept | if is_on { abi::O_NONBLOCK } else { 0 });
            Ok(0)
        }
        FIONREAD => {
            let unread = match (description.node(), description.stream()) {
                (Some(node), _) => Some(node.size()?.saturating_sub(description.position.get()) as usize),
                (_, Some(stream)) => stream.unread(),
                _ => None,
            };
            call.memory().write_value(argument, &(unread.ok_or(Errno::ENOTTY)? as u32)).map(|()| 0)
        }
        SIOCATMARK => {
            let is_at = description.socket().map_err(|_| Errno::ENOTTY)?.is_at_urgent();
            call.memory().write_value(argument, &i32::from(is_at)).map(|()| 0)
        }
        FIOCLEX => descriptors.set_on_exec(call.int(0), OnExec::Close).map(|()| 0),
        FIONCLEX => descriptors.set_on_exec(call.int(0), OnExec::Keep).map(|()| 0),
        FIOASYNC => drive(call, &description, argument),
        request if description.socket().is_ok() => owners::request(call, &description, request)
            .unwrap_or_else(|| interfaces::answer(call, request, argument)),
        _ => Err(Errno::ENOTTY),
    }
}

/// Whether the owner of a description can be told by signals that it is ready.
fn tells(description: &Description) -> bool {
    let of = |stream: &Rc<dyn Stream>| {
        stream.socket().is_some()
            || stream.pipe().is_some()
            || stream.terminal().is_some()
            || stream.notices().is_some()
    };
    description.stream().is_some_and(of)
}

/// Has the owner of a description be told by signals that it is ready, or not.
fn drive(call: &Call<'_>, description: &Rc<Description>, at: u64) -> Result<u64, Errno> {
    let is_on = call.memory().read_value::<i32>(at)? != 0;
    let flags = description.flags.get() & !abi::FASYNC | if is_on { abi::FASYNC } else { 0 };
    if !tells(description) {
        // Who does not tell has nothing to leave off.
        return if is_on { Err(Errno::ENOTTY) } else { Ok(0) };
    }
    set_flags(call, description, flags);
    Ok(0)
}

/// A description has these flags from now on; its owner hears of what that changes for him.
fn set_flags(call: &Call<'_>, description: &Rc<Description>, flags: u32) {
    let before = description.flags.replace(flags);
    if (before ^ flags) & abi::FASYNC != 0 && tells(description) {
        owners::driven_changed(call, description);
    }
}

/// Has what was written be on the disk: what lies in memory is nowhere else.
fn make_durable(call: &Call<'_>, what: Durable) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let node = description.node().ok_or(Errno::EINVAL)?.node;
    call.family().mapped.with(node, |pages| pages.write_back(0..u64::MAX));
    with_vfs(call, |vfs, _| vfs.sync(node, what)).map(|()| 0)
}

fn truncate(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let node = description.node().ok_or(Errno::EINVAL)?;
    description.check_write().map_err(|_| Errno::EINVAL)?;
    let len = u64::try_from(call.arguments[1] as i64).map_err(|_| Errno::EINVAL)?;
    with_vfs(call, |vfs, caller| vfs.truncate(node.node, len, caller)).map(|()| 0)
}

fn allocate(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    description.check_write()?;
    let node = description.node().ok_or(Errno::ENODEV)?;
    let [_, mode, offset, len, ..] = call.arguments;
    let is_range = (offset as i64) >= 0 && (len as i64) > 0;
    if !is_range {
        return Err(Errno::EINVAL);
    }
    with_vfs(call, |vfs, caller| match mode as u32 {
        0 => vfs.allocate(node.node, offset, len, caller),
        mode if mode == abi::FALLOC_FL_PUNCH_HOLE | abi::FALLOC_FL_KEEP_SIZE => {
            vfs.punch(node.node, offset, len, caller)
        }
        _ => Err(Errno::EOPNOTSUPP),
    })
    .map(|()| 0)
}
