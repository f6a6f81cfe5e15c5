//! What is opened without a path: pipes, counters, timers, files without names.

use super::{get, with_vfs};
use crate::call::Call;
use crate::calls::time::TimeSpec;
use crate::descriptors::counter::{Counter, Taking};
use crate::descriptors::node::OpenNode;
use crate::descriptors::open::{Description, Object, Stream};
use crate::descriptors::pipe::{pipe, pipe_of_packets};
use crate::descriptors::signals::SignalReader;
use crate::descriptors::table::OnExec;
use crate::descriptors::timer::{Schedule, Timer};
use crate::signals::SignalSet;
use crate::table::SystemCall;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_pipe, "pipe", &["descriptors"], |call| make_pipe(call, 0)),
    SystemCall::complete(abi::__NR_pipe2, "pipe2", &["descriptors", "flags"], |call| {
        make_pipe(call, call.arguments[1] as u32)
    }),
    SystemCall::complete(abi::__NR_eventfd, "eventfd", &["count"], |call| make_counter(call, 0)),
    SystemCall::complete(abi::__NR_eventfd2, "eventfd2", &["count", "flags"], |call| {
        make_counter(call, call.arguments[1] as u32)
    }),
    SystemCall::complete(abi::__NR_timerfd_create, "timerfd_create", &["clock", "flags"], make_timer),
    SystemCall::complete(
        abi::__NR_timerfd_settime,
        "timerfd_settime",
        &["descriptor", "flags", "new", "old"],
        set_timer,
    ),
    SystemCall::complete(abi::__NR_timerfd_gettime, "timerfd_gettime", &["descriptor", "now"], get_timer),
    SystemCall::partial(
        abi::__NR_memfd_create,
        "memfd_create",
        &["name", "flags"],
        make_file,
        "not in huge pages",
    ),
    SystemCall::refused(abi::__NR_fanotify_init, "fanotify_init", "programs take `inotify` instead"),
    SystemCall::partial(
        abi::__NR_signalfd,
        "signalfd",
        &["descriptor", "set", "set_bytes"],
        |call| make_signals(call, 0),
        "as signalfd4",
    ),
    SystemCall::partial(
        abi::__NR_signalfd4,
        "signalfd4",
        &["descriptor", "set", "set_bytes", "flags"],
        |call| make_signals(call, call.arguments[3] as u32),
        "tells the signals of the process that made it, and of its first thread, whoever reads",
    ),
];

/// A new descriptor; flags as `open` has them.
pub(crate) fn add(call: &Call<'_>, description: Rc<Description>, flags: u32) -> Result<i32, Errno> {
    let descriptors = call.process().descriptors.borrow().clone();
    descriptors.add(description, OnExec::closes_if(flags & abi::O_CLOEXEC))
}

pub(super) fn of_stream(stream: impl Stream + 'static, flags: u32) -> Rc<Description> {
    Description::new(Object::Stream(Rc::new(stream)), flags)
}

fn make_pipe(call: &Call<'_>, flags: u32) -> Result<u64, Errno> {
    if flags & !(abi::O_CLOEXEC | abi::O_NONBLOCK | abi::O_DIRECT) != 0 {
        return Err(Errno::EINVAL);
    }
    let (reader, writer) = if flags & abi::O_DIRECT != 0 { pipe_of_packets() } else { pipe() };
    let kept = flags & abi::O_NONBLOCK;
    let read = add(call, of_stream(reader, kept | abi::O_RDONLY), flags)?;
    let close = |descriptor| {
        let descriptors = call.process().descriptors.borrow().clone();
        // It was made just now.
        let _ = descriptors.close(descriptor);
    };
    let write = add(call, of_stream(writer, kept | flags & abi::O_DIRECT | abi::O_WRONLY), flags)
        .inspect_err(|_| close(read))?;
    call.memory().write_value(call.arguments[0], &[read, write]).inspect_err(|_| {
        close(read);
        close(write);
    })?;
    Ok(0)
}

fn make_counter(call: &Call<'_>, flags: u32) -> Result<u64, Errno> {
    if flags & !(abi::EFD_SEMAPHORE | abi::O_CLOEXEC | abi::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let taking = if flags & abi::EFD_SEMAPHORE != 0 { Taking::One } else { Taking::All };
    let counter = Counter::new(u64::from(call.arguments[0] as u32), taking);
    let description = of_stream(counter, abi::O_RDWR | flags & abi::O_NONBLOCK);
    add(call, description, flags).map(|descriptor| descriptor as u64)
}

fn make_signals(call: &Call<'_>, flags: u32) -> Result<u64, Errno> {
    const SET_BYTES: u64 = 8;
    let [_, set, bytes, ..] = call.arguments;
    if flags & !(abi::O_CLOEXEC | abi::O_NONBLOCK) != 0 || bytes != SET_BYTES {
        return Err(Errno::EINVAL);
    }
    let wanted: SignalSet = call.memory().read_value(set)?;
    if call.int(0) != -1 {
        let description = get(call, call.int(0))?;
        let stream = description.stream().and_then(|stream| stream.signals());
        stream.ok_or(Errno::EINVAL)?.want(wanted);
        return Ok(call.int(0) as u64);
    }
    let description =
        of_stream(SignalReader::new(call.process(), wanted), abi::O_RDWR | flags & abi::O_NONBLOCK);
    add(call, description, flags).map(|descriptor| descriptor as u64)
}

fn make_timer(call: &Call<'_>) -> Result<u64, Errno> {
    let (clock, flags) = (call.arguments[0] as u32, call.arguments[1] as u32);
    let is_realtime = match clock {
        abi::CLOCK_REALTIME | abi::CLOCK_REALTIME_ALARM => true,
        abi::CLOCK_MONOTONIC | abi::CLOCK_BOOTTIME | abi::CLOCK_BOOTTIME_ALARM => false,
        _ => return Err(Errno::EINVAL),
    };
    if flags & !(abi::O_CLOEXEC | abi::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let timer = Timer::new(&call.family().handle, is_realtime);
    add(call, of_stream(timer, abi::O_RDWR | flags & abi::O_NONBLOCK), flags)
        .map(|descriptor| descriptor as u64)
}

/// Does something with the timer that the first argument leads to.
fn with_timer<T>(call: &Call<'_>, act: impl FnOnce(&Timer) -> Result<T, Errno>) -> Result<T, Errno> {
    let description = get(call, call.int(0))?;
    act(description.stream().and_then(|stream| stream.timer()).ok_or(Errno::EINVAL)?)
}

/// `struct itimerspec`: interval and what is left.
fn tell(call: &Call<'_>, schedule: Schedule, address: u64) -> Result<(), Errno> {
    let now = call.now().1;
    let left = schedule.next_ns.map_or(0, |next| next.saturating_sub(now).max(1));
    let interval = schedule.interval_ns;
    call.memory().write_value(address, &[interval, left].map(TimeSpec::of_ns))
}

fn set_timer(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, flags, new, old, ..] = call.arguments;
    let [interval, value]: [TimeSpec; 2] = call.memory().read_value(new)?;
    let (interval_ns, ns) = (interval.ns()?, value.ns()?);
    let (unix_ns, now_ns) = call.now();
    with_timer(call, |timer| {
        let before = timer.schedule();
        let next = match flags as u32 & abi::TFD_TIMER_ABSTIME != 0 {
            false => now_ns.saturating_add(ns),
            true if timer.is_realtime => now_ns.saturating_add(ns.saturating_sub(unix_ns)),
            true => ns,
        };
        timer.set(Schedule { next_ns: (ns != 0).then_some(next), interval_ns });
        if old != 0 { tell(call, before, old) } else { Ok(()) }
    })
    .map(|()| 0)
}

fn get_timer(call: &Call<'_>) -> Result<u64, Errno> {
    with_timer(call, |timer| tell(call, timer.schedule(), call.arguments[1])).map(|()| 0)
}

fn make_file(call: &Call<'_>) -> Result<u64, Errno> {
    let flags = call.arguments[1] as u32;
    if flags & !(abi::MFD_CLOEXEC | abi::MFD_ALLOW_SEALING | abi::MFD_NOEXEC_SEAL | abi::MFD_EXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let node = with_vfs(call, |vfs, caller| {
        let node = vfs.nameless(caller, 0o777);
        if flags & abi::MFD_ALLOW_SEALING != 0 {
            vfs.allow_seals(node);
        }
        node
    });
    let held = OpenNode::held(call.family(), node, None);
    let on_exec = if flags & abi::MFD_CLOEXEC != 0 { abi::O_CLOEXEC } else { 0 };
    add(call, Description::new(Object::Node(Rc::new(held)), abi::O_RDWR), on_exec)
        .map(|descriptor| descriptor as u64)
}
