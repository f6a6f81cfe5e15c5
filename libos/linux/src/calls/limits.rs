//! Limits of a process: getrlimit(2). Those of descriptors and of what is mapped are held,
//! the others are remembered.

use crate::call::Call;
use crate::process::Process;
use crate::table::SystemCall;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        abi::__NR_prlimit64,
        "prlimit64",
        &["process", "resource", "new", "old"],
        exchange,
        "the number of descriptors (RLIMIT_NOFILE) and what is mapped (RLIMIT_AS) are held, the others are \
         remembered",
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
pub(crate) struct Limits([Limit; abi::RLIM_NLIMITS as usize]);

impl Default for Limits {
    fn default() -> Limits {
        let mut limits = [[INFINITY; 2]; abi::RLIM_NLIMITS as usize];
        limits[abi::RLIMIT_STACK as usize] = [8 << 20, INFINITY];
        limits[abi::RLIMIT_NOFILE as usize] = DESCRIPTORS;
        limits[abi::RLIMIT_NPROC as usize] = [1 << 12, 1 << 12];
        limits[abi::RLIMIT_CORE as usize] = [0, INFINITY];
        limits[abi::RLIMIT_NICE as usize] = [0, 0];
        limits[abi::RLIMIT_RTPRIO as usize] = [0, 0];
        Limits(limits)
    }
}

impl Limits {
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

fn change(process: &Process, resource: u64, new: Limit, user: u32) -> Result<(), Errno> {
    let mut limits = process.limits.borrow_mut();
    limits.set(resource, new, user)?;
    process.descriptors.borrow().set_limit(limits.descriptors());
    Ok(())
}

fn exchange(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, resource, new, old, ..] = call.arguments;
    let process = subject(call, call.int(0))?;
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
