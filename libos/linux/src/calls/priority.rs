//! How nice processes are: getpriority(2). It is remembered; all get the same of the core.

use crate::call::Call;
use crate::process::Process;
use crate::table::SystemCall;
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        abi::__NR_getpriority,
        "getpriority",
        &["which", "who"],
        get,
        "of processes, not of threads; what was set is told",
    ),
    SystemCall::partial(
        abi::__NR_setpriority,
        "setpriority",
        &["which", "who", "priority"],
        set,
        "remembered; all get the same of the core",
    ),
];

/// What is told of somebody who is not nice at all: the call's result may not be negative.
const NEUTRAL: i32 = 20;

/// The processes that are meant. Errors: EINVAL; ESRCH if there is none.
fn subjects(call: &Call<'_>) -> Result<Vec<Rc<Process>>, Errno> {
    const PROCESS: u64 = 0;
    const GROUP: u64 = 1;
    const USER: u64 = 2;
    let (which, who) = (call.arguments[0], call.arguments[1] as u32);
    let own = call.process();
    let thread = |process: &Process| process.tasks().iter().any(|task| task.id == who);
    let is_meant = |process: &Process| match which {
        PROCESS if who == 0 => process.id == own.id,
        PROCESS => process.id == who || thread(process),
        GROUP => process.group.get() == if who == 0 { own.group.get() } else { who },
        _ => process.user() == if who == 0 { own.user() } else { who },
    };
    if which > USER {
        return Err(Errno::EINVAL);
    }
    let mut all = call.family().processes();
    all.retain(|process| is_meant(process));
    if all.is_empty() { Err(Errno::ESRCH) } else { Ok(all) }
}

fn get(call: &Call<'_>) -> Result<u64, Errno> {
    let least = subjects(call)?.iter().map(|process| process.niceness.get()).min();
    Ok((NEUTRAL - least.expect("there is one")) as u64)
}

fn set(call: &Call<'_>) -> Result<u64, Errno> {
    let wanted = call.int(2).clamp(-20, 19);
    let user = call.process().user();
    for process in subjects(call)? {
        if user != 0 && user != process.user() {
            return Err(Errno::EPERM);
        }
        if user != 0 && wanted < process.niceness.get() {
            return Err(Errno::EACCES);
        }
        process.niceness.set(wanted);
    }
    Ok(0)
}
