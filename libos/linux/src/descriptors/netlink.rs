//! What a program asks of the network's interfaces and addresses: netlink(7), rtnetlink(7). Everything is
//! asked for as a whole; nothing can be changed, and nobody is told of changes.

use super::interfaces::{Interface, LOOPBACK, interfaces};
use super::message::{Outgoing, Received, Sender};
use super::open::Stream;
use super::ready::{Events, Waiters};
use super::socket::{Address, Options, Peeking, Side, Socket};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::IpAddr;
use core::task::Waker;
use linux_raw_sys::net as abi;
use nom_app::sockets::Network;
use nom_fs::{Errno, NodeType};

/// `AF_NETLINK`.
pub(crate) const DOMAIN: u32 = 16;
/// Kinds of messages (linux/netlink.h, linux/rtnetlink.h).
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
/// Part of an answer of several messages.
const MULTI: u16 = 2;
/// Attributes of a link (linux/if_link.h): hardware's address, broadcast, name, MTU.
const LINK_ADDRESS: u16 = 1;
const LINK_BROADCAST: u16 = 2;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
/// Attributes of an address (linux/if_addr.h).
const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_LABEL: u16 = 3;
/// Bytes of a message's header; every part of a message begins at a multiple of four.
const HEADER_BYTES: usize = 16;
const ALIGNMENT: usize = 4;

/// A message that is being made.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16, (sequence, port): (u32, u32)) -> Message {
        let mut bytes = Vec::from([0; 4]);
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(port.to_ne_bytes());
        Message(bytes)
    }

    fn with(mut self, bytes: &[u8]) -> Message {
        self.0.extend(bytes);
        self
    }

    /// One more attribute: `struct rtattr`, and what it is.
    fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        self.0.extend((value.len() as u16 + 4).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// A link as `struct ifinfomsg` with its attributes.
fn link(interface: &Interface, to: (u32, u32)) -> Vec<u8> {
    let mut head = Vec::from([0, 0]);
    head.extend(interface.hardware.to_ne_bytes());
    head.extend(interface.index.to_ne_bytes());
    head.extend(interface.flags.to_ne_bytes());
    head.extend([0; 4]);
    let name = [interface.name, b"\0"].concat();
    let mut message = Message::new(NEW_LINK, MULTI, to).with(&head).attribute(LINK_NAME, &name);
    message = message.attribute(LINK_MTU, &interface.mtu.to_ne_bytes());
    if interface.flags & LOOPBACK != 0 {
        message = message.attribute(LINK_ADDRESS, &[0; 6]).attribute(LINK_BROADCAST, &[0; 6]);
    }
    message.finish()
}

/// An address as `struct ifaddrmsg` with its attributes.
fn address(interface: &Interface, (ip, prefix): (IpAddr, u8), to: (u32, u32)) -> Vec<u8> {
    const PERMANENT: u8 = 0x80;
    let (universe, link, host) = (0, 253, 254);
    let (family, scope) = match ip {
        IpAddr::V4(ip) => (abi::AF_INET, if ip.is_loopback() { host } else { universe }),
        IpAddr::V6(ip) if ip.is_loopback() => (abi::AF_INET6, host),
        IpAddr::V6(ip) => (abi::AF_INET6, if ip.is_unicast_link_local() { link } else { universe }),
    };
    let head = [family as u8, prefix, PERMANENT, scope];
    let message = Message::new(NEW_ADDRESS, MULTI, to).with(&head).with(&interface.index.to_ne_bytes());
    let name = [interface.name, b"\0"].concat();
    match ip {
        IpAddr::V4(ip) => {
            let octets = ip.octets();
            message
                .attribute(ADDRESS, &octets)
                .attribute(ADDRESS_LOCAL, &octets)
                .attribute(ADDRESS_LABEL, &name)
        }
        IpAddr::V6(ip) => message.attribute(ADDRESS, &ip.octets()),
    }
    .finish()
}

/// What is said to one question, message by message.
fn answers(question: &[u8], port: u32, network: Option<&Network>) -> Vec<Vec<u8>> {
    const REFUSED: i32 = -95;
    let half = |at: usize| u16::from_ne_bytes([question[at], question[at + 1]]);
    let to = (u32::from_ne_bytes(*question[8..].first_chunk().expect("a header has that")), port);
    // Of which family, if of one.
    let wanted = question.get(HEADER_BYTES).copied().unwrap_or(0);
    let all = interfaces(network);
    let mut messages: Vec<Vec<u8>> = match half(4) {
        GET_LINK => all.iter().map(|interface| link(interface, to)).collect(),
        GET_ADDRESS => {
            let addresses = all
                .iter()
                .flat_map(|interface| interface.addresses.iter().map(move |address| (interface, *address)));
            let of_family = addresses.filter(|(_, (ip, _))| match u32::from(wanted) {
                abi::AF_INET => ip.is_ipv4(),
                abi::AF_INET6 => ip.is_ipv6(),
                _ => true,
            });
            of_family.map(|(interface, own)| address(interface, own, to)).collect()
        }
        _ => {
            let code = Message::new(ERROR, 0, to).with(&REFUSED.to_ne_bytes());
            return Vec::from([code.with(&question[..HEADER_BYTES]).finish()]);
        }
    };
    messages.push(Message::new(DONE, MULTI, to).with(&[0; 4]).finish());
    messages
}

/// A socket that is asked.
pub(crate) struct Netlink {
    network: Option<Network>,
    /// What it is known by: the process's number.
    port: u32,
    kind: u32,
    replies: RefCell<VecDeque<Vec<u8>>>,
    options: Options,
    waiters: Waiters,
}

impl Netlink {
    /// One that nobody has asked anything.
    pub fn new(network: Option<Network>, port: u32, kind: u32) -> Netlink {
        let (replies, options, waiters) = Default::default();
        Netlink { network, port, kind, replies, options, waiters }
    }
}

impl Socket for Netlink {
    fn names(&self) -> (u32, u32, u32) {
        (DOMAIN, self.kind, 0)
    }

    fn bind(&self, address: &Address) -> Result<(), Errno> {
        if matches!(address, Address::Netlink(_)) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn connect(&self, address: &Address, _: Sender) -> Result<(), Errno> {
        self.bind(address)
    }

    fn send(&self, what: &Outgoing<'_>) -> Result<usize, Errno> {
        let mut rest = what.bytes;
        while rest.len() >= HEADER_BYTES {
            let len = u32::from_ne_bytes(*rest.first_chunk().expect("a header has that")) as usize;
            let question = rest.get(..len).filter(|question| question.len() >= HEADER_BYTES);
            let Some(question) = question else { break };
            // Links and addresses are few: they go in one datagram, their end in one of its own.
            let mut said = answers(question, self.port, self.network.as_ref());
            let last = said.pop();
            let mut replies = self.replies.borrow_mut();
            replies.extend((!said.is_empty()).then(|| said.concat()));
            replies.extend(last);
            rest = rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        self.waiters.wake();
        Ok(what.bytes.len())
    }

    fn receive(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno> {
        let mut replies = self.replies.borrow_mut();
        let first = replies.front().ok_or(Errno::EAGAIN)?;
        let (count, whole) = (first.len().min(target.len()), first.len());
        target[..count].copy_from_slice(&first[..count]);
        if peeking == Peeking::Take {
            replies.pop_front();
        }
        Ok(Received { count, whole, from: Some(Address::Netlink(0)), ..Received::default() })
    }

    fn shut(&self, _: Side) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn own_address(&self) -> Address {
        Address::Netlink(self.port)
    }

    fn peer_address(&self) -> Result<Address, Errno> {
        Ok(Address::Netlink(0))
    }

    fn options(&self) -> &Options {
        &self.options
    }
}

impl Stream for Netlink {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        self.receive(target, Peeking::Take).map(|received| received.count)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.send(&Outgoing::plain(bytes))
    }

    fn ready(&self) -> Events {
        Events::OUT.with(Events::IN.when(!self.replies.borrow().is_empty()))
    }

    fn wake(&self, waker: &Waker) {
        self.waiters.add(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::Socket
    }

    fn socket(&self) -> Option<&dyn Socket> {
        Some(self)
    }
}
