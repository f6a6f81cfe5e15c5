//! Sending and receiving by sockets: sendmsg(2), recvmsg(2) and their like.

use super::control::{self, Control};
use super::get;
use super::io::{MESSAGE_BYTES, Rest, give_pieces, pieces, wait_within};
use super::sockets::{address, found, sender, tell};
use crate::call::Call;
use crate::descriptors::destination::Destination;
use crate::descriptors::message::{Outgoing, Received};
use crate::descriptors::open::Description;
use crate::descriptors::socket::{Address, Peeking, Socket};
use crate::descriptors::source::Source;
use crate::signals::Signal;
use crate::table::SystemCall;
use linux_raw_sys::general as nr;
use linux_raw_sys::net as abi;
use nom_fs::Errno;

/// `recvmmsg` waits for the first message alone.
const MSG_WAITFORONE: u32 = 0x10000;
/// What is sent is not to be copied (`linux/socket.h`).
const MSG_ZEROCOPY: u32 = 0x0400_0000;
/// Words of `struct msghdr`.
const HEADER: usize = 7;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(
        nr::__NR_sendto,
        "sendto",
        &["descriptor", "buffer", "length", "flags", "address", "address_length"],
        send_to,
    ),
    SystemCall::complete(
        nr::__NR_recvfrom,
        "recvfrom",
        &["descriptor", "buffer", "length", "flags", "address", "address_length"],
        receive_from,
    ),
    SystemCall::partial(
        nr::__NR_sendmsg,
        "sendmsg",
        &["descriptor", "message", "flags"],
        |call| send_message(call, call.arguments[1], call.arguments[2] as u32),
        "urgent bytes (MSG_OOB) go to connections within the machine alone; of control data SCM_RIGHTS, \
         SCM_CREDENTIALS, and of UDP UDP_SEGMENT, IP_TTL, IP_TOS, IPV6_HOPLIMIT, IPV6_TCLASS; the address of \
         IP_PKTINFO is not looked at",
    ),
    SystemCall::partial(
        nr::__NR_recvmsg,
        "recvmsg",
        &["descriptor", "message", "flags"],
        |call| receive_message(call, call.arguments[1], call.arguments[2] as u32),
        "of control data SCM_RIGHTS, SCM_CREDENTIALS, of UDP IP_PKTINFO, IP_TTL, IP_TOS, those of IPv6, \
         SCM_TIMESTAMP, SCM_TIMESTAMPNS, UDP_GRO and SO_RXQ_OVFL of what is sent within the machine; of \
         errors (MSG_ERRQUEUE) refused datagrams of UDP, and that what was sent by MSG_ZEROCOPY was copied",
    ),
    SystemCall::partial(
        nr::__NR_sendmmsg,
        "sendmmsg",
        &["descriptor", "messages", "count", "flags"],
        send_many,
        "as sendmsg",
    ),
    SystemCall::partial(
        nr::__NR_recvmmsg,
        "recvmmsg",
        &["descriptor", "messages", "count", "flags", "timeout"],
        receive_many,
        "as recvmsg",
    ),
];

/// What `act` says; waits for it unless description or flags say not to, nor longer than the socket says.
pub(super) fn attempt<T>(
    call: &Call<'_>,
    description: &Description,
    (flags, within_ns): (u32, Option<u64>),
    mut act: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let stream = description.stream().ok_or(Errno::ENOTSOCK)?;
    match flags & abi::MSG_DONTWAIT {
        0 => wait_within(call, description, stream, within_ns, act),
        _ => act(),
    }
}

/// Sends all of this, unless it must not wait.
fn send(
    call: &Call<'_>,
    description: &Description,
    flags: u32,
    source: &Source<'_>,
    how: &Outgoing<'_>,
) -> Result<u64, Errno> {
    let socket = description.socket()?;
    let limits = (flags, socket.options().send_within_ns.get());
    let (is_urgent, is_begun) = (flags & abi::MSG_OOB != 0, flags & abi::MSG_MORE != 0);
    let mut how = Outgoing { is_urgent, is_begun, ..*how };
    let mut done = 0;
    loop {
        match attempt(call, description, limits, || socket.send_from(source, &how)) {
            Ok(count) => {
                source.pass(count);
                done += count;
            }
            Err(_) if done > 0 => break,
            Err(error) => {
                if error == Errno::EPIPE && flags & abi::MSG_NOSIGNAL == 0 {
                    call.raise(Signal::PIPE);
                }
                return Err(error);
            }
        }
        // They went with the first bytes.
        how.attached = None;
        if source.len() == 0 || description.is_nonblocking() || flags & abi::MSG_DONTWAIT != 0 {
            break;
        }
    }
    Ok(done as u64)
}

/// Sends what lies in pieces of the program's memory, a part at a time, as `how` says.
fn send_pieces(
    call: &Call<'_>,
    description: &Description,
    flags: u32,
    pieces: &[(u64, u64)],
    how: &Outgoing<'_>,
) -> Result<u64, Errno> {
    let mut attached = how.attached;
    let sent = give_pieces(call, description, pieces, Rest::Ends, |source| {
        let sent = send(call, description, flags, source, &Outgoing { attached, ..*how });
        // They went with the first bytes.
        attached = None;
        sent
    })?;
    let socket = description.socket()?;
    if flags & MSG_ZEROCOPY != 0 && sent > 0 && socket.options().lends.get() {
        socket.tell_copied();
    }
    Ok(sent)
}

fn send_to(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, buffer, len, flags, at, address_len] = call.arguments;
    let description = get(call, call.int(0))?;
    description.socket()?;
    let to = if at == 0 { None } else { Some(found(call, address(call, at, address_len)?)?) };
    let how = Outgoing { to: to.as_ref(), by: sender(call), ..Outgoing::plain(&[]) };
    send_pieces(call, &description, flags as u32, &[(buffer, len)], &how)
}

fn peeking(flags: u32) -> Peeking {
    if flags & abi::MSG_PEEK != 0 { Peeking::Stay } else { Peeking::Take }
}

/// Receives to where a program wants it, as flags say.
fn receive(
    call: &Call<'_>,
    description: &Description,
    flags: u32,
    to: &Destination<'_>,
) -> Result<Received, Errno> {
    const BY_BUFFER: u32 = abi::MSG_PEEK | abi::MSG_OOB | abi::MSG_ERRQUEUE;
    if flags & BY_BUFFER != 0 {
        let read = |bytes: &mut [u8]| receive_into(call, description, flags, bytes);
        return to.by_buffer(read, |received| received.count);
    }
    let socket = description.socket()?;
    if flags & abi::MSG_WAITALL != 0 && socket.names().1 == abi::SOCK_STREAM {
        return receive_all(call, description, flags, to);
    }
    let limits = (flags, socket.options().receive_within_ns.get());
    attempt(call, description, limits, || socket.receive_to(to))
}

/// Receives of a stream until there is no more room, the end, an error, or descriptors that came along
/// (recv(2), `MSG_WAITALL`).
fn receive_all(
    call: &Call<'_>,
    description: &Description,
    flags: u32,
    to: &Destination<'_>,
) -> Result<Received, Errno> {
    let socket = description.socket()?;
    let limits = (flags, socket.options().receive_within_ns.get());
    let mut received = attempt(call, description, limits, || socket.receive_to(to))?;
    while received.count > 0 && received.attached.is_empty() {
        let rest = to.behind(received.count, MESSAGE_BYTES);
        if rest.len() == 0 {
            break;
        }
        match attempt(call, description, limits, || socket.receive_to(&rest)) {
            Ok(more) if more.count > 0 => {
                let count = received.count + more.count;
                received = Received { count, whole: count, attached: more.attached, ..received };
            }
            _ => break,
        }
    }
    Ok(received)
}

/// Receives into a buffer, as flags say.
fn receive_into(
    call: &Call<'_>,
    description: &Description,
    flags: u32,
    target: &mut [u8],
) -> Result<Received, Errno> {
    let socket = description.socket()?;
    let (limits, peeking) = ((flags, socket.options().receive_within_ns.get()), peeking(flags));
    if flags & abi::MSG_ERRQUEUE != 0 {
        return socket.receive_error(target);
    }
    if flags & abi::MSG_OOB != 0 {
        return socket.receive_urgent(target, peeking).map(Received::bytes);
    }
    attempt(call, description, limits, || socket.receive(target, peeking))
}

/// What a call that received so many bytes returns.
fn told(socket: &dyn Socket, received: &Received, flags: u32) -> u64 {
    let is_message = socket.names().1 != abi::SOCK_STREAM;
    let is_whole = is_message && flags & abi::MSG_TRUNC != 0;
    (if is_whole { received.whole } else { received.count }) as u64
}

fn receive_from(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, buffer, len, flags, at, len_at] = call.arguments;
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let pieces = [(buffer, len)];
    let to = Destination::new(call, &pieces, MESSAGE_BYTES);
    let received = receive(call, &description, flags as u32, &to)?;
    match &received.from {
        Some(from) => drop(tell(call, socket, from, at, len_at)?),
        None if at != 0 && len_at != 0 => call.memory().write_value(len_at, &0_u32)?,
        None => {}
    }
    Ok(told(socket, &received, flags as u32))
}

/// `struct msghdr`, as words: name, its length, pieces, their count, control, its length, flags.
fn header(call: &Call<'_>, at: u64) -> Result<[u64; HEADER], Errno> {
    call.memory().read_value(at)
}

fn send_message(call: &Call<'_>, at: u64, flags: u32) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let [name, name_len, pieces_at, count, control, control_len, ..] = header(call, at)?;
    let to = match (name, name_len as u32) {
        (0, _) | (_, 0) => None,
        (name, len) => Some(found(call, address(call, name, len.into())?)?),
    };
    let pieces = pieces(call, pieces_at, count)?;
    let Control { attached, by, marks, segment } = control::read(call, socket, control, control_len)?;
    let how = Outgoing {
        bytes: &[],
        to: to.as_ref(),
        attached: attached.as_ref(),
        by: by.unwrap_or_else(|| sender(call)),
        is_signed: by.is_some(),
        is_urgent: false,
        is_begun: false,
        marks,
        segment,
    };
    send_pieces(call, &description, flags, &pieces, &how)
}

fn receive_message(call: &Call<'_>, at: u64, flags: u32) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let [name, name_len, pieces_at, count, control, control_len, ..] = header(call, at)?;
    let pieces = pieces(call, pieces_at, count)?;
    let received = receive(call, &description, flags, &Destination::new(call, &pieces, MESSAGE_BYTES))?;
    if name != 0 {
        let address = received.from.as_ref().map(|from: &Address| from.to_bytes(socket.names().0));
        let address = address.unwrap_or_default();
        let room = address.len().min(name_len as u32 as usize);
        call.memory().write(name, &address[..room])?;
        call.memory().write_value(at + 8, &(address.len() as u32))?;
    }
    let count = told(socket, &received, flags);
    let mut flags_told = 0;
    if socket.names().1 != abi::SOCK_STREAM && received.whole > received.count {
        flags_told |= abi::MSG_TRUNC;
    }
    if flags & abi::MSG_OOB != 0 {
        flags_told |= abi::MSG_OOB;
    }
    if received.report.is_some() {
        flags_told |= abi::MSG_ERRQUEUE;
    }
    let (used, cut) = control::write(call, socket, received, (control, control_len), flags)?;
    flags_told |= cut | flags & abi::MSG_CMSG_CLOEXEC;
    call.memory().write_value(at + 40, &[used, u64::from(flags_told)])?;
    Ok(count)
}

/// Bytes of `struct mmsghdr`, and where it says how long the message was.
const MESSAGE: u64 = 64;
const LENGTH: u64 = 56;

/// Does something with each of several messages, until one fails.
fn many(call: &Call<'_>, mut act: impl FnMut(u64, u32) -> Result<u64, Errno>) -> Result<u64, Errno> {
    const MESSAGES_MAX: u32 = 1024;
    let (at, count) = (call.arguments[1], (call.arguments[2] as u32).min(MESSAGES_MAX));
    for done in 0..count {
        let message = at + MESSAGE * u64::from(done);
        match act(message, done) {
            Ok(len) => call.memory().write_value(message + LENGTH, &(len as u32))?,
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done.into()),
        }
    }
    Ok(count.into())
}

fn send_many(call: &Call<'_>) -> Result<u64, Errno> {
    many(call, |at, _| send_message(call, at, call.arguments[3] as u32))
}

/// Receives until there are as many as are wanted, or, if a time is given, that is over when one came.
fn receive_many(call: &Call<'_>) -> Result<u64, Errno> {
    let flags = call.arguments[3] as u32;
    let deadline_ns = crate::calls::time::deadline_after(call, call.arguments[4])?;
    many(call, |at, done| {
        let is_late = deadline_ns.is_some_and(|deadline_ns| call.now().1 >= deadline_ns);
        if done > 0 && is_late {
            return Err(Errno::EAGAIN);
        }
        let waits = done == 0 || flags & MSG_WAITFORONE == 0;
        receive_message(call, at, flags & !MSG_WAITFORONE | if waits { 0 } else { abi::MSG_DONTWAIT })
    })
}
