//! What was set of a socket (socket(7), tcp(7), ip(7), ipv6(7), udp(7)).

use super::bound::{AddressFamilies, SharedUse};
use alloc::collections::BTreeMap;
use core::cell::{Cell, RefCell};
use linux_raw_sys::net as abi;
use nom_fs::Errno;

/// Options that are remembered, each with what it is at first.
const OPTIONS: &[(u32, u32, i32)] = &[
    (abi::SOL_SOCKET, abi::SO_REUSEADDR, 0),
    (abi::SOL_SOCKET, abi::SO_REUSEPORT, 0),
    (abi::SOL_SOCKET, abi::SO_KEEPALIVE, 0),
    (abi::SOL_SOCKET, abi::SO_BROADCAST, 0),
    (abi::SOL_SOCKET, abi::SO_SNDBUF, 212_992),
    (abi::SOL_SOCKET, abi::SO_RCVBUF, 212_992),
    (abi::SOL_SOCKET, abi::SO_OOBINLINE, 0),
    (abi::SOL_SOCKET, abi::SO_PRIORITY, 0),
    (abi::SOL_SOCKET, abi::SO_PASSCRED, 0),
    (abi::SOL_SOCKET, abi::SO_RCVLOWAT, 1),
    (abi::SOL_SOCKET, abi::SO_DONTROUTE, 0),
    (abi::SOL_SOCKET, abi::SO_INCOMING_CPU, 0),
    (abi::SOL_SOCKET, abi::SO_BUSY_POLL, 0),
    (abi::SOL_SOCKET, abi::SO_MARK, 0),
    (abi::SOL_SOCKET, abi::SO_TIMESTAMP, 0),
    (abi::SOL_SOCKET, abi::SO_TIMESTAMPNS, 0),
    (abi::IPPROTO_TCP as u32, abi::TCP_NODELAY, 0),
    (abi::IPPROTO_TCP as u32, abi::TCP_CORK, 0),
    (abi::IPPROTO_TCP as u32, abi::TCP_KEEPIDLE, 7200),
    (abi::IPPROTO_TCP as u32, abi::TCP_KEEPINTVL, 75),
    (abi::IPPROTO_TCP as u32, abi::TCP_KEEPCNT, 9),
    (abi::IPPROTO_TCP as u32, abi::TCP_DEFER_ACCEPT, 0),
    (abi::IPPROTO_TCP as u32, abi::TCP_QUICKACK, 1),
    (abi::IPPROTO_TCP as u32, abi::TCP_USER_TIMEOUT, 0),
    (abi::IPPROTO_TCP as u32, abi::TCP_LINGER2, 60),
    (abi::IPPROTO_TCP as u32, abi::TCP_MAXSEG, 1460),
    (abi::IPPROTO_TCP as u32, abi::TCP_FASTOPEN_CONNECT, 0),
    (abi::IPPROTO_IP as u32, abi::IP_TOS, 0),
    (abi::IPPROTO_IP as u32, abi::IP_TTL, 64),
    (abi::IPPROTO_IP as u32, abi::IP_MTU_DISCOVER, 1),
    (abi::IPPROTO_IP as u32, abi::IP_RECVERR, 0),
    (abi::IPPROTO_IP as u32, abi::IP_BIND_ADDRESS_NO_PORT, 0),
    (abi::IPPROTO_IP as u32, abi::IP_PKTINFO, 0),
    (abi::IPPROTO_IP as u32, abi::IP_RECVTTL, 0),
    (abi::IPPROTO_IP as u32, abi::IP_RECVTOS, 0),
    (abi::IPPROTO_IP as u32, abi::IP_RECVORIGDSTADDR, 0),
    (abi::IPPROTO_IP as u32, abi::IP_MULTICAST_TTL, 1),
    (abi::IPPROTO_IP as u32, abi::IP_MULTICAST_LOOP, 1),
    (abi::IPPROTO_IP as u32, abi::IP_MULTICAST_IF, 0),
    (abi::IPPROTO_IP as u32, abi::IP_MULTICAST_ALL, 1),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_V6ONLY, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_RECVPKTINFO, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_RECVHOPLIMIT, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_RECVTCLASS, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_RECVORIGDSTADDR, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_MULTICAST_HOPS, 1),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_MULTICAST_LOOP, 1),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_MULTICAST_IF, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_UNICAST_HOPS, 64),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_TCLASS, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_RECVERR, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_MTU_DISCOVER, 1),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_DONTFRAG, 0),
];

/// What was set of a socket's options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    numbers: RefCell<BTreeMap<(u32, u32), i32>>,
    /// Nanoseconds that a call waits to receive at most (`SO_RCVTIMEO`).
    pub receive_within_ns: Cell<Option<u64>>,
    /// To send (`SO_SNDTIMEO`).
    pub send_within_ns: Cell<Option<u64>>,
    /// Seconds that closing may take (`SO_LINGER`): with none, the connection is reset.
    pub linger_s: Cell<Option<u32>>,
}

impl Options {
    /// An option that is a number.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn get(&self, level: u32, name: u32) -> Result<i32, Errno> {
        let default = OPTIONS.iter().find(|option| (option.0, option.1) == (level, name));
        let (_, _, default) = default.ok_or(Errno::ENOPROTOOPT)?;
        Ok(self.numbers.borrow().get(&(level, name)).copied().unwrap_or(*default))
    }

    /// Whether an option is known and on.
    pub fn has(&self, level: u32, name: u32) -> bool {
        self.get(level, name).is_ok_and(|value| value != 0)
    }

    /// What is said of others that want the same address.
    pub fn sharing(&self) -> SharedUse {
        let is_set = |name| self.has(abi::SOL_SOCKET, name);
        match (is_set(abi::SO_REUSEPORT), is_set(abi::SO_REUSEADDR)) {
            (true, _) => SharedUse::Always,
            (false, true) => SharedUse::UnlessListening,
            (false, false) => SharedUse::Alone,
        }
    }

    /// Whose addresses are meant by that of IPv6 which is everybody's.
    pub fn families(&self) -> AddressFamilies {
        match self.has(abi::IPPROTO_IPV6 as u32, abi::IPV6_V6ONLY) {
            true => AddressFamilies::Own,
            false => AddressFamilies::Both,
        }
    }

    /// Those of another, which it came from.
    pub fn inherit(&self, from: &Options) {
        self.numbers.borrow_mut().clone_from(&from.numbers.borrow());
        self.receive_within_ns.set(from.receive_within_ns.get());
        self.send_within_ns.set(from.send_within_ns.get());
        self.linger_s.set(from.linger_s.get());
    }

    /// Sets one.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn set(&self, level: u32, name: u32, value: i32) -> Result<(), Errno> {
        self.get(level, name)?;
        let value = in_range(level, name, value)?;
        // Linux takes twice what is asked for, and tells that.
        let is_buffer = level == abi::SOL_SOCKET && [abi::SO_SNDBUF, abi::SO_RCVBUF].contains(&name);
        let value = if is_buffer { value.clamp(2304, 8 << 20).saturating_mul(2) } else { value };
        let mut numbers = self.numbers.borrow_mut();
        // Times are told in one form.
        for form in TIME_FORMS.iter().filter(|form| level == abi::SOL_SOCKET && **form != name) {
            if TIME_FORMS.contains(&name) {
                numbers.remove(&(level, *form));
            }
        }
        numbers.insert((level, name), value);
        Ok(())
    }
}

/// In which forms it is told when a datagram came.
const TIME_FORMS: [u32; 2] = [abi::SO_TIMESTAMP, abi::SO_TIMESTAMPNS];

/// How many routers a packet passes is a byte; -1 is what it is at first.
fn in_range(level: u32, name: u32, value: i32) -> Result<i32, Errno> {
    const IP: u32 = abi::IPPROTO_IP as u32;
    const IPV6: u32 = abi::IPPROTO_IPV6 as u32;
    let (least, first) = match (level, name) {
        (IP, abi::IP_TTL) => (1, 64),
        (IP, abi::IP_MULTICAST_TTL) => (0, 1),
        (IPV6, abi::IPV6_UNICAST_HOPS) => (0, 64),
        (IPV6, abi::IPV6_MULTICAST_HOPS) => (0, 1),
        (IPV6, abi::IPV6_TCLASS) => (0, 0),
        _ => return Ok(value),
    };
    match value {
        -1 => Ok(first),
        value if (least..256).contains(&value) => Ok(value),
        _ => Err(Errno::EINVAL),
    }
}
