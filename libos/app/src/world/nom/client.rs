//! Connections that a program asks for, on its own network device: for programs that mostly wait.
//!
//! There is no event loop: the program polls, does what came of it, and sleeps until a frame, a message of
//! another application, or a deadline.

use super::net::{self, DmaBuffer, NoInterface, Options, QueuePair};
use crate::serve::{BadSetting, address, settings};
use alloc::collections::VecDeque;
use core::fmt;
use core::net::SocketAddr;
use nom_net::config::Config;
use nom_net::stack::{Application, Stack};
use nom_net::time::Instant;
use nom_net::{Dispute, Ear, Finding};
use nom_port::buffer::Slice;
use nom_port::nic::Nic;
use nom_port::world::Clock as _;
use nom_sys::port::Clock;

pub use nom_net::stack::ConnectError;
pub use nom_net::table::FlowId;
pub use nom_net::tcp::connection::Closed;

/// A device for little traffic: the driver's memory is what counts.
const OPTIONS: Options = Options {
    pairs: 1,
    queue_size: 64,
    receive_buffers: 64,
    memory_bytes: 1 << 20,
    refused: 0,
    // Of use for several pairs only.
    hash_key: [0; net::KEY_BYTES],
};
/// Most connections, those included that are over and remembered.
const FLOWS_MAX: usize = 64;
/// Bytes that a peer may send ahead.
const RECEIVE_WINDOW: u32 = 32 << 10;

/// What happened to a connection.
#[derive(Clone, Debug)]
pub enum Event {
    /// The peer accepted it.
    Connected(FlowId),
    /// Bytes came.
    Received(FlowId, Slice<DmaBuffer>),
    /// It is over. Nothing is said of one that was aborted.
    Closed(FlowId, Closed),
}

/// Why there is no client.
#[derive(Debug)]
pub enum ClientError {
    /// There is no network interface.
    Interface(NoInterface),
    /// A variable of the environment is not what it must be.
    Setting(BadSetting),
}

impl fmt::Display for ClientError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Interface(why) => why.fmt(out),
            ClientError::Setting(why) => why.fmt(out),
        }
    }
}

impl core::error::Error for ClientError {}

/// The program's network device and stack.
pub struct Client {
    stack: Stack<QueuePair>,
    inbox: Inbox,
    due_ns: Option<u64>,
}

impl Client {
    /// Brings up the network device, with the address that the environment's `ip` says.
    ///
    /// # Errors
    /// If there is no network device, or no valid address.
    pub fn new() -> Result<Client, ClientError> {
        let (config, discovery) = settings::network().map_err(ClientError::Setting)?;
        let mut config = Config { flows_max: FLOWS_MAX, ..config };
        config.tcp.fix_windows(RECEIVE_WINDOW, config.tcp.send_max);
        let pair = net::pair(&OPTIONS).map_err(ClientError::Interface)?;
        let ear = address::ear(&config, discovery);
        let mut stack = Stack::new(pair, config);
        stack.discover(Instant::from_nanos(Clock.now_ns()), discovery);
        Ok(Client { stack, inbox: Inbox { events: VecDeque::new(), ear }, due_ns: None })
    }

    /// Asks `peer` for a connection; an event tells how it went.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, peer: SocketAddr) -> Result<FlowId, ConnectError> {
        self.stack.connect(peer)
    }

    /// Sends bytes. Returns whether there was room for them; none of them is sent if not.
    pub fn send(&mut self, flow: FlowId, bytes: &[u8]) -> bool {
        let slice = self.stack.buffer(bytes);
        slice.is_some_and(|slice| self.stack.send(flow, slice).is_ok())
    }

    /// Ends a connection at once and forgets it.
    pub fn abort(&mut self, flow: FlowId) {
        self.stack.abort(flow);
    }

    /// Takes what the device has, and sends what there is to be sent.
    pub fn poll(&mut self, now_ns: u64) {
        let due = self.stack.poll(Instant::from_nanos(now_ns), &mut self.inbox);
        self.due_ns = due.map(Instant::nanos);
    }

    /// What happened, in order.
    pub fn event(&mut self) -> Option<Event> {
        self.inbox.events.pop_front()
    }

    /// Sleeps until a frame comes, an application has a message, the stack has something to do, or the clock
    /// reaches `deadline_ns`; not at all if there are frames.
    pub fn sleep(&mut self, deadline_ns: Option<u64>) {
        if self.stack.nic().arm() {
            nom_sys::events::wait(self.due_ns.into_iter().chain(deadline_ns).min());
        }
        self.stack.nic().disarm();
    }
}

/// What the stack says, kept until the program asks.
struct Inbox {
    events: VecDeque<Event>,
    ear: Ear,
}

impl Application<QueuePair> for Inbox {
    fn configured(&mut self, stack: &mut Stack<QueuePair>) {
        self.ear.hear(Finding::Configured(stack.config()));
    }

    fn disputed(&mut self, _: &mut Stack<QueuePair>, dispute: Dispute) {
        self.ear.hear(Finding::Disputed(dispute));
    }

    fn connected(&mut self, _: &mut Stack<QueuePair>, flow: FlowId) {
        self.events.push_back(Event::Connected(flow));
    }

    fn received(&mut self, _: &mut Stack<QueuePair>, flow: FlowId, bytes: Slice<DmaBuffer>) {
        self.events.push_back(Event::Received(flow, bytes));
    }

    fn closed(&mut self, _: &mut Stack<QueuePair>, flow: FlowId, why: Closed) {
        self.events.push_back(Event::Closed(flow, why));
    }
}
