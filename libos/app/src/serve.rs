//! A server on the program's own network interface: what stands between a protocol and the stack.
//!
//! Each core has its own queue pair, stack and event loop; a request is received, carried out and answered in
//! one event. A [`Service`] sees streams and datagrams, and writes what it answers into a [`Reply`].

mod settings;

use crate::net::{self, DmaBuffer, NoInterface, QueuePair};
use crate::port::{Clock, Idle};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use nom_net::stack::{Application, Stack};
use nom_net::table::FlowId;
use nom_net::tcp::connection::Closed;
use nom_net::time::Instant;
use nom_port::buffer::{Chain, Sink, Slice};
use nom_port::nic::Nic;
use nom_port::world::Doorbell;
use nom_rt::event_loop::EventLoop;
use nom_rt::meter::INFRASTRUCTURE;
use nom_rt::poller::{Poller, Progress};
pub use settings::BadSetting;

/// A piece of a stream: the memory that the device filled.
pub type Bytes = Slice<DmaBuffer>;

/// Whether a stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Open,
    /// It is closed when all answers are sent.
    Close,
}

/// What a server does with its clients.
pub trait Service {
    /// What it keeps about a client.
    type Connection;

    /// A client has connected, and may be greeted; `None` turns it away.
    fn connected(&mut self, peer: SocketAddr, reply: &mut Reply) -> Option<Self::Connection>;

    /// Bytes came.
    fn received(&mut self, connection: &mut Self::Connection, bytes: Bytes, reply: &mut Reply) -> Flow;

    /// How often each client is looked at though nothing came from it; `None`: never.
    const CHECK_NS: Option<u64> = None;

    /// Looks at a client: it may be too slow.
    fn check(&mut self, connection: &mut Self::Connection, reply: &mut Reply) -> Flow {
        let _ = (connection, reply);
        Flow::Open
    }

    /// A client is gone.
    fn disconnected(&mut self, connection: Self::Connection) {
        drop(connection);
    }

    /// A datagram came, in one piece; [`Reply::datagram`] sends back.
    fn datagram(&mut self, bytes: Bytes, reply: &mut Reply) {
        let _ = (bytes, reply);
    }

    /// Time passes; said before whatever happens at `now_ns` of the board's clock.
    fn at(&mut self, now_ns: u64) {
        let _ = now_ns;
    }
}

/// Bytes of small answers that are gathered before they are put into memory of the device.
const STAGING: usize = 4096;

/// What a service answers.
#[derive(Debug, Default)]
pub struct Reply {
    copied: Vec<u8>,
    /// Slices to send, each after so many of the copied bytes.
    shared: Vec<(usize, Bytes)>,
    /// Datagrams: where the bytes of its head end in `heads`, and how many of the whole follow.
    datagrams: Vec<(usize, usize)>,
    heads: Vec<u8>,
}

impl Reply {
    /// Sends the next `len` bytes of what was written as a datagram of their own, behind `head`.
    pub fn datagram(&mut self, head: &[u8], len: usize) {
        self.heads.extend_from_slice(head);
        self.datagrams.push((self.heads.len(), len));
    }

    /// Bytes written.
    pub fn len(&self) -> usize {
        self.copied.len() + self.shared.iter().map(|(_, slice)| slice.len()).sum::<usize>()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.copied.is_empty() && self.shared.is_empty()
    }

    /// Takes everything as slices in order; `None` if the memory for the copied bytes is exhausted.
    fn take(&mut self, nic: &mut QueuePair, out: &mut VecDeque<Bytes>) -> Option<()> {
        let mut at = 0;
        for (end, slice) in self.shared.drain(..) {
            put(nic, &self.copied[at..end], out)?;
            out.push_back(slice);
            at = end;
        }
        let rest = put(nic, &self.copied[at..], out);
        self.copied.clear();
        self.copied.shrink_to(STAGING);
        rest
    }
}

fn put(nic: &mut QueuePair, bytes: &[u8], out: &mut VecDeque<Bytes>) -> Option<()> {
    if !bytes.is_empty() {
        out.push_back(nic.buffer(bytes)?);
    }
    Some(())
}

impl Sink<DmaBuffer> for Reply {
    fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    fn share(&mut self, slice: Bytes) {
        self.shared.push((self.copied.len(), slice));
    }
}

/// A client's stream.
struct Client<C> {
    connection: C,
    /// Answers that the stack had no room for.
    unsent: VecDeque<Bytes>,
    /// Pieces that wait until those are sent.
    waiting: VecDeque<Bytes>,
    /// Whether its peer was told to send no more.
    is_stopped: bool,
    /// Whether its peer will send no more, though not all was answered.
    is_finished: bool,
    is_closing: bool,
}

/// Clients of one stack, by flow.
struct Clients<S: Service> {
    service: S,
    /// By the flow's index, with its name.
    clients: Vec<Option<(FlowId, Client<S::Connection>)>>,
    reply: Reply,
    /// Kept for its memory.
    slices: VecDeque<Bytes>,
    receive_window: u32,
}

impl<S: Service> Clients<S> {
    fn client(&mut self, flow: FlowId) -> Option<&mut Client<S::Connection>> {
        let (name, client) = self.clients.get_mut(flow.index())?.as_mut()?;
        (*name == flow).then_some(client)
    }

    fn remove(&mut self, flow: FlowId) {
        if self.client(flow).is_some()
            && let Some((_, client)) = self.clients[flow.index()].take()
        {
            self.service.disconnected(client.connection);
        }
    }

    /// Looks at every client.
    fn check(&mut self, stack: &mut Stack<QueuePair>) {
        for index in 0..self.clients.len() {
            let Some((flow, client)) = &mut self.clients[index] else { continue };
            let flow = *flow;
            if !client.is_closing
                && self.service.check(&mut client.connection, &mut self.reply) == Flow::Close
            {
                client.is_closing = true;
                self.answer(stack, flow);
            }
        }
    }

    /// Gives a piece to the service and sends what it answers.
    fn handle(&mut self, stack: &mut Stack<QueuePair>, flow: FlowId, bytes: Bytes) {
        let Some(Some((name, client))) = self.clients.get_mut(flow.index()) else { return };
        if *name != flow || client.is_closing {
            return;
        }
        if self.service.received(&mut client.connection, bytes, &mut self.reply) == Flow::Close {
            client.is_closing = true;
        }
        self.answer(stack, flow);
    }

    /// Sends what the service wrote.
    fn answer(&mut self, stack: &mut Stack<QueuePair>, flow: FlowId) {
        let Some(Some((_, client))) = self.clients.get_mut(flow.index()) else { return };
        if !self.reply.is_empty() && self.reply.take(stack.nic(), &mut self.slices).is_none() {
            // No memory for an answer: the client must not take a part of it for the whole.
            self.slices.clear();
            self.remove(flow);
            return stack.abort(flow);
        }
        client.unsent.append(&mut self.slices);
        self.send(stack, flow);
    }

    /// Sends what was answered, as far as there is room, and closes a stream that is to be closed.
    fn send(&mut self, stack: &mut Stack<QueuePair>, flow: FlowId) {
        let window = self.receive_window;
        let Some(client) = self.client(flow) else { return };
        while let Some(slice) = client.unsent.front() {
            if stack.send(flow, slice.clone()).is_err() {
                // Who does not read what he asked for is asked to ask no more.
                client.is_stopped = true;
                return stack.window(flow, 0);
            }
            client.unsent.pop_front();
        }
        if client.is_closing {
            return stack.close(flow);
        }
        if let Some(bytes) = client.waiting.pop_front() {
            self.handle(stack, flow, bytes);
        } else if client.is_finished {
            stack.close(flow);
        } else if core::mem::take(&mut client.is_stopped) {
            stack.window(flow, window);
        }
    }
}

impl<S: Service> Application<QueuePair> for Clients<S> {
    fn connected(&mut self, stack: &mut Stack<QueuePair>, flow: FlowId) {
        let peer = stack.addresses(flow).map(|addresses| addresses.remote);
        let Some(connection) = peer.and_then(|peer| self.service.connected(peer, &mut self.reply)) else {
            return stack.abort(flow);
        };
        if self.clients.len() <= flow.index() {
            self.clients.resize_with(flow.index() + 1, || None);
        }
        let client = Client {
            connection,
            unsent: VecDeque::new(),
            waiting: VecDeque::new(),
            is_stopped: false,
            is_finished: false,
            is_closing: false,
        };
        self.clients[flow.index()] = Some((flow, client));
        self.answer(stack, flow);
    }

    fn received(&mut self, stack: &mut Stack<QueuePair>, flow: FlowId, bytes: Bytes) {
        match self.client(flow) {
            Some(client) if client.is_stopped => client.waiting.push_back(bytes),
            Some(_) => self.handle(stack, flow, bytes),
            None => {}
        }
    }

    fn sendable(&mut self, stack: &mut Stack<QueuePair>, flow: FlowId) {
        self.send(stack, flow);
    }

    /// The client says no more, but wants to hear what it asked for.
    fn finished(&mut self, stack: &mut Stack<QueuePair>, flow: FlowId) {
        match self.client(flow) {
            Some(client) if client.is_stopped => client.is_finished = true,
            _ => stack.close(flow),
        }
    }

    fn closed(&mut self, _: &mut Stack<QueuePair>, flow: FlowId, _: Closed) {
        self.remove(flow);
    }

    fn datagram(
        &mut self,
        stack: &mut Stack<QueuePair>,
        to: SocketAddr,
        from: SocketAddr,
        bytes: Chain<DmaBuffer>,
    ) {
        // A datagram in several buffers is larger than any that a client of these protocols sends.
        let mut slices = bytes.into_iter();
        let (Some(bytes), None) = (slices.next(), slices.next()) else { return };
        self.service.datagram(bytes, &mut self.reply);
        let taken = self.reply.take(stack.nic(), &mut self.slices);
        let mut start = 0;
        for (end, len) in self.reply.datagrams.drain(..).filter(|_| taken.is_some()) {
            let head = stack.buffer(&self.reply.heads[start..end]);
            start = end;
            let mut payload: Chain<DmaBuffer> = head.into_iter().collect();
            payload.append(&mut split(&mut self.slices, len));
            // A datagram that cannot be sent is lost, as datagrams are; the stack counts why.
            let _ = stack.send_datagram(to, from, payload);
        }
        self.reply.heads.clear();
        self.slices.clear();
    }
}

/// Takes the first `len` bytes.
fn split(slices: &mut VecDeque<Bytes>, mut len: usize) -> Chain<DmaBuffer> {
    let mut chain = Chain::new();
    while len > 0
        && let Some(slice) = slices.front_mut()
    {
        let part = slice.part(0..len);
        slice.advance(part.len());
        if slice.is_empty() {
            slices.pop_front();
        }
        len -= part.len();
        chain.push(part);
    }
    chain
}

/// The stack of one core with the clients on it, as the event loop polls it.
struct Served<S: Service> {
    stack: Stack<QueuePair>,
    clients: Clients<S>,
    frames: u64,
    /// When the clients are looked at next.
    check_ns: u64,
}

impl<S: Service> Served<S> {
    /// Looks at the clients if it is time to. Returns when it will be; never, if there are none.
    fn check(&mut self, now_ns: u64) -> Option<u64> {
        let every_ns = S::CHECK_NS.filter(|_| self.stack.flow_count() > 0)?;
        if now_ns >= self.check_ns {
            self.check_ns = now_ns + every_ns;
            self.clients.check(&mut self.stack);
        }
        Some(self.check_ns)
    }
}

impl<S: Service> Poller for Served<S> {
    fn poll(&mut self, now_ns: u64) -> Progress {
        self.clients.service.at(now_ns);
        let check_ns = self.check(now_ns);
        let deadline = self.stack.poll(Instant::from_nanos(now_ns), &mut self.clients);
        let frames = self.stack.counters().frames_received;
        let worked = frames.wrapping_sub(core::mem::replace(&mut self.frames, frames)) as u32;
        Progress { worked, deadline_ns: deadline.map(Instant::nanos).into_iter().chain(check_ns).min() }
    }

    fn arm(&mut self) -> bool {
        self.stack.nic().arm()
    }

    fn disarm(&mut self) {
        self.stack.nic().disarm();
    }
}

/// Where a service is to be found.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// TCP ports.
    pub tcp: Vec<u16>,
    /// UDP ports.
    pub udp: Vec<u16>,
}

/// Why there is no service.
pub enum ServeError {
    /// There is no network interface.
    Interface(NoInterface),
    /// A variable of the environment is not what it must be.
    Setting(BadSetting),
}

impl fmt::Display for ServeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Interface(why) => why.fmt(out),
            ServeError::Setting(why) => why.fmt(out),
        }
    }
}

/// What a main function that ends with it prints.
impl fmt::Debug for ServeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl core::error::Error for ServeError {}

/// A core as the world gives it to a server.
pub(crate) struct Core {
    /// Its number.
    pub index: usize,
    /// Its end of the network.
    pub pair: QueuePair,
    /// How it sleeps until `pair` has a frame.
    pub idle: Idle,
    /// How others end that sleep.
    pub doorbell: Arc<dyn Doorbell>,
}

/// Serves until the machine is stopped. `service` is made on the queue pair that it will answer by, whose
/// memory can hold what it sends often.
///
/// # Errors
/// If there is no network device, or no valid address.
pub fn serve<S: Service + 'static>(
    ports: &Ports,
    service: impl FnOnce(&mut QueuePair) -> S,
) -> Result<u8, ServeError> {
    let config = settings::network().map_err(ServeError::Setting)?;
    let delay = settings::batching_delay().map_err(ServeError::Setting)?;
    let Core { index, mut pair, idle, doorbell } = net::core().map_err(ServeError::Interface)?;
    let service = service(&mut pair);
    let receive_window = config.tcp.receive_window;
    crate::println!("serves at {}, TCP {:?}, UDP {:?}", config.addresses[0].address, ports.tcp, ports.udp);
    let mut stack = Stack::new(pair, config);
    stack.set_delay(delay).expect("a delay that was checked");
    ports.tcp.iter().for_each(|port| stack.listen(*port));
    ports.udp.iter().for_each(|port| stack.bind(*port));
    let clients = Clients {
        service,
        clients: Vec::new(),
        reply: Reply::default(),
        slices: VecDeque::new(),
        receive_window,
    };
    let mut event_loop = EventLoop::new(index, Clock, idle, doorbell);
    event_loop.handle().add_poller(INFRASTRUCTURE, Served { stack, clients, frames: 0, check_ns: 0 });
    Ok(event_loop.run() as u8)
}
