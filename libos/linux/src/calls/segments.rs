//! Segments of shared memory: shmget(2), shmat(2), shmdt(2), shmctl(2).

use super::ipc::{
    ALTER, IPC_CREAT, IPC_EXCL, IPC_PRIVATE, IPC_RMID, IPC_SET, IPC_STAT, Permissions, READ, now,
};
use crate::call::Call;
use crate::memory::{MappedRegion, PAGE, Rights, SharedPages, Where};
use crate::table::SystemCall;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, RefCell};
use linux_raw_sys::general as abi;
use nom_fs::Errno;

const SHM_HUGETLB: u32 = 0o4000;
/// Flags of shmat(2).
const SHM_RDONLY: u32 = 0o10_000;
const SHM_RND: u32 = 0o20_000;
const SHM_REMAP: u32 = 0o40_000;
const SHM_EXEC: u32 = 0o100_000;
/// Commands of shmctl(2).
const SHM_LOCK: u32 = 11;
const SHM_UNLOCK: u32 = 12;
/// In a mode: it goes when nobody has it any more.
const SHM_DEST: u32 = 0o1000;
/// Most bytes of a segment.
const BYTES_MAX: u64 = 1 << 46;
/// Most segments, as on Linux (`/proc/sys/kernel/shmmni`).
const SEGMENTS_MAX: usize = 4096;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::partial(abi::__NR_shmget, "shmget", &["key", "size", "flags"], get, "not in huge pages"),
    SystemCall::complete(abi::__NR_shmat, "shmat", &["segment", "address", "flags"], attach),
    SystemCall::complete(abi::__NR_shmdt, "shmdt", &["address"], detach),
    SystemCall::partial(
        abi::__NR_shmctl,
        "shmctl",
        &["segment", "command", "buffer"],
        control,
        "IPC_STAT, IPC_SET, IPC_RMID; SHM_LOCK and SHM_UNLOCK as mlock",
    ),
];

/// A segment.
#[derive(Debug)]
struct Segment {
    permissions: Permissions,
    bytes: u64,
    /// Its pages, for as long as it is not removed; who has it attached keeps them, too.
    kept: Option<Rc<SharedPages>>,
    pages: Weak<SharedPages>,
    /// When somebody attached it, detached it and changed it last, in seconds since 1970.
    times: [u64; 3],
    /// Who made it, and who did something with it last.
    processes: [u32; 2],
}

impl Segment {
    /// How many have it attached.
    fn attached(&self) -> u64 {
        self.pages.strong_count() as u64 - u64::from(self.kept.is_some())
    }

    /// `struct shmid64_ds`.
    fn status(&self) -> [u64; 14] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [attach, detach, change] = self.times;
        let mut words = [0; 14];
        words[..6].copy_from_slice(&self.permissions.words());
        words[2] |= pair(0, if self.kept.is_none() { SHM_DEST } else { 0 });
        words[6..12].copy_from_slice(&[
            self.bytes,
            attach,
            detach,
            change,
            pair(self.processes[0], self.processes[1]),
            self.attached(),
        ]);
        words
    }
}

/// All there are, by their identifiers.
#[derive(Debug, Default)]
pub struct Segments {
    segments: RefCell<BTreeMap<i32, Segment>>,
    next: Cell<i32>,
}

impl Segments {
    /// Does something with one.
    fn with<T>(&self, id: i32, act: impl FnOnce(&mut Segment) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut segments = self.segments.borrow_mut();
        // What was removed is gone when nobody has it any more.
        segments.retain(|_, segment| segment.pages.strong_count() > 0);
        act(segments.get_mut(&id).ok_or(Errno::EINVAL)?)
    }
}

fn get(call: &Call<'_>) -> Result<u64, Errno> {
    let (key, bytes, flags) = (call.int(0), call.arguments[1], call.arguments[2] as u32);
    let all = &call.family().segments;
    let known = |(_, segment): &(&i32, &Segment)| segment.permissions.has_key(key);
    if let Some((id, segment)) = all.segments.borrow().iter().find(known) {
        if flags & (IPC_CREAT | IPC_EXCL) == IPC_CREAT | IPC_EXCL {
            return Err(Errno::EEXIST);
        }
        if bytes > segment.bytes {
            return Err(Errno::EINVAL);
        }
        return segment.permissions.check_flags(call, flags).map(|()| *id as u64);
    }
    if key != IPC_PRIVATE && flags & IPC_CREAT == 0 {
        return Err(Errno::ENOENT);
    }
    if bytes == 0 || bytes > BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    if flags & SHM_HUGETLB != 0 {
        return Err(Errno::ENOMEM);
    }
    if all.segments.borrow().len() >= SEGMENTS_MAX {
        return Err(Errno::ENOSPC);
    }
    let pages = SharedPages::new(call.memory().keeper(), None);
    let segment = Segment {
        permissions: Permissions::new(call, key, flags),
        bytes,
        pages: Rc::downgrade(&pages),
        kept: Some(pages),
        times: [0, 0, now(call)],
        processes: [call.process().id, 0],
    };
    let id = all.next.replace(all.next.get() + 1);
    all.segments.borrow_mut().insert(id, segment);
    Ok(id as u64)
}

fn attach(call: &Call<'_>) -> Result<u64, Errno> {
    let (mut address, flags) = (call.arguments[1], call.arguments[2] as u32);
    if flags & SHM_RND != 0 {
        address -= address % PAGE;
    }
    if !address.is_multiple_of(PAGE) || address == 0 && flags & SHM_REMAP != 0 {
        return Err(Errno::EINVAL);
    }
    let place = match address {
        0 => Where::Near(0),
        address if flags & SHM_REMAP != 0 => Where::At(address),
        address => Where::AtIfFree(address),
    };
    let write = if flags & SHM_RDONLY == 0 { abi::PROT_WRITE } else { 0 };
    let execute = if flags & SHM_EXEC != 0 { abi::PROT_EXEC } else { 0 };
    let rights = Rights::from_bits(abi::PROT_READ | write | execute);
    let (now, process) = (now(call), call.process().id);
    call.family().segments.with(call.int(0), |segment| {
        let pages = segment.pages.upgrade().ok_or(Errno::EINVAL)?;
        segment.permissions.check(call, if write == 0 { READ } else { READ | ALTER })?;
        let region = MappedRegion::zeros(rights).shared(pages);
        let at = call.memory().map(place, segment.bytes, region);
        let at = at.map_err(|error| if error == Errno::EEXIST { Errno::EINVAL } else { error })?;
        (segment.times[0], segment.processes[1]) = (now, process);
        Ok(at)
    })
}

fn detach(call: &Call<'_>) -> Result<u64, Errno> {
    let address = call.arguments[0];
    let (range, part) = call.memory().shared_at(address).ok_or(Errno::EINVAL)?;
    let pages = Rc::downgrade(&part.pages);
    let is_it = |segment: &Segment| Weak::ptr_eq(&segment.pages, &pages);
    let found = {
        let segments = call.family().segments.segments.borrow();
        segments.iter().find(|(_, segment)| is_it(segment)).map(|(id, segment)| (*id, segment.bytes))
    };
    let (id, bytes) = found.filter(|_| part.offset == 0 && range.start == address).ok_or(Errno::EINVAL)?;
    // Who changed the rights of a part of it has it in several regions.
    let mut next = address;
    while let Some((range, other)) = call.memory().shared_at(next).filter(|_| next < address + bytes) {
        if !Rc::ptr_eq(&other.pages, &part.pages) {
            break;
        }
        call.memory().unmap(range.start, range.end - range.start)?;
        next = range.end;
    }
    let (now, process) = (now(call), call.process().id);
    call.family().segments.with(id, |segment| {
        (segment.times[1], segment.processes[1]) = (now, process);
        Ok(0)
    })
}

fn control(call: &Call<'_>) -> Result<u64, Errno> {
    let (command, buffer) = (call.arguments[1] as u32, call.arguments[2]);
    let now = now(call);
    call.family().segments.with(call.int(0), |segment| match command {
        IPC_STAT => {
            segment.permissions.check(call, READ)?;
            call.memory().write_value(buffer, &segment.status()).map(|()| 0)
        }
        IPC_RMID => {
            segment.permissions.check_owner(call)?;
            segment.permissions.forget_key();
            segment.kept = None;
            Ok(0)
        }
        IPC_SET => {
            segment.permissions.check_owner(call)?;
            segment.permissions.set(call, buffer)?;
            segment.times[2] = now;
            Ok(0)
        }
        SHM_LOCK | SHM_UNLOCK => Ok(0),
        _ => Err(Errno::EINVAL),
    })
}
