//! The sockets of one core, as calls that never block.

use crate::datagram::Datagrams;
use crate::error::Error;
use crate::listener::{ListenAddress, Listener};
use crate::names::Questions;
use crate::readiness::{Event, Interest, PollId, Polls, Ready, Watchers};
use crate::stream::Stream;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::task::Waker;
use nom_net::{Ear, FlowId, Instant, Observed, Stack};
use slotmap::SlotMap;

slotmap::new_key_type! {
    /// Names a socket. A name is never used for a second socket.
    pub struct SocketId;
}

/// Which side of a stream is shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// What comes is thrown away.
    Receive,
    /// Nothing more is sent.
    Send,
    /// Both.
    Both,
}

/// What a socket is.
#[derive(Debug)]
pub(crate) enum Kind<B> {
    Listener(Listener),
    Stream(Stream<B>),
    Datagrams(Datagrams<B>),
}

#[derive(Debug)]
pub(crate) struct Socket<B> {
    pub kind: Kind<B>,
    pub watchers: Watchers,
}

/// Everything but the stack, so that the stack can call it.
#[derive(Debug)]
pub(crate) struct Table<B> {
    pub sockets: SlotMap<SocketId, Socket<B>>,
    /// By the flow's index, with its name.
    by_flow: Vec<Option<(FlowId, SocketId)>>,
    /// Who listens at which TCP port and address: few do.
    pub listeners: Vec<(u16, ListenAddress, SocketId)>,
    /// By UDP port.
    pub datagrams: BTreeMap<u16, SocketId>,
    /// Sockets whose datagram found the ring full.
    pub blocked: Vec<SocketId>,
    pub polls: Polls,
    pub questions: Questions,
    pub ear: Ear,
    /// Bytes that a new stream, or a socket of datagrams, may hold unread.
    pub receive_max: usize,
    /// The same for streams.
    pub stream_max: u32,
    /// Users that are connected, and how many there may be.
    pub clients: u32,
    pub clients_max: Option<u32>,
}

impl<B> Table<B> {
    pub fn insert(&mut self, kind: Kind<B>) -> SocketId {
        self.sockets.insert(Socket { kind, watchers: Watchers::default() })
    }

    pub fn socket(&mut self, id: SocketId) -> Result<&mut Socket<B>, Error> {
        self.sockets.get_mut(id).ok_or(Error::BadSocket)
    }

    pub fn stream(&mut self, id: SocketId) -> Result<&mut Stream<B>, Error> {
        match &mut self.socket(id)?.kind {
            Kind::Stream(stream) => Ok(stream),
            _ => Err(Error::NotSupported),
        }
    }

    /// The socket of a flow.
    pub fn of_flow(&self, flow: FlowId) -> Option<SocketId> {
        let (name, socket) = (*self.by_flow.get(flow.index())?)?;
        (name == flow).then_some(socket)
    }

    pub fn set_flow(&mut self, flow: FlowId, socket: SocketId) {
        if self.by_flow.len() <= flow.index() {
            self.by_flow.resize(flow.index() + 1, None);
        }
        self.by_flow[flow.index()] = Some((flow, socket));
    }

    pub fn forget_flow(&mut self, flow: FlowId) {
        if self.of_flow(flow).is_some() {
            self.by_flow[flow.index()] = None;
        }
    }

    /// A stream is over, or nobody's any more.
    pub fn leave(&mut self, stream: &mut Stream<B>) {
        self.clients -= u32::from(core::mem::take(&mut stream.is_client));
    }

    /// A socket became ready for what is in `risen`: tells who waits.
    pub fn rise(&mut self, id: SocketId, risen: Ready) {
        if let Some(socket) = self.sockets.get_mut(id) {
            self.polls.rise(id, &mut socket.watchers, risen);
        }
    }
}

/// The sockets of one core, over its stack.
pub struct Sockets<N: Observed> {
    pub(crate) stack: Stack<N>,
    pub(crate) table: Table<N::Buffer>,
    pub(crate) next_port: u16,
}

impl<N: Observed> fmt::Debug for Sockets<N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Sockets({})", self.table.sockets.len())
    }
}

impl<N: Observed> Sockets<N> {
    /// No sockets yet, on a stack that has no flows.
    pub fn new(stack: Stack<N>) -> Sockets<N> {
        let receive_max = stack.config().tcp.receive_window as usize;
        let table = Table {
            sockets: SlotMap::with_key(),
            by_flow: Vec::new(),
            listeners: Vec::new(),
            datagrams: BTreeMap::new(),
            blocked: Vec::new(),
            polls: Polls::default(),
            questions: Questions::default(),
            ear: Ear::default(),
            receive_max,
            stream_max: u32::MAX,
            clients: 0,
            clients_max: None,
        };
        Sockets { stack, table, next_port: 0 }
    }

    /// Does all there is to do now, as [`Stack::poll`]: says when there will be more. What was sent since the
    /// last call goes now.
    pub fn poll(&mut self, now: Instant) -> Option<Instant> {
        let due = self.stack.poll(now, &mut self.table);
        if self.table.blocked.is_empty() { due } else { due.into_iter().chain(self.unblock()).min() }
    }

    /// Lets datagrams go on if the ring has room; when to look again, if it has none.
    #[cold]
    fn unblock(&mut self) -> Option<Instant> {
        if let Some(again) = self.stack.next_look_for_room() {
            return Some(again);
        }
        for id in core::mem::take(&mut self.table.blocked) {
            if let Ok(Kind::Datagrams(datagrams)) = self.table.socket(id).map(|socket| &mut socket.kind) {
                datagrams.is_blocked = false;
            }
            self.table.rise(id, Ready::WRITABLE);
        }
        None
    }

    /// Has somebody hear what the stack finds out about addresses ([`Stack::discover`]).
    pub fn set_ear(&mut self, ear: Ear) {
        self.table.ear = ear;
    }

    /// Users that are connected: peers of connections that they opened, where that counts.
    pub fn clients(&self) -> u32 {
        self.table.clients
    }

    /// Lets so many users stay, or all. Of those that are too many, whoever asks is answered once more, and
    /// reset when he asks again; who comes then is reset.
    pub fn set_clients_max(&mut self, most: Option<u32>) {
        self.table.clients_max = most;
    }

    /// The stack, for what is not about sockets: addresses, counters, the batching delay.
    pub fn stack(&mut self) -> &mut Stack<N> {
        &mut self.stack
    }

    /// Sockets that are open.
    pub fn len(&self) -> usize {
        self.table.sockets.len()
    }

    /// Whether no socket is open.
    pub fn is_empty(&self) -> bool {
        self.table.sockets.is_empty()
    }

    /// Closes a socket. What a stream was given to send is still sent, unless bytes were received that nobody
    /// read: then its peer is told by a reset (RFC 2525 section 2.17). Connections that nobody accepted are
    /// reset.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn close(&mut self, id: SocketId) -> Result<(), Error> {
        let Socket { kind, watchers } = self.table.sockets.remove(id).ok_or(Error::BadSocket)?;
        self.table.polls.forget(id, watchers);
        match kind {
            Kind::Stream(mut stream) => {
                self.table.leave(&mut stream);
                self.close_stream(&stream);
            }
            Kind::Listener(listener) => self.close_listener(id, listener),
            Kind::Datagrams(datagrams) => {
                self.table.datagrams.remove(&datagrams.port);
                self.stack.unbind(datagrams.port);
            }
        }
        Ok(())
    }

    /// Closes a socket: the peer of a stream is told by a reset, and what it was not sent yet is forgotten
    /// (`SO_LINGER` with no time).
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn abort(&mut self, id: SocketId) -> Result<(), Error> {
        if let Ok(stream) = self.table.stream(id) {
            let flow = stream.flow;
            self.stack.abort(flow);
        }
        self.close(id)
    }

    /// What a socket is ready for. Of what it is not, those who wait are told once it is.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn ready(&mut self, id: SocketId) -> Result<Ready, Error> {
        let socket = self.table.sockets.get(id).ok_or(Error::BadSocket)?;
        Ok(ready(&mut self.stack, socket))
    }

    /// A new interest set.
    pub fn add_poll(&mut self) -> PollId {
        self.table.polls.add()
    }

    /// Forgets an interest set. Who waits for it waits for ever.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn remove_poll(&mut self, poll: PollId) -> Result<(), Error> {
        self.table.polls.remove(poll)
    }

    /// Takes a socket into an interest set, or changes what it is watched for; `token` comes with its events.
    /// A closed socket leaves by itself.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn watch(
        &mut self,
        poll: PollId,
        id: SocketId,
        token: u64,
        interest: impl Into<Interest>,
    ) -> Result<(), Error> {
        let socket = self.table.sockets.get_mut(id).ok_or(Error::BadSocket)?;
        self.table.polls.watch(poll, (id, &mut socket.watchers), (token, interest.into()))
    }

    /// Takes a socket out of an interest set.
    ///
    /// # Errors
    /// [`Error::BadSocket`], too if it was not in there.
    pub fn unwatch(&mut self, poll: PollId, id: SocketId) -> Result<(), Error> {
        let socket = self.table.sockets.get_mut(id).ok_or(Error::BadSocket)?;
        self.table.polls.unwatch(poll, id, &mut socket.watchers)
    }

    /// Fills `events` with sockets of a set that are ready, and says how many. Who does not find room comes
    /// first the next time.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn take_ready(&mut self, poll: PollId, events: &mut [Event]) -> Result<usize, Error> {
        let (stack, sockets) = (&mut self.stack, &self.table.sockets);
        let ready_of = |id: SocketId| sockets.get(id).map_or(Ready::NONE, |socket| ready(stack, socket));
        self.table.polls.take(poll, events, ready_of)
    }

    /// Sockets that were looked at to find those that are ready: what waiting costs.
    pub fn examined(&self, poll: PollId) -> u64 {
        self.table.polls.examined(poll)
    }

    /// Wakes `waker`, once, when a socket of a set becomes ready.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn wake_for_poll(&mut self, poll: PollId, waker: &Waker) -> Result<(), Error> {
        self.table.polls.wake(poll, waker)
    }

    /// Wakes `waker`, once, when a socket becomes ready for any of `wanted`, or is closed.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn wake_for(&mut self, id: SocketId, wanted: Ready, waker: &Waker) -> Result<(), Error> {
        self.table.socket(id)?.watchers.wake(wanted | Ready::ERROR, waker);
        Ok(())
    }

    /// Whether somebody waits for what has happened.
    pub fn wakes_somebody(&self) -> bool {
        self.table.polls.wakes_somebody()
    }

    /// Takes the wakers of those who wait for what has happened: to be called when nothing is borrowed.
    pub fn take_woken(&mut self) -> Vec<Waker> {
        self.table.polls.take_woken()
    }

    /// Bytes that sockets made from now on may hold unread; at first as much as the
    /// stack lets their windows grow to, and a datagram socket what windows begin with.
    pub fn set_receive_max(&mut self, bytes: usize) {
        self.table.receive_max = bytes;
        self.table.stream_max = u32::try_from(bytes).unwrap_or(u32::MAX);
    }
}

fn ready<N: Observed>(stack: &mut Stack<N>, socket: &Socket<N::Buffer>) -> Ready {
    match &socket.kind {
        Kind::Stream(stream) => stream.ready(stack),
        Kind::Listener(listener) => Ready::READABLE.when(!listener.pending.is_empty()),
        Kind::Datagrams(datagrams) => {
            Ready::READABLE.when(!datagrams.is_empty()) | Ready::WRITABLE.when(!datagrams.is_blocked)
        }
    }
}
