//! What was set of a socket (socket(7), tcp(7), ip(7), ipv6(7), udp(7)).

use super::bound::{AddressFamilies, SharedUse};
use super::interfaces::LOOPBACK_INDEX;
use alloc::collections::BTreeMap;
use core::cell::{Cell, RefCell};
use core::net::IpAddr;
use core::time::Duration;
use linux_raw_sys::net as abi;
use nom_fs::Errno;
use nom_net::frame::Marks;
use nom_net::{KeepAlive, PeerTimeouts, SmallSegments};

/// Levels of options.
const SOCKET: u32 = abi::SOL_SOCKET;
pub(crate) const TCP: u32 = abi::IPPROTO_TCP as u32;
pub(crate) const UDP: u32 = abi::IPPROTO_UDP as u32;
pub(crate) const IP: u32 = abi::IPPROTO_IP as u32;
pub(crate) const IPV6: u32 = abi::IPPROTO_IPV6 as u32;

/// Of UDP (`linux/udp.h`): whether more comes to what is sent, how long the pieces are that a long datagram
/// goes in, and whether such pieces may come as one.
pub(crate) const UDP_CORK: u32 = 1;
pub(crate) const UDP_SEGMENT: u32 = 103;
pub(crate) const UDP_GRO: u32 = 104;

/// What an option that is remembered is at first. Each datagram asks for some, so no list is searched.
fn initial(level: u32, name: u32) -> Option<i32> {
    match level {
        SOCKET => of_socket(name),
        TCP => of_tcp(name),
        UDP => [UDP_CORK, UDP_SEGMENT, UDP_GRO].contains(&name).then_some(0),
        IP => of_ip(name),
        IPV6 => of_ipv6(name),
        _ => None,
    }
}

fn of_socket(name: u32) -> Option<i32> {
    Some(match name {
        abi::SO_REUSEADDR
        | abi::SO_REUSEPORT
        | abi::SO_KEEPALIVE
        | abi::SO_BROADCAST
        | abi::SO_OOBINLINE
        | abi::SO_PRIORITY
        | abi::SO_PASSCRED
        | abi::SO_DONTROUTE
        | abi::SO_INCOMING_CPU
        | abi::SO_BUSY_POLL
        | abi::SO_MARK
        | abi::SO_RXQ_OVFL
        | abi::SO_ZEROCOPY
        | abi::SO_TIMESTAMP
        | abi::SO_TIMESTAMPNS
        | abi::SO_TIMESTAMPING
        | abi::SO_BINDTOIFINDEX => 0,
        abi::SO_RCVLOWAT => 1,
        abi::SO_SNDBUF | abi::SO_RCVBUF => 212_992,
        _ => return None,
    })
}

fn of_tcp(name: u32) -> Option<i32> {
    Some(match name {
        abi::TCP_NODELAY
        | abi::TCP_CORK
        | abi::TCP_DEFER_ACCEPT
        | abi::TCP_USER_TIMEOUT
        | abi::TCP_FASTOPEN_CONNECT
        | abi::TCP_MAXSEG => 0,
        abi::TCP_QUICKACK => 1,
        abi::TCP_KEEPCNT => 9,
        abi::TCP_LINGER2 => 60,
        abi::TCP_KEEPINTVL => 75,
        abi::TCP_KEEPIDLE => 7200,
        _ => return None,
    })
}

fn of_ip(name: u32) -> Option<i32> {
    Some(match name {
        abi::IP_TOS
        | abi::IP_RECVERR
        | abi::IP_BIND_ADDRESS_NO_PORT
        | abi::IP_PKTINFO
        | abi::IP_RECVTTL
        | abi::IP_RECVTOS
        | abi::IP_RECVORIGDSTADDR
        | abi::IP_MULTICAST_IF => 0,
        abi::IP_MTU_DISCOVER | abi::IP_MULTICAST_TTL | abi::IP_MULTICAST_LOOP | abi::IP_MULTICAST_ALL => 1,
        abi::IP_TTL => 64,
        _ => return None,
    })
}

fn of_ipv6(name: u32) -> Option<i32> {
    Some(match name {
        abi::IPV6_V6ONLY
        | abi::IPV6_RECVPKTINFO
        | abi::IPV6_RECVHOPLIMIT
        | abi::IPV6_RECVTCLASS
        | abi::IPV6_RECVORIGDSTADDR
        | abi::IPV6_MULTICAST_IF
        | abi::IPV6_TCLASS
        | abi::IPV6_RECVERR
        | abi::IPV6_DONTFRAG => 0,
        abi::IPV6_MULTICAST_HOPS | abi::IPV6_MULTICAST_LOOP | abi::IPV6_MTU_DISCOVER => 1,
        abi::IPV6_UNICAST_HOPS => 64,
        _ => return None,
    })
}

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
    /// Whether what is sent may be the program's still for a while (`SO_ZEROCOPY`): each wait asks.
    pub lends: Cell<bool>,
}

impl Options {
    /// An option that is a number.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn get(&self, level: u32, name: u32) -> Result<i32, Errno> {
        let initial = initial(level, name).ok_or(Errno::ENOPROTOOPT)?;
        Ok(self.numbers.borrow().get(&(level, name)).copied().unwrap_or(initial))
    }

    /// Whether an option is known and on.
    pub fn has(&self, level: u32, name: u32) -> bool {
        self.get(level, name).is_ok_and(|value| value != 0)
    }

    /// What is said of others that want the same address.
    pub fn sharing(&self) -> SharedUse {
        let is_set = |name| self.has(SOCKET, name);
        match (is_set(abi::SO_REUSEPORT), is_set(abi::SO_REUSEADDR)) {
            (true, _) => SharedUse::Always,
            (false, true) => SharedUse::UnlessListening,
            (false, false) => SharedUse::Alone,
        }
    }

    /// Whether the time is told at which the stack received something (`SO_TIMESTAMPING`): it is to be taken,
    /// and told.
    pub fn tells_arrival(&self) -> bool {
        const RECEIVED: u32 =
            abi::SOF_TIMESTAMPING_RX_SOFTWARE as u32 | abi::SOF_TIMESTAMPING_SOFTWARE as u32;
        self.get(SOCKET, abi::SO_TIMESTAMPING).is_ok_and(|bits| bits as u32 & RECEIVED == RECEIVED)
    }

    /// Whether it is bound to the interface that leads to the machine itself (`SO_BINDTODEVICE`).
    pub fn stays_within(&self) -> bool {
        self.get(SOCKET, abi::SO_BINDTOIFINDEX).is_ok_and(|index| index as u32 == LOOPBACK_INDEX)
    }

    /// Whose addresses are meant by that of IPv6 which is everybody's.
    pub fn families(&self) -> AddressFamilies {
        match self.has(IPV6, abi::IPV6_V6ONLY) {
            true => AddressFamilies::Own,
            false => AddressFamilies::Both,
        }
    }

    /// How what is sent to an address is to be treated on its way.
    pub fn marks(&self, to: IpAddr) -> Marks {
        let (level, hops, class) = match (to, to.is_multicast()) {
            (IpAddr::V4(_), false) => (IP, abi::IP_TTL, abi::IP_TOS),
            (IpAddr::V4(_), true) => (IP, abi::IP_MULTICAST_TTL, abi::IP_TOS),
            (IpAddr::V6(_), false) => (IPV6, abi::IPV6_UNICAST_HOPS, abi::IPV6_TCLASS),
            (IpAddr::V6(_), true) => (IPV6, abi::IPV6_MULTICAST_HOPS, abi::IPV6_TCLASS),
        };
        let option = |name| self.get(level, name).map_or(0, |value| value as u8);
        Marks { hops: option(hops), class: option(class) }
    }

    /// When segments of a connection go that are not full (tcp(7)).
    pub fn small_segments(&self) -> SmallSegments {
        if self.has(TCP, abi::TCP_CORK) {
            SmallSegments::Held
        } else if self.has(TCP, abi::TCP_NODELAY) {
            SmallSegments::AtOnce
        } else {
            SmallSegments::Acknowledged
        }
    }

    /// How long segments may be, options included, if the program says so (tcp(7)).
    pub fn segments_max(&self) -> Option<u32> {
        self.get(TCP, abi::TCP_MAXSEG).ok().and_then(|most| u32::try_from(most).ok()).filter(|most| *most > 0)
    }

    /// How long a connection waits for a peer that says nothing (tcp(7)).
    pub fn peer_timeouts(&self) -> PeerTimeouts {
        let option = |name| self.get(TCP, name).map_or(0, |value| value.max(0) as u32);
        let seconds = |name| Duration::from_secs(option(name).into());
        let keep_alive = || KeepAlive {
            idle: seconds(abi::TCP_KEEPIDLE),
            interval: seconds(abi::TCP_KEEPINTVL),
            probes: option(abi::TCP_KEEPCNT),
        };
        let user_timeout = Duration::from_millis(option(abi::TCP_USER_TIMEOUT).into());
        PeerTimeouts {
            keep_alive: self.has(SOCKET, abi::SO_KEEPALIVE).then(keep_alive),
            user_timeout: Some(user_timeout).filter(|limit| !limit.is_zero()),
        }
    }

    /// Those of another, which it came from.
    pub fn inherit(&self, from: &Options) {
        self.numbers.borrow_mut().clone_from(&from.numbers.borrow());
        self.receive_within_ns.set(from.receive_within_ns.get());
        self.send_within_ns.set(from.send_within_ns.get());
        self.linger_s.set(from.linger_s.get());
        self.lends.set(from.lends.get());
    }

    /// Sets one.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn set(&self, level: u32, name: u32, value: i32) -> Result<(), Errno> {
        self.get(level, name)?;
        let value = in_range(level, name, value)?;
        // Linux takes twice what is asked for, and tells that.
        let is_buffer = level == SOCKET && [abi::SO_SNDBUF, abi::SO_RCVBUF].contains(&name);
        let value = if is_buffer { value.clamp(2304, 8 << 20).saturating_mul(2) } else { value };
        if (level, name) == (SOCKET, abi::SO_ZEROCOPY) {
            self.lends.set(value != 0);
        }
        let mut numbers = self.numbers.borrow_mut();
        if let (SOCKET, abi::SO_TIMESTAMP | abi::SO_TIMESTAMPNS) = (level, name) {
            // Times are told in one form.
            numbers.remove(&(SOCKET, abi::SO_TIMESTAMP));
            numbers.remove(&(SOCKET, abi::SO_TIMESTAMPNS));
        }
        numbers.insert((level, name), value);
        Ok(())
    }
}

/// Behind the last bit of `SO_TIMESTAMPING`.
const STAMPING_END: u32 = (abi::SOF_TIMESTAMPING_LAST as u32) << 1;

/// How many routers a packet passes is a byte; -1 is what it is at first. The length of a datagram is two.
fn in_range(level: u32, name: u32, value: i32) -> Result<i32, Errno> {
    let (least, first) = match (level, name) {
        (UDP, UDP_SEGMENT) if u16::try_from(value).is_err() => return Err(Errno::EINVAL),
        (UDP, UDP_CORK | UDP_GRO) | (SOCKET, abi::SO_KEEPALIVE) => return Ok((value != 0).into()),
        // As on Linux: MAX_TCP_KEEPIDLE and its like.
        (TCP, abi::TCP_KEEPIDLE | abi::TCP_KEEPINTVL) if !(1..=32_767).contains(&value) => {
            return Err(Errno::EINVAL);
        }
        (TCP, abi::TCP_KEEPCNT) if !(1..=127).contains(&value) => return Err(Errno::EINVAL),
        // `TCP_MIN_MSS` and `MAX_TCP_WINDOW`; 0 takes back what was said.
        (TCP, abi::TCP_MAXSEG) if value != 0 && !(88..=32_767).contains(&value) => return Err(Errno::EINVAL),
        (TCP, abi::TCP_USER_TIMEOUT) if value < 0 => return Err(Errno::EINVAL),
        (SOCKET, abi::SO_ZEROCOPY) if !(0..2).contains(&value) => return Err(Errno::EINVAL),
        (SOCKET, abi::SO_BINDTOIFINDEX) if value < 0 => return Err(Errno::EINVAL),
        (SOCKET, abi::SO_TIMESTAMPING) if value as u32 >= STAMPING_END => return Err(Errno::EINVAL),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cork_is_stronger_than_that_nothing_waits() {
        let options = Options::default();
        assert_eq!(options.small_segments(), SmallSegments::Acknowledged);
        options.set(TCP, abi::TCP_NODELAY, 1).expect("it is known");
        assert_eq!(options.small_segments(), SmallSegments::AtOnce);
        options.set(TCP, abi::TCP_CORK, 1).expect("it is known");
        assert_eq!(options.small_segments(), SmallSegments::Held);
        options.set(TCP, abi::TCP_CORK, 0).expect("it is known");
        assert_eq!(options.small_segments(), SmallSegments::AtOnce);
    }

    #[test]
    fn a_silent_peer_is_given_up_as_the_program_says() {
        let options = Options::default();
        assert_eq!(options.peer_timeouts(), PeerTimeouts::USUAL);
        options.set(SOCKET, abi::SO_KEEPALIVE, 5).expect("it is known");
        options.set(TCP, abi::TCP_KEEPINTVL, 7).expect("it is known");
        options.set(TCP, abi::TCP_USER_TIMEOUT, 1500).expect("it is known");
        let keep_alive =
            KeepAlive { idle: Duration::from_secs(7200), interval: Duration::from_secs(7), probes: 9 };
        let user_timeout = Some(Duration::from_millis(1500));
        assert_eq!(options.peer_timeouts(), PeerTimeouts { keep_alive: Some(keep_alive), user_timeout });
        assert_eq!(options.get(SOCKET, abi::SO_KEEPALIVE), Ok(1));
        for (name, bad) in [
            (abi::TCP_KEEPIDLE, 0),
            (abi::TCP_KEEPINTVL, 32_768),
            (abi::TCP_KEEPCNT, 128),
            (abi::TCP_USER_TIMEOUT, -1),
        ] {
            assert_eq!(options.set(TCP, name, bad), Err(Errno::EINVAL), "{name}");
        }
    }
}
