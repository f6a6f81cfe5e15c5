//! What a process asks of its own treatment: prctl(2).

use crate::call::Call;
use crate::process::Process;
use crate::signals::{Info, Signal};
use crate::table::SystemCall;
use core::cell::Cell;
use linux_raw_sys::general as abi;
use linux_raw_sys::prctl as option;
use nom_fs::Errno;

/// This call.
pub const ROWS: &[SystemCall] = &[SystemCall::partial(
    abi::__NR_prctl,
    "prctl",
    &["option", "first", "second", "third", "fourth"],
    prctl,
    "names, signals at a parent's end, subreapers; what there is nothing to do about is kept and told; else \
     EINVAL",
)];

/// By how much Linux lets a timer be late, in nanoseconds.
const TIMER_SLACK_NS: u64 = 50_000;
/// The last capability of Linux 6.1 (capabilities(7)).
const CAPABILITY_MAX: u64 = 40;
/// `PR_SET_DUMPABLE`: no, and yes.
const DUMPABLE: [u64; 2] = [0, 1];

/// What a process has asked for. Some of it is told again and nothing else: there is no core dump, no
/// memory that fails.
#[derive(Clone, Debug)]
pub(crate) struct Controls {
    /// What is sent to it when its parent ends.
    death_signal: Cell<Option<Signal>>,
    /// Whether descendants that are left are its children.
    is_subreaper: Cell<bool>,
    dumpable: Cell<u64>,
    keeps_capabilities: Cell<bool>,
    no_new_privileges: Cell<bool>,
    timer_slack_ns: Cell<u64>,
    memory_failure: Cell<u64>,
    /// Which barriers it said that it would want (membarrier(2)).
    pub barriers: Cell<u64>,
}

impl Default for Controls {
    fn default() -> Controls {
        Controls {
            death_signal: Cell::new(None),
            is_subreaper: Cell::new(false),
            dumpable: Cell::new(DUMPABLE[1]),
            keeps_capabilities: Cell::new(false),
            no_new_privileges: Cell::new(false),
            timer_slack_ns: Cell::new(TIMER_SLACK_NS),
            memory_failure: Cell::new(option::PR_MCE_KILL_DEFAULT.into()),
            barriers: Cell::new(0),
        }
    }
}

impl Controls {
    /// A child's.
    pub fn of_child(&self) -> Controls {
        Controls { death_signal: Cell::new(None), is_subreaper: Cell::new(false), ..self.clone() }
    }

    /// It has another program from now on.
    pub fn begin_program(&self) {
        self.dumpable.set(DUMPABLE[1]);
        self.keeps_capabilities.set(false);
        self.barriers.set(0);
    }

    /// Whether descendants that are left are its children.
    pub fn is_subreaper(&self) -> bool {
        self.is_subreaper.get()
    }

    /// Whether no program gives it rights that it has not.
    pub fn gains_nothing(&self) -> bool {
        self.no_new_privileges.get()
    }

    /// What is sent to it when its parent ends.
    pub fn death_signal(&self, parent: &Process) -> Option<Info> {
        let signal = self.death_signal.get()?;
        Some(Info::sent(signal, abi::SI_USER as i32, parent.id, parent.user()))
    }
}

fn prctl(call: &Call<'_>) -> Result<u64, Errno> {
    let [asked, first, second, third, fourth, _] = call.arguments;
    let none = |rest: &[u64]| if rest.iter().all(|word| *word == 0) { Ok(()) } else { Err(Errno::EINVAL) };
    let process = call.process();
    let controls = &process.controls;
    let told = |value: u32| call.memory().write_value(first, &value).map(|()| 0);
    match asked as u32 {
        option::PR_SET_NAME => set_name(call, first),
        option::PR_GET_NAME => name(call, first),
        option::PR_SET_PDEATHSIG => {
            let signal = if first == 0 { None } else { Some(Signal::new(first)?) };
            controls.death_signal.set(signal);
            Ok(0)
        }
        option::PR_GET_PDEATHSIG => told(controls.death_signal.get().map_or(0, |signal| signal.number())),
        option::PR_SET_CHILD_SUBREAPER => Ok(set(&controls.is_subreaper, first != 0)),
        option::PR_GET_CHILD_SUBREAPER => told(controls.is_subreaper.get().into()),
        option::PR_SET_DUMPABLE if DUMPABLE.contains(&first) => Ok(set(&controls.dumpable, first)),
        option::PR_GET_DUMPABLE => Ok(controls.dumpable.get()),
        option::PR_SET_KEEPCAPS if first <= 1 => Ok(set(&controls.keeps_capabilities, first == 1)),
        option::PR_GET_KEEPCAPS => Ok(controls.keeps_capabilities.get().into()),
        // Once said, for ever.
        option::PR_SET_NO_NEW_PRIVS if first == 1 => {
            none(&[second, third, fourth]).map(|()| set(&controls.no_new_privileges, true))
        }
        option::PR_GET_NO_NEW_PRIVS => {
            none(&[first, second, third, fourth]).map(|()| controls.no_new_privileges.get().into())
        }
        option::PR_SET_TIMERSLACK => {
            let slack_ns = if (first as i64) <= 0 { TIMER_SLACK_NS } else { first };
            Ok(set(&controls.timer_slack_ns, slack_ns))
        }
        option::PR_GET_TIMERSLACK => Ok(controls.timer_slack_ns.get()),
        option::PR_SET_THP_DISABLE => {
            none(&[second, third, fourth])?;
            match first {
                0 => call.memory().allow_large(),
                _ => call.memory().refuse_large(),
            }
            Ok(0)
        }
        option::PR_GET_THP_DISABLE => {
            none(&[first, second, third, fourth]).map(|()| (!call.memory().takes_large()).into())
        }
        option::PR_MCE_KILL => {
            none(&[third, fourth])?;
            let policy = memory_failure(first as u32, second).ok_or(Errno::EINVAL)?;
            Ok(set(&controls.memory_failure, policy))
        }
        option::PR_MCE_KILL_GET => {
            none(&[first, second, third, fourth]).map(|()| controls.memory_failure.get())
        }
        // Nobody counts events.
        option::PR_TASK_PERF_EVENTS_DISABLE | option::PR_TASK_PERF_EVENTS_ENABLE => Ok(0),
        option::PR_CAPBSET_READ if first <= CAPABILITY_MAX => Ok(1),
        option::PR_GET_SECCOMP | option::PR_GET_SECUREBITS | option::PR_GET_TIMING => Ok(0),
        option::PR_GET_TSC => told(option::PR_TSC_ENABLE),
        _ => Err(Errno::EINVAL),
    }
}

fn set<T>(control: &Cell<T>, value: T) -> u64 {
    control.set(value);
    0
}

/// What `PR_MCE_KILL` means, if anything.
fn memory_failure(asked: u32, policy: u64) -> Option<u64> {
    match asked {
        option::PR_MCE_KILL_CLEAR => (policy == 0).then_some(option::PR_MCE_KILL_DEFAULT.into()),
        option::PR_MCE_KILL_SET => {
            Some(policy).filter(|policy| *policy <= option::PR_MCE_KILL_DEFAULT.into())
        }
        _ => None,
    }
}

/// Gives the calling thread a name: so much of it as there is room for.
fn set_name(call: &Call<'_>, address: u64) -> Result<u64, Errno> {
    let mut name = [0; 16];
    let given = call.memory().read_string(address, 15).or_else(|errno| match errno {
        Errno::ENAMETOOLONG => {
            let mut bytes = alloc::vec![0; 15];
            call.memory().read(address, &mut bytes).map(|()| bytes)
        }
        other => Err(other),
    })?;
    name[..given.len()].copy_from_slice(&given);
    call.task().name.set(name);
    Ok(0)
}

fn name(call: &Call<'_>, address: u64) -> Result<u64, Errno> {
    let mut name = call.task().name.get();
    if name[0] == 0 {
        let program = call.process().name();
        name[..program.len()].copy_from_slice(&program);
    }
    call.memory().write(address, &name).map(|()| 0)
}
