//! Segments of shared memory: shmget(2), shmat(2), shmdt(2), shmctl(2).

use super::ipc::{ALTER, IPC_RMID, IPC_SET, IPC_STAT, Keyed, Objects, Permissions, READ, now};
use crate::call::Call;
use crate::memory::{MappedRegion, PAGE, Rights, SharedPages, Where};
use crate::table::SystemCall;
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

/// Which of a segment's times is of what.
const ATTACHED: usize = 0;
const DETACHED: usize = 1;
const CHANGED: usize = 2;

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
    permissions: Cell<Permissions>,
    bytes: u64,
    /// Its pages, for as long as it is not removed; who has it attached keeps them, too.
    kept: RefCell<Option<Rc<SharedPages>>>,
    pages: Weak<SharedPages>,
    /// When somebody attached it, detached it and changed it last, in seconds since 1970.
    times: Cell<[u64; 3]>,
    /// Who made it, and who did something with it last.
    processes: Cell<[u32; 2]>,
}

impl Keyed for Segment {
    const MOST: usize = SEGMENTS_MAX;

    fn permissions(&self) -> &Cell<Permissions> {
        &self.permissions
    }
}

impl Segment {
    /// How many have it attached.
    fn attached(&self) -> u64 {
        self.pages.strong_count() as u64 - u64::from(self.kept.borrow().is_some())
    }

    /// Notes which of the times is now, and by whom if it is that it was attached or detached.
    fn note(&self, which: usize, call: &Call<'_>) {
        let mut times = self.times.get();
        times[which] = now(call);
        self.times.set(times);
        if which != CHANGED {
            self.processes.set([self.processes.get()[0], call.process().id]);
        }
    }

    /// `struct shmid64_ds`.
    fn status(&self) -> [u64; 14] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let ([attach, detach, change], [maker, last]) = (self.times.get(), self.processes.get());
        let mut words = [0; 14];
        words[..6].copy_from_slice(&self.permissions.get().words());
        words[2] |= pair(0, if self.kept.borrow().is_none() { SHM_DEST } else { 0 });
        words[6..12].copy_from_slice(&[
            self.bytes,
            attach,
            detach,
            change,
            pair(maker, last),
            self.attached(),
        ]);
        words
    }
}

/// All there are.
#[derive(Debug, Default)]
pub struct Segments(Objects<Segment>);

impl Segments {
    /// Those that there are: what was removed is gone when nobody has it any more.
    fn all(&self) -> &Objects<Segment> {
        self.0.retain(|segment| segment.pages.strong_count() > 0);
        &self.0
    }
}

fn get(call: &Call<'_>) -> Result<u64, Errno> {
    let (key, bytes, flags) = (call.int(0), call.arguments[1], call.arguments[2] as u32);
    let fits = |segment: &Segment| if bytes > segment.bytes { Err(Errno::EINVAL) } else { Ok(()) };
    call.family().segments.all().find_or_make(call, (key, flags), fits, |permissions| {
        if bytes == 0 || bytes > BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        if flags & SHM_HUGETLB != 0 {
            return Err(Errno::ENOMEM);
        }
        let pages = SharedPages::new(call.memory().keeper(), None);
        Ok(Segment {
            permissions: Cell::new(permissions),
            bytes,
            pages: Rc::downgrade(&pages),
            kept: RefCell::new(Some(pages)),
            times: Cell::new([0, 0, now(call)]),
            processes: Cell::new([call.process().id, 0]),
        })
    })
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
    let segment = call.family().segments.all().get(call.int(0))?;
    let pages = segment.pages.upgrade().ok_or(Errno::EINVAL)?;
    segment.permissions.get().check(call, if write == 0 { READ } else { READ | ALTER })?;
    let region = MappedRegion::zeros(rights).shared(pages);
    let at = call.memory().map(place, segment.bytes, region);
    let at = at.map_err(|error| if error == Errno::EEXIST { Errno::EINVAL } else { error })?;
    segment.note(ATTACHED, call);
    Ok(at)
}

fn detach(call: &Call<'_>) -> Result<u64, Errno> {
    let address = call.arguments[0];
    let (range, part) = call.memory().shared_at(address).ok_or(Errno::EINVAL)?;
    let pages = Rc::downgrade(&part.pages);
    let mut segments = call.family().segments.0.list().into_iter();
    let found = segments.find(|segment| Weak::ptr_eq(&segment.pages, &pages));
    let segment = found.filter(|_| part.offset == 0 && range.start == address).ok_or(Errno::EINVAL)?;
    // Who changed the rights of a part of it has it in several regions.
    let mut next = address;
    while let Some((range, other)) = call.memory().shared_at(next).filter(|_| next < address + segment.bytes)
    {
        if !Rc::ptr_eq(&other.pages, &part.pages) {
            break;
        }
        call.memory().unmap(range.start, range.end - range.start)?;
        next = range.end;
    }
    segment.note(DETACHED, call);
    Ok(0)
}

fn control(call: &Call<'_>) -> Result<u64, Errno> {
    let (command, buffer) = (call.arguments[1] as u32, call.arguments[2]);
    let segment = call.family().segments.all().get(call.int(0))?;
    let mut permissions = segment.permissions.get();
    match command {
        IPC_STAT => {
            permissions.check(call, READ)?;
            call.memory().write_value(buffer, &segment.status()).map(|()| 0)
        }
        IPC_RMID => {
            permissions.check_owner(call)?;
            permissions.forget_key();
            segment.permissions.set(permissions);
            segment.kept.take();
            Ok(0)
        }
        IPC_SET => {
            permissions.check_owner(call)?;
            permissions.set(call, buffer)?;
            segment.permissions.set(permissions);
            segment.note(CHANGED, call);
            Ok(0)
        }
        SHM_LOCK | SHM_UNLOCK => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}
