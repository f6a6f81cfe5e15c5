//! Sockets.

use super::make::add;
use super::messages::attempt;
use super::{get, with_vfs};
use crate::call::Call;
use crate::descriptors::datagrams::Datagrams;
use crate::descriptors::inet::Inet;
use crate::descriptors::local::Local;
use crate::descriptors::message::Sender;
use crate::descriptors::netlink::{self, Netlink};
use crate::descriptors::open::{Description, Object, Stream};
use crate::descriptors::places::{LocalKind, Place};
use crate::descriptors::ready::until_ready;
use crate::descriptors::socket::{Address, Side, Socket};
use crate::descriptors::udp::Udp;
use crate::table::SystemCall;
use alloc::rc::Rc;
use alloc::vec;
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{O_CLOEXEC, O_NONBLOCK, O_RDWR};
use linux_raw_sys::net as abi;
use nom_fs::{Access, Errno, LastLink, NodeType};

/// The most that a program may have wait to be accepted (`net.core.somaxconn`, tcp(7)).
const SOMAXCONN: u32 = 4096;

/// Most bytes of an address.
const ADDRESS_BYTES: u64 = 128;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        nr::__NR_socket,
        "socket",
        &["domain", "type", "protocol"],
        make,
        "TCP and UDP over IPv4 and IPv6, local sockets, netlink for interfaces and addresses",
    ),
    SystemCall::complete(
        nr::__NR_socketpair,
        "socketpair",
        &["domain", "type", "protocol", "descriptors"],
        make_pair,
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
        description.socket()?.listen((call.int(1) as u32).min(SOMAXCONN) as usize, sender(call)).map(|()| 0)
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
    SystemCall::complete(nr::__NR_connect, "connect", &["descriptor", "address", "length"], connect),
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
    let kind = kind & !flags;
    let protocol = call.arguments[2] as u32;
    let stream: Rc<dyn Stream> = match domain {
        abi::AF_INET | abi::AF_INET6 => make_inet(call, domain, kind, protocol)?,
        abi::AF_UNIX => {
            if ![0, abi::AF_UNIX].contains(&protocol) {
                return Err(Errno::EPROTONOSUPPORT);
            }
            let places = &call.family().sockets;
            match local_kind(kind)? {
                LocalKind::Datagrams => Rc::new(Datagrams::new(places, sender(call))),
                kind => Rc::new(Local::new(places, kind)),
            }
        }
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    add(call, opened(stream, flags), flags).map(|descriptor| descriptor as u64)
}

fn make_inet(call: &Call<'_>, domain: u32, kind: u32, protocol: u32) -> Result<Rc<dyn Stream>, Errno> {
    let network = call.family().network.as_ref().ok_or(Errno::EAFNOSUPPORT)?;
    let places = &call.family().sockets;
    let is_meant = |expected: u32| [0, expected].contains(&protocol);
    match kind {
        abi::SOCK_STREAM if is_meant(abi::IPPROTO_TCP as u32) => {
            Ok(Rc::new(Inet::new(network, places, domain)))
        }
        abi::SOCK_DGRAM if is_meant(abi::IPPROTO_UDP as u32) => {
            Ok(Rc::new(Udp::new(network, places, domain)))
        }
        abi::SOCK_STREAM | abi::SOCK_DGRAM => Err(Errno::EPROTONOSUPPORT),
        abi::SOCK_RAW => Err(Errno::EPERM),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

fn local_kind(kind: u32) -> Result<LocalKind, Errno> {
    match kind {
        abi::SOCK_STREAM => Ok(LocalKind::Stream),
        abi::SOCK_SEQPACKET => Ok(LocalKind::Packets),
        // Linux takes raw ones for those of datagrams, too.
        abi::SOCK_DGRAM | abi::SOCK_RAW => Ok(LocalKind::Datagrams),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// A socket that tells of interfaces and addresses; of netlink's other families there is none.
fn make_netlink(call: &Call<'_>, kind: u32, flags: u32) -> Result<u64, Errno> {
    const NETLINK_ROUTE: u32 = 0;
    if ![abi::SOCK_RAW, abi::SOCK_DGRAM].contains(&kind) {
        return Err(Errno::ESOCKTNOSUPPORT);
    }
    if call.arguments[2] as u32 != NETLINK_ROUTE {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let socket = Netlink::new(call.family().network.clone(), call.process().id, kind);
    add(call, opened(Rc::new(socket), flags), flags).map(|descriptor| descriptor as u64)
}

fn make_pair(call: &Call<'_>) -> Result<u64, Errno> {
    if call.arguments[0] as u32 != abi::AF_UNIX {
        return Err(Errno::EOPNOTSUPP);
    }
    let (kind, protocol) = (call.arguments[1] as u32, call.arguments[2] as u32);
    let flags = kind & (O_NONBLOCK | O_CLOEXEC);
    if ![0, abi::AF_UNIX].contains(&protocol) {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let places = &call.family().sockets;
    let (one, other): (Rc<dyn Stream>, Rc<dyn Stream>) = match local_kind(kind & !flags)? {
        LocalKind::Datagrams => {
            let (one, other) = Datagrams::pair(places, sender(call));
            (Rc::new(one), Rc::new(other))
        }
        kind => {
            let (one, other) = Local::pair(places, kind, sender(call));
            (Rc::new(one), Rc::new(other))
        }
    };
    let close = |descriptor: i32| call.process().descriptors.borrow().close(descriptor).unwrap_or(());
    let one = add(call, opened(one, flags), flags)?;
    let other = add(call, opened(other, flags), flags).inspect_err(|_| close(one))?;
    let told = call.memory().write_value(call.arguments[3], &[one, other]);
    told.map(|()| 0).inspect_err(|_| [one, other].into_iter().for_each(close))
}

pub(super) fn address(call: &Call<'_>, at: u64, len: u64) -> Result<Address, Errno> {
    if len > ADDRESS_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; len as usize];
    call.memory().read(at, &mut bytes)?;
    Address::read(&bytes)
}

/// Tells a program an address, as much of it as there is room for, if it asks.
pub(super) fn tell(
    call: &Call<'_>,
    socket: &dyn Socket,
    address: &Address,
    at: u64,
    len_at: u64,
) -> Result<u64, Errno> {
    if at == 0 || len_at == 0 {
        return Ok(0);
    }
    let bytes = address.to_bytes(socket.names().0);
    let room = call.memory().read_value::<u32>(len_at)? as usize;
    call.memory().write(at, &bytes[..bytes.len().min(room)])?;
    call.memory().write_value(len_at, &(bytes.len() as u32)).map(|()| 0)
}

/// Who makes a call.
pub(super) fn sender(call: &Call<'_>) -> Sender {
    let process = call.process();
    let group = process.view.borrow().credentials.group;
    Sender { process: process.id, user: process.user(), group }
}

/// An address with the node that its path leads to, if it is a path.
pub(super) fn found(call: &Call<'_>, address: Address) -> Result<Address, Errno> {
    match address {
        Address::Local(path) if path.first().is_some_and(|first| *first != 0) => {
            let node = with_vfs(call, |vfs, caller| {
                let node = vfs.resolve(caller, caller.directory, &path, LastLink::Follow)?;
                vfs.access(caller, node, Access::WRITE)?;
                if vfs.kind(node) == NodeType::Socket { Ok(node) } else { Err(Errno::ECONNREFUSED) }
            })?;
            Ok(Address::Found(Place::Node(node), path))
        }
        other => Ok(other),
    }
}

fn bind(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    match address(call, call.arguments[1], call.arguments[2])? {
        Address::Local(path) if path.first().is_some_and(|first| *first != 0) => {
            bind_to_path(call, socket, &path)
        }
        Address::Local(none) if none.is_empty() => {
            socket.bind(&Address::Local(call.family().sockets.free_name()?))
        }
        other => socket.bind(&other),
    }
    .map(|()| 0)
}

/// Makes the node of a local socket, which stays only if the socket has no name yet.
fn bind_to_path(call: &Call<'_>, socket: &dyn Socket, path: &[u8]) -> Result<(), Errno> {
    if socket.names().0 != abi::AF_UNIX {
        return socket.bind(&Address::Local(path.to_vec()));
    }
    let node = with_vfs(call, |vfs, caller| {
        vfs.make_node(caller, caller.directory, path, NodeType::Socket, 0o777, 0)
    });
    let node = node.map_err(|error| if error == Errno::EEXIST { Errno::EADDRINUSE } else { error })?;
    socket.bind(&Address::Found(Place::Node(node), path.to_vec())).inspect_err(|_| {
        // It was made just now.
        let _ = with_vfs(call, |vfs, caller| vfs.unlink(caller, caller.directory, path));
    })
}

fn connect(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let address = found(call, address(call, call.arguments[1], call.arguments[2])?)?;
    let begin = || socket.connect(&address, sender(call));
    let begun = begin();
    if description.is_nonblocking() {
        return begun.map(|()| 0);
    }
    let within_ns = socket.options().send_within_ns.get();
    let deadline_ns = within_ns.map(|ns| call.now().1.saturating_add(ns));
    // Whoever listens within the machine may have as many who wait as he wants.
    let begun = match begun {
        Err(Errno::EAGAIN) => {
            let room = &call.family().sockets.room;
            let waiting = until_ready(begin, |waker| room.add(waker));
            call.block_until(deadline_ns, waiting)?.unwrap_or(Err(Errno::EAGAIN))
        }
        begun => begun,
    };
    match begun {
        Err(Errno::EINPROGRESS) => {
            let stream = description.stream().ok_or(Errno::ENOTSOCK)?;
            let waiting = until_ready(|| socket.connected(), |waker| stream.wake(waker));
            let connected = call.block_until(deadline_ns, waiting)?;
            connected.unwrap_or(Err(Errno::EINPROGRESS)).map(|()| 0)
        }
        begun => begun.map(|()| 0),
    }
}

fn accept(call: &Call<'_>, flags: u32) -> Result<u64, Errno> {
    if flags & !(O_NONBLOCK | O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let within = socket.options().receive_within_ns.get();
    // Who has no descriptor left leaves the connection where it waits, and looks again later.
    let take = || call.process().descriptors.borrow().check_room().and_then(|()| socket.accept());
    let (stream, peer) = attempt(call, &description, (0, within), take)?;
    let accepted = opened(stream, flags);
    let descriptor = add(call, accepted, flags)?;
    tell(call, socket, &peer, call.arguments[1], call.arguments[2])?;
    Ok(descriptor as u64)
}
