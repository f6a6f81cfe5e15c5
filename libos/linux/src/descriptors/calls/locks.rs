//! The calls that lock files: fcntl(2)'s records and flock(2).

use super::{get, with_vfs};
use crate::call::Call;
use crate::descriptors::node::OpenNode;
use crate::descriptors::open::Description;
use crate::table::SystemCall;
use core::ops::Range;
use linux_raw_sys::general as abi;
use nom_fs::{Errno, LOCK_END, Lock, LockKind, LockOwner, LockTable};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[SystemCall::partial(
    abi::__NR_flock,
    "flock",
    &["descriptor", "operation"],
    whole,
    "who holds one outside the machine is not seen",
)];

/// Whether a command of `fcntl` is about locks.
pub(crate) fn is_command(command: u32) -> bool {
    matches!(command, abi::F_SETLK | abi::F_SETLKW | abi::F_GETLK)
        || matches!(command, abi::F_OFD_SETLK | abi::F_OFD_SETLKW | abi::F_OFD_GETLK)
}

/// `struct flock`, with the padding that its fields have.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    _before_start: u32,
    start: i64,
    len: i64,
    process: i32,
    _behind: u32,
}

/// Asks for, takes or gives up a lock on some bytes.
pub(crate) fn record(call: &Call<'_>, description: &Description, command: u32) -> Result<u64, Errno> {
    let address = call.arguments[2];
    let mut asked: Flock = call.memory().read_value(address)?;
    let is_description = matches!(command, abi::F_OFD_SETLK | abi::F_OFD_SETLKW | abi::F_OFD_GETLK);
    if is_description && asked.process != 0 {
        return Err(Errno::EINVAL);
    }
    let owner = match is_description {
        true => LockOwner::Description(description.number()),
        false => LockOwner::Process(call.process().id),
    };
    // What has no file behind it, a pipe or a socket, nobody locks to find another by.
    let Some(node) = description.node() else { return without_file(call, &asked, command) };
    let range = range(call, description, node, &asked)?;
    let kind = kind(&asked)?;
    if matches!(command, abi::F_GETLK | abi::F_OFD_GETLK) {
        let wanted = Lock { owner, kind: kind.ok_or(Errno::EINVAL)?, range };
        match node.locks.conflict(node.node, LockTable::Records, &wanted) {
            Some(lock) => tell(&mut asked, &lock),
            None => asked.kind = abi::F_UNLCK as i16,
        }
        return call.memory().write_value(address, &asked).map(|()| 0);
    }
    let Some(kind) = kind else {
        node.locks.release(node.node, LockTable::Records, owner, &range);
        return Ok(0);
    };
    match kind {
        LockKind::Shared => description.check_read()?,
        LockKind::Exclusive => description.check_write()?,
    }
    let wanted = Lock { owner, kind, range };
    if matches!(command, abi::F_SETLKW | abi::F_OFD_SETLKW) {
        node.locks.acquire_later(call, node.node, LockTable::Records, &wanted)?;
    } else {
        node.locks.acquire(node.node, LockTable::Records, &wanted)?;
    }
    // Whoever closed the descriptor meanwhile gave up what there was then, and nobody will give up this.
    let is_there = get(call, call.int(0)).is_ok_and(|there| core::ptr::eq(&*there, description));
    if !is_description && !is_there {
        node.locks.release(node.node, LockTable::Records, owner, &wanted.range);
        return Err(Errno::EBADF);
    }
    Ok(0)
}

fn without_file(call: &Call<'_>, asked: &Flock, command: u32) -> Result<u64, Errno> {
    kind(asked)?;
    if matches!(command, abi::F_GETLK | abi::F_OFD_GETLK) {
        let free = Flock { kind: abi::F_UNLCK as i16, ..*asked };
        call.memory().write_value(call.arguments[2], &free)?;
    }
    Ok(0)
}

/// Which kind is asked for; none if it is to be given up.
fn kind(asked: &Flock) -> Result<Option<LockKind>, Errno> {
    match u32::try_from(asked.kind) {
        Ok(abi::F_RDLCK) => Ok(Some(LockKind::Shared)),
        Ok(abi::F_WRLCK) => Ok(Some(LockKind::Exclusive)),
        Ok(abi::F_UNLCK) => Ok(None),
        _ => Err(Errno::EINVAL),
    }
}

/// The bytes that are meant.
fn range(
    call: &Call<'_>,
    description: &Description,
    node: &OpenNode,
    asked: &Flock,
) -> Result<Range<u64>, Errno> {
    let from = match u32::try_from(asked.whence) {
        Ok(abi::SEEK_SET) => 0,
        Ok(abi::SEEK_CUR) => description.position.get() as i64,
        Ok(abi::SEEK_END) => with_vfs(call, |vfs, _| vfs.size(node.node))? as i64,
        _ => return Err(Errno::EINVAL),
    };
    bytes(from, asked.start, asked.len)
}

/// `len` bytes at `start` from `from` on: all behind it if `len` is 0, those before it if `len` is negative.
fn bytes(from: i64, start: i64, len: i64) -> Result<Range<u64>, Errno> {
    let start = from.checked_add(start).ok_or(Errno::EOVERFLOW)?;
    let at = |offset: i64| u64::try_from(offset).map_err(|_| Errno::EINVAL);
    match len {
        0 => Ok(at(start)?..LOCK_END),
        1.. => {
            let last = start.checked_add(len - 1);
            at(start)?;
            Ok(at(start)?..at(last.ok_or(Errno::EOVERFLOW)?)? + 1)
        }
        _ => Ok(at(start.checked_add(len).ok_or(Errno::EINVAL)?)?..at(start)?),
    }
}

fn tell(asked: &mut Flock, lock: &Lock) {
    asked.kind = match lock.kind {
        LockKind::Shared => abi::F_RDLCK as i16,
        LockKind::Exclusive => abi::F_WRLCK as i16,
    };
    asked.whence = abi::SEEK_SET as i16;
    asked.start = lock.range.start as i64;
    asked.len = match lock.range.end {
        LOCK_END => 0,
        end => (end - lock.range.start) as i64,
    };
    asked.process = match lock.owner {
        LockOwner::Process(process) => process as i32,
        LockOwner::Description(_) => -1,
    };
}

/// Takes or gives up the lock on all of a file.
fn whole(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let operation = call.arguments[1] as u32;
    let kind = match operation & !abi::LOCK_NB {
        abi::LOCK_SH => Some(LockKind::Shared),
        abi::LOCK_EX => Some(LockKind::Exclusive),
        abi::LOCK_UN => None,
        _ => return Err(Errno::EINVAL),
    };
    description.check_read().or_else(|_| description.check_write())?;
    let Some(node) = description.node() else { return Ok(0) };
    let (owner, range) = (LockOwner::Description(description.number()), 0..LOCK_END);
    let Some(kind) = kind else {
        node.locks.release(node.node, LockTable::Whole, owner, &range);
        return Ok(0);
    };
    let wanted = Lock { owner, kind, range };
    if node.locks.conflict(node.node, LockTable::Whole, &wanted).is_some() {
        // "Converting a lock is not guaranteed to be atomic": Linux gives up what there was, first.
        node.locks.release(node.node, LockTable::Whole, owner, &wanted.range);
    }
    if operation & abi::LOCK_NB != 0 {
        node.locks.acquire(node.node, LockTable::Whole, &wanted)?;
    } else {
        node.locks.acquire_later(call, node.node, LockTable::Whole, &wanted)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_manual() {
        const MAX: i64 = i64::MAX;
        assert_eq!(bytes(0, 5, 3), Ok(5..8));
        assert_eq!(bytes(10, -4, 2), Ok(6..8));
        assert_eq!(bytes(10, 0, -3), Ok(7..10));
        assert_eq!(bytes(0, 7, 0), Ok(7..LOCK_END));
        assert_eq!(bytes(0, MAX, 1), Ok(MAX as u64..LOCK_END));
        assert_eq!(bytes(0, MAX, 2), Err(Errno::EOVERFLOW));
        assert_eq!(bytes(1, MAX, 0), Err(Errno::EOVERFLOW));
        assert_eq!(bytes(0, -1, 0), Err(Errno::EINVAL));
        assert_eq!(bytes(0, -1, 5), Err(Errno::EINVAL));
        assert_eq!(bytes(2, 0, -3), Err(Errno::EINVAL));
    }
}
