//! Time: clock_gettime(2), nanosleep(2).

use crate::call::Call;
use crate::process::Process;
use crate::processor_time::ProcessorClock;
use crate::table::SystemCall;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use nom_fs::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_clock_gettime, "clock_gettime", &["clock", "time"], get_time),
    SystemCall::complete(abi::__NR_clock_getres, "clock_getres", &["clock", "resolution"], get_resolution),
    SystemCall::complete(abi::__NR_gettimeofday, "gettimeofday", &["time", "zone"], time_of_day),
    SystemCall::complete(abi::__NR_time, "time", &["time"], seconds),
    SystemCall::complete(abi::__NR_nanosleep, "nanosleep", &["time", "left"], sleep),
    SystemCall::complete(
        abi::__NR_clock_nanosleep,
        "clock_nanosleep",
        &["clock", "flags", "time", "left"],
        sleep_on,
    ),
    SystemCall::refused(abi::__NR_settimeofday, "settimeofday", "the clock is the host's"),
    SystemCall::refused(abi::__NR_clock_settime, "clock_settime", "the clock is the host's"),
    SystemCall::partial(
        abi::__NR_adjtimex,
        "adjtimex",
        &["state"],
        |call| clock_state(call, call.arguments[0]),
        "it is told that the clock goes as it should: the clock is the host's, who sets it is refused",
    ),
    SystemCall::partial(
        abi::__NR_clock_adjtime,
        "clock_adjtime",
        &["clock", "state"],
        |call| {
            clock(call, call.int(0))?;
            clock_state(call, call.arguments[1])
        },
        "as adjtimex",
    ),
];

const NS_IN_S: u64 = 1_000_000_000;

/// Linux's `struct timespec`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TimeSpec {
    seconds: i64,
    nanoseconds: i64,
}

impl TimeSpec {
    /// So many nanoseconds.
    pub fn of_ns(ns: u64) -> TimeSpec {
        TimeSpec { seconds: (ns / NS_IN_S) as i64, nanoseconds: (ns % NS_IN_S) as i64 }
    }

    /// Its nanoseconds; more than there can be is as many as there can be.
    ///
    /// # Errors
    /// `EINVAL` if it is before zero, or has more nanoseconds than a second.
    pub fn ns(self) -> Result<u64, Errno> {
        if self.seconds < 0 || !(0..NS_IN_S as i64).contains(&self.nanoseconds) {
            return Err(Errno::EINVAL);
        }
        Ok((self.seconds as u64).saturating_mul(NS_IN_S).saturating_add(self.nanoseconds as u64))
    }
}

/// The board's time at which a relative timeout at `address` is over; none if there is none.
pub(crate) fn deadline_after(call: &Call<'_>, address: u64) -> Result<Option<u64>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let ns = call.memory().read_value::<TimeSpec>(address)?.ns()?;
    Ok(Some(call.now().1.saturating_add(ns)))
}

/// The board's time of a point of time at `address`; none if there is none.
pub(crate) fn deadline_at(call: &Call<'_>, address: u64, is_realtime: bool) -> Result<Option<u64>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let ns = call.memory().read_value::<TimeSpec>(address)?.ns()?;
    let (realtime, monotonic) = call.now();
    Ok(Some(if is_realtime { monotonic.saturating_add(ns.saturating_sub(realtime)) } else { ns }))
}

/// What a clock says.
pub(super) fn clock(call: &Call<'_>, clock: i32) -> Result<u64, Errno> {
    let (realtime, monotonic) = call.now();
    match clock as u32 {
        abi::CLOCK_REALTIME | abi::CLOCK_REALTIME_COARSE | abi::CLOCK_TAI => Ok(realtime),
        abi::CLOCK_MONOTONIC
        | abi::CLOCK_MONOTONIC_RAW
        | abi::CLOCK_MONOTONIC_COARSE
        | abi::CLOCK_BOOTTIME => Ok(monotonic),
        _ => {
            let (process, clock) = ProcessorClock::of(call, clock).ok_or(Errno::EINVAL)??;
            clock.ns(&process).ok_or(Errno::EINVAL)
        }
    }
}

fn get_time(call: &Call<'_>) -> Result<u64, Errno> {
    let now = clock(call, call.int(0))?;
    call.memory().write_value(call.arguments[1], &TimeSpec::of_ns(now)).map(|()| 0)
}

fn get_resolution(call: &Call<'_>) -> Result<u64, Errno> {
    clock(call, call.int(0))?;
    match call.arguments[1] {
        0 => Ok(0),
        address => call.memory().write_value(address, &TimeSpec::of_ns(1)).map(|()| 0),
    }
}

/// Tells the state of the clock by `struct timex`. Errors: EPERM of who wants to set anything.
fn clock_state(call: &Call<'_>, address: u64) -> Result<u64, Errno> {
    const WORDS: usize = 26;
    const OFFSET_READ: u64 = 0xa001;
    const UNSYNCHRONIZED: u64 = 0x40;
    const TICK_US: u64 = 10_000;
    const TOLERANCE: u64 = 32_768_000;
    const NOT_SYNCHRONIZED: u64 = 5;
    let mut words: [u64; WORDS] = call.memory().read_value(address)?;
    let modes = words[0] & u64::from(u32::MAX);
    if modes != 0 && modes != OFFSET_READ {
        return Err(Errno::EPERM);
    }
    let now = call.now().0;
    words[1..].fill(0);
    // Status, precision, tolerance; the time; microseconds of a tick.
    (words[5], words[7], words[8]) = (UNSYNCHRONIZED, 1, TOLERANCE);
    (words[9], words[10], words[11]) = (now / NS_IN_S, now % NS_IN_S / 1000, TICK_US);
    call.memory().write_value(address, &words).map(|()| NOT_SYNCHRONIZED)
}

fn time_of_day(call: &Call<'_>) -> Result<u64, Errno> {
    let now = call.now().0;
    if call.arguments[0] != 0 {
        let time = [now / NS_IN_S, now % NS_IN_S / 1000];
        call.memory().write_value(call.arguments[0], &time)?;
    }
    if call.arguments[1] != 0 {
        call.memory().write_value(call.arguments[1], &[0_u32; 2])?;
    }
    Ok(0)
}

fn seconds(call: &Call<'_>) -> Result<u64, Errno> {
    let now = call.now().0 / NS_IN_S;
    if call.arguments[0] != 0 {
        call.memory().write_value(call.arguments[0], &now)?;
    }
    Ok(now)
}

fn sleep(call: &Call<'_>) -> Result<u64, Errno> {
    let ns = call.memory().read_value::<TimeSpec>(call.arguments[0])?.ns()?;
    sleep_until(call, call.now().1.saturating_add(ns), call.arguments[1])
}

fn sleep_on(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, flags, time, left, ..] = call.arguments;
    let now = clock(call, call.int(0))?;
    let ns = call.memory().read_value::<TimeSpec>(time)?.ns()?;
    if let Some(whose) = ProcessorClock::of(call, call.int(0)) {
        let (process, clock) = whose?;
        let is_absolute = flags as u32 & abi::TIMER_ABSTIME != 0;
        return sleep_until_it_ran(call, &process, &clock, if is_absolute { ns } else { now + ns });
    }
    let monotonic = call.now().1;
    if flags as u32 & abi::TIMER_ABSTIME != 0 {
        return sleep_until(call, monotonic.saturating_add(ns.saturating_sub(now)), 0);
    }
    sleep_until(call, monotonic.saturating_add(ns), left)
}

/// Sleeps until a process had the core for so long.
///
/// # Errors
/// `EINVAL`: on a thread's clock; who sleeps does not run.
fn sleep_until_it_ran(
    call: &Call<'_>,
    process: &Rc<Process>,
    clock: &ProcessorClock,
    at_ns: u64,
) -> Result<u64, Errno> {
    match clock {
        ProcessorClock::Thread(_) => Err(Errno::EINVAL),
        ProcessorClock::Process => {
            let process = Rc::downgrade(process);
            call.block_on(clock.reach(&call.family().handle, &process, at_ns)).map(|_| 0)
        }
    }
}

/// Sleeps; if a signal comes before, what is left is written to `left`.
fn sleep_until(call: &Call<'_>, deadline: u64, left: u64) -> Result<u64, Errno> {
    let slept = call.block_until(Some(deadline), core::future::pending::<()>());
    if let Err(errno) = slept {
        if left != 0 {
            let rest = deadline.saturating_sub(call.now().1);
            call.memory().write_value(left, &TimeSpec::of_ns(rest))?;
        }
        return Err(errno);
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_no_less_than_nothing_and_no_more_than_a_clock_says() {
        let ns = |seconds, nanoseconds| TimeSpec { seconds, nanoseconds }.ns();
        assert_eq!(ns(3, 999_999_999), Ok(3_999_999_999));
        for (seconds, rest) in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MIN, 0)] {
            assert_eq!(ns(seconds, rest), Err(Errno::EINVAL), "{seconds} {rest}");
        }
        assert_eq!(ns(i64::MAX, 5), Ok(u64::MAX));
    }
}
