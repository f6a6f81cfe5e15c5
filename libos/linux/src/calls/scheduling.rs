//! Scheduling: sched(7). What a thread asks for is remembered and told; all get the same of the cores, but
//! that each computes on those alone that it names.

use crate::call::Call;
use crate::calls::time::TimeSpec;
use crate::runners::Affinity;
use crate::table::SystemCall;
use crate::task::Task;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

const ALIKE: &str = "remembered; all get the same of the core";

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_sched_getscheduler, "sched_getscheduler", &["thread"], |call| {
        Ok(subject(call)?.scheduling.get().told().into())
    }),
    SystemCall::complete(abi::__NR_sched_getparam, "sched_getparam", &["thread", "parameter"], get_priority),
    SystemCall::partial(
        abi::__NR_sched_setscheduler,
        "sched_setscheduler",
        &["thread", "policy", "parameter"],
        set_policy,
        ALIKE,
    ),
    SystemCall::partial(
        abi::__NR_sched_setparam,
        "sched_setparam",
        &["thread", "parameter"],
        set_priority,
        ALIKE,
    ),
    SystemCall::complete(
        abi::__NR_sched_rr_get_interval,
        "sched_rr_get_interval",
        &["thread", "interval"],
        interval,
    ),
    SystemCall::partial(
        abi::__NR_sched_setattr,
        "sched_setattr",
        &["thread", "attributes", "flags"],
        set_attributes,
        "as sched_setscheduler; no deadlines (EINVAL)",
    ),
    SystemCall::complete(
        abi::__NR_sched_getattr,
        "sched_getattr",
        &["thread", "attributes", "length", "flags"],
        attributes,
    ),
    SystemCall::complete(abi::__NR_sched_get_priority_max, "sched_get_priority_max", &["policy"], |call| {
        priorities(call.int(0)).map(|priorities| priorities.1.into())
    }),
    SystemCall::complete(abi::__NR_sched_get_priority_min, "sched_get_priority_min", &["policy"], |call| {
        priorities(call.int(0)).map(|priorities| priorities.0.into())
    }),
    SystemCall::partial(
        abi::__NR_sched_getaffinity,
        "sched_getaffinity",
        &["thread", "length", "mask"],
        get_affinity,
        "64 processors at most",
    ),
    SystemCall::partial(
        abi::__NR_sched_setaffinity,
        "sched_setaffinity",
        &["thread", "length", "mask"],
        set_affinity,
        "processors on which it computes: calls are made on the first",
    ),
];

/// What a thread asked of the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// `SCHED_*`.
    policy: u32,
    /// 1 to 99 of those of real time, else 0.
    priority: u32,
    /// Whether its children begin as all do (`SCHED_RESET_ON_FORK`).
    stays_own: bool,
}

impl Scheduling {
    /// What sched_getscheduler(2) tells.
    fn told(self) -> u32 {
        self.policy | if self.stays_own { abi::SCHED_RESET_ON_FORK } else { 0 }
    }

    /// A child's or a new thread's.
    pub fn of_child(self) -> Scheduling {
        if self.stays_own { Scheduling::default() } else { self }
    }
}

/// The least and the highest priority of a policy (sched(7)).
fn priorities(policy: i32) -> Result<(u32, u32), Errno> {
    match policy as u32 {
        abi::SCHED_FIFO | abi::SCHED_RR => Ok((1, 99)),
        abi::SCHED_NORMAL | abi::SCHED_BATCH | abi::SCHED_IDLE | abi::SCHED_DEADLINE => Ok((0, 0)),
        _ => Err(Errno::EINVAL),
    }
}

/// The thread that the first argument names. Errors: EINVAL if that is negative, ESRCH.
fn subject(call: &Call<'_>) -> Result<Rc<Task>, Errno> {
    match u32::try_from(call.int(0)) {
        Err(_) => Err(Errno::EINVAL),
        Ok(0) => Ok(call.task().clone()),
        Ok(id) => call.family().task(id).ok_or(Errno::ESRCH),
    }
}

/// Sets what a thread asks for. Errors: EINVAL; EPERM for who is not root, of others' threads, and of
/// priorities that are not there for users.
fn set(call: &Call<'_>, policy: i32, priority: i32) -> Result<u64, Errno> {
    let stays_own = policy as u32 & abi::SCHED_RESET_ON_FORK != 0;
    let policy = policy & !(abi::SCHED_RESET_ON_FORK as i32);
    let (least, most) = priorities(policy)?;
    let priority = u32::try_from(priority).map_err(|_| Errno::EINVAL)?;
    if policy as u32 == abi::SCHED_DEADLINE || !(least..=most).contains(&priority) {
        return Err(Errno::EINVAL);
    }
    let (task, user) = (subject(call)?, call.process().user());
    let before = task.scheduling.get();
    let asks_more = priority > before.priority || before.stays_own && !stays_own;
    if user != 0 && (user != task.process.user() || asks_more) {
        return Err(Errno::EPERM);
    }
    task.scheduling.set(Scheduling { policy: policy as u32, priority, stays_own });
    Ok(0)
}

/// The priority at an address. Errors: EINVAL if that is 0.
fn priority_at(call: &Call<'_>, address: u64) -> Result<i32, Errno> {
    if address == 0 { Err(Errno::EINVAL) } else { call.memory().read_value(address) }
}

fn set_policy(call: &Call<'_>) -> Result<u64, Errno> {
    if call.int(0) < 0 || call.int(1) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = priority_at(call, call.arguments[2])?;
    set(call, call.int(1), priority)
}

fn set_priority(call: &Call<'_>) -> Result<u64, Errno> {
    let policy = subject(call).map(|task| task.scheduling.get().told());
    let priority = priority_at(call, call.arguments[1])?;
    set(call, policy? as i32, priority)
}

fn get_priority(call: &Call<'_>) -> Result<u64, Errno> {
    if call.arguments[1] == 0 {
        return Err(Errno::EINVAL);
    }
    let priority = subject(call)?.scheduling.get().priority;
    call.memory().write_value(call.arguments[1], &priority).map(|()| 0)
}

fn interval(call: &Call<'_>) -> Result<u64, Errno> {
    const NS_IN_MS: u64 = 1_000_000;
    // Linux's for SCHED_RR, and what its other threads get at least.
    let ms = match subject(call)?.scheduling.get().policy {
        abi::SCHED_FIFO => 0,
        abi::SCHED_RR => 100,
        _ => 4,
    };
    call.memory().write_value(call.arguments[1], &TimeSpec::of_ns(ms * NS_IN_MS)).map(|()| 0)
}

/// Words of 32 bits of the first `struct sched_attr`: size, policy, flags, niceness, priority, and three
/// times of deadlines.
const ATTRIBUTE_WORDS: usize = 12;
const ATTRIBUTE_BYTES: u64 = 4 * ATTRIBUTE_WORDS as u64;

fn set_attributes(call: &Call<'_>) -> Result<u64, Errno> {
    const RESET_ON_FORK: u32 = 1;
    let [_, address, flags, ..] = call.arguments;
    if address == 0 || call.int(0) < 0 || flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let size: u32 = call.memory().read_value(address)?;
    if size != 0 && u64::from(size) < ATTRIBUTE_BYTES {
        call.memory().write_value(address, &(ATTRIBUTE_BYTES as u32))?;
        return Err(Errno::E2BIG);
    }
    let words: [u32; ATTRIBUTE_WORDS] = call.memory().read_value(address)?;
    let [_, policy, flags, _, niceness, priority, ..] = words;
    if flags & !RESET_ON_FORK != 0 || (policy as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let reset = if flags == 0 { 0 } else { abi::SCHED_RESET_ON_FORK };
    set(call, (policy | reset) as i32, priority as i32)?;
    if policy == abi::SCHED_NORMAL || policy == abi::SCHED_BATCH {
        subject(call)?.process.niceness.set((niceness as i32).clamp(-20, 19));
    }
    Ok(0)
}

fn attributes(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, address, length, flags, ..] = call.arguments;
    let length = u64::from(length as u32);
    if address == 0 || flags as u32 != 0 || !(ATTRIBUTE_BYTES..=4096).contains(&length) {
        return Err(Errno::EINVAL);
    }
    let task = subject(call)?;
    let Scheduling { policy, priority, stays_own } = task.scheduling.get();
    let niceness = if priority == 0 { task.process.niceness.get() } else { 0 };
    let mut words = [0_u32; ATTRIBUTE_WORDS];
    words[..6].copy_from_slice(&[
        ATTRIBUTE_BYTES as u32,
        policy,
        stays_own.into(),
        0,
        niceness as u32,
        priority,
    ]);
    call.memory().write_value(address, &words).map(|()| 0)
}

fn get_affinity(call: &Call<'_>) -> Result<u64, Errno> {
    const BYTES: u64 = 8;
    let [_, length, mask, ..] = call.arguments;
    if length < BYTES || !length.is_multiple_of(BYTES) {
        return Err(Errno::EINVAL);
    }
    let task = subject(call).map_err(|_| Errno::ESRCH)?;
    call.memory().write_value(mask, &task.affinity.get().0).map(|()| BYTES)
}

fn set_affinity(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, length, mask, ..] = call.arguments;
    let mut bytes = [0; 8];
    let count = length.min(8) as usize;
    call.memory().read(mask, &mut bytes[..count])?;
    let wanted = Affinity(u64::from_le_bytes(bytes) & Affinity::all().0);
    let task = subject(call).map_err(|_| Errno::ESRCH)?;
    let user = call.process().user();
    if user != 0 && user != task.process.user() {
        return Err(Errno::EPERM);
    }
    if wanted.0 == 0 {
        return Err(Errno::EINVAL);
    }
    task.affinity.set(wanted);
    Ok(0)
}
