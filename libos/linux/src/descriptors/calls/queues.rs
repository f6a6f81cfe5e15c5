//! Queues of messages by name: mq_open(3) and its like, of which mq_overview(7) tells.

use super::get;
use super::make::{add, of_stream};
use crate::call::Call;
use crate::calls::time::deadline_at;
use crate::descriptors::open::Description;
use crate::descriptors::queue::{MessageQueue, Notification, OpenQueue, cost};
use crate::descriptors::ready::until_ready;
use crate::signals::{Info, Signal};
use crate::table::SystemCall;
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        abi::__NR_mq_open,
        "mq_open",
        &["name", "flags", "mode", "attributes"],
        open,
        "there is no /dev/mqueue",
    ),
    SystemCall::complete(abi::__NR_mq_unlink, "mq_unlink", &["name"], unlink),
    SystemCall::complete(
        abi::__NR_mq_timedsend,
        "mq_timedsend",
        &["descriptor", "message", "length", "priority", "deadline"],
        send,
    ),
    SystemCall::complete(
        abi::__NR_mq_timedreceive,
        "mq_timedreceive",
        &["descriptor", "message", "length", "priority", "deadline"],
        receive,
    ),
    SystemCall::partial(
        abi::__NR_mq_notify,
        "mq_notify",
        &["descriptor", "event"],
        notify,
        "by a signal, or not at all; a thread for it (SIGEV_THREAD) is ENOSYS",
    ),
    SystemCall::complete(abi::__NR_mq_getsetattr, "mq_getsetattr", &["descriptor", "new", "old"], attributes),
];

/// What a queue has whose maker says nothing of it, and the most that anybody may ask for; users only get
/// the former.
const MESSAGES: u64 = 10;
const MESSAGES_MAX: u64 = 65_536;
const BYTES: u64 = 8192;
const BYTES_MAX: u64 = 16 << 20;
/// Most queues that users make.
const QUEUES: usize = 256;
/// Priorities are below this.
const PRIORITIES: u64 = 32_768;
const NAME_MAX: usize = 255;

/// Flags, most messages, bytes of each, messages now: as `struct mq_attr` begins, of eight words.
type Attributes = [u64; 8];

fn name(call: &Call<'_>) -> Result<Vec<u8>, Errno> {
    let name = call.memory().read_string(call.arguments[0], NAME_MAX + 1)?;
    match name.as_slice() {
        name if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
        [] => Err(Errno::ENOENT),
        name if name.contains(&b'/') || name == b"." || name == b".." => Err(Errno::EACCES),
        _ => Ok(name),
    }
}

fn open(call: &Call<'_>) -> Result<u64, Errno> {
    let (flags, attributes) = (call.arguments[1] as u32, call.arguments[3]);
    let wanted: Option<Attributes> = match attributes {
        0 => None,
        address => Some(call.memory().read_value(address)?),
    };
    let name = name(call)?;
    let known = call.family().queues.0.borrow().get(&name).cloned();
    let queue = match known {
        Some(_) if flags & (abi::O_CREAT | abi::O_EXCL) == abi::O_CREAT | abi::O_EXCL => {
            return Err(Errno::EEXIST);
        }
        Some(queue) => queue,
        None if flags & abi::O_CREAT == 0 => return Err(Errno::ENOENT),
        None => return make(call, name, wanted).and_then(|queue| opened(call, queue, flags)),
    };
    check(call, &queue, flags)?;
    opened(call, queue, flags)
}

fn opened(call: &Call<'_>, queue: Rc<MessageQueue>, flags: u32) -> Result<u64, Errno> {
    let description = of_stream(OpenQueue(queue), flags & (abi::O_ACCMODE | abi::O_NONBLOCK));
    add(call, description, abi::O_CLOEXEC).map(|descriptor| descriptor as u64)
}

/// Whether the caller may open a queue so. Errors: EINVAL, EACCES.
fn check(call: &Call<'_>, queue: &MessageQueue, flags: u32) -> Result<(), Errno> {
    let wanted = match flags & abi::O_ACCMODE {
        abi::O_RDONLY => 4,
        abi::O_WRONLY => 2,
        abi::O_RDWR => 6,
        _ => return Err(Errno::EINVAL),
    };
    let view = call.process().view.borrow();
    let credentials = &view.credentials;
    let granted = credentials.granted(queue.owner, queue.mode);
    if credentials.is_root() || granted & wanted == wanted { Ok(()) } else { Err(Errno::EACCES) }
}

/// A new queue. Errors: EINVAL if it cannot be so; ENOSPC and EMFILE if there are too many or too large ones.
fn make(call: &Call<'_>, name: Vec<u8>, wanted: Option<Attributes>) -> Result<Rc<MessageQueue>, Errno> {
    let view = call.process().view.borrow();
    let (user, group) = (view.credentials.user, view.credentials.group);
    let (messages, bytes) = wanted.map_or((MESSAGES, BYTES), |[_, messages, bytes, ..]| (messages, bytes));
    let most = if user == 0 { (MESSAGES_MAX, BYTES_MAX) } else { (MESSAGES, BYTES) };
    if !(1..=most.0).contains(&messages) || !(1..=most.1).contains(&bytes) {
        return Err(Errno::EINVAL);
    }
    let mut queues = call.family().queues.0.borrow_mut();
    if user != 0 && queues.len() >= QUEUES {
        return Err(Errno::ENOSPC);
    }
    let own = queues.values().filter(|queue| queue.owner.0 == user);
    let used = own.fold(0_u64, |sum, queue| sum.saturating_add(queue.cost()));
    if used.saturating_add(cost(messages, bytes)) > call.process().limits.borrow().queues() {
        return Err(Errno::EMFILE);
    }
    let mode = call.arguments[2] as u32 & 0o777 & !view.umask;
    let queue = Rc::new(MessageQueue::new((user, group), mode, messages, bytes));
    queues.insert(name, queue.clone());
    Ok(queue)
}

fn unlink(call: &Call<'_>) -> Result<u64, Errno> {
    let name = name(call)?;
    let user = call.process().user();
    let mut queues = call.family().queues.0.borrow_mut();
    let queue = queues.get(&name).ok_or(Errno::ENOENT)?;
    if user != 0 && user != queue.owner.0 {
        return Err(Errno::EPERM);
    }
    queues.remove(&name);
    Ok(0)
}

/// The queue that the first argument leads to. Errors: EBADF.
fn queue(description: &Description) -> Result<&Rc<MessageQueue>, Errno> {
    description.stream().and_then(|stream| stream.queue()).ok_or(Errno::EBADF)
}

/// Does something with a queue, as soon as that can be done unless the description says not to wait. Errors:
/// what `act` says, ETIMEDOUT.
fn when_ready<T>(
    call: &Call<'_>,
    description: &Description,
    deadline_ns: Option<u64>,
    mut act: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match act() {
        Err(Errno::EAGAIN) if !description.is_nonblocking() => {
            let waiting = until_ready(act, |waker| description.wake(waker));
            call.block_until(deadline_ns, waiting)?.unwrap_or(Err(Errno::ETIMEDOUT))
        }
        result => result,
    }
}

fn send(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, message, length, priority, deadline, _] = call.arguments;
    let deadline_ns = deadline_at(call, deadline, true)?;
    if u64::from(priority as u32) >= PRIORITIES {
        return Err(Errno::EINVAL);
    }
    let description = get(call, call.int(0))?;
    let queue = queue(&description)?;
    description.check_write()?;
    if length > queue.bytes_max {
        return Err(Errno::EMSGSIZE);
    }
    let mut bytes = alloc::vec![0; length as usize];
    call.memory().read(message, &mut bytes)?;
    let told = when_ready(call, &description, deadline_ns, || queue.send(priority as u32, &bytes))?;
    if let Some(Notification { process, info: Some(info) }) = told
        && let Some(process) = call.family().process(process)
    {
        let mut info = info;
        (info.fields[0], info.fields[1]) = (call.process().id, call.process().user());
        process.send(call.family(), info);
    }
    Ok(0)
}

fn receive(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, message, length, priority, deadline, _] = call.arguments;
    let deadline_ns = deadline_at(call, deadline, true)?;
    let description = get(call, call.int(0))?;
    let queue = queue(&description)?;
    description.check_read()?;
    if length < queue.bytes_max {
        return Err(Errno::EMSGSIZE);
    }
    let waits = queue.wait_to_receive();
    let (of, bytes) = when_ready(call, &description, deadline_ns, || queue.receive())?;
    drop(waits);
    if priority != 0 {
        call.memory().write_value(priority, &of)?;
    }
    call.memory().write(message, &bytes)?;
    Ok(bytes.len() as u64)
}

/// `struct sigevent`: value, signal, how.
fn notify(call: &Call<'_>) -> Result<u64, Errno> {
    let event = match call.arguments[1] {
        0 => None,
        address => Some(call.memory().read_value::<[u32; 4]>(address)?),
    };
    let info = match event {
        None => None,
        // No signal at all: it holds the place, as on Linux.
        Some([_, _, 0, abi::SIGEV_SIGNAL]) => None,
        Some([low, high, signal, abi::SIGEV_SIGNAL]) => {
            let mut info = Info::sent(Signal::new(signal.into())?, abi::SI_MESGQ, 0, 0);
            info.fields[2..4].copy_from_slice(&[low, high]);
            Some(info)
        }
        Some([.., abi::SIGEV_NONE]) => None,
        Some([.., abi::SIGEV_THREAD]) => return Err(Errno::ENOSYS),
        Some(_) => return Err(Errno::EINVAL),
    };
    let description = get(call, call.int(0))?;
    let (queue, process) = (queue(&description)?, call.process().id);
    match event {
        None => queue.forget(process),
        Some(_) => queue.notify(Notification { process, info })?,
    }
    Ok(0)
}

fn attributes(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, new, old, ..] = call.arguments;
    let wanted: Option<Attributes> = match new {
        0 => None,
        address => Some(call.memory().read_value(address)?),
    };
    let nonblocking = u64::from(abi::O_NONBLOCK);
    if wanted.is_some_and(|[flags, ..]| flags & !nonblocking != 0) {
        return Err(Errno::EINVAL);
    }
    let description = get(call, call.int(0))?;
    let queue = queue(&description)?;
    let flags = u64::from(description.flags.get()) & nonblocking;
    let told: Attributes = [flags, queue.messages_max, queue.bytes_max, queue.len(), 0, 0, 0, 0];
    if old != 0 {
        call.memory().write_value(old, &told)?;
    }
    if let Some([flags, ..]) = wanted {
        let others = description.flags.get() & !abi::O_NONBLOCK;
        description.flags.set(others | flags as u32);
    }
    Ok(0)
}
