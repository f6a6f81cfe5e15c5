//! Timers that send signals: setitimer(2), alarm(2), timer_create(2).

use super::time::{TimeSpec, clock};
use crate::call::Call;
use crate::process::Process;
use crate::processor_time::ProcessorClock;
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
        "ITIMER_VIRTUAL counts the time within calls, too",
    ),
    SystemCall::complete(abi::__NR_getitimer, "getitimer", &["timer", "now"], get_interval_timer),
    SystemCall::partial(
        abi::__NR_timer_create,
        "timer_create",
        &["clock", "event", "timer"],
        create,
        "of clocks of processor time those of the own process",
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

/// What the times of a timer are counted by.
#[derive(Debug)]
enum Counted {
    /// A clock of the machine's, by its number.
    Clock(i32),
    /// The time for which its process, or a thread of that, had the core.
    Processor(ProcessorClock),
}

impl Default for Counted {
    fn default() -> Counted {
        Counted::Clock(abi::CLOCK_MONOTONIC as i32)
    }
}

/// The timers of every process that setitimer(2) sets, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct IntervalTimers([Rc<SignalTimer>; 3]);

impl Default for IntervalTimers {
    fn default() -> IntervalTimers {
        let timer = |signal, counted| {
            let info = Some((Info::by_kernel(signal), None));
            Rc::new(SignalTimer { counted, info, ..SignalTimer::default() })
        };
        let processor = || Counted::Processor(ProcessorClock::Process);
        IntervalTimers([
            timer(Signal::ALRM, Counted::default()),
            timer(Signal::VTALRM, processor()),
            timer(Signal::PROF, processor()),
        ])
    }
}

impl IntervalTimers {
    /// The one of real time, which alarm(2) sets, too.
    fn alarm(&self) -> &Rc<SignalTimer> {
        &self.0[0]
    }

    /// None rings any more.
    pub fn stop(&self) {
        self.0.iter().for_each(|timer| timer.stop());
    }
}

/// A timer that sends its process a signal, once or again and again.
#[derive(Debug, Default)]
pub(crate) struct SignalTimer {
    counted: Counted,
    /// What is sent, and to which thread if not to any; nothing if nobody is told.
    info: Option<(Info, Option<u32>)>,
    /// When it rings next, on the board's clock or that of processor time, and how far apart from then on; 0
    /// if once.
    next_ns: Cell<Option<u64>>,
    every_ns: Cell<u64>,
    /// Which setting is in force: those before are over.
    setting: Cell<u64>,
    /// How often it rang in vain, since what was sent waited still: of the signal before the newest, and of
    /// that.
    overruns: Cell<[u32; 2]>,
}

impl SignalTimer {
    /// What is the time for it.
    fn now_ns(&self, process: &Process) -> u64 {
        match &self.counted {
            Counted::Clock(_) => nom_sys::time::now_ns(),
            Counted::Processor(clock) => clock.ns(process).unwrap_or(0),
        }
    }

    /// What the clock says that its points of time are of.
    fn clock_ns(&self, call: &Call<'_>) -> Result<u64, Errno> {
        match &self.counted {
            Counted::Clock(number) => clock(call, *number),
            Counted::Processor(clock) => clock.ns(call.process()).ok_or(Errno::EINVAL),
        }
    }

    /// It does not ring any more.
    pub fn stop(&self) {
        self.setting.set(self.setting.get() + 1);
        self.next_ns.set(None);
    }

    /// How long until it rings, and how far apart from then on: zeros if it does not.
    fn left(&self, process: &Process) -> (u64, u64) {
        let now_ns = self.now_ns(process);
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
            match &self.counted {
                Counted::Clock(_) => handle.sleep_until(next_ns).await,
                Counted::Processor(clock) if clock.reach(&handle, &process, next_ns).await.is_none() => {
                    return;
                }
                Counted::Processor(_) => {}
            }
            let Some(process) = process.upgrade().filter(|process| !process.has_ended()) else { return };
            if self.setting.get() != setting {
                return;
            }
            let (every_ns, now_ns) = (self.every_ns.get(), self.now_ns(&process));
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
    let (timer, now_ns) = (call.process().interval_timers.alarm(), call.now().1);
    let (left_ns, _) = timer.left(call.process());
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
fn interval_words(timer: &SignalTimer, process: &Process) -> [u64; 4] {
    let (left_ns, every_ns) = timer.left(process);
    let ([every, every_us], [first, first_us]) = (time_value(every_ns), time_value(left_ns));
    [every, every_us, first, first_us]
}

/// The timer that the first argument names.
///
/// # Errors
/// `EINVAL`.
fn interval_timer<'a>(call: &'a Call<'_>) -> Result<&'a Rc<SignalTimer>, Errno> {
    let timers = &call.process().interval_timers.0;
    usize::try_from(call.int(0)).ok().and_then(|index| timers.get(index)).ok_or(Errno::EINVAL)
}

fn set_interval_timer(call: &Call<'_>) -> Result<u64, Errno> {
    let (timer, process) = (interval_timer(call)?, call.process());
    let [_, new, old, ..] = call.arguments;
    let before = interval_words(timer, process);
    // Without a new one it is as if all were zeros.
    let words = if new == 0 { [0; 4] } else { call.memory().read_value(new)? };
    let [every, every_us, first, first_us]: [u64; 4] = words;
    if every_us.max(first_us) >= US_IN_S || (every.max(first) as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    let ns = |seconds: u64, us: u64| seconds.saturating_mul(NS_IN_S).saturating_add(us * 1000);
    let (first_ns, now_ns) = (ns(first, first_us), timer.now_ns(process));
    let at_ns = (first_ns != 0).then(|| now_ns.saturating_add(first_ns));
    timer.set(process, at_ns, ns(every, every_us));
    if old != 0 {
        call.memory().write_value(old, &before)?;
    }
    Ok(0)
}

fn get_interval_timer(call: &Call<'_>) -> Result<u64, Errno> {
    let words = interval_words(interval_timer(call)?, call.process());
    call.memory().write_value(call.arguments[1], &words).map(|()| 0)
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
    let counted = counted(call, number)?;
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
    timers.insert(id, Rc::new(SignalTimer { counted, info, ..SignalTimer::default() }));
    Ok(0)
}

/// What a timer on the clock of this number counts.
///
/// # Errors
/// `EINVAL` if there is no such clock, or it is another process's; `EOPNOTSUPP` if it has no timers.
fn counted(call: &Call<'_>, number: i32) -> Result<Counted, Errno> {
    match (number as u32, ProcessorClock::of(call, number)) {
        (_, Some(whose)) => {
            let (process, clock) = whose?;
            let is_own = process.id == call.process().id;
            if is_own { Ok(Counted::Processor(clock)) } else { Err(Errno::EINVAL) }
        }
        (abi::CLOCK_REALTIME | abi::CLOCK_MONOTONIC | abi::CLOCK_BOOTTIME | abi::CLOCK_TAI, None) => {
            Ok(Counted::Clock(number))
        }
        _ => Err(clock(call, number).map_or(Errno::EINVAL, |_| Errno::EOPNOTSUPP)),
    }
}

fn find(call: &Call<'_>) -> Result<Rc<SignalTimer>, Errno> {
    call.process().timers.borrow().get(&call.int(0)).cloned().ok_or(Errno::EINVAL)
}

/// How far apart and how long from now on.
fn told(call: &Call<'_>, timer: &SignalTimer) -> [TimeSpec; 2] {
    let (left_ns, every_ns) = timer.left(call.process());
    [TimeSpec::of_ns(every_ns), TimeSpec::of_ns(left_ns)]
}

fn set_time(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, flags, new, old, ..] = call.arguments;
    let timer = find(call)?;
    let [every, first] = call.memory().read_value::<[TimeSpec; 2]>(new)?;
    let (every_ns, first_ns) = (every.ns()?, first.ns()?);
    let before = told(call, &timer);
    let now_ns = timer.now_ns(call.process());
    let left_ns = match flags as u32 & abi::TIMER_ABSTIME {
        0 => first_ns,
        _ => first_ns.saturating_sub(timer.clock_ns(call)?),
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
