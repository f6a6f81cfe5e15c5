//! Options of sockets: setsockopt(2), getsockopt(2).

use super::get;
use crate::call::Call;
use crate::descriptors::inet::is_within;
use crate::descriptors::interfaces::{NAME_BYTES, NETWORK_MTU, interface_named, interface_numbered};
use crate::descriptors::options::{IP, IPV6, Options, TCP, UDP};
use crate::descriptors::socket::{Address, Membership, Socket};
use crate::descriptors::tcp_info::segment_of;
use crate::table::SystemCall;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use linux_raw_sys::general as nr;
use linux_raw_sys::net as abi;
use nom_fs::Errno;

const NS_IN_S: u64 = 1_000_000_000;
const US_IN_S: u64 = 1_000_000;

/// The one control of congestion that there is (RFC 9438), and bytes of a name of one.
const CONGESTION: &[u8] = b"cubic";
const CONGESTION_BYTES: usize = 16;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        nr::__NR_setsockopt,
        "setsockopt",
        &["descriptor", "level", "name", "value", "length"],
        set_option,
        "reuse of addresses, time limits, SO_LINGER, SO_OOBINLINE, SO_PASSCRED, SO_BINDTODEVICE (before an \
         address; what is bound to eth0 hears the machine's own, too), SO_ZEROCOPY (and a copy), \
         TCP_NODELAY, TCP_CORK, UDP_CORK, TCP_MAXSEG, SO_KEEPALIVE and its times, TCP_USER_TIMEOUT, \
         IPV6_V6ONLY, addresses, headers and times of datagrams (IP_PKTINFO, IP_RECVTTL, SO_TIMESTAMP, \
         SO_TIMESTAMPING of what comes), how far they go and how they are treated (IP_TTL, IP_TOS), groups \
         within the machine, TCP_CONGESTION, which is cubic; the other usual ones are remembered",
    ),
    SystemCall::partial(
        nr::__NR_getsockopt,
        "getsockopt",
        &["descriptor", "level", "name", "value", "length"],
        get_option,
        "the usual ones; of TCP_INFO what the stack knows",
    ),
];

/// A `struct timeval`, in nanoseconds; none for no time, which means for ever.
fn time(call: &Call<'_>, at: u64, len: u32) -> Result<Option<u64>, Errno> {
    if len < 16 {
        return Err(Errno::EINVAL);
    }
    let [seconds, microseconds]: [i64; 2] = call.memory().read_value(at)?;
    if !(0..US_IN_S as i64).contains(&microseconds) {
        return Err(Errno::EDOM);
    }
    // One that is over before it begins is over at once.
    let seconds = seconds.max(0) as u64;
    let ns = seconds.saturating_mul(NS_IN_S).saturating_add(microseconds as u64 * 1000);
    Ok(Some(ns).filter(|ns| *ns > 0))
}

fn set_option(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let (level, name, at, len) =
        (call.arguments[1] as u32, call.arguments[2] as u32, call.arguments[3], call.arguments[4] as u32);
    let options = socket.options();
    match (level, name) {
        (abi::SOL_SOCKET, abi::SO_RCVTIMEO_OLD) => options.receive_within_ns.set(time(call, at, len)?),
        (abi::SOL_SOCKET, abi::SO_SNDTIMEO_OLD) => options.send_within_ns.set(time(call, at, len)?),
        (abi::SOL_SOCKET, abi::SO_LINGER) => {
            if len < 8 {
                return Err(Errno::EINVAL);
            }
            let [is_on, seconds]: [u32; 2] = call.memory().read_value(at)?;
            options.linger_s.set(Some(seconds).filter(|_| is_on != 0));
        }
        (abi::SOL_SOCKET, abi::SO_ZEROCOPY) if ![TCP, UDP].contains(&socket.names().2) => {
            return Err(Errno::EOPNOTSUPP);
        }
        (UDP, _) if socket.names().2 != UDP => return Err(Errno::ENOPROTOOPT),
        (abi::SOL_SOCKET, abi::SO_BINDTODEVICE) => bind_to_device(call, options, at, len)?,
        (IP, abi::IP_ADD_MEMBERSHIP) => change_membership(call, socket, Membership::Join)?,
        (IP, abi::IP_DROP_MEMBERSHIP) => change_membership(call, socket, Membership::Leave)?,
        (IPV6, abi::IPV6_ADD_MEMBERSHIP) => change_membership(call, socket, Membership::Join)?,
        (IPV6, abi::IPV6_DROP_MEMBERSHIP) => change_membership(call, socket, Membership::Leave)?,
        (TCP, abi::TCP_CONGESTION) => {
            let mut asked = [0; CONGESTION_BYTES];
            let asked = &mut asked[..CONGESTION_BYTES.min(len as usize)];
            call.memory().read(at, asked)?;
            if asked.split(|byte| *byte == 0).next() != Some(CONGESTION) {
                return Err(Errno::ENOENT);
            }
        }
        // An address of four bytes, or a structure that has one behind that of a group.
        (IP, abi::IP_MULTICAST_IF) => {
            let offset = if len >= 8 { 4 } else { 0 };
            options.set(level, name, call.memory().read_value(at.wrapping_add(offset))?)?;
        }
        _ => {
            let value = number(call, level, at, len)?;
            let name = match (level, name) {
                // Of root they are the same: there is no limit for others that it could pass.
                (abi::SOL_SOCKET, abi::SO_SNDBUFFORCE | abi::SO_RCVBUFFORCE) => unforced(call, name)?,
                _ => name,
            };
            options.set(level, name, value)?;
            socket.option_changed(level, name, value);
        }
    }
    Ok(0)
}

/// The option that root sets by another beyond its limit (socket(7)).
fn unforced(call: &Call<'_>, name: u32) -> Result<u32, Errno> {
    if call.process().user() != 0 {
        return Err(Errno::EPERM);
    }
    Ok(if name == abi::SO_SNDBUFFORCE { abi::SO_SNDBUF } else { abi::SO_RCVBUF })
}

/// An interface by its name, or all by none (socket(7)).
fn bind_to_device(call: &Call<'_>, options: &Options, at: u64, len: u32) -> Result<(), Errno> {
    let mut name = [0; NAME_BYTES];
    let len = (len as usize).min(NAME_BYTES - 1);
    call.memory().read(at, &mut name[..len])?;
    let index = match name[0] {
        0 => 0,
        _ => interface_named(call.family().network.as_ref(), &name)?.index,
    };
    options.set(abi::SOL_SOCKET, abi::SO_BINDTOIFINDEX, index as i32)
}

/// Its name, with a zero behind it, if it is bound to one; there must be room for any.
fn bound_device(call: &Call<'_>, options: &Options, room: usize) -> Result<Vec<u8>, Errno> {
    let index = options.get(abi::SOL_SOCKET, abi::SO_BINDTOIFINDEX)? as u32;
    if index == 0 {
        return Ok(Vec::new());
    }
    if room < NAME_BYTES {
        return Err(Errno::EINVAL);
    }
    let bound = interface_numbered(call.family().network.as_ref(), index)?;
    Ok([bound.name, &[0]].concat())
}

/// An option that is a number; those of IPv4 may be a byte.
fn number(call: &Call<'_>, level: u32, at: u64, len: u32) -> Result<i32, Errno> {
    match len {
        4.. => call.memory().read_value::<i32>(at),
        1.. if level == IP => call.memory().read_value::<u8>(at).map(i32::from),
        _ => Err(Errno::EINVAL),
    }
}

/// `struct ip_mreq` or `struct ipv6_mreq`: a group, and an interface, of which there is one.
fn change_membership(call: &Call<'_>, socket: &dyn Socket, change: Membership) -> Result<(), Errno> {
    let (at, len) = (call.arguments[3], call.arguments[4] as u32);
    if call.arguments[1] as u32 == IP {
        if len < 8 {
            return Err(Errno::EINVAL);
        }
        let [group, _]: [[u8; 4]; 2] = call.memory().read_value(at)?;
        return socket.change_membership(Ipv4Addr::from(group).into(), change);
    }
    if len < 20 {
        return Err(Errno::EINVAL);
    }
    let group: [u8; 16] = call.memory().read_value(at)?;
    socket.change_membership(Ipv6Addr::from(group).into(), change)
}

fn words(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct timeval`.
fn time_bytes(ns: Option<u64>) -> Vec<u8> {
    let ns = ns.unwrap_or(0);
    [ns / NS_IN_S, ns % NS_IN_S / 1000].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Bytes of the largest packet on the way to a peer.
fn path_mtu(call: &Call<'_>, socket: &dyn Socket) -> Result<i32, Errno> {
    let Address::Inet(peer) = socket.peer_address()? else { return Err(Errno::ENOPROTOOPT) };
    let leaves = call.family().network.as_ref().is_some_and(|network| !is_within(network, peer.ip()));
    Ok(if leaves { NETWORK_MTU as i32 } else { u16::MAX.into() })
}

fn get_option(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let socket = description.socket()?;
    let (level, name, at, len_at) =
        (call.arguments[1] as u32, call.arguments[2] as u32, call.arguments[3], call.arguments[4]);
    let (domain, kind, protocol) = socket.names();
    let options = socket.options();
    let room = call.memory().read_value::<u32>(len_at)? as usize;
    let bytes: Vec<u8> = match (level, name) {
        (abi::SOL_SOCKET, abi::SO_BINDTODEVICE) => bound_device(call, options, room)?,
        (UDP, _) if protocol != UDP => return Err(Errno::ENOPROTOOPT),
        (abi::SOL_SOCKET, abi::SO_TYPE) => words(&[kind as i32]),
        (abi::SOL_SOCKET, abi::SO_DOMAIN) => words(&[domain as i32]),
        (abi::SOL_SOCKET, abi::SO_PROTOCOL) => words(&[protocol as i32]),
        (abi::SOL_SOCKET, abi::SO_ERROR) => words(&[socket.take_error().map_or(0, Errno::code)]),
        (abi::SOL_SOCKET, abi::SO_ACCEPTCONN) => words(&[i32::from(socket.is_listening())]),
        (abi::SOL_SOCKET, abi::SO_LINGER) => {
            let linger = options.linger_s.get();
            words(&[i32::from(linger.is_some()), linger.unwrap_or(0) as i32])
        }
        (abi::SOL_SOCKET, abi::SO_PEERCRED) => {
            let none = [0, -1, -1];
            let peer = socket.peer_credentials();
            words(&peer.map_or(none, |peer| [peer.process, peer.user, peer.group].map(|id| id as i32)))
        }
        (abi::SOL_SOCKET, abi::SO_RCVTIMEO_OLD) => time_bytes(options.receive_within_ns.get()),
        (abi::SOL_SOCKET, abi::SO_SNDTIMEO_OLD) => time_bytes(options.send_within_ns.get()),
        (TCP, abi::TCP_CONGESTION) => {
            let mut name = CONGESTION.to_vec();
            name.resize(CONGESTION_BYTES, 0);
            name
        }
        (IP, abi::IP_MTU) | (IPV6, abi::IPV6_MTU) => words(&[path_mtu(call, socket)?]),
        // What Linux reckons with before it knows better.
        (TCP, abi::TCP_MAXSEG) if socket.peer_address().is_err() => {
            words(&[options.segments_max().map_or(536, |most| most as i32)])
        }
        (TCP, abi::TCP_MAXSEG) => {
            words(&[socket.tcp_info().and_then(|told| segment_of(&told)).ok_or(Errno::EOPNOTSUPP)?])
        }
        (TCP, abi::TCP_INFO) => socket.tcp_info().ok_or(Errno::EOPNOTSUPP)?,
        _ => words(&[options.get(level, name)?]),
    };
    let count = bytes.len().min(room);
    call.memory().write(at, &bytes[..count])?;
    call.memory().write_value(len_at, &(count as u32)).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn times_are_seconds_and_microseconds() {
        assert_eq!(
            time_bytes(Some(2_500_000_000)),
            [2_u64.to_ne_bytes(), 500_000_u64.to_ne_bytes()].concat()
        );
        assert_eq!(time_bytes(None), vec![0; 16]);
    }
}
