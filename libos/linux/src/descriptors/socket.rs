//! What all sockets have in common: addresses, options, and the calls that they take.

use super::netlink;
use super::open::Stream;
use super::ready::Events;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use linux_raw_sys::net as abi;
use nom_fs::Errno;

/// Bytes of a path of a local socket.
const PATH_BYTES: usize = 108;

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Of the network.
    Inet(SocketAddr),
    /// A path; an abstract name begins with a zero; none is empty.
    Local(Vec<u8>),
    /// Of netlink: a port.
    Netlink(u32),
    /// None: `AF_UNSPEC`.
    Unspecified,
}

impl Address {
    /// What a program passes.
    ///
    /// # Errors
    /// `EINVAL` if it is too short; `EAFNOSUPPORT`.
    pub fn read(bytes: &[u8]) -> Result<Address, Errno> {
        let family = bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)?;
        let port =
            || bytes.get(2..4).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]])).ok_or(Errno::EINVAL);
        match u32::from(family) {
            abi::AF_UNSPEC => Ok(Address::Unspecified),
            abi::AF_INET => {
                let address =
                    bytes.get(4..8).and_then(|bytes| bytes.first_chunk::<4>()).ok_or(Errno::EINVAL)?;
                Ok(Address::Inet(SocketAddr::new(Ipv4Addr::from(*address).into(), port()?)))
            }
            abi::AF_INET6 => {
                let address =
                    bytes.get(8..24).and_then(|bytes| bytes.first_chunk::<16>()).ok_or(Errno::EINVAL)?;
                let address = Ipv6Addr::from(*address);
                let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
                Ok(Address::Inet(SocketAddr::new(address, port()?)))
            }
            abi::AF_UNIX => {
                let path = bytes.get(2..).unwrap_or_default();
                let path = path.get(..path.len().min(PATH_BYTES)).unwrap_or_default();
                let is_abstract = path.first() == Some(&0);
                let end = path.iter().position(|byte| *byte == 0).filter(|_| !is_abstract);
                Ok(Address::Local(path[..end.unwrap_or(path.len())].to_vec()))
            }
            netlink::DOMAIN => {
                let port = bytes.get(4..8).and_then(|bytes| bytes.first_chunk()).ok_or(Errno::EINVAL)?;
                Ok(Address::Netlink(u32::from_ne_bytes(*port)))
            }
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// What a program is told, of a socket of this domain.
    pub fn to_bytes(&self, domain: u32) -> Vec<u8> {
        match self {
            Address::Unspecified => Vec::from((abi::AF_UNSPEC as u16).to_ne_bytes()),
            Address::Netlink(port) => {
                let mut bytes = Vec::from((netlink::DOMAIN as u16).to_ne_bytes());
                bytes.extend([0; 2]);
                bytes.extend(port.to_ne_bytes());
                bytes.extend([0; 4]);
                bytes
            }
            Address::Local(path) => {
                let mut bytes = Vec::from((abi::AF_UNIX as u16).to_ne_bytes());
                bytes.extend_from_slice(path);
                if !path.is_empty() && path[0] != 0 {
                    bytes.push(0);
                }
                bytes
            }
            Address::Inet(address) => match (address.ip(), domain) {
                (IpAddr::V4(ip), abi::AF_INET) => {
                    let mut bytes = Vec::from((abi::AF_INET as u16).to_ne_bytes());
                    bytes.extend_from_slice(&address.port().to_be_bytes());
                    bytes.extend_from_slice(&ip.octets());
                    bytes.extend_from_slice(&[0; 8]);
                    bytes
                }
                (ip, _) => {
                    let ip = match ip {
                        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                        IpAddr::V6(ip) => ip,
                    };
                    let mut bytes = Vec::from((abi::AF_INET6 as u16).to_ne_bytes());
                    bytes.extend_from_slice(&address.port().to_be_bytes());
                    bytes.extend_from_slice(&[0; 4]);
                    bytes.extend_from_slice(&ip.octets());
                    bytes.extend_from_slice(&[0; 4]);
                    bytes
                }
            },
        }
    }
}

/// What was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes that were put where they belong.
    pub count: usize,
    /// Whence they came, if that is not the peer.
    pub from: Option<Address>,
}

/// Whether what is received stays to be received once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peeking {
    /// It is gone.
    Take,
    /// It stays: `MSG_PEEK`.
    Stay,
}

/// Which sides are shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Nothing more is received.
    Receive,
    /// Nothing more is sent.
    Send,
    /// Neither.
    Both,
}

/// A socket. No call blocks: it says `EAGAIN`.
pub(crate) trait Socket {
    /// `AF_*`, `SOCK_*` and the protocol.
    fn names(&self) -> (u32, u32, u32);
    /// Gives it an address of its own.
    ///
    /// # Errors
    /// As bind(2).
    fn bind(&self, address: &Address) -> Result<(), Errno>;
    /// Has it wait for connections.
    ///
    /// # Errors
    /// As listen(2).
    fn listen(&self, backlog: usize) -> Result<(), Errno>;
    /// A connection that waits.
    ///
    /// # Errors
    /// As accept(2).
    fn accept(&self) -> Result<(Rc<dyn Stream>, Address), Errno>;
    /// Asks for a connection; of datagrams, names the peer.
    ///
    /// # Errors
    /// As connect(2): `EINPROGRESS` if [`Socket::connected`] will tell.
    fn connect(&self, address: &Address) -> Result<(), Errno>;
    /// Whether the connection that was asked for is open.
    ///
    /// # Errors
    /// `EAGAIN` if that is not known yet; why not.
    fn connected(&self) -> Result<(), Errno>;
    /// Sends.
    ///
    /// # Errors
    /// As send(2).
    fn send(&self, bytes: &[u8], to: Option<&Address>) -> Result<usize, Errno>;
    /// Receives.
    ///
    /// # Errors
    /// As recv(2).
    fn receive(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno>;
    /// Shuts a side.
    ///
    /// # Errors
    /// As shutdown(2).
    fn shut(&self, side: Side) -> Result<(), Errno>;
    /// Its own address.
    fn own_address(&self) -> Address;
    /// Its peer's.
    ///
    /// # Errors
    /// `ENOTCONN`.
    fn peer_address(&self) -> Result<Address, Errno>;
    /// Why it failed, if nobody was told yet.
    fn take_error(&self) -> Option<Errno>;
    /// Whether it waits for connections.
    fn is_listening(&self) -> bool;
    /// Its options.
    fn options(&self) -> &Options;
    /// It as a local one.
    fn local(&self) -> Option<&super::local::Local> {
        None
    }
    /// An option was set.
    fn option_changed(&self, _level: u32, _name: u32, _value: i32) {}
}

/// Options that are remembered, each with what it is at first.
const OPTIONS: [(u32, u32, i32); 33] = [
    (abi::SOL_SOCKET, abi::SO_REUSEADDR, 0),
    (abi::SOL_SOCKET, abi::SO_REUSEPORT, 0),
    (abi::SOL_SOCKET, abi::SO_KEEPALIVE, 0),
    (abi::SOL_SOCKET, abi::SO_BROADCAST, 0),
    (abi::SOL_SOCKET, abi::SO_SNDBUF, 212_992),
    (abi::SOL_SOCKET, abi::SO_RCVBUF, 212_992),
    (abi::SOL_SOCKET, abi::SO_LINGER, 0),
    (abi::SOL_SOCKET, abi::SO_OOBINLINE, 0),
    (abi::SOL_SOCKET, abi::SO_PRIORITY, 0),
    (abi::SOL_SOCKET, abi::SO_PASSCRED, 0),
    (abi::SOL_SOCKET, abi::SO_RCVLOWAT, 1),
    (abi::SOL_SOCKET, abi::SO_DONTROUTE, 0),
    (abi::SOL_SOCKET, abi::SO_INCOMING_CPU, 0),
    (abi::SOL_SOCKET, abi::SO_BUSY_POLL, 0),
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
    (abi::IPPROTO_IP as u32, abi::IP_TOS, 0),
    (abi::IPPROTO_IP as u32, abi::IP_TTL, 64),
    (abi::IPPROTO_IP as u32, abi::IP_MTU_DISCOVER, 1),
    (abi::IPPROTO_IP as u32, abi::IP_RECVERR, 0),
    (abi::IPPROTO_IP as u32, abi::IP_BIND_ADDRESS_NO_PORT, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_V6ONLY, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_UNICAST_HOPS, 64),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_TCLASS, 0),
    (abi::IPPROTO_IPV6 as u32, abi::IPV6_RECVERR, 0),
];

/// What was set of a socket's options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options(RefCell<BTreeMap<(u32, u32), i32>>);

impl Options {
    /// An option that is a number.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn get(&self, level: u32, name: u32) -> Result<i32, Errno> {
        let default = OPTIONS.iter().find(|option| (option.0, option.1) == (level, name));
        let (_, _, default) = default.ok_or(Errno::ENOPROTOOPT)?;
        Ok(self.0.borrow().get(&(level, name)).copied().unwrap_or(*default))
    }

    /// Those of another, which it came from.
    pub fn inherit(&self, from: &Options) {
        self.0.borrow_mut().clone_from(&from.0.borrow());
    }

    /// Sets one.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn set(&self, level: u32, name: u32, value: i32) -> Result<(), Errno> {
        self.get(level, name)?;
        // Linux takes twice what is asked for, and tells that.
        let is_buffer = level == abi::SOL_SOCKET && [abi::SO_SNDBUF, abi::SO_RCVBUF].contains(&name);
        let value = if is_buffer { value.clamp(2304, 8 << 20).saturating_mul(2) } else { value };
        self.0.borrow_mut().insert((level, name), value);
        Ok(())
    }
}

/// What a socket's readiness comes to, of these.
pub(super) fn events(readable: bool, writable: bool, finished: bool, failed: bool) -> Events {
    Events::IN
        .when(readable)
        .with(Events::OUT.when(writable))
        .with(Events::READ_HANG_UP.when(finished))
        .with(Events::ERROR.with(Events::HANG_UP).when(failed))
}
