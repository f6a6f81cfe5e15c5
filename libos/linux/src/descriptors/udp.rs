//! Sockets of UDP (udp(7)): over the application's own stack, and among those of this machine, for which no
//! packet is made.

use super::bound::{AddressFamilies, BoundAddress, BoundAddresses, WantedAddress};
use super::cork::Cork;
use super::errors::{ErrorQueue, option_for};
use super::inet::{any, check_own, errno, is_within, reached};
use super::interfaces::NETWORK_MTU;
use super::message::{Inbox, Message, Note, Outgoing, Received, Sender};
use super::open::Stream;
use super::options::{IP, IPV6, UDP, UDP_CORK, UDP_GRO, UDP_SEGMENT};
use super::places::Places;
use super::ready::Events;
use super::socket::{Address, Membership, Options, Peeking, Side, Socket, events};
use alloc::rc::{Rc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{IpAddr, SocketAddr};
use core::task::Waker;
use linux_raw_sys::net as abi;
use nom_fs::{Errno, NodeType};
use nom_net::Observed;
use nom_net::frame::Marks;
use nom_socket::{ArrivedDatagram, Error, Network, Ready, SocketId, Sockets};

/// Bytes of the largest datagram, with its headers.
const DATAGRAM_BYTES: usize = 65_536;
/// Most bytes that one carries: less the headers of IPv4 and UDP.
const PAYLOAD_MAX: usize = 65_507;
/// What may wait at a socket of this machine, as on Linux (`net.core.rmem_default`): more is dropped.
const HELD_MAX: usize = 212_992;
/// Most datagrams that are sent as one (`UDP_SEGMENT`, udp(7)), as Linux has it by now; at first it was half.
const SEGMENTS_MAX: usize = 128;
/// How often a free port is looked for that only a loopback address has taken.
const TRIES: usize = 64;

/// What others of this machine reach of a socket.
#[derive(Debug)]
pub(crate) struct UdpEnd {
    inbox: Inbox,
    own: Cell<SocketAddr>,
    peer: Cell<Option<SocketAddr>>,
    families: Cell<AddressFamilies>,
    /// What is told at the next call: that nobody takes what was sent.
    error: Cell<Option<Errno>>,
    groups: RefCell<Vec<IpAddr>>,
    is_receive_shut: Cell<bool>,
    /// Whether it takes several datagrams as one (`UDP_GRO`).
    takes_joined: Cell<bool>,
    /// Datagrams that were dropped since too many waited.
    lost: Cell<u32>,
}

impl UdpEnd {
    /// Whether what is sent from there to here comes to this one, and how closely its addresses say so.
    fn fits(&self, to: SocketAddr, from: SocketAddr) -> Option<u32> {
        let own = self.own.get();
        let same_family = own.is_ipv4() == to.is_ipv4();
        let is_any = own.ip().is_unspecified()
            && (same_family || own.is_ipv6() && self.families.get() == AddressFamilies::Both);
        let is_ours = own.port() == to.port() && (own.ip() == to.ip() || is_any);
        let is_peers = self.peer.get().is_none_or(|peer| peer == from);
        let closeness = u32::from(!is_any) + 2 * u32::from(self.peer.get().is_some());
        (is_ours && is_peers).then_some(closeness)
    }

    /// Takes a datagram, or drops it if too much waits.
    fn put(&self, message: Message) {
        if self.inbox.held() < HELD_MAX {
            let note = Note { lost: self.lost.get(), ..message.note };
            self.inbox.put(Message { note, ..message });
        } else {
            self.lost.update(|lost| lost.wrapping_add(1));
        }
    }

    fn fail(&self, error: Errno) {
        self.error.set(Some(error));
        self.inbox.tell();
    }
}

/// The sockets of UDP that have addresses.
#[derive(Debug, Default)]
pub(crate) struct UdpEnds {
    bound: BoundAddresses,
    ends: RefCell<Vec<Weak<UdpEnd>>>,
}

impl UdpEnds {
    fn add(&self, end: &Rc<UdpEnd>) {
        let mut ends = self.ends.borrow_mut();
        ends.retain(|other| other.strong_count() > 0);
        ends.push(Rc::downgrade(end));
    }

    /// Who takes a datagram: of several the closest, and of these who came last.
    fn taker(&self, to: SocketAddr, from: SocketAddr) -> Option<Rc<UdpEnd>> {
        let ends = self.ends.borrow();
        let there = ends.iter().filter_map(Weak::upgrade);
        let fitting = there.filter_map(|end| end.fits(to, from).map(|close| (close, end)));
        fitting.max_by_key(|(close, _)| *close).map(|(_, end)| end)
    }

    /// Who is in a group and has this port.
    fn members(&self, to: SocketAddr) -> Vec<Rc<UdpEnd>> {
        let is_member = |end: &Rc<UdpEnd>| {
            let own = end.own.get();
            let is_any = own.ip().is_unspecified() || own.ip() == to.ip();
            own.port() == to.port() && is_any && end.groups.borrow().contains(&to.ip())
        };
        self.ends.borrow().iter().filter_map(Weak::upgrade).filter(is_member).collect()
    }

    fn has_port(&self, port: u16) -> bool {
        self.ends.borrow().iter().filter_map(Weak::upgrade).any(|end| end.own.get().port() == port)
    }
}

/// A socket of UDP.
pub(crate) struct Udp<N: Observed + 'static> {
    network: Network<N>,
    places: Rc<Places>,
    domain: u32,
    end: Rc<UdpEnd>,
    /// That of the stack, if others reach this one.
    id: Cell<Option<SocketId>>,
    bound: RefCell<Option<Rc<BoundAddress>>>,
    is_send_shut: Cell<bool>,
    options: Options,
    cork: Cork,
    errors: ErrorQueue,
    /// Whether it wants to hear of all that nobody takes, of either family: each call asks.
    wants_reports: Cell<bool>,
}

impl<N: Observed + 'static> Udp<N> {
    /// Whether the program sees to it itself that each datagram to `to` fits into a packet, so that none is
    /// cut (`IP_MTU_DISCOVER`, ip(7)).
    fn is_kept_whole(&self, to: IpAddr) -> bool {
        let (level, discover) =
            if to.is_ipv4() { (IP, abi::IP_MTU_DISCOVER) } else { (IPV6, abi::IPV6_MTU_DISCOVER) };
        let value = self.options.get(level, discover).unwrap_or_default() as u32;
        // They have the same numbers for both.
        [abi::IP_PMTUDISC_DO, abi::IP_PMTUDISC_PROBE, abi::IP_PMTUDISC_INTERFACE].contains(&value)
            || to.is_ipv6() && self.options.has(IPV6, abi::IPV6_DONTFRAG)
    }

    /// What the header of a datagram to `to` says: what the program says of this one, or of all.
    fn marks(&self, what: &Outgoing<'_>, to: IpAddr) -> Marks {
        let Marks { hops, class } = self.options.marks(to);
        Marks { hops: what.marks.hops.unwrap_or(hops), class: what.marks.class.unwrap_or(class) }
    }

    /// One without an address; `domain` is `AF_INET` or `AF_INET6`.
    pub fn new(network: &Network<N>, places: &Rc<Places>, domain: u32) -> Udp<N> {
        let end = UdpEnd {
            inbox: Inbox::default(),
            own: Cell::new(SocketAddr::new(any(domain), 0)),
            peer: Cell::new(None),
            families: Cell::new(AddressFamilies::Both),
            error: Cell::new(None),
            groups: RefCell::default(),
            is_receive_shut: Cell::new(false),
            takes_joined: Cell::new(false),
            lost: Cell::new(0),
        };
        let (id, bound, is_send_shut, options, cork, errors, wants_reports) = Default::default();
        let (network, places, end) = (network.clone(), places.clone(), Rc::new(end));
        Udp { network, places, domain, end, id, bound, is_send_shut, options, cork, errors, wants_reports }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Sockets<N>) -> Result<T, Error>) -> Result<T, Errno> {
        self.network.with(act).map_err(errno)
    }

    /// Hears of the network that nobody takes what was sent.
    fn hear_refusals(&self) {
        let is_asked = self.end.peer.get().is_some() || self.wants_reports.get();
        let Some(id) = self.id.get().filter(|_| is_asked) else { return };
        while let Ok(Some(remote)) = self.with(|sockets| sockets.take_refusal(id)) {
            self.refuse(remote, &[]);
        }
    }

    /// Nobody takes what was sent there: who is connected to that, or wants reports, learns at its next call.
    fn refuse(&self, to: SocketAddr, bytes: &[u8]) {
        let (level, option) = option_for(to.ip());
        let is_told = self.options.has(level, option);
        if is_told {
            self.errors.refuse(to, bytes);
        }
        if is_told || self.end.peer.get() == Some(to) {
            self.end.fail(Errno::ECONNREFUSED);
        }
    }

    /// Gives it an address, with a port of its own if it names none.
    fn bind_to(&self, address: SocketAddr) -> Result<(), Errno> {
        let families = self.options.families();
        let stays_within = address.ip().is_loopback() || self.options.stays_within();
        let bind = |port| {
            let address = SocketAddr::new(address.ip(), port);
            let wanted = WantedAddress { address, families, sharing: self.options.sharing() };
            self.places.udp.bound.bind(wanted, 0..0, |_| false)
        };
        let (id, bound) = match address.port() {
            0 => self.free_port(bind)?,
            port => {
                let is_shared = self.places.udp.has_port(port);
                let bound = bind(port)?;
                let id = if stays_within { None } else { self.stack_port(port, is_shared)? };
                (id, bound)
            }
        };
        self.end.families.set(families);
        self.end.own.set(bound.address());
        *self.bound.borrow_mut() = Some(bound);
        match id {
            // The stack's ports are all addresses'.
            Some(id) if stays_within => self.with(|sockets| sockets.close(id))?,
            id => self.id.set(id),
        }
        self.places.udp.add(&self.end);
        self.end.inbox.tell();
        Ok(())
    }

    /// The stack's port of this number; nothing if another socket of this family has it, who shares it.
    fn stack_port(&self, port: u16, is_shared: bool) -> Result<Option<SocketId>, Errno> {
        match self.with(|sockets| sockets.bind(port)) {
            Ok(id) => Ok(Some(id)),
            Err(Errno::EADDRINUSE) if is_shared => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A port that the stack has free, and nobody of this machine either.
    fn free_port(
        &self,
        bind: impl Fn(u16) -> Result<Rc<BoundAddress>, Errno>,
    ) -> Result<(Option<SocketId>, Rc<BoundAddress>), Errno> {
        let mut result = Err(Errno::EADDRINUSE);
        for _ in 0..TRIES {
            let (id, port) = self.with(|sockets| {
                let id = sockets.bind(0)?;
                Ok((id, sockets.port(id)?))
            })?;
            result = bind(port).map(|bound| (Some(id), bound));
            if result.is_ok() {
                break;
            }
            self.with(|sockets| sockets.close(id))?;
        }
        result
    }

    fn ensure_bound(&self) -> Result<(), Errno> {
        match self.end.own.get().port() {
            0 => self.bind_to(self.end.own.get()),
            _ => Ok(()),
        }
    }

    /// From which address of ours another is reached.
    fn source_for(&self, to: IpAddr) -> Result<IpAddr, Errno> {
        let own = self.end.own.get().ip();
        if !own.is_unspecified() && !own.is_multicast() {
            return if own.is_ipv4() == to.is_ipv4() { Ok(own) } else { Err(Errno::ENETUNREACH) };
        }
        if is_within(&self.network, to) {
            return Ok(to);
        }
        let source = self.network.with(|sockets| sockets.stack().config().source_for(to));
        source.ok_or(Errno::ENETUNREACH)
    }

    /// The destination that a program means.
    fn destination(&self, to: &Address) -> Result<SocketAddr, Errno> {
        let Address::Inet(mut to) = *to else { return Err(Errno::EAFNOSUPPORT) };
        match (self.domain, to.ip()) {
            (abi::AF_INET, IpAddr::V6(_)) => Err(Errno::EAFNOSUPPORT),
            (abi::AF_INET6, IpAddr::V4(_)) if self.options.families() == AddressFamilies::Own => {
                Err(Errno::ENETUNREACH)
            }
            (_, ip) => {
                to.set_ip(reached(ip));
                Ok(to)
            }
        }
    }

    /// Where something goes, once it is known that it may.
    fn admit(&self, what: &Outgoing<'_>) -> Result<SocketAddr, Errno> {
        let to = match what.to {
            Some(to) => self.destination(to)?,
            None => self.end.peer.get().ok_or(Errno::EDESTADDRREQ)?,
        };
        if to.port() == 0 {
            return Err(Errno::EINVAL);
        }
        if what.bytes.len() > PAYLOAD_MAX {
            return Err(Errno::EMSGSIZE);
        }
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.is_send_shut.get() {
            return Err(Errno::EPIPE);
        }
        self.ensure_bound().map(|()| to)
    }

    /// Adds to what was begun, or begins with it; sends all of it unless more is to come.
    fn send_part(&self, what: &Outgoing<'_>, more_comes: bool) -> Result<usize, Errno> {
        if !self.cork.has_begun() {
            self.cork.begin(what, self.admit(what)?);
        }
        self.cork.add(what.bytes, PAYLOAD_MAX)?;
        if !more_comes {
            self.send_begun()?;
        }
        Ok(what.bytes.len())
    }

    fn send_begun(&self) -> Result<(), Errno> {
        let Some(begun) = self.cork.take() else { return Ok(()) };
        self.send_whole(&begun.outgoing(), begun.to).map(drop)
    }

    fn send_whole(&self, what: &Outgoing<'_>, to: SocketAddr) -> Result<usize, Errno> {
        match what.segment.unwrap_or_else(|| self.options.get(UDP, UDP_SEGMENT).unwrap_or(0) as u16) {
            0 => self.send_one(&Outgoing { segment: None, ..*what }, to),
            segment => self.send_segments(what, segment, to),
        }
    }

    /// Sends datagrams of so many bytes, the last of what is left (`UDP_SEGMENT`): as one to who takes
    /// several so, within this machine. If one behind the first is lost nobody hears of it, as on a wire.
    fn send_segments(&self, what: &Outgoing<'_>, segment: u16, to: SocketAddr) -> Result<usize, Errno> {
        let (bytes, len) = (what.bytes, usize::from(segment));
        let is_within = is_within(&self.network, to.ip());
        if !is_within && is_cut(len, to) || bytes.len() > SEGMENTS_MAX * len {
            return Err(Errno::EINVAL);
        }
        let from = SocketAddr::new(self.source_for(to.ip())?, self.end.own.get().port());
        let taker = is_within.then(|| self.places.udp.taker(to, from)).flatten();
        if bytes.len() > len && taker.is_some_and(|end| end.takes_joined.get()) {
            return self.send_one(&Outgoing { segment: Some(segment), ..*what }, to);
        }
        let mut pieces = bytes.chunks(len);
        let one = |bytes| self.send_one(&Outgoing { bytes, segment: None, ..*what }, to);
        one(pieces.next().unwrap_or_default())?;
        for piece in pieces {
            let _ = one(piece);
        }
        Ok(bytes.len())
    }

    /// Sends one datagram.
    fn send_one(&self, what: &Outgoing<'_>, to: SocketAddr) -> Result<usize, Errno> {
        let is_within = is_within(&self.network, to.ip());
        if !is_within && is_cut(what.bytes.len(), to) && self.is_kept_whole(to.ip()) {
            return Err(Errno::EMSGSIZE);
        }
        if !is_within && !to.ip().is_multicast() && self.options.stays_within() {
            // By that interface nobody else is reached, and nobody is told.
            return Ok(what.bytes.len());
        }
        if is_within || to.ip().is_multicast() || self.id.get().is_none() {
            let from = SocketAddr::new(self.source_for(to.ip())?, self.end.own.get().port());
            match to.ip().is_multicast() {
                true => self.send_to_group(what, from, to),
                false if is_within => self.send_within(what, from, to),
                // A loopback address reaches nobody outside.
                false => return Err(Errno::EINVAL),
            }
            return Ok(what.bytes.len());
        }
        let id = self.id.get().ok_or(Errno::EINVAL)?;
        let marks = self.marks(what, to.ip());
        self.with(|sockets| sockets.send_marked(id, what.bytes, to, marks)).map(|()| what.bytes.len())
    }

    /// Has one of this machine have a datagram.
    fn send_within(&self, what: &Outgoing<'_>, from: SocketAddr, to: SocketAddr) {
        match self.places.udp.taker(to, from) {
            Some(end) => {
                let note = Note { segment: what.segment.unwrap_or(0), ..Note::default() };
                end.put(Message { note, ..message(what.bytes, from, to, self.marks(what, to.ip())) });
            }
            None => self.refuse(to, what.bytes),
        }
    }

    /// Has all members of a group have a datagram, here and elsewhere.
    fn send_to_group(&self, what: &Outgoing<'_>, from: SocketAddr, to: SocketAddr) {
        let (level, name) = match to {
            SocketAddr::V4(_) => (IP, abi::IP_MULTICAST_LOOP),
            SocketAddr::V6(_) => (IPV6, abi::IPV6_MULTICAST_LOOP),
        };
        let marks = self.marks(what, to.ip());
        if self.options.has(level, name) {
            let message = || message(what.bytes, from, to, marks);
            self.places.udp.members(to).iter().for_each(|end| end.put(message()));
        }
        if let Some(id) = self.id.get().filter(|_| marks.hops > 0) {
            // Nobody waits for an answer from all.
            let _ = self.with(|sockets| sockets.send_marked(id, what.bytes, to, marks));
        }
    }

    /// Takes what the stack has for it; from its peer alone, if it has one.
    fn receive_from_stack(&self, id: SocketId, target: &mut [u8]) -> Result<Received, Errno> {
        loop {
            let datagram = self.with(|sockets| sockets.receive_datagram(id, target))?;
            let is_family = self.domain == abi::AF_INET6 || datagram.from.is_ipv4();
            if is_family && self.end.peer.get().is_none_or(|peer| peer == datagram.from) {
                return Ok(Received {
                    count: datagram.len.min(target.len()),
                    whole: datagram.len,
                    from: Some(Address::Inet(datagram.from)),
                    arrived: Some(datagram.arrived),
                    ..Received::default()
                });
            }
        }
    }

    /// Has what the stack has first wait here, where it can be looked at.
    fn fetch(&self) -> Result<(), Errno> {
        let id = self.id.get().filter(|_| self.end.inbox.len() == 0);
        let Some(id) = id else { return Ok(()) };
        let mut bytes = vec![0; DATAGRAM_BYTES];
        let Received { count, from, arrived, .. } = self.receive_from_stack(id, &mut bytes)?;
        bytes.truncate(count);
        self.end.inbox.put_first(Message { bytes, from, arrived, ..Message::default() });
        Ok(())
    }
}

/// Whether a datagram of so many bytes goes in several packets to an address of the network.
fn is_cut(bytes: usize, to: SocketAddr) -> bool {
    let headers = if to.is_ipv4() { 28 } else { 48 };
    bytes + headers > NETWORK_MTU as usize
}

/// A datagram to one of this machine.
fn message(bytes: &[u8], from: SocketAddr, to: SocketAddr, marks: Marks) -> Message {
    let arrived = Some(ArrivedDatagram { to: to.ip(), marks, at_ns: nom_sys::time::now_ns() });
    Message { bytes: bytes.to_vec(), from: Some(Address::Inet(from)), arrived, ..Message::default() }
}

impl<N: Observed + 'static> Drop for Udp<N> {
    fn drop(&mut self) {
        if let Some(id) = self.id.get() {
            // The stack may have nothing of it any more.
            let _ = self.with(|sockets| sockets.close(id));
        }
    }
}

impl<N: Observed + 'static> Socket for Udp<N> {
    fn names(&self) -> (u32, u32, u32) {
        (self.domain, abi::SOCK_DGRAM, abi::IPPROTO_UDP as u32)
    }

    fn bind(&self, address: &Address) -> Result<(), Errno> {
        let address = match address {
            Address::Inet(address) => *address,
            // As Linux has it for programs of old: `AF_UNSPEC` with no address is any.
            Address::Unspecified if self.domain == abi::AF_INET => SocketAddr::new(any(self.domain), 0),
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        if self.end.own.get().port() != 0 {
            return Err(Errno::EINVAL);
        }
        if address.is_ipv6() && self.domain == abi::AF_INET {
            return Err(Errno::EAFNOSUPPORT);
        }
        check_own(&self.network, address.ip())?;
        self.bind_to(address)
    }

    fn connect(&self, address: &Address, _: Sender) -> Result<(), Errno> {
        if *address == Address::Unspecified {
            self.end.peer.set(None);
            let bound = self.bound.borrow().as_ref().map(|bound| bound.address());
            self.end.own.set(bound.unwrap_or(self.end.own.get()));
            return Ok(());
        }
        let peer = self.destination(address)?;
        // From now on the socket has the address that the peer is reached from: who has several peers to
        // choose from asks for it (RFC 6724 section 5).
        let from = self.source_for(peer.ip())?;
        self.ensure_bound()?;
        self.end.own.set(SocketAddr::new(from, self.end.own.get().port()));
        self.end.peer.set(Some(peer));
        self.end.error.set(None);
        Ok(())
    }

    fn send(&self, what: &Outgoing<'_>) -> Result<usize, Errno> {
        if what.is_urgent {
            return Err(Errno::EOPNOTSUPP);
        }
        let more_comes = what.is_begun || self.cork.is_on.get();
        if more_comes || self.cork.has_begun() {
            return self.send_part(what, more_comes);
        }
        let to = self.admit(what)?;
        self.send_whole(what, to)
    }

    fn receive(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno> {
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        let received = match self.id.get().filter(|_| self.end.inbox.len() == 0) {
            Some(id) if peeking == Peeking::Take => self.receive_from_stack(id, target),
            _ => self.fetch().and_then(|()| self.end.inbox.take(target, peeking)),
        };
        match received {
            Err(Errno::EAGAIN) if self.end.is_receive_shut.get() => Ok(Received::default()),
            received => received,
        }
    }

    fn shut(&self, side: Side) -> Result<(), Errno> {
        if self.end.peer.get().is_none() {
            return Err(Errno::ENOTCONN);
        }
        self.is_send_shut.set(self.is_send_shut.get() || side != Side::Receive);
        self.end.is_receive_shut.set(self.end.is_receive_shut.get() || side != Side::Send);
        self.end.inbox.tell();
        Ok(())
    }

    fn own_address(&self) -> Address {
        Address::Inet(self.end.own.get())
    }

    fn peer_address(&self) -> Result<Address, Errno> {
        self.end.peer.get().map(Address::Inet).ok_or(Errno::ENOTCONN)
    }

    fn take_error(&self) -> Option<Errno> {
        self.hear_refusals();
        self.end.error.take()
    }

    fn receive_error(&self, target: &mut [u8]) -> Result<Received, Errno> {
        self.hear_refusals();
        let received = self.errors.take(target)?;
        // What is told of so is not told of by another call.
        self.end.error.set(self.errors.first_error());
        Ok(received)
    }

    fn tell_copied(&self) {
        self.errors.tell_copied();
        self.end.inbox.tell();
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn option_changed(&self, level: u32, name: u32, value: i32) {
        if (level, name) == (UDP, UDP_CORK) {
            self.cork.is_on.set(value != 0);
            if value == 0 {
                // As on Linux, who uncorks is not told.
                let _ = self.send_begun();
            }
        }
        if (level, name) == (UDP, UDP_GRO) {
            self.end.takes_joined.set(value != 0);
        }
        if let (IP, abi::IP_RECVERR) | (IPV6, abi::IPV6_RECVERR) = (level, name) {
            let has = |level, name| self.options.has(level, name);
            self.wants_reports.set(has(IP, abi::IP_RECVERR) || has(IPV6, abi::IPV6_RECVERR));
        }
    }

    fn change_membership(&self, group: IpAddr, change: Membership) -> Result<(), Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let mut groups = self.end.groups.borrow_mut();
        let place = groups.iter().position(|other| *other == group);
        match (change, place) {
            (Membership::Join, None) => groups.push(group),
            (Membership::Join, Some(_)) => return Err(Errno::EADDRINUSE),
            (Membership::Leave, Some(place)) => drop(groups.remove(place)),
            (Membership::Leave, None) => return Err(Errno::EADDRNOTAVAIL),
        }
        Ok(())
    }
}

impl<N: Observed + 'static> Stream for Udp<N> {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        self.receive(target, Peeking::Take).map(|received| received.count)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.send(&Outgoing::plain(bytes))
    }

    fn ready(&self) -> Events {
        self.hear_refusals();
        let stack = match self.id.get() {
            Some(id) => self.network.with(|sockets| sockets.ready(id)).unwrap_or(Ready::ERROR),
            None => Ready::WRITABLE,
        };
        let is_failed = self.end.error.get().is_some() || !self.errors.is_empty();
        let is_shut = self.end.is_receive_shut.get();
        let has_any = stack.contains(Ready::READABLE) || self.end.inbox.len() > 0;
        events(has_any || is_shut, stack.contains(Ready::WRITABLE), is_shut, false)
            .with(Events::ERROR.when(is_failed))
            .with(Events::HANG_UP.when(is_shut && self.is_send_shut.get()))
    }

    fn wake(&self, waker: &Waker) {
        self.end.inbox.wake(waker);
        if let Some(id) = self.id.get() {
            // A socket that is gone is ready, which whoever waits has seen.
            let _ = self.with(|sockets| sockets.wake_for(id, Ready::READABLE | Ready::WRITABLE, waker));
        }
    }

    fn kind(&self) -> NodeType {
        NodeType::Socket
    }

    fn unread(&self) -> Option<usize> {
        // If the stack has none either, there is none.
        let _ = self.fetch();
        Some(self.end.inbox.first_len().unwrap_or(0))
    }

    fn socket(&self) -> Option<&dyn Socket> {
        Some(self)
    }
}
