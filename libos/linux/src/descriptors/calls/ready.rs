//! Waiting for many: epoll(7), poll(2), select(2).

use super::get;
use super::make::add;
use crate::call::Call;
use crate::calls::time::{TimeSpec, deadline_after};
use crate::descriptors::epoll::{Epoll, Occurrences, Watched};
use crate::descriptors::open::Description;
use crate::descriptors::ready::{Events, until_ready};
use crate::signals::SignalSet;
use crate::table::SystemCall;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use nom_fs::Errno;
use zerocopy::{Immutable, IntoBytes};

/// Bytes of `struct epoll_event`, which has no gap on x86-64.
const EVENT: u64 = 12;
/// Most events that one call tells.
const EVENTS_MAX: i32 = 4096;
const NS_IN_MS: u64 = 1_000_000;
const NS_IN_S: u64 = 1_000_000_000;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_epoll_create, "epoll_create", &["size"], |call| make(call, 0)),
    SystemCall::complete(abi::__NR_epoll_create1, "epoll_create1", &["flags"], |call| {
        make(call, call.arguments[0] as u32)
    }),
    SystemCall::complete(
        abi::__NR_epoll_ctl,
        "epoll_ctl",
        &["set", "operation", "descriptor", "event"],
        change,
    ),
    SystemCall::complete(
        abi::__NR_epoll_wait,
        "epoll_wait",
        &["set", "events", "count", "timeout"],
        |call| wait(call, timeout_ms(call, call.int(3))),
    ),
    SystemCall::complete(
        abi::__NR_epoll_pwait,
        "epoll_pwait",
        &["set", "events", "count", "timeout", "mask", "size"],
        |call| {
            set_mask(call, call.arguments[4])?;
            wait(call, timeout_ms(call, call.int(3)))
        },
    ),
    SystemCall::complete(
        abi::__NR_epoll_pwait2,
        "epoll_pwait2",
        &["set", "events", "count", "timeout", "mask", "size"],
        |call| {
            let deadline = deadline_after(call, call.arguments[3])?;
            set_mask(call, call.arguments[4])?;
            wait(call, deadline)
        },
    ),
    SystemCall::complete(abi::__NR_poll, "poll", &["descriptors", "count", "timeout"], |call| {
        poll(call, timeout_ms(call, call.int(2)))
    }),
    SystemCall::complete(
        abi::__NR_ppoll,
        "ppoll",
        &["descriptors", "count", "timeout", "mask", "size"],
        |call| {
            let deadline = deadline_after(call, call.arguments[2])?;
            set_mask(call, call.arguments[3])?;
            let result = poll(call, deadline);
            tell_rest(call, call.arguments[2], deadline, TimeSpec::of_ns);
            result
        },
    ),
    SystemCall::complete(
        abi::__NR_select,
        "select",
        &["count", "read", "write", "except", "timeout"],
        |call| {
            let deadline = deadline_of_time_value(call, call.arguments[4])?;
            let result = select(call, deadline);
            tell_rest(call, call.arguments[4], deadline, |ns| [ns / NS_IN_S, ns % NS_IN_S / 1000]);
            result
        },
    ),
    SystemCall::complete(
        abi::__NR_pselect6,
        "pselect6",
        &["count", "read", "write", "except", "timeout", "mask"],
        |call| {
            let deadline = deadline_after(call, call.arguments[4])?;
            if call.arguments[5] != 0 {
                let [mask, _]: [u64; 2] = call.memory().read_value(call.arguments[5])?;
                set_mask(call, mask)?;
            }
            let result = select(call, deadline);
            tell_rest(call, call.arguments[4], deadline, TimeSpec::of_ns);
            result
        },
    ),
];

/// When a timeout in milliseconds is over; never if it is negative.
fn timeout_ms(call: &Call<'_>, timeout: i32) -> Option<u64> {
    u64::try_from(timeout).ok().map(|ms| call.now().1.saturating_add(ms * NS_IN_MS))
}

/// When a timeout in seconds and microseconds at `address` is over; never if there is none.
fn deadline_of_time_value(call: &Call<'_>, address: u64) -> Result<Option<u64>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let [seconds, microseconds]: [i64; 2] = call.memory().read_value(address)?;
    let (Ok(seconds), Ok(microseconds)) = (u64::try_from(seconds), u64::try_from(microseconds)) else {
        return Err(Errno::EINVAL);
    };
    let ns = seconds.saturating_mul(NS_IN_S).saturating_add(microseconds.saturating_mul(1000));
    Ok(Some(call.now().1.saturating_add(ns)))
}

/// Tells how much of a timeout was left, in its place, which `form` has a form for: select(2), "Linux notes".
/// One of nothing is left as it is, and so is one that cannot be written to.
fn tell_rest<T: IntoBytes + Immutable>(
    call: &Call<'_>,
    address: u64,
    deadline: Option<u64>,
    form: impl FnOnce(u64) -> T,
) {
    let Some(deadline) = deadline else { return };
    let had_none = call.memory().read_value::<[u64; 2]>(address) == Ok([0; 2]);
    if !had_none {
        let _ = call.memory().write_value(address, &form(deadline.saturating_sub(call.now().1)));
    }
}

/// Signals that are blocked while the call waits, if there is a mask at this address.
fn set_mask(call: &Call<'_>, address: u64) -> Result<(), Errno> {
    if address != 0 {
        let mask = SignalSet(call.memory().read_value::<u64>(address)?).blockable();
        call.task().block_for_call(mask);
    }
    Ok(())
}

fn make(call: &Call<'_>, flags: u32) -> Result<u64, Errno> {
    if flags & !abi::O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    add(call, Description::of(Epoll::default(), 0), flags).map(|descriptor| descriptor as u64)
}

fn change(call: &Call<'_>) -> Result<u64, Errno> {
    let set = get(call, call.int(0))?;
    let (descriptor, address) = (call.int(2), call.arguments[3]);
    let description = get(call, descriptor)?;
    let epoll = set.stream().and_then(|stream| stream.epoll()).ok_or(Errno::EINVAL)?;
    if Rc::ptr_eq(&set, &description) {
        return Err(Errno::EINVAL);
    }
    let interest = || -> Result<Watched, Errno> {
        let mut bytes = [0; EVENT as usize];
        call.memory().read(address, &mut bytes)?;
        let (events, data) = bytes.split_at(4);
        let events = events.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).unwrap_or_default();
        let data = data.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)).unwrap_or_default();
        Ok(Watched { events, data })
    };
    match call.arguments[1] as u32 {
        abi::EPOLL_CTL_ADD => epoll.add(descriptor, &description, interest()?),
        abi::EPOLL_CTL_MOD => epoll.change(descriptor, &description, interest()?),
        abi::EPOLL_CTL_DEL => epoll.remove(descriptor, &description),
        _ => Err(Errno::EINVAL),
    }
    .map(|()| 0)
}

fn wait(call: &Call<'_>, deadline: Option<u64>) -> Result<u64, Errno> {
    let set = get(call, call.int(0))?;
    let (address, most) = (call.arguments[1], call.int(2));
    let epoll = set.stream().and_then(|stream| stream.epoll()).ok_or(Errno::EINVAL)?;
    if most <= 0 {
        return Err(Errno::EINVAL);
    }
    let most = most.min(EVENTS_MAX) as usize;
    let mut found = Occurrences::new();
    let take = || epoll.take(most, &mut found);
    if wait_for(call, deadline, take, |waker| epoll.wake_when_listed(waker))?.is_none() {
        return Ok(0);
    }
    call.memory().write(address, found.as_bytes())?;
    Ok(found.len() as u64)
}

/// What `act` says once it does not say that it would block; nothing when the time is over.
fn wait_for<T>(
    call: &Call<'_>,
    deadline: Option<u64>,
    mut act: impl FnMut() -> Result<T, Errno>,
    wake: impl Fn(&core::task::Waker),
) -> Result<Option<T>, Errno> {
    match act() {
        Err(Errno::EAGAIN) => {}
        result => return result.map(Some),
    }
    if deadline.is_some_and(|deadline| deadline <= call.now().1) {
        return Ok(None);
    }
    call.block_until(deadline, until_ready(act, wake))?.transpose()
}

fn poll(call: &Call<'_>, deadline: Option<u64>) -> Result<u64, Errno> {
    let (address, count) = (call.arguments[0], call.arguments[1]);
    if count > call.process().descriptors.borrow().limit() {
        return Err(Errno::EINVAL);
    }
    let mut entries = Vec::new();
    for index in 0..count {
        let [descriptor, events]: [i32; 2] = call.memory().read_value(address + 8 * index)?;
        let found = if descriptor < 0 { None } else { Some(get(call, descriptor)) };
        entries.push((found, Events(events as u32 & 0xffff)));
    }
    let told = |found: &Option<Result<Rc<Description>, Errno>>, wanted: Events| match found {
        None => Events::NONE,
        Some(Err(_)) => Events(abi::POLLNVAL),
        Some(Ok(description)) => description.ready().of(wanted.with(Events::ALWAYS_TOLD)),
    };
    let look = || {
        let told: Vec<Events> = entries.iter().map(|(found, wanted)| told(found, *wanted)).collect();
        if told.iter().all(|events| events.is_none()) { Err(Errno::EAGAIN) } else { Ok(told) }
    };
    let wake = |waker: &core::task::Waker| {
        for (found, _) in &entries {
            if let Some(Ok(description)) = found {
                description.wake(waker);
            }
        }
    };
    let found = wait_for(call, deadline, look, wake)?.unwrap_or(vec![Events::NONE; count as usize]);
    for (index, events) in (0..).zip(&found) {
        call.memory().write_value(address + 8 * index + 6, &(events.0 as u16))?;
    }
    Ok(found.iter().filter(|events| !events.is_none()).count() as u64)
}

/// What `select` tells by its three sets.
const SETS: [Events; 3] = [
    Events(abi::POLLIN | abi::POLLHUP | abi::POLLERR | abi::POLLRDHUP),
    Events(abi::POLLOUT | abi::POLLERR),
    Events(abi::POLLPRI),
];

fn select(call: &Call<'_>, deadline: Option<u64>) -> Result<u64, Errno> {
    let count = u64::try_from(call.int(0)).map_err(|_| Errno::EINVAL)?;
    // Sets may be longer than `FD_SETSIZE`; descriptors that there cannot be are not looked at (select(2)).
    let count = count.min(call.process().descriptors.borrow().limit()) as i32;
    let words = (count as usize).div_ceil(64);
    let empty = || [(); 3].map(|()| vec![0_u64; words]);
    let mut sets = empty();
    for (set, address) in sets.iter_mut().zip(&call.arguments[1..4]) {
        for (index, word) in set.iter_mut().enumerate().filter(|_| *address != 0) {
            *word = call.memory().read_value(address + 8 * index as u64)?;
        }
    }
    let mut members = Vec::new();
    for descriptor in 0..count {
        let (word, bit) = (descriptor as usize / 64, 1_u64 << (descriptor % 64));
        for (index, wanted) in SETS.into_iter().enumerate().filter(|(index, _)| sets[*index][word] & bit != 0)
        {
            members.push((index, word, bit, wanted, get(call, descriptor)?));
        }
    }
    let look = || {
        let mut found = empty();
        let mut total = 0;
        for (index, word, bit, wanted, description) in &members {
            if !description.ready().of(*wanted).is_none() {
                found[*index][*word] |= bit;
                total += 1;
            }
        }
        if total == 0 { Err(Errno::EAGAIN) } else { Ok((found, total)) }
    };
    let wake = |waker: &core::task::Waker| members.iter().for_each(|member| member.4.wake(waker));
    let (found, total) = wait_for(call, deadline, look, wake)?.unwrap_or_else(|| (empty(), 0));
    for (set, address) in found.iter().zip(&call.arguments[1..4]) {
        for (index, word) in set.iter().enumerate().filter(|_| *address != 0) {
            call.memory().write_value(address + 8 * index as u64, word)?;
        }
    }
    Ok(total)
}
