//! Sockets of TCP (tcp(7)) over the application's own stack. A connection to a loopback address,
//! or to one of the machine's own, is a pair of buffers in the library: no packet is made for it.

use super::bound::{AddressFamilies, BoundAddress, SharedUse, WantedAddress};
use super::buffer::{UrgentPlace, copy_first};
use super::destination::Destination;
use super::errors::ErrorQueue;
use super::local::{Local, Waiting};
use super::message::{Outgoing, Received, Sender};
use super::open::{Happened, Stream};
use super::options::{IP, IPV6, TCP};
use super::places::{LocalKind, Place, Places};
use super::ready::{Events, Waiters};
use super::socket::{Address, Options, Peeking, Side, Socket, events};
use super::source::Source;
use super::tcp_info;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::task::Waker;
use linux_raw_sys::net as abi;
use nom_fs::{Errno, NodeType};
use nom_net::{Observed, SmallSegments};
use nom_socket::{Error, Family, ListenAddress, Network, PortSharing, Ready, Shutdown, SocketId, Sockets};

/// Ports that are given out to those who name none (RFC 6335 section 6).
const EPHEMERAL: core::ops::Range<u16> = 49_152..65_535;

/// What passes no network has the longest segments: bytes of their payload.
const MSS_WITHIN: u32 = 65_483;

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing of the stack's yet.
    New,
    /// Of the stack's nothing, if it listens at a loopback address alone.
    Listening(Option<SocketId>),
    /// A connection within the machine.
    Within(SocketAddr),
    /// A connection, open or asked for.
    Stream(SocketId, SocketAddr),
}

/// What a socket has that others of this machine reach, or that reaches them.
enum Within {
    Nothing,
    Listener(Rc<Waiting>),
    Connection(Box<Local>),
}

/// What a connection within the machine knows of the end of its other end, of which TCP hears by a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reset {
    /// Nothing came.
    Unheard,
    /// It came, and was not told of.
    Heard,
    /// A call has said so.
    Told,
}

/// A socket of the network.
pub(crate) struct Inet<N: Observed + 'static> {
    network: Network<N>,
    places: Rc<Places>,
    within: RefCell<Within>,
    domain: u32,
    own: Cell<SocketAddr>,
    /// What it was bound to.
    bound: RefCell<Option<Rc<BoundAddress>>>,
    state: Cell<State>,
    is_open: Cell<bool>,
    /// What is known of the end of its other end, in this machine.
    reset: Cell<Reset>,
    /// Bytes that were looked at and stay to be received.
    peeked: RefCell<VecDeque<u8>>,
    options: Options,
    /// Bytes of payload of a segment, if there were any, of a connection within the machine: what is said
    /// before it is made.
    segment_within: Cell<u32>,
    /// More comes soon that may go with what was sent last (`MSG_MORE`).
    is_begun: Cell<bool>,
    errors: ErrorQueue,
    waiters: Waiters,
}

pub(super) fn errno(error: Error) -> Errno {
    match error {
        Error::WouldBlock => Errno::EAGAIN,
        Error::BadSocket => Errno::EBADF,
        Error::NotSupported => Errno::EOPNOTSUPP,
        Error::InUse => Errno::EADDRINUSE,
        Error::NotConnected => Errno::ENOTCONN,
        Error::BrokenPipe => Errno::EPIPE,
        Error::Reset => Errno::ECONNRESET,
        Error::Refused => Errno::ECONNREFUSED,
        Error::TimedOut => Errno::ETIMEDOUT,
        Error::Unreachable => Errno::EHOSTUNREACH,
        Error::TooLong => Errno::EMSGSIZE,
        Error::Full => Errno::EADDRNOTAVAIL,
        Error::NoMemory => Errno::ENOBUFS,
    }
}

impl<N: Observed + 'static> Inet<N> {
    /// A socket without an address; `domain` is `AF_INET` or `AF_INET6`.
    pub fn new(network: &Network<N>, places: &Rc<Places>, domain: u32) -> Inet<N> {
        Inet {
            network: network.clone(),
            places: places.clone(),
            within: RefCell::new(Within::Nothing),
            domain,
            own: Cell::new(SocketAddr::new(any(domain), 0)),
            bound: RefCell::default(),
            state: Cell::new(State::New),
            is_open: Cell::new(false),
            reset: Cell::new(Reset::Unheard),
            peeked: RefCell::default(),
            options: Options::default(),
            segment_within: Cell::new(MSS_WITHIN),
            is_begun: Cell::new(false),
            errors: ErrorQueue::default(),
            waiters: Waiters::default(),
        }
    }

    fn id(&self) -> Option<SocketId> {
        match self.state.get() {
            State::New | State::Within(_) => None,
            State::Listening(id) => id,
            State::Stream(id, _) => Some(id),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Sockets<N>) -> Result<T, Error>) -> Result<T, Errno> {
        self.network.with(act).map_err(errno)
    }

    /// The stack has something for it from now on.
    fn become_state(&self, state: State) {
        self.state.set(state);
        self.waiters.wake();
    }

    fn stream_id(&self) -> Result<SocketId, Errno> {
        match self.state.get() {
            State::Stream(id, _) => Ok(id),
            State::New => Err(Errno::EPIPE),
            _ => Err(Errno::ENOTCONN),
        }
    }

    fn receive_stream(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno> {
        let id = self.stream_id().map_err(|_| Errno::ENOTCONN)?;
        let mut peeked = self.peeked.borrow_mut();
        if peeking == Peeking::Stay && peeked.len() < target.len() {
            let mut more = vec![0; target.len() - peeked.len()];
            match self.with(|sockets| sockets.receive(id, &mut more)) {
                Ok(count) => peeked.extend(&more[..count]),
                Err(error) if peeked.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        if peeked.is_empty() {
            let count = match peeking {
                Peeking::Take => self.with(|sockets| sockets.receive(id, target))?,
                Peeking::Stay => 0,
            };
            return Ok(Received::bytes(count));
        }
        let count = peeked.len().min(target.len());
        copy_first(&peeked, target, count);
        if peeking == Peeking::Take {
            peeked.drain(..count);
        }
        Ok(Received::bytes(count))
    }

    /// Receives from where the device has put it to where a program wants it; nothing unless it comes over
    /// the network and nobody has looked at it before.
    fn receive_at_once(&self, to: &Destination<'_>) -> Option<Result<usize, Errno>> {
        let State::Stream(id, _) = self.state.get() else { return None };
        self.peeked.borrow().is_empty().then(|| self.move_to(id, to))
    }

    /// Moves what has come to where a program wants it. Its memory is made there first, as that may end a
    /// process, which closes sockets.
    fn move_to(&self, id: SocketId, to: &Destination<'_>) -> Result<usize, Errno> {
        let count = self.with(|sockets| sockets.unread(id))?.min(to.len());
        let mut target = to.reached(count)?;
        self.with(|sockets| sockets.receive_with(id, count, |bytes| target.put(bytes)))
    }

    /// Sends from where a program has it; nothing unless it goes over the network.
    fn send_at_once(&self, from: &Source<'_>, is_begun: bool) -> Option<Result<usize, Errno>> {
        let State::Stream(id, _) = self.state.get() else { return None };
        self.note_begun(is_begun);
        let mut reached = match from.reached() {
            Ok(reached) => reached,
            Err(error) => return Some(Err(error)),
        };
        Some(self.with(|sockets| sockets.send_with(id, from.len(), |room| reached.get(room))))
    }

    fn accepted(&self, id: SocketId, peer: SocketAddr) -> Inet<N> {
        let accepted = Inet::new(&self.network, &self.places, self.domain);
        let own = self.with(|sockets| sockets.local(id));
        accepted.own.set(own.unwrap_or(self.own.get()));
        accepted.state.set(State::Stream(id, peer));
        accepted.is_open.set(true);
        accepted.options.inherit(&self.options);
        accepted.limit_segments();
        accepted.tell_options();
        accepted
    }

    /// Tells the stack of a new connection what the program has said of it.
    fn tell_options(&self) {
        self.tell_small_segments();
        self.mark_packets();
        self.tell_peer_timeouts();
    }

    /// What is sent from now on is a beginning, of which more comes soon, or it is not.
    #[inline]
    fn note_begun(&self, is_begun: bool) {
        if self.is_begun.replace(is_begun) != is_begun {
            self.tell_small_segments();
        }
    }

    /// Has small segments of a connection go when the program says.
    fn tell_small_segments(&self) {
        self.tell_stack(|sockets, id, _| {
            let when = match self.is_begun.get() {
                true => SmallSegments::Held,
                false => self.options.small_segments(),
            };
            sockets.set_small_segments(id, when)
        });
    }

    /// Has no segment be longer than the program says.
    fn limit_segments(&self) {
        let Some(most) = self.options.segments_max() else { return };
        self.segment_within.set(tcp_info::payload_of(most).min(MSS_WITHIN));
        self.tell_stack(|sockets, id, _| sockets.limit_segments(id, most));
    }

    /// Has a connection wait for a peer that says nothing for as long as the program says.
    fn tell_peer_timeouts(&self) {
        self.tell_stack(|sockets, id, _| sockets.set_peer_timeouts(id, self.options.peer_timeouts()));
    }

    /// Has packets of a connection be treated as the program says.
    fn mark_packets(&self) {
        self.tell_stack(|sockets, id, peer| sockets.set_marks(id, self.options.marks(peer.ip())));
    }

    /// Tells the stack something of a connection, if this is one. One that has ended has no use for it.
    fn tell_stack(&self, tell: impl FnOnce(&mut Sockets<N>, SocketId, SocketAddr) -> Result<(), Error>) {
        if let State::Stream(id, peer) = self.state.get() {
            let _ = self.with(|sockets| tell(sockets, id, peer));
        }
    }

    /// At which addresses it listens.
    fn listen_addresses(&self) -> Vec<ListenAddress> {
        let own = self.own.get().ip().to_canonical();
        if !own.is_unspecified() {
            return vec![ListenAddress::One(own)];
        }
        let families: &[Family] = match (self.domain, self.options.families()) {
            (abi::AF_INET, _) => &[Family::V4],
            (_, AddressFamilies::Own) => &[Family::V6],
            (_, AddressFamilies::Both) => &[Family::V4, Family::V6],
        };
        families.iter().copied().map(ListenAddress::Any).collect()
    }

    /// Listens at a port, if nobody else does.
    fn listen_at(
        &self,
        addresses: &[ListenAddress],
        port: u16,
        (backlog, by): (usize, Sender),
    ) -> Result<(Option<SocketId>, Rc<Waiting>), Errno> {
        let sharing = match self.options.sharing() {
            SharedUse::Always => PortSharing::Shared,
            _ => PortSharing::Alone,
        };
        let places = addresses.iter().map(|address| Place::Port(*address, port)).collect();
        let waiting = self.places.listen(places, Waiting::new(backlog, by, sharing))?;
        let is_loopback = self.own.get().ip().to_canonical().is_loopback();
        if is_loopback || self.options.stays_within() {
            return Ok((None, waiting));
        }
        let most = pending_max(backlog);
        let id = self.with(|sockets| sockets.listen_at(addresses, port, most, sharing))?;
        Ok((Some(id), waiting))
    }

    /// Connects to who listens in this machine.
    fn connect_within(&self, peer: SocketAddr, by: Sender) -> Result<(), Errno> {
        let ip = reached(peer.ip());
        let peer = SocketAddr::new(ip, peer.port());
        let port = match self.own.get().port() {
            // None that somebody was given: a connection from there to there would be one with itself.
            0 => {
                let mut ports = EPHEMERAL.map(|_| self.places.take_port(EPHEMERAL));
                ports.find(|port| !self.places.bound.has_port(*port)).ok_or(Errno::EADDRNOTAVAIL)?
            }
            port => port,
        };
        // From the address that it was bound to, or else from that which it goes to.
        let bound = self.own.get().ip().to_canonical();
        let is_source = !bound.is_unspecified() && bound.is_ipv4() == ip.is_ipv4();
        let own = SocketAddr::new(if is_source { bound } else { ip }, port);
        let local = Local::new(&self.places, LocalKind::Stream);
        local.set_name(&Address::Inet(own).to_bytes(self.domain));
        let name = Address::Inet(peer).to_bytes(self.domain);
        local.connect_to(&self.places.port_place(peer), &name, by)?;
        self.own.set(own);
        *self.within.borrow_mut() = Within::Connection(Box::new(local));
        self.limit_segments();
        self.become_state(State::Within(peer));
        // As on Linux, where the answer is looked at only when the call is over.
        Err(Errno::EINPROGRESS)
    }

    /// A connection of somebody in this machine, that waits.
    fn accept_within(&self) -> Option<(Rc<dyn Stream>, Address)> {
        let Within::Listener(waiting) = &*self.within.borrow() else { return None };
        let (local, name) = waiting.take()?;
        let Ok(Address::Inet(peer)) = Address::read(&name) else { return None };
        let Address::Local(own) = local.own_address() else { return None };
        let Ok(Address::Inet(own)) = Address::read(&own) else { return None };
        let accepted = Inet::new(&self.network, &self.places, self.domain);
        accepted.own.set(SocketAddr::new(own.ip(), self.own.get().port()));
        accepted.state.set(State::Within(peer));
        accepted.is_open.set(true);
        accepted.options.inherit(&self.options);
        accepted.limit_segments();
        *accepted.within.borrow_mut() = Within::Connection(Box::new(local));
        Some((Rc::new(accepted), Address::Inet(peer)))
    }

    /// A program that listens already says another number.
    fn set_backlog(&self, id: Option<SocketId>, backlog: usize) -> Result<(), Errno> {
        if let Within::Listener(waiting) = &*self.within.borrow() {
            waiting.set_backlog(backlog);
        }
        match id {
            Some(id) => Ok(self.with(|sockets| sockets.set_pending_max(id, pending_max(backlog)))?),
            None => Ok(()),
        }
    }

    /// What a call says, which may be that the other end is gone.
    fn noting_reset<T>(&self, result: Result<T, Errno>) -> Result<T, Errno> {
        if matches!(result, Err(Errno::ECONNRESET | Errno::EPIPE)) {
            self.reset.set(Reset::Told);
        }
        result
    }

    /// Whether a reset has come from within the machine, and nothing is connected any more.
    fn is_reset(&self) -> bool {
        let is_failed = || self.with_local(|local| !local.ready().of(Events::ERROR).is_none());
        self.reset.get() != Reset::Unheard || is_failed() == Some(true)
    }

    /// Does something with the other end's buffers, if that is in this machine.
    fn with_local<T>(&self, act: impl FnOnce(&Local) -> T) -> Option<T> {
        match &*self.within.borrow() {
            Within::Connection(local) => Some(act(local)),
            _ => None,
        }
    }
}

/// Whether an address is of this machine.
pub(super) fn is_within<N: Observed + 'static>(network: &Network<N>, address: IpAddr) -> bool {
    address.is_loopback()
        || address.is_unspecified()
        || network.with(|sockets| sockets.stack().config().source_for(address)) == Some(address)
}

/// Checks that a socket of this machine can have an address.
pub(super) fn check_own<N: Observed + 'static>(network: &Network<N>, address: IpAddr) -> Result<(), Errno> {
    let is_own = address.is_unspecified() || address.is_multicast() || is_within(network, address);
    if is_own { Ok(()) } else { Err(Errno::EADDRNOTAVAIL) }
}

/// The address that is everybody's, of `AF_INET` or `AF_INET6`.
pub(super) fn any(domain: u32) -> IpAddr {
    if domain == abi::AF_INET { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// The address that is reached by one: everybody's is the loopback's.
pub(super) fn reached(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// How many may wait where a program says `backlog`: one more, as on Linux.
fn pending_max(backlog: usize) -> usize {
    backlog.saturating_add(1)
}

impl<N: Observed + 'static> Drop for Inet<N> {
    fn drop(&mut self) {
        let is_reset = self.options.linger_s.get() == Some(0);
        if is_reset {
            self.with_local(Local::reset);
        }
        if let Some(id) = self.id() {
            // The stack may have nothing of it any more.
            let _ = self.with(|sockets| if is_reset { sockets.abort(id) } else { sockets.close(id) });
        }
    }
}

impl<N: Observed + 'static> Socket for Inet<N> {
    fn names(&self) -> (u32, u32, u32) {
        (self.domain, abi::SOCK_STREAM, abi::IPPROTO_TCP as u32)
    }

    fn bind(&self, address: &Address) -> Result<(), Errno> {
        let Address::Inet(address) = address else { return Err(Errno::EAFNOSUPPORT) };
        if !matches!(self.state.get(), State::New) || self.own.get().port() != 0 {
            return Err(Errno::EINVAL);
        }
        if address.is_ipv6() && self.domain == abi::AF_INET {
            return Err(Errno::EAFNOSUPPORT);
        }
        let ip = address.ip();
        check_own(&self.network, ip)?;
        let is_taken = |port| self.places.has_listener_of(port);
        let (families, sharing) = (self.options.families(), self.options.sharing());
        let wanted = WantedAddress { address: *address, families, sharing };
        let bound = self.places.bound.bind(wanted, EPHEMERAL, is_taken)?;
        self.own.set(bound.address());
        *self.bound.borrow_mut() = Some(bound);
        Ok(())
    }

    fn listen(&self, backlog: usize, by: Sender) -> Result<(), Errno> {
        match self.state.get() {
            State::Listening(id) => return self.set_backlog(id, backlog),
            State::New => {}
            _ => return Err(Errno::EINVAL),
        }
        let own = self.own.get();
        let addresses = self.listen_addresses();
        if self.bound.borrow().as_ref().is_some_and(|bound| !self.places.bound.may_listen(bound)) {
            return Err(Errno::EADDRINUSE);
        }
        let ports = if own.port() == 0 { EPHEMERAL } else { own.port()..own.port().saturating_add(1) };
        let mut result = Err(Errno::EADDRINUSE);
        for port in ports {
            let heard = self.listen_at(&addresses, port, (backlog, by));
            result = heard.map(|(id, waiting)| (id, port, waiting));
            if !matches!(result, Err(Errno::EADDRINUSE)) {
                break;
            }
        }
        let (id, port, waiting) = result?;
        if let Some(bound) = &*self.bound.borrow() {
            bound.is_listening.set(true);
        }
        *self.within.borrow_mut() = Within::Listener(waiting);
        self.own.set(SocketAddr::new(own.ip(), port));
        self.become_state(State::Listening(id));
        Ok(())
    }

    fn accept(&self) -> Result<(Rc<dyn Stream>, Address), Errno> {
        let State::Listening(id) = self.state.get() else { return Err(Errno::EINVAL) };
        if let Some(accepted) = self.accept_within() {
            return Ok(accepted);
        }
        let (stream, peer) = self.with(|sockets| sockets.accept(id.ok_or(Error::WouldBlock)?))?;
        Ok((Rc::new(self.accepted(stream, peer)), Address::Inet(peer)))
    }

    fn connect(&self, address: &Address, by: Sender) -> Result<(), Errno> {
        let Address::Inet(peer) = *address else { return Err(Errno::EAFNOSUPPORT) };
        match self.state.get() {
            State::New => {}
            State::Within(_) if self.is_open.replace(true) => return Err(Errno::EISCONN),
            State::Within(_) => return Ok(()),
            State::Stream(..) if self.is_open.get() => return Err(Errno::EISCONN),
            State::Stream(..) => {
                return self.connected().map_err(|error| match error {
                    Errno::EAGAIN => Errno::EALREADY,
                    other => other,
                });
            }
            _ => return Err(Errno::EINVAL),
        }
        if is_within(&self.network, peer.ip()) {
            return self.connect_within(peer, by);
        }
        if self.options.stays_within() {
            // Linux asks there in vain for two minutes.
            return Err(Errno::ETIMEDOUT);
        }
        let (id, own) = self.with(|sockets| {
            let id = sockets.connect(peer)?;
            // Before it is asked for.
            if let Some(most) = self.options.segments_max() {
                sockets.limit_segments(id, most)?;
            }
            Ok((id, sockets.local(id)?))
        })?;
        self.own.set(own);
        self.become_state(State::Stream(id, peer));
        self.tell_options();
        Err(Errno::EINPROGRESS)
    }

    fn connected(&self) -> Result<(), Errno> {
        if let State::Stream(id, _) = self.state.get() {
            self.with(|sockets| sockets.connected(id))?;
        }
        self.is_open.set(true);
        Ok(())
    }

    fn send(&self, what: &Outgoing<'_>) -> Result<usize, Errno> {
        // To whom is known: Linux does not look at another address.
        let what = &Outgoing { to: None, attached: None, is_signed: false, ..*what };
        if let Some(sent) = self.with_local(|local| (local.send(what), local.is_unread())) {
            return match sent {
                // TCP learns that nobody reads any more by the answer to what it has sent.
                (Err(Errno::EPIPE), true) if self.reset.get() == Reset::Unheard => {
                    self.reset.set(Reset::Heard);
                    Ok(what.bytes.len())
                }
                (sent, _) => self.noting_reset(sent),
            };
        }
        if what.is_urgent {
            return Err(Errno::EOPNOTSUPP);
        }
        let id = self.stream_id()?;
        self.note_begun(what.is_begun);
        self.with(|sockets| sockets.send(id, what.bytes))
    }

    fn send_from(&self, from: &Source<'_>, how: &Outgoing<'_>) -> Result<usize, Errno> {
        let at_once = if how.is_urgent { None } else { self.send_at_once(from, how.is_begun) };
        match at_once {
            Some(sent) => sent,
            None => from.by_buffer(|bytes| self.send(&Outgoing { bytes, ..*how })),
        }
    }

    fn receive(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno> {
        if let Some(received) = self.with_local(|local| local.receive(target, peeking)) {
            // Of whom it comes is a local socket's to tell.
            return self.noting_reset(received.map(|received| Received { by: None, ..received }));
        }
        self.receive_stream(target, peeking)
    }

    fn receive_to(&self, to: &Destination<'_>) -> Result<Received, Errno> {
        match self.receive_at_once(to) {
            Some(count) => count.map(Received::bytes),
            None => to.by_buffer(|bytes| self.receive(bytes, Peeking::Take), |received| received.count),
        }
    }

    fn receive_urgent(&self, target: &mut [u8], peeking: Peeking) -> Result<usize, Errno> {
        let within = self.with_local(|local| local.receive_urgent(target, peeking));
        within.unwrap_or(Err(Errno::EINVAL))
    }

    fn is_at_urgent(&self) -> bool {
        self.with_local(Socket::is_at_urgent).unwrap_or(false)
    }

    fn shut(&self, side: Side) -> Result<(), Errno> {
        if let Some(shut) = self.with_local(|local| local.shut(side)) {
            return shut;
        }
        let State::Stream(id, _) = self.state.get() else { return Err(Errno::ENOTCONN) };
        let side = match side {
            Side::Receive => Shutdown::Receive,
            Side::Send => Shutdown::Send,
            Side::Both => Shutdown::Both,
        };
        self.with(|sockets| sockets.shutdown(id, side))
    }

    fn own_address(&self) -> Address {
        Address::Inet(self.own.get())
    }

    fn peer_address(&self) -> Result<Address, Errno> {
        match self.state.get() {
            State::Within(_) if self.is_reset() => Err(Errno::ENOTCONN),
            State::Stream(_, peer) | State::Within(peer) => Ok(Address::Inet(peer)),
            _ => Err(Errno::ENOTCONN),
        }
    }

    fn take_error(&self) -> Option<Errno> {
        if let Some(error) = self.with_local(Socket::take_error) {
            let heard = (self.reset.get() == Reset::Heard).then_some(Errno::EPIPE);
            let error = error.or(heard);
            error.iter().for_each(|_| self.reset.set(Reset::Told));
            return error;
        }
        let State::Stream(id, _) = self.state.get() else { return None };
        self.with(|sockets| sockets.take_error(id)).ok().flatten().map(errno)
    }

    fn is_listening(&self) -> bool {
        matches!(self.state.get(), State::Listening(_))
    }

    fn tcp_info(&self) -> Option<Vec<u8>> {
        const MSS: u32 = 1460;
        Some(match self.state.get() {
            State::Stream(id, _) => match self.with(|sockets| sockets.information(id)) {
                Ok(known) => tcp_info::of_flow(&known),
                Err(_) => tcp_info::of_state(tcp_info::CLOSE, MSS),
            },
            State::Within(_) => tcp_info::of_state(tcp_info::ESTABLISHED, self.segment_within.get()),
            State::Listening(_) => tcp_info::of_state(tcp_info::LISTEN, MSS),
            State::New => tcp_info::of_state(tcp_info::CLOSE, MSS),
        })
    }

    fn receive_error(&self, target: &mut [u8]) -> Result<Received, Errno> {
        self.errors.take(target)
    }

    fn tell_copied(&self) {
        self.errors.tell_copied();
        self.waiters.wake();
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn option_changed(&self, level: u32, name: u32, value: i32) {
        if (level, name) == (abi::SOL_SOCKET, abi::SO_OOBINLINE) {
            let place = if value == 0 { UrgentPlace::Apart } else { UrgentPlace::Among };
            self.with_local(|local| local.set_urgent_place(place));
        }
        if let (TCP, abi::TCP_NODELAY | abi::TCP_CORK) = (level, name) {
            self.tell_small_segments();
        }
        if (level, name) == (TCP, abi::TCP_NODELAY) && value != 0 {
            // What waits goes, however the socket is corked.
            self.tell_stack(|sockets, id, _| sockets.push(id));
        }
        if let (IP, abi::IP_TTL | abi::IP_TOS) | (IPV6, abi::IPV6_UNICAST_HOPS | abi::IPV6_TCLASS) =
            (level, name)
        {
            self.mark_packets();
        }
        if let (abi::SOL_SOCKET, abi::SO_KEEPALIVE)
        | (TCP, abi::TCP_KEEPIDLE | abi::TCP_KEEPINTVL | abi::TCP_KEEPCNT | abi::TCP_USER_TIMEOUT) =
            (level, name)
        {
            self.tell_peer_timeouts();
        }
    }
}

impl<N: Observed + 'static> Inet<N> {
    /// What it is ready for, beside its queue of errors.
    fn readiness(&self) -> Events {
        let waits_within = match &*self.within.borrow() {
            // The peer's end is no failure: what it wrote, and that it ended, can be read.
            Within::Connection(local) => {
                let ready = local.ready();
                let is_reset = !ready.of(Events::ERROR).is_none();
                return match self.reset.get() {
                    Reset::Unheard if !is_reset => Events(ready.0 & !Events::HANG_UP.0),
                    Reset::Heard => ready.with(Events::ERROR),
                    _ => ready,
                };
            }
            Within::Listener(waiting) => Events::IN.when(waiting.is_ready()),
            Within::Nothing => Events::NONE,
        };
        let Some(id) = self.id() else {
            if matches!(self.state.get(), State::Listening(_)) {
                return waits_within;
            }
            // As Linux says of one that was never connected.
            return Events::OUT.with(Events::HANG_UP);
        };
        let ready = self.network.with(|sockets| sockets.ready(id)).unwrap_or(Ready::ERROR);
        let has = |condition| ready.contains(condition);
        let is_readable = has(Ready::READABLE) || !self.peeked.borrow().is_empty();
        events(is_readable, has(Ready::WRITABLE), has(Ready::FINISHED), has(Ready::ERROR)).with(waits_within)
    }
}

impl<N: Observed + 'static> Stream for Inet<N> {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        self.receive(target, Peeking::Take).map(|received| received.count)
    }

    fn read_to(&self, to: &Destination<'_>) -> Result<usize, Errno> {
        match self.receive_at_once(to) {
            Some(count) => count,
            None => to.by_buffer(|bytes| self.read(bytes), |count| *count),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.send(&Outgoing::plain(bytes))
    }

    fn write_from(&self, from: &Source<'_>) -> Result<usize, Errno> {
        self.send_from(from, &Outgoing::plain(&[]))
    }

    fn ready(&self) -> Events {
        self.readiness().with(Events::ERROR.when(!self.errors.is_empty()))
    }

    fn wake(&self, waker: &Waker) {
        if self.options.lends.get() {
            self.waiters.add(waker);
        }
        match &*self.within.borrow() {
            Within::Connection(local) => return local.wake(waker),
            Within::Listener(waiting) => waiting.wake(waker),
            Within::Nothing => {}
        }
        match self.id() {
            None => self.waiters.add(waker),
            Some(id) => {
                let wanted = Ready::READABLE | Ready::WRITABLE | Ready::FINISHED;
                // A socket that is gone is ready, which whoever waits has seen.
                let _ = self.with(|sockets| sockets.wake_for(id, wanted, waker));
            }
        }
    }

    fn happened(&self) -> Happened {
        self.with_local(Stream::happened).unwrap_or_default()
    }

    fn kind(&self) -> NodeType {
        NodeType::Socket
    }

    fn unread(&self) -> Option<usize> {
        match self.state.get() {
            State::Stream(id, _) => {
                let count = self.with(|sockets| sockets.unread(id)).ok()?;
                Some(self.peeked.borrow().len() + count)
            }
            _ => self.with_local(Stream::unread)?,
        }
    }

    fn socket(&self) -> Option<&dyn Socket> {
        Some(self)
    }
}
