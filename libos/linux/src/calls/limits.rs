//! Limits of a process: getrlimit(2). Those of descriptors, of what is mapped, of processor time, and of
//! queues of messages are held, the others are remembered.

use super::identities::Identities;
use crate::call::Call;
use crate::process::Process;
use crate::processor_time::ProcessorClock;
use crate::signals::{Info, Signal};
use crate::table::SystemCall;
use alloc::rc::{Rc, Weak};
use linux_raw_sys::general as abi;
use nom_fs::Errno;
use nom_fs::proc::LIMITS;
use nom_rt::Handle;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        abi::__NR_prlimit64,
        "prlimit64",
        &["process", "resource", "new", "old"],
        exchange,
        "the number of descriptors (RLIMIT_NOFILE), what is mapped (RLIMIT_AS), processor time (RLIMIT_CPU) \
         and queues of messages (RLIMIT_MSGQUEUE) are held, the others are remembered",
    ),
    SystemCall::partial(abi::__NR_getrlimit, "getrlimit", &["resource", "limit"], get, "as prlimit64"),
    SystemCall::partial(abi::__NR_setrlimit, "setrlimit", &["resource", "limit"], set, "as prlimit64"),
];

/// A limit: what holds now, and what a process may set that to.
type Limit = [u64; 2];

/// No limit.
const INFINITY: u64 = u64::MAX;
/// How many descriptors a process may have, at first; and the most that it may ever be allowed, as
/// `/proc/sys/fs/nr_open` has it on Linux.
const DESCRIPTORS: Limit = [1 << 16, 1 << 16];
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// All limits of a process.
#[derive(Clone, Debug)]
pub(crate) struct Limits([Limit; LIMITS]);

impl Default for Limits {
    fn default() -> Limits {
        let mut limits = [[INFINITY; 2]; LIMITS];
        limits[abi::RLIMIT_STACK as usize] = [8 << 20, INFINITY];
        limits[abi::RLIMIT_NOFILE as usize] = DESCRIPTORS;
        limits[abi::RLIMIT_NPROC as usize] = [1 << 12, 1 << 12];
        limits[abi::RLIMIT_CORE as usize] = [0, INFINITY];
        limits[abi::RLIMIT_MEMLOCK as usize] = [8 << 20; 2];
        limits[abi::RLIMIT_MSGQUEUE as usize] = [819_200, 819_200];
        limits[abi::RLIMIT_NICE as usize] = [0, 0];
        limits[abi::RLIMIT_RTPRIO as usize] = [0, 0];
        Limits(limits)
    }
}

impl Limits {
    /// All of them, in the order of `RLIMIT_*`.
    pub fn all(&self) -> [Limit; LIMITS] {
        self.0
    }

    /// Errors: EINVAL unless there is such a resource.
    fn of(&self, resource: u64) -> Result<Limit, Errno> {
        let index = resource as u32 as usize;
        self.0.get(index).copied().ok_or(Errno::EINVAL)
    }

    /// Sets a limit as a process of `user`. Errors: EINVAL, and EPERM if that user may not.
    fn set(&mut self, resource: u64, new: Limit, user: u32) -> Result<(), Errno> {
        let old = self.of(resource)?;
        let index = resource as u32;
        if new[0] > new[1] {
            return Err(Errno::EINVAL);
        }
        let is_beyond = index == abi::RLIMIT_NOFILE && new[1] > DESCRIPTORS_MAX;
        if is_beyond || user != 0 && new[1] > old[1] {
            return Err(Errno::EPERM);
        }
        self.0[index as usize] = new;
        Ok(())
    }

    /// Bytes of memory that may be mapped now (`RLIMIT_AS`).
    pub fn address_space(&self) -> u64 {
        self.0[abi::RLIMIT_AS as usize][0]
    }

    /// Bytes that a user's queues of messages may take (`RLIMIT_MSGQUEUE`).
    pub fn queues(&self) -> u64 {
        self.0[abi::RLIMIT_MSGQUEUE as usize][0]
    }

    /// Seconds of processor time after which a process is sent signals, and after which it ends
    /// (`RLIMIT_CPU`).
    fn processor_time(&self) -> Limit {
        self.0[abi::RLIMIT_CPU as usize]
    }

    /// How many descriptors there may be now.
    pub fn descriptors(&self) -> u64 {
        self.0[abi::RLIMIT_NOFILE as usize][0]
    }
}

/// The process with this identifier, or who asks.
fn subject(call: &Call<'_>, id: i32) -> Result<Rc<Process>, Errno> {
    match u32::try_from(id) {
        Ok(0) => Ok(call.process().clone()),
        Ok(id) => call.family().process(id).ok_or(Errno::ESRCH),
        Err(_) => Err(Errno::ESRCH),
    }
}

/// Whether who asks may see and set the limits of a process (getrlimit(2), prlimit): its own, those of
/// whoever is in every respect of its real user and group, any as root.
fn may_limit(call: &Call<'_>, process: &Rc<Process>) -> bool {
    let own = call.process();
    let (by, to) = (own.view.borrow(), process.view.borrow());
    let is_same = |by: Identities, to: Identities| Identities::all(by.real) == to;
    Rc::ptr_eq(own, process)
        || by.credentials.user == 0
        || is_same(by.users(), to.users()) && is_same(by.groups(), to.groups())
}

fn change(process: &Rc<Process>, resource: u64, new: Limit, user: u32) -> Result<(), Errno> {
    let mut limits = process.limits.borrow_mut();
    limits.set(resource, new, user)?;
    process.descriptors.borrow().set_limit(limits.descriptors());
    drop(limits);
    if resource as u32 == abi::RLIMIT_CPU {
        watch_processor_time(process);
    }
    Ok(())
}

/// Has a process be sent `SIGXCPU` each second from its limit of processor time on, and `SIGKILL` at the
/// other one. What was watched for by another limit is not any more.
pub(crate) fn watch_processor_time(process: &Rc<Process>) {
    let setting = process.time_limits_set.get() + 1;
    process.time_limits_set.set(setting);
    let [soft, hard] = process.limits.borrow().processor_time();
    if soft != INFINITY {
        let handle = process.family.handle.clone();
        let watched = Rc::downgrade(process);
        drop(handle.clone().spawn(count_down(handle, watched, setting, [soft, hard])));
    }
}

async fn count_down(handle: Handle, process: Weak<Process>, setting: u64, [soft, hard]: Limit) {
    const NS_IN_S: u64 = 1_000_000_000;
    let mut next = soft.min(hard);
    loop {
        let at_ns = next.saturating_mul(NS_IN_S);
        if ProcessorClock::Process.reach(&handle, &process, at_ns).await.is_none() {
            return;
        }
        let there = process.upgrade().filter(|process| process.time_limits_set.get() == setting);
        let Some(process) = there else { return };
        if next >= hard {
            return process.send(&process.family, Info::by_kernel(Signal::KILL));
        }
        process.send(&process.family, Info::by_kernel(Signal::XCPU));
        next = next.saturating_add(1).min(hard);
    }
}

fn exchange(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, resource, new, old, ..] = call.arguments;
    let process = subject(call, call.int(0))?;
    if !may_limit(call, &process) {
        return Err(Errno::EPERM);
    }
    let before = process.limits.borrow().of(resource)?;
    if new != 0 {
        let new: Limit = call.memory().read_value(new)?;
        change(&process, resource, new, call.process().user())?;
    }
    if old != 0 {
        call.memory().write_value(old, &before)?;
    }
    Ok(0)
}

fn get(call: &Call<'_>) -> Result<u64, Errno> {
    let limit = call.process().limits.borrow().of(call.arguments[0])?;
    call.memory().write_value(call.arguments[1], &limit).map(|()| 0)
}

fn set(call: &Call<'_>) -> Result<u64, Errno> {
    let new: Limit = call.memory().read_value(call.arguments[1])?;
    change(call.process(), call.arguments[0], new, call.process().user()).map(|()| 0)
}
