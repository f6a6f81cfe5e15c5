//! Sockets between processes of the family: unix(7), streams.

use super::bound::BoundAddresses;
use super::open::{Description, Stream};
use super::pipe::{Buffer, ReadEnd, WriteEnd};
use super::ready::{Events, Waiters};
use super::socket::{Address, Options, Peeking, Received, Side, Socket, events};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::task::Waker;
use linux_raw_sys::net as abi;
use nom_fs::{Errno, NodeId, NodeType};

/// Where a listener is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// By the node that its path leads to.
    Node(NodeId),
    /// By its abstract name.
    Name(Vec<u8>),
    /// By its port of loopback addresses, of `AF_INET` or `AF_INET6`.
    Port(u32, u16),
}

/// Listeners by where they are found.
#[derive(Debug, Default)]
pub(crate) struct Places {
    listeners: RefCell<BTreeMap<Place, Weak<Waiting>>>,
    /// Ports that were given out to who connects within the machine.
    ports: Cell<u16>,
    /// Addresses of the network that sockets have.
    pub bound: BoundAddresses,
}

impl Places {
    /// A port of these for who connects to a listener and has none: another one each time, until all were.
    pub fn take_port(&self, among: core::ops::Range<u16>) -> u16 {
        let count = self.ports.get();
        self.ports.set((count + 1) % (among.end - among.start));
        among.start + count
    }

    /// Whether somebody listens at a place.
    pub fn has_listener(&self, place: &Place) -> bool {
        self.listeners.borrow().get(place).is_some_and(|listener| listener.strong_count() > 0)
    }

    /// Has somebody listen at all of these places, unless somebody does at one of them.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub fn listen(&self, at: Vec<Place>, backlog: usize) -> Result<Rc<Waiting>, Errno> {
        let mut places = self.listeners.borrow_mut();
        if at.iter().any(|place| places.get(place).is_some_and(|other| other.strong_count() > 0)) {
            return Err(Errno::EADDRINUSE);
        }
        let waiting = Rc::new(Waiting::default());
        waiting.set_backlog(backlog);
        places.extend(at.into_iter().map(|place| (place, Rc::downgrade(&waiting))));
        Ok(waiting)
    }
}

/// Connections that wait to be accepted.
#[derive(Default)]
pub(crate) struct Waiting {
    pending: RefCell<VecDeque<Local>>,
    backlog: Cell<usize>,
    waiters: Waiters,
}

impl Waiting {
    /// The connection that has waited longest, and the name of who asked for it.
    pub fn take(&self) -> Option<(Local, Vec<u8>)> {
        let accepted = self.pending.borrow_mut().pop_front()?;
        let peer = accepted.peer.borrow().clone();
        Some((accepted, peer))
    }

    /// From now on, one more than this may wait.
    pub fn set_backlog(&self, backlog: usize) {
        self.backlog.set(backlog);
    }

    /// Whether one waits.
    pub fn is_ready(&self) -> bool {
        !self.pending.borrow().is_empty()
    }

    /// Wakes when one comes.
    pub fn wake(&self, waker: &Waker) {
        self.waiters.add(waker);
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Waiting({} connections)", self.pending.borrow().len())
    }
}

enum State {
    New,
    Bound(Place),
    Listening(Rc<Waiting>),
    Open { reader: Option<ReadEnd>, writer: Option<WriteEnd> },
}

/// A local stream socket.
pub(crate) struct Local {
    places: Rc<Places>,
    state: RefCell<State>,
    own: RefCell<Vec<u8>>,
    peer: RefCell<Vec<u8>>,
    options: Options,
    waiters: Waiters,
}

impl Local {
    /// One that is connected to nothing.
    pub fn new(places: &Rc<Places>) -> Local {
        Local {
            places: places.clone(),
            state: RefCell::new(State::New),
            own: RefCell::default(),
            peer: RefCell::default(),
            options: Options::default(),
            waiters: Waiters::default(),
        }
    }

    /// Two that are connected to each other.
    pub fn pair(places: &Rc<Places>) -> (Local, Local) {
        let (there, back) = (Rc::<Buffer>::default(), Rc::<Buffer>::default());
        let open = |read: &Rc<Buffer>, written: &Rc<Buffer>| {
            let (reader, writer) = (Some(ReadEnd::new(read)), Some(WriteEnd::new(written)));
            let local = Local::new(places);
            local.state.replace(State::Open { reader, writer });
            local
        };
        (open(&back, &there), open(&there, &back))
    }

    /// Puts it where it is found; `place` is what its address leads to.
    ///
    /// # Errors
    /// `EINVAL` if it is somewhere already; `EADDRINUSE`.
    pub fn bind_at(&self, place: Place, name: &[u8]) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        if !matches!(*state, State::New) {
            return Err(Errno::EINVAL);
        }
        let known = self.places.listeners.borrow().get(&place).and_then(Weak::upgrade);
        if known.is_some() {
            return Err(Errno::EADDRINUSE);
        }
        *state = State::Bound(place);
        *self.own.borrow_mut() = name.to_vec();
        Ok(())
    }

    /// Sends bytes, and descriptors with the first of them.
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub fn send_with(&self, bytes: &[u8], attached: &[Rc<Description>]) -> Result<usize, Errno> {
        match &*self.state.borrow() {
            State::Open { writer: Some(writer), .. } => writer.buffer().write_with(bytes, attached),
            State::Open { .. } => Err(Errno::EPIPE),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// Receives bytes, and the descriptors that came with the first of them.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn receive_with(
        &self,
        target: &mut [u8],
        attached: &mut Vec<Rc<Description>>,
    ) -> Result<Received, Errno> {
        let count = match &*self.state.borrow() {
            State::Open { reader: Some(reader), .. } => reader.buffer().read_with(target, attached)?,
            State::Open { .. } => 0,
            _ => return Err(Errno::EINVAL),
        };
        Ok(Received { count, from: None })
    }

    /// Names it, for who is told of its peer.
    pub fn set_name(&self, name: &[u8]) {
        *self.own.borrow_mut() = name.to_vec();
    }

    /// Connects to who listens at a place.
    ///
    /// # Errors
    /// `EISCONN`; `ECONNREFUSED`; `EAGAIN` if too many wait there.
    pub fn connect_to(&self, place: &Place, name: &[u8]) -> Result<(), Errno> {
        if matches!(*self.state.borrow(), State::Open { .. }) {
            return Err(Errno::EISCONN);
        }
        let listener =
            self.places.listeners.borrow().get(place).and_then(Weak::upgrade).ok_or(Errno::ECONNREFUSED)?;
        if listener.pending.borrow().len() > listener.backlog.get() {
            return Err(Errno::EAGAIN);
        }
        let (here, there) = Local::pair(&self.places);
        *self.state.borrow_mut() = here.state.replace(State::New);
        *self.peer.borrow_mut() = name.to_vec();
        *there.own.borrow_mut() = name.to_vec();
        *there.peer.borrow_mut() = self.own.borrow().clone();
        listener.pending.borrow_mut().push_back(there);
        listener.waiters.wake();
        self.waiters.wake();
        Ok(())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.places.listeners.borrow_mut().retain(|_, waiting| waiting.strong_count() > 0);
    }
}

impl Socket for Local {
    fn names(&self) -> (u32, u32, u32) {
        (abi::AF_UNIX, abi::SOCK_STREAM, 0)
    }

    fn bind(&self, address: &Address) -> Result<(), Errno> {
        match address {
            Address::Local(name) if name.first() == Some(&0) => self.bind_at(Place::Name(name.clone()), name),
            _ => Err(Errno::EINVAL),
        }
    }

    fn listen(&self, backlog: usize) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        match &*state {
            State::Bound(place) => {
                let waiting = self.places.listen([place.clone()].into(), backlog)?;
                *state = State::Listening(waiting);
                Ok(())
            }
            State::Listening(waiting) => {
                waiting.set_backlog(backlog);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn accept(&self) -> Result<(Rc<dyn Stream>, Address), Errno> {
        let State::Listening(waiting) = &*self.state.borrow() else { return Err(Errno::EINVAL) };
        let (accepted, peer) = waiting.take().ok_or(Errno::EAGAIN)?;
        Ok((Rc::new(accepted), Address::Local(peer)))
    }

    fn connect(&self, address: &Address) -> Result<(), Errno> {
        match address {
            Address::Local(name) if name.first() == Some(&0) => {
                self.connect_to(&Place::Name(name.clone()), name)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn connected(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn send(&self, bytes: &[u8], _: Option<&Address>) -> Result<usize, Errno> {
        self.send_with(bytes, &[])
    }

    fn receive(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno> {
        if let (Peeking::Stay, State::Open { reader: Some(reader), .. }) = (peeking, &*self.state.borrow()) {
            return Ok(Received { count: reader.buffer().peek(target)?, from: None });
        }
        self.receive_with(target, &mut Vec::new())
    }

    fn shut(&self, side: Side) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let State::Open { reader, writer } = &mut *state else { return Err(Errno::ENOTCONN) };
        let reader = if side == Side::Send { None } else { reader.take() };
        let writer = if side == Side::Receive { None } else { writer.take() };
        drop(state);
        drop((reader, writer));
        self.waiters.wake();
        Ok(())
    }

    fn own_address(&self) -> Address {
        Address::Local(self.own.borrow().clone())
    }

    fn peer_address(&self) -> Result<Address, Errno> {
        match &*self.state.borrow() {
            State::Open { .. } => Ok(Address::Local(self.peer.borrow().clone())),
            _ => Err(Errno::ENOTCONN),
        }
    }

    fn take_error(&self) -> Option<Errno> {
        None
    }

    fn is_listening(&self) -> bool {
        matches!(*self.state.borrow(), State::Listening(_))
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn local(&self) -> Option<&Local> {
        Some(self)
    }
}

impl Stream for Local {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        self.receive(target, Peeking::Take).map(|received| received.count)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.send(bytes, None)
    }

    fn ready(&self) -> Events {
        match &*self.state.borrow() {
            State::New | State::Bound(_) => Events::OUT.with(Events::HANG_UP),
            State::Listening(waiting) => Events::IN.when(waiting.is_ready()),
            State::Open { reader, writer } => {
                let is_finished = reader.as_ref().is_none_or(|reader| reader.buffer().is_finished());
                let has_bytes = reader.as_ref().is_some_and(|reader| reader.buffer().len() > 0);
                let writable = writer.as_ref().map_or(Events::OUT, |writer| writer.buffer().writable());
                let is_gone = is_finished && !writable.of(Events::ERROR).is_none();
                events(has_bytes || is_finished, !writable.of(Events::OUT).is_none(), is_finished, false)
                    .with(Events::HANG_UP.when(is_gone))
            }
        }
    }

    fn wake(&self, waker: &Waker) {
        self.waiters.add(waker);
        match &*self.state.borrow() {
            State::Listening(waiting) => waiting.wake(waker),
            State::Open { reader, writer } => {
                reader.iter().for_each(|reader| reader.buffer().wake(waker));
                writer.iter().for_each(|writer| writer.buffer().wake(waker));
            }
            _ => {}
        }
    }

    fn kind(&self) -> NodeType {
        NodeType::Socket
    }

    fn unread(&self) -> Option<usize> {
        match &*self.state.borrow() {
            State::Open { reader: Some(reader), .. } => Some(reader.buffer().len()),
            _ => None,
        }
    }

    fn socket(&self) -> Option<&dyn Socket> {
        Some(self)
    }
}
