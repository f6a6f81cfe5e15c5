//! Sockets.

use super::io::{gathered, pieces, scatter};
use super::make::add;
use super::{get, with_vfs};
use crate::call::Call;
use crate::descriptors::inet::{Inet, Transport};
use crate::descriptors::local::{Local, Place};
use crate::descriptors::netlink::{self, Netlink};
use crate::descriptors::open::{Description, Object, Stream};
use crate::descriptors::ready::until_ready;
use crate::descriptors::socket::{Address, Peeking, Side, Socket};
use crate::signals::Signal;
use crate::table::SystemCall;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{O_CLOEXEC, O_NONBLOCK, O_RDWR};
use linux_raw_sys::net as abi;
use nom_fs::{Errno, LastLink, NodeType};

/// The most that a program may have wait to be accepted (`net.core.somaxconn`, tcp(7)).
const SOMAXCONN: u32 = 4096;

/// `recvmmsg` waits for the first message alone.
const MSG_WAITFORONE: u32 = 0x10000;

/// Most bytes of an address.
const ADDRESS_BYTES: u64 = 128;
/// Bytes that one call receives or sends at most.
const MESSAGE_BYTES: u64 = 256 << 10;
/// Bytes before the contents of control data (cmsg(3)), and most bytes of control data.
const CONTROL_HEAD: u64 = 16;
const CONTROL_MAX: u64 = 20_480;
/// `SOL_SOCKET` and `SCM_RIGHTS`, as one word.
const RIGHTS: u64 = abi::SOL_SOCKET as u64 | 1 << 32;
/// Most descriptors that go along with a message.
const RIGHTS_MAX: u64 = 253;
/// Words of `struct msghdr`.
const HEADER: usize = 7;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        nr::__NR_socket,
        "socket",
        &["domain", "type", "protocol"],
        make,
        "TCP and UDP over IPv4 and IPv6, local streams, netlink for interfaces and addresses",
    ),
    SystemCall::partial(
        nr::__NR_socketpair,
        "socketpair",
        &["domain", "type", "protocol", "descriptors"],
        make_pair,
        "local streams; datagrams and packets are streams, too",
    ),
    SystemCall::partial(
        nr::__NR_bind,
        "bind",
        &["descriptor", "address", "length"],
        bind,
        "to a port of all addresses, or of loopback addresses alone",
    ),
    SystemCall::complete(nr::__NR_listen, "listen", &["descriptor", "backlog"], |call| {
        let description = get(call, call.int(0))?;
        // A negative number is a large one to Linux, and its limit holds for all.
        description.socket()?.listen((call.int(1) as u32).min(SOMAXCONN) as usize).map(|()| 0)
    }),
    SystemCall::complete(nr::__NR_accept, "accept", &["descriptor", "address", "length"], |call| {
        accept(call, 0)
    }),
    SystemCall::complete(
        nr::__NR_accept4,
        "accept4",
        &["descriptor", "address", "length", "flags"],
        |call| accept(call, call.arguments[3] as u32),
    ),
    SystemCall::partial(
        nr::__NR_connect,
        "connect",
        &["descriptor", "address", "length"],
        connect,
        "no datagram is sent within the machine",
    ),
    SystemCall::complete(nr::__NR_getsockname, "getsockname", &["descriptor", "address", "length"], |call| {
        let description = get(call, call.int(0))?;
        let socket = description.socket()?;
        tell(call, socket, &socket.own_address(), call.arguments[1], call.arguments[2])
    }),
    SystemCall::complete(nr::__NR_getpeername, "getpeername", &["descriptor", "address", "length"], |call| {
        let description = get(call, call.int(0))?;
        let socket = description.socket()?;
        tell(call, socket, &socket.peer_address()?, call.arguments[1], call.arguments[2])
    }),
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
        "of control data descriptors alone (SCM_RIGHTS), through local sockets",
    ),
    SystemCall::partial(
        nr::__NR_recvmsg,
        "recvmsg",
        &["descriptor", "message", "flags"],
        |call| receive_message(call, call.arguments[1], call.arguments[2] as u32),
        "of control data descriptors alone (SCM_RIGHTS)",
    ),
    SystemCall::partial(
        nr::__NR_sendmmsg,
        "sendmmsg",
        &["descriptor", "messages", "count", "flags"],
        |call| many(call, |at| send_message(call, at, call.arguments[3] as u32)),
        "as sendmsg",
    ),
    SystemCall::partial(
        nr::__NR_recvmmsg,
        "recvmmsg",
        &["descriptor", "messages", "count", "flags", "timeout"],
        |call| many(call, |at| receive_message(call, at, call.arguments[3] as u32)),
        "as recvmsg; waits for the first alone",
    ),
    SystemCall::complete(nr::__NR_shutdown, "shutdown", &["descriptor", "how"], |call| {
        let side = match call.arguments[1] as u32 {
            abi::SHUT_RD => Side::Receive,
            abi::SHUT_WR => Side::Send,
            abi::SHUT_RDWR => Side::Both,
            _ => return Err(Errno::EINVAL),
        };
        let description = get(call, call.int(0))?;
        description.socket()?.shut(side).map(|()| 0)
    }),
    SystemCall::partial(
        nr::__NR_setsockopt,
        "setsockopt",
        &["descriptor", "level", "name", "value", "length"],
        set_option,
        "TCP_NODELAY has an effect; the other usual ones are remembered",
    ),
    SystemCall::partial(
        nr::__NR_getsockopt,
        "getsockopt",
        &["descriptor", "level", "name", "value", "length"],
        get_option,
        "the usual ones; no TCP_INFO",
    ),
];

fn opened(stream: Rc<dyn Stream>, flags: u32) -> Rc<Description> {
    Description::new(Object::Stream(stream), O_RDWR | flags & O_NONBLOCK)
}

fn make(call: &Call<'_>) -> Result<u64, Errno> {
    let (domain, kind) = (call.arguments[0] as u32, call.arguments[1] as u32);
    let flags = kind & (O_NONBLOCK | O_CLOEXEC);
    if domain == netlink::DOMAIN {
        return make_netlink(call, kind & !flags, flags);
    }
    let transport = match kind & !flags {
        abi::SOCK_STREAM => Transport::Tcp,
        abi::SOCK_DGRAM => Transport::Udp,
        abi::SOCK_RAW => return Err(Errno::EPERM),
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    let protocol = call.arguments[2] as u32;
    let stream: Rc<dyn Stream> = match domain {
        abi::AF_INET | abi::AF_INET6 => {
            let network = call.family().network.as_ref().ok_or(Errno::EAFNOSUPPORT)?;
            let expected = match transport {
                Transport::Tcp => abi::IPPROTO_TCP as u32,
                Transport::Udp => abi::IPPROTO_UDP as u32,
            };
            if protocol != 0 && protocol != expected {
                return Err(Errno::EPROTONOSUPPORT);
            }
            Rc::new(Inet::new(network, &call.family().sockets, domain, transport))
        }
        abi::AF_UNIX if transport == Transport::Tcp => Rc::new(Local::new(&call.family().sockets)),
        abi::AF_UNIX => return Err(Errno::ESOCKTNOSUPPORT),
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    add(call, opened(stream, flags), flags).map(|descriptor| descriptor as u64)
}

/// A socket that tells of interfaces and addresses; of netlink's other families there is none.
fn make_netlink(call: &Call<'_>, kind: u32, flags: u32) -> Result<u64, Errno> {
    const NETLINK_ROUTE: u64 = 0;
    if ![abi::SOCK_RAW, abi::SOCK_DGRAM].contains(&kind) {
        return Err(Errno::ESOCKTNOSUPPORT);
    }
    if call.arguments[2] != NETLINK_ROUTE {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let socket = Netlink::new(call.family().network.clone(), call.process().id, kind);
    add(call, opened(Rc::new(socket), flags), flags).map(|descriptor| descriptor as u64)
}

fn make_pair(call: &Call<'_>) -> Result<u64, Errno> {
    if call.arguments[0] as u32 != abi::AF_UNIX {
        return Err(Errno::EOPNOTSUPP);
    }
    let flags = call.arguments[1] as u32;
    let (one, other) = Local::pair(&call.family().sockets);
    let one = add(call, opened(Rc::new(one), flags), flags)?;
    let other = add(call, opened(Rc::new(other), flags), flags)?;
    call.memory().write_value(call.arguments[3], &[one, other]).map(|()| 0)
}

fn address(call: &Call<'_>, at: u64, len: u64) -> Result<Address, Errno> {
    if len > ADDRESS_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; len as usize];
    call.memory().read(at, &mut bytes)?;
    Address::read(&bytes)
}

/// Tells a program an address, as much of it as there is room for, if it asks.
fn tell(call: &Call<'_>, socket: &dyn Socket, address: &Address, at: u64, len_at: u64) -> Result<u64, Errno> {
    if at == 0 || len_at == 0 {
        return Ok(0);
    }
    let bytes = address.to_bytes(socket.names().0);
    let room = call.memory().read_value::<u32>(len_at)? as usize;
    call.memory().write(at, &bytes[..bytes.len().min(room)])?;
    call.memory().write_value(len_at, &(bytes.len() as u32)).map(|()| 0)
}

/// The local socket, with the place that its path leads to, if a socket is named by one.
fn bind(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let address = address(call, call.arguments[1], call.arguments[2])?;
    match (&address, socket.local()) {
        (Address::Local(path), Some(local)) if path.first().is_some_and(|first| *first != 0) => {
            let node = with_vfs(call, |vfs, caller| {
                vfs.make_node(caller, caller.directory, path, NodeType::Socket, 0o777, 0)
            });
            let node =
                node.map_err(|error| if error == Errno::EEXIST { Errno::EADDRINUSE } else { error })?;
            local.bind_at(Place::Node(node), path)?;
        }
        _ => socket.bind(&address)?,
    }
    Ok(0)
}

fn connect(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let address = address(call, call.arguments[1], call.arguments[2])?;
    if let (Address::Local(path), Some(local)) = (&address, socket.local())
        && path.first().is_some_and(|first| *first != 0)
    {
        let node =
            with_vfs(call, |vfs, caller| vfs.resolve(caller, caller.directory, path, LastLink::Follow))?;
        return local.connect_to(&Place::Node(node), path).map(|()| 0);
    }
    match socket.connect(&address) {
        Err(Errno::EINPROGRESS) if !description.is_nonblocking() => {
            let stream = description.stream().ok_or(Errno::ENOTSOCK)?;
            call.block_on(until_ready(|| socket.connected(), |waker| stream.wake(waker)))?.map(|()| 0)
        }
        result => result.map(|()| 0),
    }
}

fn accept(call: &Call<'_>, flags: u32) -> Result<u64, Errno> {
    if flags & !(O_NONBLOCK | O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let (stream, peer) = attempt(call, &description, 0, || socket.accept())?;
    let accepted = opened(stream, flags);
    let descriptor = add(call, accepted, flags)?;
    tell(call, socket, &peer, call.arguments[1], call.arguments[2])?;
    Ok(descriptor as u64)
}

/// What `act` says; waits for it unless description or flags say not to.
fn attempt<T>(
    call: &Call<'_>,
    description: &Description,
    flags: u32,
    act: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let stream = description.stream().ok_or(Errno::ENOTSOCK)?;
    let mut act = act;
    match act() {
        Err(Errno::EAGAIN) if !description.is_nonblocking() && flags & abi::MSG_DONTWAIT == 0 => {
            call.block_on(until_ready(act, |waker| stream.wake(waker)))?
        }
        result => result,
    }
}

/// Sends all of this, unless it must not wait.
fn send(
    call: &Call<'_>,
    description: &Description,
    bytes: &[u8],
    flags: u32,
    to: Option<&Address>,
) -> Result<u64, Errno> {
    let socket = description.socket()?;
    let mut done = 0;
    loop {
        match attempt(call, description, flags, || socket.send(&bytes[done..], to)) {
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(error) => {
                if error == Errno::EPIPE && flags & abi::MSG_NOSIGNAL == 0 {
                    call.raise(Signal::PIPE);
                }
                return Err(error);
            }
        }
        if done >= bytes.len() || description.is_nonblocking() || flags & abi::MSG_DONTWAIT != 0 {
            break;
        }
    }
    Ok(done as u64)
}

fn send_to(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, buffer, len, flags, at, address_len] = call.arguments;
    let description = get(call, call.int(0))?;
    description.socket()?;
    let to = if at == 0 { None } else { Some(address(call, at, address_len)?) };
    let mut bytes = call.buffer(len.min(MESSAGE_BYTES) as usize);
    call.memory().read(buffer, &mut bytes)?;
    send(call, &description, &bytes, flags as u32, to.as_ref())
}

fn peeking(flags: u32) -> Peeking {
    if flags & abi::MSG_PEEK != 0 { Peeking::Stay } else { Peeking::Take }
}

fn receive_from(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, buffer, len, flags, at, len_at] = call.arguments;
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let mut bytes = call.buffer(len.min(MESSAGE_BYTES) as usize);
    let received =
        attempt(call, &description, flags as u32, || socket.receive(&mut bytes, peeking(flags as u32)))?;
    call.memory().write(buffer, &bytes[..received.count])?;
    if let Some(from) = &received.from {
        tell(call, socket, from, at, len_at)?;
    }
    Ok(received.count as u64)
}

/// `struct msghdr`, as words: name, its length, pieces, their count, control, its length, flags.
fn header(call: &Call<'_>, at: u64) -> Result<[u64; HEADER], Errno> {
    call.memory().read_value(at)
}

/// Descriptors that go along with a message: those of each `SCM_RIGHTS` of its control data.
fn rights(call: &Call<'_>, at: u64, len: u64) -> Result<Vec<Rc<Description>>, Errno> {
    let mut found = Vec::new();
    let mut next = 0;
    while at != 0 && next + CONTROL_HEAD <= len.min(CONTROL_MAX) {
        let [bytes, kind]: [u64; 2] = call.memory().read_value(at + next)?;
        if bytes < CONTROL_HEAD || bytes > len - next || kind != RIGHTS {
            return Err(Errno::EINVAL);
        }
        let count = (bytes - CONTROL_HEAD) / 4;
        if found.len() as u64 + count > RIGHTS_MAX {
            return Err(Errno::EINVAL);
        }
        for index in 0..count {
            let descriptor = call.memory().read_value::<i32>(at + next + CONTROL_HEAD + 4 * index)?;
            found.push(get(call, descriptor)?);
        }
        next += bytes.next_multiple_of(8);
    }
    Ok(found)
}

/// Gives the caller descriptors that came with a message, as many as its control data has room for: bytes of
/// that, and the message's flags.
fn hand_over(
    call: &Call<'_>,
    came: Vec<Rc<Description>>,
    (at, len): (u64, u64),
    flags: u32,
) -> Result<[u64; 2], Errno> {
    if came.is_empty() {
        return Ok([0, 0]);
    }
    let room = if at == 0 { 0 } else { len.saturating_sub(CONTROL_HEAD) / 4 };
    let count = room.min(came.len() as u64);
    let truncated = if count < came.len() as u64 { u64::from(abi::MSG_CTRUNC) } else { 0 };
    if count == 0 {
        return Ok([0, truncated]);
    }
    call.memory().write_value(at, &[CONTROL_HEAD + 4 * count, RIGHTS])?;
    let on_exec = if flags & abi::MSG_CMSG_CLOEXEC != 0 { O_CLOEXEC } else { 0 };
    for (index, description) in (0..).zip(came.into_iter().take(count as usize)) {
        let descriptor = add(call, description, on_exec)?;
        call.memory().write_value(at + CONTROL_HEAD + 4 * index, &descriptor)?;
    }
    Ok([(CONTROL_HEAD + 4 * count).next_multiple_of(8).min(len), truncated])
}

fn send_message(call: &Call<'_>, at: u64, flags: u32) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let [name, name_len, pieces_at, count, control, control_len, ..] = header(call, at)?;
    let to = if name == 0 { None } else { Some(address(call, name, u64::from(name_len as u32))?) };
    let bytes = gathered(call, &pieces(call, pieces_at, count)?)?;
    let attached = rights(call, control, control_len)?;
    if attached.is_empty() {
        return send(call, &description, &bytes, flags, to.as_ref());
    }
    let local = socket.local().ok_or(Errno::EINVAL)?;
    let sent = attempt(call, &description, flags, || local.send_with(&bytes, &attached))?;
    // The rest is told of by who sends it again, as after any part.
    Ok(sent as u64)
}

fn receive_message(call: &Call<'_>, at: u64, flags: u32) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let [name, name_len, pieces_at, count, control, control_len, ..] = header(call, at)?;
    let pieces = pieces(call, pieces_at, count)?;
    let len: u64 = pieces.iter().map(|(_, len)| len).sum();
    let mut bytes = call.buffer(len.min(MESSAGE_BYTES) as usize);
    let mut attached = Vec::new();
    let received = attempt(call, &description, flags, || match socket.local() {
        Some(local) if peeking(flags) == Peeking::Take => local.receive_with(&mut bytes, &mut attached),
        _ => socket.receive(&mut bytes, peeking(flags)),
    })?;
    scatter(call, &pieces, &bytes[..received.count])?;
    let mut told = 0;
    if let Some(from) = received.from.filter(|_| name != 0) {
        let address = from.to_bytes(socket.names().0);
        let room = address.len().min(name_len as u32 as usize);
        call.memory().write(name, &address[..room])?;
        told = address.len() as u32;
    }
    call.memory().write_value(at + 8, &told)?;
    let told = hand_over(call, attached, (control, control_len), flags)?;
    call.memory().write_value(at + 40, &told)?;
    Ok(received.count as u64)
}

/// Does something with each of several messages, until one fails.
fn many(call: &Call<'_>, act: impl Fn(u64) -> Result<u64, Errno>) -> Result<u64, Errno> {
    const MESSAGE: u64 = 64;
    let (at, count) = (call.arguments[1], call.arguments[2] as u32);
    let mut done = 0;
    while done < count {
        let message = at + MESSAGE * u64::from(done);
        match act(message) {
            Ok(len) => call.memory().write_value(message + 56, &(len as u32))?,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        done += 1;
        if call.arguments[3] as u32 & MSG_WAITFORONE != 0 || get(call, call.int(0))?.is_nonblocking() {
            continue;
        }
        break;
    }
    Ok(done.into())
}

fn set_option(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let (level, name, at, len) =
        (call.arguments[1] as u32, call.arguments[2] as u32, call.arguments[3], call.arguments[4]);
    let is_time = level == abi::SOL_SOCKET && [abi::SO_RCVTIMEO_OLD, abi::SO_SNDTIMEO_OLD].contains(&name);
    if is_time {
        let [seconds, microseconds]: [u64; 2] = call.memory().read_value(at)?;
        // None is what there is anyway.
        return if (seconds, microseconds) == (0, 0) { Ok(0) } else { Err(Errno::ENOPROTOOPT) };
    }
    if (len as u32) < 4 {
        return Err(Errno::EINVAL);
    }
    let value = call.memory().read_value::<i32>(at)?;
    socket.options().set(level, name, value)?;
    socket.option_changed(level, name, value);
    Ok(0)
}

fn get_option(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let (level, name, at, len_at) =
        (call.arguments[1] as u32, call.arguments[2] as u32, call.arguments[3], call.arguments[4]);
    let (domain, kind, protocol) = socket.names();
    let words: Vec<i32> = match (level, name) {
        (abi::SOL_SOCKET, abi::SO_TYPE) => vec![kind as i32],
        (abi::SOL_SOCKET, abi::SO_DOMAIN) => vec![domain as i32],
        (abi::SOL_SOCKET, abi::SO_PROTOCOL) => vec![protocol as i32],
        (abi::SOL_SOCKET, abi::SO_ERROR) => vec![socket.take_error().map_or(0, Errno::code)],
        (abi::SOL_SOCKET, abi::SO_ACCEPTCONN) => vec![i32::from(socket.is_listening())],
        (abi::SOL_SOCKET, abi::SO_LINGER) => vec![socket.options().get(level, name)?, 0],
        (abi::SOL_SOCKET, abi::SO_RCVTIMEO_OLD | abi::SO_SNDTIMEO_OLD) => vec![0; 4],
        _ => vec![socket.options().get(level, name)?],
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let room = call.memory().read_value::<u32>(len_at)? as usize;
    let count = bytes.len().min(room);
    call.memory().write(at, &bytes[..count])?;
    call.memory().write_value(len_at, &(count as u32)).map(|()| 0)
}
