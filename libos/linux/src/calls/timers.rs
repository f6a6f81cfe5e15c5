//! Timers that send signals: setitimer(2), alarm(2), timer_create(2).

use super::time::{TimeSpec, clock};
use crate::call::Call;
use crate::process::Process;
use crate::signals::{Info, Signal};
use crate::table::SystemCall;
use alloc::rc::{Rc, Weak};
use core::cell::Cell;
use linux_raw_sys::general as abi;
use nom_fs::Errno;
use nom_rt::Handle;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_alarm, "alarm", &["seconds"], alarm),
    SystemCall::partial(
        abi::__NR_setitimer,
        "setitimer",
        &["timer", "new", "old"],
        set_interval_timer,
        "ITIMER_REAL alone",
    ),
    SystemCall::partial(
        abi::__NR_getitimer,
        "getitimer",
        &["timer", "now"],
        get_interval_timer,
        "as setitimer",
    ),
    SystemCall::partial(
        abi::__NR_timer_create,
        "timer_create",
        &["clock", "event", "timer"],
        create,
        "on clocks of processor time EOPNOTSUPP",
    ),
    SystemCall::complete(
        abi::__NR_timer_settime,
        "timer_settime",
        &["timer", "flags", "new", "old"],
        set_time,
    ),
    SystemCall::complete(abi::__NR_timer_gettime, "timer_gettime", &["timer", "now"], get_time),
    SystemCall::complete(abi::__NR_timer_getoverrun, "timer_getoverrun", &["timer"], |call| {
        let timer = find(call)?;
        let [before, newest] = timer.overruns.get();
        Ok(if timer.waits(call.process()) { before } else { newest }.into())
    }),
    SystemCall::complete(abi::__NR_timer_delete, "timer_delete", &["timer"], |call| {
        let timer = call.process().timers.borrow_mut().remove(&call.int(0)).ok_or(Errno::EINVAL)?;
        timer.stop();
        Ok(0)
    }),
];

const NS_IN_S: u64 = 1_000_000_000;
const US_IN_S: u64 = 1_000_000;
/// Most timers of a process.
const TIMERS_MAX: usize = 1024;

/// A timer that sends its process a signal, once or again and again.
#[derive(Debug, Default)]
pub(crate) struct SignalTimer {
    /// Which clock its times are of.
    clock: i32,
    /// What is sent, and to which thread if not to any; nothing if nobody is told.
    info: Option<(Info, Option<u32>)>,
    /// When it rings next, on the board's clock, and how far apart from then on; 0 if once.
    next_ns: Cell<Option<u64>>,
    every_ns: Cell<u64>,
    /// Which setting is in force: those before are over.
    setting: Cell<u64>,
    /// How often it rang in vain, since what was sent waited still: of the signal before the newest, and of
    /// that.
    overruns: Cell<[u32; 2]>,
}

impl SignalTimer {
    /// The one of every process that setitimer(2) and alarm(2) set.
    pub fn of_process() -> Rc<SignalTimer> {
        let info = Some((Info::sent(Signal::ALRM, abi::SI_KERNEL as i32, 0, 0), None));
        Rc::new(SignalTimer { clock: abi::CLOCK_MONOTONIC as i32, info, ..SignalTimer::default() })
    }

    /// It does not ring any more.
    pub fn stop(&self) {
        self.setting.set(self.setting.get() + 1);
        self.next_ns.set(None);
    }

    /// How long until it rings, at `now_ns`, and how far apart from then on: zeros if it does not.
    fn left(&self, now_ns: u64) -> (u64, u64) {
        // One that is due and has not been told of yet has a little left: zero says that it does not ring.
        let left = self.next_ns.get().map(|next_ns| next_ns.saturating_sub(now_ns).max(1));
        left.map_or((0, self.every_ns.get()), |left| (left, self.every_ns.get()))
    }

    /// Rings at `first_ns`, unless there is none, and then every `every_ns`; an earlier setting is over.
    fn set(self: &Rc<Self>, process: &Rc<Process>, first_ns: Option<u64>, every_ns: u64) {
        self.stop();
        self.next_ns.set(first_ns);
        self.every_ns.set(every_ns);
        self.overruns.set([0; 2]);
        if first_ns.is_some() {
            let handle = process.family.handle.clone();
            let (timer, process, setting) = (self.clone(), Rc::downgrade(process), self.setting.get());
            drop(handle.clone().spawn(timer.ring(handle, process, setting)));
        }
    }

    async fn ring(self: Rc<Self>, handle: Handle, process: Weak<Process>, setting: u64) {
        while let Some(next_ns) = self.next_ns.get() {
            handle.sleep(next_ns.saturating_sub(nom_sys::time::now_ns())).await;
            let Some(process) = process.upgrade().filter(|process| !process.has_ended()) else { return };
            if self.setting.get() != setting {
                return;
            }
            let (every_ns, now_ns) = (self.every_ns.get(), nom_sys::time::now_ns());
            let missed = now_ns.saturating_sub(next_ns).checked_div(every_ns).unwrap_or(0);
            self.next_ns
                .set((every_ns != 0).then(|| next_ns.saturating_add((missed + 1).saturating_mul(every_ns))));
            self.send(&process, u32::try_from(missed).unwrap_or(u32::MAX));
        }
    }

    /// Whether what it sent was not taken yet.
    fn waits(&self, process: &Process) -> bool {
        let Some((info, thread)) = self.info else { return false };
        let is_there = |signal| match thread {
            None => process.pending_set().has(signal),
            Some(id) => {
                process.tasks().iter().any(|task| task.id == id && task.pending.borrow().set().has(signal))
            }
        };
        info.signal().is_some_and(is_there)
    }

    fn send(&self, process: &Rc<Process>, missed: u32) {
        let Some((info, thread)) = self.info else { return };
        let [before, newest] = self.overruns.get();
        if self.waits(process) {
            return self.overruns.set([before, newest.saturating_add(missed).saturating_add(1)]);
        }
        self.overruns.set([newest, missed]);
        match thread {
            None => process.send(&process.family, info),
            Some(id) => process.tasks().iter().filter(|task| task.id == id).for_each(|task| task.send(info)),
        }
    }
}

fn alarm(call: &Call<'_>) -> Result<u64, Errno> {
    let (timer, now_ns) = (call.process().alarm.clone(), call.now().1);
    let (left_ns, _) = timer.left(now_ns);
    let first_ns = u64::from(call.arguments[0] as u32) * NS_IN_S;
    timer.set(call.process(), (first_ns != 0).then(|| now_ns + first_ns), 0);
    // To the nearest second, but never none of what is left.
    Ok(if left_ns == 0 { 0 } else { ((left_ns + NS_IN_S / 2) / NS_IN_S).max(1) })
}

/// Seconds and microseconds, of which none that has begun is left out.
fn time_value(ns: u64) -> [u64; 2] {
    let us = ns.div_ceil(1000);
    [us / US_IN_S, us % US_IN_S]
}

/// Seconds and microseconds, twice: how far apart, and when first.
fn interval_words(call: &Call<'_>) -> [u64; 4] {
    let (left_ns, every_ns) = call.process().alarm.left(call.now().1);
    let ([every, every_us], [first, first_us]) = (time_value(every_ns), time_value(left_ns));
    [every, every_us, first, first_us]
}

/// # Errors
/// `EINVAL`: there is the timer of real time alone.
fn check_real(call: &Call<'_>) -> Result<(), Errno> {
    const REAL: i32 = 0;
    if call.int(0) == REAL { Ok(()) } else { Err(Errno::EINVAL) }
}

fn set_interval_timer(call: &Call<'_>) -> Result<u64, Errno> {
    check_real(call)?;
    let [_, new, old, ..] = call.arguments;
    let before = interval_words(call);
    // Without a new one it is as if all were zeros.
    let words = if new == 0 { [0; 4] } else { call.memory().read_value(new)? };
    let [every, every_us, first, first_us]: [u64; 4] = words;
    if every_us.max(first_us) >= US_IN_S || (every.max(first) as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    let ns = |seconds: u64, us: u64| seconds.saturating_mul(NS_IN_S).saturating_add(us * 1000);
    let (first_ns, now_ns) = (ns(first, first_us), call.now().1);
    let at_ns = (first_ns != 0).then(|| now_ns.saturating_add(first_ns));
    call.process().alarm.set(call.process(), at_ns, ns(every, every_us));
    if old != 0 {
        call.memory().write_value(old, &before)?;
    }
    Ok(0)
}

fn get_interval_timer(call: &Call<'_>) -> Result<u64, Errno> {
    check_real(call)?;
    call.memory().write_value(call.arguments[1], &interval_words(call)).map(|()| 0)
}

/// Linux's `struct sigevent`, as far as it is read.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SignalEvent {
    value: [u32; 2],
    signal: u32,
    how: u32,
    thread: u32,
}

fn create(call: &Call<'_>) -> Result<u64, Errno> {
    const THREAD: u32 = abi::SIGEV_SIGNAL | abi::SIGEV_THREAD_ID;
    let [_, event, identifier, ..] = call.arguments;
    let number = call.int(0);
    match number as u32 {
        abi::CLOCK_REALTIME | abi::CLOCK_MONOTONIC | abi::CLOCK_BOOTTIME | abi::CLOCK_TAI => {}
        _ => return Err(clock(call, number).map_or(Errno::EINVAL, |_| Errno::EOPNOTSUPP)),
    }
    let mut timers = call.process().timers.borrow_mut();
    let id = (0..TIMERS_MAX as i32).find(|id| !timers.contains_key(id)).ok_or(Errno::EAGAIN)?;
    let alarm = SignalEvent {
        value: [id as u32, 0],
        signal: Signal::ALRM.number(),
        how: abi::SIGEV_SIGNAL,
        thread: 0,
    };
    let asked = if event == 0 { alarm } else { call.memory().read_value::<SignalEvent>(event)? };
    let thread = match asked.how {
        abi::SIGEV_NONE => None,
        abi::SIGEV_SIGNAL | abi::SIGEV_THREAD => Some(None),
        THREAD if call.process().tasks().iter().any(|task| task.id == asked.thread) => {
            Some(Some(asked.thread))
        }
        _ => return Err(Errno::EINVAL),
    };
    let info = match thread {
        None => None,
        Some(thread) => {
            let signal = Signal::new(asked.signal.into())?;
            let mut info = Info::sent(signal, abi::SI_TIMER, id as u32, 0);
            info.fields[2..4].copy_from_slice(&asked.value);
            Some((info, thread))
        }
    };
    call.memory().write_value(identifier, &id)?;
    timers.insert(id, Rc::new(SignalTimer { clock: number, info, ..SignalTimer::default() }));
    Ok(0)
}

fn find(call: &Call<'_>) -> Result<Rc<SignalTimer>, Errno> {
    call.process().timers.borrow().get(&call.int(0)).cloned().ok_or(Errno::EINVAL)
}

/// How far apart and how long from now on.
fn told(call: &Call<'_>, timer: &SignalTimer) -> [TimeSpec; 2] {
    let (left_ns, every_ns) = timer.left(call.now().1);
    [TimeSpec::of_ns(every_ns), TimeSpec::of_ns(left_ns)]
}

fn set_time(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, flags, new, old, ..] = call.arguments;
    let timer = find(call)?;
    let [every, first] = call.memory().read_value::<[TimeSpec; 2]>(new)?;
    let (every_ns, first_ns) = (every.ns()?, first.ns()?);
    let before = told(call, &timer);
    let now_ns = call.now().1;
    let left_ns = match flags as u32 & abi::TIMER_ABSTIME {
        0 => first_ns,
        _ => first_ns.saturating_sub(clock(call, timer.clock)?),
    };
    timer.set(call.process(), (first_ns != 0).then(|| now_ns.saturating_add(left_ns)), every_ns);
    if old != 0 {
        call.memory().write_value(old, &before)?;
    }
    Ok(0)
}

fn get_time(call: &Call<'_>) -> Result<u64, Errno> {
    let timer = find(call)?;
    call.memory().write_value(call.arguments[1], &told(call, &timer)).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_a_second_is_no_million_microseconds() {
        assert_eq!(time_value(NS_IN_S - 1), [1, 0]);
        assert_eq!(time_value(NS_IN_S - 1000), [0, 999_999]);
        assert_eq!(time_value(1), [0, 1]);
        assert_eq!(time_value(0), [0, 0]);
    }
}
