//! Being told of changed files: inotify(7).

use super::make::{add, of_stream};
use super::{directory, get, path, with_vfs};
use crate::call::Call;
use crate::descriptors::notice::Notices;
use crate::table::SystemCall;
use linux_raw_sys::general as abi;
use nom_fs::{Access, Errno, LastLink};

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_inotify_init, "inotify_init", &[], |call| make(call, 0)),
    SystemCall::complete(abi::__NR_inotify_init1, "inotify_init1", &["flags"], |call| {
        make(call, call.arguments[0] as u32)
    }),
    SystemCall::partial(
        abi::__NR_inotify_add_watch,
        "inotify_add_watch",
        &["descriptor", "path", "mask"],
        watch,
        "nobody is told of reads (IN_ACCESS); nothing of `/proc` and of directories of the host: EOPNOTSUPP",
    ),
    SystemCall::complete(abi::__NR_inotify_rm_watch, "inotify_rm_watch", &["descriptor", "watch"], end),
];

fn make(call: &Call<'_>, flags: u32) -> Result<u64, Errno> {
    if flags & !(abi::O_CLOEXEC | abi::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let notices = Notices::new(call.family().vfs.clone());
    add(call, of_stream(notices, abi::O_RDONLY | flags & abi::O_NONBLOCK), flags)
        .map(|descriptor| descriptor as u64)
}

/// Does something with what the first argument leads to.
fn with<T>(call: &Call<'_>, act: impl FnOnce(&Notices) -> Result<T, Errno>) -> Result<T, Errno> {
    let description = get(call, call.int(0))?;
    act(description.stream().and_then(|stream| stream.notices()).ok_or(Errno::EINVAL)?)
}

fn watch(call: &Call<'_>) -> Result<u64, Errno> {
    const BOTH: u32 = abi::IN_MASK_ADD | abi::IN_MASK_CREATE;
    let mask = call.arguments[2] as u32;
    if mask & abi::IN_ALL_EVENTS == 0 || mask & BOTH == BOTH {
        return Err(Errno::EINVAL);
    }
    let path = path(call, call.arguments[1])?;
    let at = directory(call, abi::AT_FDCWD, &path)?;
    let link = if mask & abi::IN_DONT_FOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
    with(call, |notices| {
        with_vfs(call, |vfs, caller| {
            let node = vfs.resolve(caller, at, &path, link)?;
            if mask & abi::IN_ONLYDIR != 0 && !vfs.kind(node).is_directory() {
                return Err(Errno::ENOTDIR);
            }
            vfs.access(caller, node, Access::READ)?;
            notices.watch(vfs, node, mask)
        })
    })
    .map(|number| number as u64)
}

fn end(call: &Call<'_>) -> Result<u64, Errno> {
    with(call, |notices| with_vfs(call, |vfs, _| notices.end(vfs, call.int(1)))).map(|()| 0)
}
