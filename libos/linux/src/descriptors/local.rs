//! Connections between processes of the family: unix(7), streams and packets in sequence.

use super::buffer::{Buffer, UrgentPlace};
use super::destination::Destination;
use super::message::{Outgoing, Received, Sender};
use super::open::{Description, Happened, Stream};
use super::pipe::{ReadEnd, WriteEnd};
use super::places::{LocalKind, Place, Places, Taken};
use super::ready::{Events, Waiters};
use super::socket::{Address, Options, Peeking, Side, Socket, events};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::fmt;
use core::task::Waker;
use linux_raw_sys::net as abi;
use nom_fs::{Errno, NodeType};
use nom_socket::PortSharing;

/// Connections that wait to be accepted.
pub(crate) struct Waiting {
    pending: RefCell<VecDeque<Local>>,
    backlog: Cell<usize>,
    /// Who listens.
    by: Sender,
    /// Whether others may at the same place.
    pub(super) sharing: PortSharing,
    waiters: Waiters,
    /// Who waits until fewer do here, or anywhere.
    room: OnceCell<Rc<Waiters>>,
}

/// How many connections within the machine wait for a program at a port, at least. To those it cannot take
/// the network's would come a little later, since their first segments are sent again: nobody is told that
/// there are too many.
const AT_PORT_MIN: usize = 4096;

impl Waiting {
    /// None yet; one more than `backlog` may wait.
    pub fn new(backlog: usize, by: Sender, sharing: PortSharing) -> Waiting {
        let (pending, waiters) = Default::default();
        let room = OnceCell::new();
        Waiting { pending, backlog: Cell::new(backlog), by, sharing, waiters, room }
    }

    /// The connection that has waited longest, and the name of who asked for it.
    pub fn take(&self) -> Option<(Local, Vec<u8>)> {
        let accepted = self.pending.borrow_mut().pop_front()?;
        let peer = accepted.peer.borrow().clone();
        self.tell_room();
        Some((accepted, peer))
    }

    /// Wakes by `room` when there are fewer, or it is gone.
    pub fn tells(&self, room: &Rc<Waiters>) {
        self.room.get_or_init(|| room.clone());
    }

    fn tell_room(&self) {
        self.room.get().into_iter().for_each(|room| room.wake());
    }

    /// How many may wait, but for one, of those who come to this place.
    fn most(&self, place: &Place) -> usize {
        let least = if matches!(place, Place::Port(..)) { AT_PORT_MIN } else { 0 };
        self.backlog.get().max(least)
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

impl Drop for Waiting {
    fn drop(&mut self) {
        for forgotten in self.pending.take() {
            forgotten.reset();
        }
        self.tell_room();
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Waiting({} connections)", self.pending.borrow().len())
    }
}

enum State {
    New,
    Listening(Rc<Waiting>),
    Open { reader: Option<ReadEnd>, writer: Option<WriteEnd> },
}

/// A local socket that is connected, or may be.
pub(crate) struct Local {
    places: Rc<Places>,
    kind: LocalKind,
    state: RefCell<State>,
    taken: RefCell<Option<(Taken, Place)>>,
    own: RefCell<Vec<u8>>,
    peer: RefCell<Vec<u8>>,
    /// Who is at the other end.
    peer_is: Cell<Sender>,
    options: Options,
    waiters: Waiters,
}

impl Local {
    /// One that is connected to nothing.
    pub fn new(places: &Rc<Places>, kind: LocalKind) -> Local {
        Local {
            places: places.clone(),
            kind,
            state: RefCell::new(State::New),
            taken: RefCell::default(),
            own: RefCell::default(),
            peer: RefCell::default(),
            peer_is: Cell::default(),
            options: Options::default(),
            waiters: Waiters::default(),
        }
    }

    /// Two that are connected to each other, made by one process.
    pub fn pair(places: &Rc<Places>, kind: LocalKind, by: Sender) -> (Local, Local) {
        let buffer = || match kind {
            LocalKind::Packets => Rc::new(Buffer::of_packets(usize::MAX)),
            _ => Rc::<Buffer>::default(),
        };
        let (there, back) = (buffer(), buffer());
        let open = |read: &Rc<Buffer>, written: &Rc<Buffer>| {
            let (reader, writer) = (Some(ReadEnd::new(read)), Some(WriteEnd::new(written)));
            let local = Local::new(places, kind);
            local.peer_is.set(by);
            local.state.replace(State::Open { reader, writer });
            local
        };
        (open(&back, &there), open(&there, &back))
    }

    /// Tells the other end that it is gone, and that what that sent may be lost.
    pub fn reset(&self) {
        if let State::Open { writer: Some(writer), .. } = &*self.state.borrow() {
            writer.buffer().fail(Errno::ECONNRESET);
        }
    }

    /// Where urgent bytes lie that come from now on.
    pub fn set_urgent_place(&self, place: UrgentPlace) {
        if let State::Open { reader: Some(reader), .. } = &*self.state.borrow() {
            reader.buffer().set_urgent_place(place);
        }
    }

    /// Whether nobody reads what it writes.
    pub fn is_unread(&self) -> bool {
        match &*self.state.borrow() {
            State::Open { writer: Some(writer), .. } => writer.buffer().is_unread(),
            _ => false,
        }
    }

    /// Names it, for who is told of its peer.
    pub fn set_name(&self, name: &[u8]) {
        *self.own.borrow_mut() = name.to_vec();
    }

    /// Connects to who listens at a place.
    ///
    /// # Errors
    /// `EISCONN`; `EINVAL` if it listens itself; `ECONNREFUSED`; `EAGAIN` if too many wait there.
    pub fn connect_to(&self, place: &Place, name: &[u8], by: Sender) -> Result<(), Errno> {
        match *self.state.borrow() {
            State::Open { .. } => return Err(Errno::EISCONN),
            State::Listening(_) => return Err(Errno::EINVAL),
            State::New => {}
        }
        let listener = self.places.listener(place)?;
        if listener.pending.borrow().len() > listener.most(place) {
            return Err(Errno::EAGAIN);
        }
        let (here, there) = Local::pair(&self.places, self.kind, by);
        self.peer_is.set(listener.by);
        *self.state.borrow_mut() = here.state.replace(State::New);
        *self.peer.borrow_mut() = name.to_vec();
        *there.own.borrow_mut() = name.to_vec();
        *there.peer.borrow_mut() = self.own.borrow().clone();
        listener.pending.borrow_mut().push_back(there);
        listener.waiters.wake();
        self.waiters.wake();
        Ok(())
    }

    /// Does something with the buffer that the other end reads.
    fn with_writer<T>(&self, act: impl FnOnce(&Buffer) -> Result<T, Errno>) -> Result<T, Errno> {
        match &*self.state.borrow() {
            State::Open { writer: Some(writer), .. } => act(writer.buffer()),
            State::Open { .. } => Err(Errno::EPIPE),
            _ => Err(Errno::ENOTCONN),
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let has_unread = match &*self.state.borrow() {
            State::Open { reader: Some(reader), .. } => !reader.buffer().readable().of(Events::IN).is_none(),
            _ => false,
        };
        if has_unread {
            self.reset();
        }
    }
}

impl Socket for Local {
    fn names(&self) -> (u32, u32, u32) {
        let kind = if self.kind == LocalKind::Packets { abi::SOCK_SEQPACKET } else { abi::SOCK_STREAM };
        (abi::AF_UNIX, kind, 0)
    }

    fn bind(&self, address: &Address) -> Result<(), Errno> {
        if self.taken.borrow().is_some() || !matches!(*self.state.borrow(), State::New) {
            return Err(Errno::EINVAL);
        }
        let (place, name) = address.place(self.kind)?;
        let taken = self.places.take(&place, self.kind)?;
        *self.taken.borrow_mut() = Some((taken, place));
        *self.own.borrow_mut() = name;
        Ok(())
    }

    fn listen(&self, backlog: usize, by: Sender) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        match (&*state, &*self.taken.borrow()) {
            (State::New, Some((_, place))) => {
                let waiting = Waiting::new(backlog, by, PortSharing::Alone);
                let waiting = self.places.listen([place.clone()].into(), waiting)?;
                *state = State::Listening(waiting);
                Ok(())
            }
            (State::Listening(waiting), _) => {
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

    fn connect(&self, address: &Address, by: Sender) -> Result<(), Errno> {
        let (place, name) = address.place(self.kind)?;
        self.places.check(&place, self.kind)?;
        self.connect_to(&place, &name, by)
    }

    fn send(&self, what: &Outgoing<'_>) -> Result<usize, Errno> {
        if what.to.is_some() && self.kind == LocalKind::Stream {
            let is_open = matches!(*self.state.borrow(), State::Open { .. });
            return Err(if is_open { Errno::EISCONN } else { Errno::EOPNOTSUPP });
        }
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        self.with_writer(|buffer| buffer.write_message(what))
    }

    fn receive(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno> {
        let received = match &*self.state.borrow() {
            State::Open { reader: Some(reader), .. } => match peeking {
                Peeking::Stay => reader.buffer().peek(target)?,
                Peeking::Take => reader.buffer().read_message(target)?,
            },
            State::Open { .. } => Received::default(),
            _ if self.kind == LocalKind::Packets => return Err(Errno::ENOTCONN),
            _ => return Err(Errno::EINVAL),
        };
        let by = received.by.or(Some(self.peer_is.get()));
        Ok(Received { by, ..received })
    }

    fn receive_to(&self, to: &Destination<'_>) -> Result<Received, Errno> {
        if let State::Open { reader: Some(reader), .. } = &*self.state.borrow() {
            reader.buffer().check_target(to)?;
        }
        to.by_buffer(|bytes| self.receive(bytes, Peeking::Take), |received| received.count)
    }

    fn receive_urgent(&self, target: &mut [u8], peeking: Peeking) -> Result<usize, Errno> {
        match &*self.state.borrow() {
            State::Open { reader: Some(reader), .. } => reader.buffer().take_urgent(target, peeking),
            _ => Err(Errno::EINVAL),
        }
    }

    fn is_at_urgent(&self) -> bool {
        match &*self.state.borrow() {
            State::Open { reader: Some(reader), .. } => reader.buffer().is_at_urgent(),
            _ => false,
        }
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

    fn peer_credentials(&self) -> Option<Sender> {
        match &*self.state.borrow() {
            State::Open { .. } => Some(self.peer_is.get()),
            State::Listening(waiting) => Some(waiting.by),
            State::New => None,
        }
    }

    fn take_error(&self) -> Option<Errno> {
        match &*self.state.borrow() {
            State::Open { reader: Some(reader), .. } => reader.buffer().take_error(),
            _ => None,
        }
    }

    fn is_listening(&self) -> bool {
        matches!(*self.state.borrow(), State::Listening(_))
    }

    fn options(&self) -> &Options {
        &self.options
    }
}

impl Stream for Local {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        self.receive(target, Peeking::Take).map(|received| received.count)
    }

    fn read_to(&self, to: &Destination<'_>) -> Result<usize, Errno> {
        self.receive_to(to).map(|received| received.count)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.send(&Outgoing::plain(bytes))
    }

    fn ready(&self) -> Events {
        match &*self.state.borrow() {
            State::New => Events::OUT.with(Events::HANG_UP),
            State::Listening(waiting) => Events::IN.when(waiting.is_ready()),
            State::Open { reader, writer } => {
                let is_finished = reader.as_ref().is_none_or(|reader| reader.buffer().is_finished());
                let readable = reader.as_ref().map_or(Events::NONE, |reader| reader.buffer().readable());
                let writable = writer.as_ref().map_or(Events::OUT, |writer| writer.buffer().writable());
                let is_gone = is_finished && !writable.of(Events::ERROR).is_none();
                let has_bytes = !readable.of(Events::IN).is_none();
                events(has_bytes || is_finished, !writable.of(Events::OUT).is_none(), is_finished, false)
                    .with(Events::HANG_UP.when(is_gone))
                    .with(readable.of(Events::URGENT.with(Events::ERROR)))
            }
        }
    }

    fn wake(&self, waker: &Waker) {
        self.waiters.add(waker);
        match &*self.state.borrow() {
            State::Listening(waiting) => waiting.wake(waker),
            State::Open { reader, writer } => {
                reader.iter().for_each(|reader| reader.buffer().wake_for_bytes(waker));
                writer.iter().for_each(|writer| writer.buffer().wake_for_room(waker));
            }
            State::New => {}
        }
    }

    fn happened(&self) -> Happened {
        let State::Open { reader, writer } = &*self.state.borrow() else { return Happened::default() };
        let arrived = reader.as_ref().map_or(0, |reader| reader.buffer().arrived());
        let fills = writer.as_ref().map_or(0, |writer| writer.buffer().fills());
        Happened { arrived, fills }
    }

    fn kind(&self) -> NodeType {
        NodeType::Socket
    }

    fn each_attached(&self, see: &mut dyn FnMut(&Description)) {
        if let State::Open { reader: Some(reader), .. } = &*self.state.borrow() {
            reader.buffer().each_attached(see);
        }
    }

    fn unread(&self) -> Option<usize> {
        match &*self.state.borrow() {
            State::Open { reader: Some(reader), .. } => Some(reader.buffer().unread()),
            _ => None,
        }
    }

    fn socket(&self) -> Option<&dyn Socket> {
        Some(self)
    }
}
