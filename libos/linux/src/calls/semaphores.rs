//! Semaphores of System V: semget(2), semop(2), semctl(2).

use super::ipc::{ALTER, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, Keyed, Objects, Permissions, READ, now};
use super::time::deadline_after;
use crate::call::Call;
use crate::descriptors::ready::{Waiters, until_ready};
use crate::process::Process;
use crate::table::SystemCall;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use linux_raw_sys::general as abi;
use nom_fs::Errno;
use zerocopy::IntoBytes;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_semget, "semget", &["key", "count", "flags"], get),
    SystemCall::complete(abi::__NR_semop, "semop", &["set", "operations", "count"], |call| operate(call, 0)),
    SystemCall::complete(
        abi::__NR_semtimedop,
        "semtimedop",
        &["set", "operations", "count", "timeout"],
        |call| operate(call, call.arguments[3]),
    ),
    SystemCall::partial(
        abi::__NR_semctl,
        "semctl",
        &["set", "semaphore", "command", "argument"],
        control,
        "without IPC_INFO, SEM_INFO and SEM_STAT",
    ),
];

/// Most semaphores of a set, and operations of a call; the highest value (Linux's SEMMSL, SEMOPM, SEMVMX).
/// With the next two, as `/proc/sys/kernel/sem` says them.
const COUNT_MAX: u64 = 32_000;
/// Most sets, and semaphores in all of them (SEMMNI and SEMMNS, of which Linux has 32,000 and so many each).
const SETS_MAX: usize = 4096;
const ALL_MAX: u64 = 256_000;
const OPERATIONS_MAX: u64 = 500;
const VALUE_MAX: i32 = 32_767;
/// In an operation's flags: it is taken back when the process ends.
const SEM_UNDO: u32 = 0o10_000;

/// A semaphore.
#[derive(Clone, Copy, Debug, Default)]
struct Semaphore {
    value: u16,
    /// Who changed it last.
    process: u32,
}

/// A set of semaphores.
#[derive(Debug)]
struct Semaphores {
    permissions: Cell<Permissions>,
    all: RefCell<Vec<Semaphore>>,
    /// What is added to which when a process ends, by process and semaphore.
    undone: RefCell<BTreeMap<(u32, u16), i32>>,
    /// When it was operated on, and changed, last, in seconds since 1970.
    times: Cell<[u64; 2]>,
    /// Who waits: for which semaphore, and whether for that to be 0.
    waiting: RefCell<Vec<(u16, bool)>>,
    waiters: Waiters,
    is_removed: Cell<bool>,
}

impl Keyed for Semaphores {
    const MOST: usize = SETS_MAX;

    fn permissions(&self) -> &Cell<Permissions> {
        &self.permissions
    }
}

/// All sets.
#[derive(Debug, Default)]
pub(crate) struct SemaphoreSets(Objects<Semaphores>);

impl SemaphoreSets {
    /// Errors: ENOSPC if there were too many with so many more.
    fn check_more(&self, count: u64) -> Result<(), Errno> {
        let all: u64 = self.0.list().iter().map(|set| set.all.borrow().len() as u64).sum();
        if all + count > ALL_MAX { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// A process has ended.
    pub fn undo_of(&self, process: &Process) {
        for set in self.0.list() {
            let mut undone = set.undone.borrow_mut();
            let own = |(of, _): &(u32, u16)| *of == process.id;
            let taken: Vec<_> = undone.keys().copied().filter(own).collect();
            for key in taken {
                let added = undone.remove(&key).unwrap_or(0);
                if let Some(semaphore) = set.all.borrow_mut().get_mut(usize::from(key.1)) {
                    semaphore.value = (i32::from(semaphore.value) + added).clamp(0, VALUE_MAX) as u16;
                    semaphore.process = process.id;
                }
            }
            set.waiters.wake();
        }
    }
}

/// `struct sembuf`.
#[derive(Clone, Copy, Debug)]
struct Operation {
    semaphore: u16,
    change: i16,
    flags: u32,
}

impl Semaphores {
    /// So many, made at this time.
    fn new(permissions: Permissions, count: u64, now: u64) -> Semaphores {
        Semaphores {
            permissions: Cell::new(permissions),
            all: RefCell::new(vec![Semaphore::default(); count as usize]),
            undone: RefCell::default(),
            times: Cell::new([0, now]),
            waiting: RefCell::default(),
            waiters: Waiters::default(),
            is_removed: Cell::new(false),
        }
    }

    /// Does all operations, or none and says which has to wait, and whether for zero.
    fn attempt(&self, process: u32, operations: &[Operation]) -> Result<Option<Operation>, Errno> {
        let mut after = self.all.borrow().clone();
        let mut undone = self.undone.borrow().clone();
        for operation in operations {
            let semaphore = after.get_mut(usize::from(operation.semaphore)).ok_or(Errno::EFBIG)?;
            let value = i32::from(semaphore.value) + i32::from(operation.change);
            if value < 0 || operation.change == 0 && semaphore.value != 0 {
                return Ok(Some(*operation));
            }
            if value > VALUE_MAX {
                return Err(Errno::ERANGE);
            }
            *semaphore = Semaphore { value: value as u16, process };
            if operation.flags & SEM_UNDO != 0 && operation.change != 0 {
                *undone.entry((process, operation.semaphore)).or_default() -= i32::from(operation.change);
            }
        }
        *self.all.borrow_mut() = after;
        *self.undone.borrow_mut() = undone;
        self.waiters.wake();
        Ok(None)
    }

    /// How many wait for a semaphore, for zero or for more.
    fn count(&self, semaphore: u16, zero: bool) -> u64 {
        self.waiting.borrow().iter().filter(|who| **who == (semaphore, zero)).count() as u64
    }

    /// `struct semid64_ds`.
    fn status(&self) -> [u64; 13] {
        let [operated, changed] = self.times.get();
        let mut words = [0; 13];
        words[..6].copy_from_slice(&self.permissions.get().words());
        (words[6], words[8], words[10]) = (operated, changed, self.all.borrow().len() as u64);
        words
    }

    /// Sets values from the outside: nothing of those is undone any more.
    fn set_values(&self, call: &Call<'_>, values: impl Iterator<Item = (u16, u16)>) {
        let (mut all, mut undone) = (self.all.borrow_mut(), self.undone.borrow_mut());
        for (index, value) in values {
            all[usize::from(index)] = Semaphore { value, process: call.process().id };
            undone.retain(|(_, of), _| *of != index);
        }
        self.times.set([self.times.get()[0], now(call)]);
        self.waiters.wake();
    }
}

fn get(call: &Call<'_>) -> Result<u64, Errno> {
    let (key, count, flags) = (call.int(0), call.int(1), call.arguments[2] as u32);
    let count = u64::try_from(count).ok().filter(|count| *count <= COUNT_MAX).ok_or(Errno::EINVAL)?;
    let fits = |set: &Semaphores| {
        if count > set.all.borrow().len() as u64 { Err(Errno::EINVAL) } else { Ok(()) }
    };
    call.family().semaphores.0.find_or_make(call, (key, flags), fits, |permissions| {
        if count == 0 {
            return Err(Errno::EINVAL);
        }
        call.family().semaphores.check_more(count)?;
        Ok(Semaphores::new(permissions, count, now(call)))
    })
}

fn operations(call: &Call<'_>) -> Result<Vec<Operation>, Errno> {
    let [_, address, count, ..] = call.arguments;
    let count = u64::from(count as u32);
    match count {
        0 => return Err(Errno::EINVAL),
        count if count > OPERATIONS_MAX => return Err(Errno::E2BIG),
        _ => {}
    }
    let mut words = vec![[0_u16; 3]; count as usize];
    call.memory().read(address, words.as_mut_bytes())?;
    let operation = |[semaphore, change, flags]: [u16; 3]| Operation {
        semaphore,
        change: change as i16,
        flags: flags.into(),
    };
    Ok(words.into_iter().map(operation).collect())
}

fn operate(call: &Call<'_>, timeout: u64) -> Result<u64, Errno> {
    let deadline_ns = deadline_after(call, timeout)?;
    let operations = operations(call)?;
    let set = call.family().semaphores.0.get(call.int(0))?;
    let changes = operations.iter().any(|operation| operation.change != 0);
    let count = set.all.borrow().len();
    if operations.iter().any(|operation| usize::from(operation.semaphore) >= count) {
        return Err(Errno::EFBIG);
    }
    set.permissions.get().check(call, if changes { ALTER } else { READ })?;
    let process = call.process().id;
    let attempt = || if set.is_removed.get() { Err(Errno::EIDRM) } else { set.attempt(process, &operations) };
    if let Some(held) = attempt()? {
        if held.flags & IPC_NOWAIT != 0 {
            return Err(Errno::EAGAIN);
        }
        // Where it waits may change meanwhile; told is where it began to.
        let who = (held.semaphore, held.change == 0);
        set.waiting.borrow_mut().push(who);
        let again = || attempt()?.map_or(Ok(()), |_| Err(Errno::EAGAIN));
        let waiting = until_ready(again, |waker| set.waiters.add(waker));
        let waited = call.block_until(deadline_ns, waiting);
        let mut all = set.waiting.borrow_mut();
        let place = all.iter().position(|other| *other == who);
        place.map(|place| all.swap_remove(place));
        waited?.unwrap_or(Err(Errno::EAGAIN))?;
    }
    set.times.set([now(call), set.times.get()[1]]);
    Ok(0)
}

fn control(call: &Call<'_>) -> Result<u64, Errno> {
    const GETPID: u32 = 11;
    const GETVAL: u32 = 12;
    const GETALL: u32 = 13;
    const GETNCNT: u32 = 14;
    const GETZCNT: u32 = 15;
    const SETVAL: u32 = 16;
    const SETALL: u32 = 17;
    let (id, command, argument) = (call.int(0), call.arguments[2] as u32, call.arguments[3]);
    let sets = &call.family().semaphores.0;
    let set = sets.get(id)?;
    let permissions = set.permissions.get();
    let count = set.all.borrow().len();
    let index = || {
        let index = u16::try_from(call.int(1)).map_err(|_| Errno::EINVAL)?;
        if usize::from(index) < count { Ok(index) } else { Err(Errno::EINVAL) }
    };
    let one = || index().map(|index| (set.all.borrow()[usize::from(index)], index));
    if [GETPID, GETVAL, GETALL, GETNCNT, GETZCNT, IPC_STAT].contains(&command) {
        permissions.check(call, READ)?;
    }
    if [SETVAL, SETALL].contains(&command) {
        permissions.check(call, ALTER)?;
    }
    match command {
        IPC_STAT => call.memory().write_value(argument, &set.status()).map(|()| 0),
        IPC_SET => {
            permissions.check_owner(call)?;
            let mut changed = permissions;
            changed.set(call, argument)?;
            set.permissions.set(changed);
            set.times.set([set.times.get()[0], now(call)]);
            Ok(0)
        }
        IPC_RMID => {
            sets.remove(call, id)?.is_removed.set(true);
            set.waiters.wake();
            Ok(0)
        }
        GETPID => one().map(|(semaphore, _)| semaphore.process.into()),
        GETVAL => one().map(|(semaphore, _)| semaphore.value.into()),
        GETNCNT => one().map(|(_, index)| set.count(index, false)),
        GETZCNT => one().map(|(_, index)| set.count(index, true)),
        GETALL => {
            let values: Vec<u16> = set.all.borrow().iter().map(|semaphore| semaphore.value).collect();
            call.memory().write(argument, values.as_bytes()).map(|()| 0)
        }
        SETVAL => {
            let (_, index) = one()?;
            let value = u16::try_from(argument as i32).ok().filter(|value| i32::from(*value) <= VALUE_MAX);
            set.set_values(call, core::iter::once((index, value.ok_or(Errno::ERANGE)?)));
            Ok(0)
        }
        SETALL => {
            let mut values = vec![0_u16; count];
            call.memory().read(argument, values.as_mut_bytes())?;
            if values.iter().any(|value| i32::from(*value) > VALUE_MAX) {
                return Err(Errno::ERANGE);
            }
            set.set_values(call, (0..).zip(values));
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_semaphores_in_all_sets_than_may_be() {
        let sets = SemaphoreSets::default();
        let make = |count| {
            sets.check_more(count)?;
            sets.0.add(|| Ok(Semaphores::new(Permissions::default(), count, 0)))
        };
        for id in 0..(ALL_MAX / COUNT_MAX) as i32 {
            assert_eq!(make(COUNT_MAX), Ok(id));
        }
        assert_eq!(make(1), Err(Errno::ENOSPC));
    }
}
