//! What all sockets have in common: addresses, and the calls that they take.

use super::destination::Destination;
use super::message::{Outgoing, Received, Sender};
use super::netlink;
use super::open::Stream;
pub(crate) use super::options::Options;
use super::places::{LocalKind, Place};
use super::ready::Events;
use super::source::Source;
use alloc::rc::Rc;
use alloc::vec::Vec;
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
    /// A path that was looked up, and where it led.
    Found(Place, Vec<u8>),
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

    /// Where a local socket of this kind is that has it, and its name.
    ///
    /// # Errors
    /// `EINVAL` if it is not of a local socket, or none.
    pub fn place(&self, kind: LocalKind) -> Result<(Place, Vec<u8>), Errno> {
        match self {
            Address::Found(place, name) => Ok((place.clone(), name.clone())),
            Address::Local(name) if name.first() == Some(&0) => {
                Ok((Place::Name(kind, name.clone()), name.clone()))
            }
            _ => Err(Errno::EINVAL),
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
            Address::Local(path) | Address::Found(_, path) => {
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

/// What becomes of a membership of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// It begins.
    Join,
    /// It ends.
    Leave,
}

/// A socket. No call blocks: it says `EAGAIN`. One that has no connections leaves what is about them as it
/// stands here.
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
    fn listen(&self, _backlog: usize, _by: Sender) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// A connection that waits.
    ///
    /// # Errors
    /// As accept(2).
    fn accept(&self) -> Result<(Rc<dyn Stream>, Address), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Asks for a connection; of datagrams, names the peer.
    ///
    /// # Errors
    /// As connect(2): `EINPROGRESS` if [`Socket::connected`] will tell.
    fn connect(&self, address: &Address, by: Sender) -> Result<(), Errno>;
    /// Whether the connection that was asked for is open.
    ///
    /// # Errors
    /// `EAGAIN` if that is not known yet; why not.
    fn connected(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Sends.
    ///
    /// # Errors
    /// As send(2).
    fn send(&self, what: &Outgoing<'_>) -> Result<usize, Errno>;
    /// Sends what a program gives, as `how` says.
    ///
    /// # Errors
    /// As send(2).
    fn send_from(&self, from: &Source<'_>, how: &Outgoing<'_>) -> Result<usize, Errno> {
        from.by_buffer(|bytes| self.send(&Outgoing { bytes, ..*how }))
    }
    /// Receives.
    ///
    /// # Errors
    /// As recv(2).
    fn receive(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno>;
    /// Receives to where a program wants it.
    ///
    /// # Errors
    /// As [`Socket::receive`]; `EFAULT`.
    fn receive_to(&self, to: &Destination<'_>) -> Result<Received, Errno> {
        to.by_buffer(|bytes| self.receive(bytes, Peeking::Take), |received| received.count)
    }
    /// Receives the urgent byte (`MSG_OOB`).
    ///
    /// # Errors
    /// `EINVAL` if there is none; `EOPNOTSUPP` where there never is.
    fn receive_urgent(&self, _target: &mut [u8], _peeking: Peeking) -> Result<usize, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Whether what is received next is behind the urgent byte (sockatmark(3)).
    fn is_at_urgent(&self) -> bool {
        false
    }
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
    fn take_error(&self) -> Option<Errno> {
        None
    }
    /// Receives what the queue of errors tells (`MSG_ERRQUEUE`).
    ///
    /// # Errors
    /// `EAGAIN` if there is nothing.
    fn receive_error(&self, _target: &mut [u8]) -> Result<Received, Errno> {
        Err(Errno::EAGAIN)
    }
    /// What a call has sent that was not to be copied (`MSG_ZEROCOPY`) is the program's again: that is told
    /// by the queue of errors.
    fn tell_copied(&self) {}
    /// Whether it waits for connections.
    fn is_listening(&self) -> bool {
        false
    }
    /// Its options.
    fn options(&self) -> &Options;
    /// Who is at the other end, of connections within the family.
    fn peer_credentials(&self) -> Option<Sender> {
        None
    }
    /// `struct tcp_info`, of connections of TCP.
    fn tcp_info(&self) -> Option<Vec<u8>> {
        None
    }
    /// Joins a group of receivers of what is sent to an address, or leaves it.
    ///
    /// # Errors
    /// As `IP_ADD_MEMBERSHIP` in ip(7); `ENOPROTOOPT` where there are no groups.
    fn change_membership(&self, _group: IpAddr, _change: Membership) -> Result<(), Errno> {
        Err(Errno::ENOPROTOOPT)
    }
    /// An option was set.
    fn option_changed(&self, _level: u32, _name: u32, _value: i32) {}
}

/// What a socket's readiness comes to, of these.
pub(super) fn events(readable: bool, writable: bool, finished: bool, failed: bool) -> Events {
    Events::IN
        .when(readable)
        .with(Events::OUT.when(writable))
        .with(Events::READ_HANG_UP.when(finished))
        .with(Events::ERROR.with(Events::HANG_UP).when(failed))
}
