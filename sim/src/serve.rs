//! A server's program: what stands between a protocol and the stack, as in an application's runtime.

use crate::host::{HostStack, Program};
use crate::memory::{Bytes, Memory};
use nom_net::{Closed, FlowId};
use nom_port::buffer::{Chain, Sink};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

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
    /// A client has connected; `None` turns it away.
    fn connected(&mut self, answer: &mut Answer) -> Option<Self::Connection>;
    /// Bytes came.
    fn received(&mut self, connection: &mut Self::Connection, bytes: Bytes, answer: &mut Answer) -> Flow;
    /// Looks at a client, once a second.
    fn check(&mut self, connection: &mut Self::Connection, answer: &mut Answer) -> Flow {
        let _ = (connection, answer);
        Flow::Open
    }
    /// A client is gone.
    fn disconnected(&mut self, connection: Self::Connection) {
        drop(connection);
    }
    /// A datagram came; what is returned is sent back.
    fn datagram(&mut self, bytes: Bytes) -> Vec<Vec<u8>> {
        drop(bytes);
        Vec::new()
    }
    /// The time is `now_ns`.
    fn at(&mut self, now_ns: u64);
}

/// What a service answers.
#[derive(Debug, Default)]
pub struct Answer(Vec<Part>);

#[derive(Debug)]
enum Part {
    Copied(Vec<u8>),
    Shared(Bytes),
}

impl Sink<Memory> for Answer {
    fn copy(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(Part::Copied(last)) => last.extend_from_slice(bytes),
            _ => self.0.push(Part::Copied(bytes.to_vec())),
        }
    }

    fn share(&mut self, slice: Bytes) {
        self.0.push(Part::Shared(slice));
    }
}

struct Client<C> {
    connection: C,
    /// Answers that the stack had no room for.
    unsent: VecDeque<Bytes>,
    /// Pieces that wait until those are sent.
    waiting: VecDeque<Bytes>,
    is_stopped: bool,
    /// It says no more.
    is_finished: bool,
    is_closing: bool,
}

const SECOND_NS: u64 = 1_000_000_000;

/// A service with its clients.
pub struct Served<S: Service> {
    service: S,
    /// In the order of their numbers: the same in each run.
    clients: BTreeMap<usize, (FlowId, Client<S::Connection>)>,
    check_ns: u64,
    receive_window: u32,
}

impl<S: Service> Served<S> {
    /// A service without clients, which lets them send `receive_window` bytes ahead.
    pub fn new(service: S, receive_window: u32) -> Served<S> {
        Served { service, clients: BTreeMap::new(), check_ns: 0, receive_window }
    }

    fn client(&mut self, flow: FlowId) -> Option<&mut Client<S::Connection>> {
        let (name, client) = self.clients.get_mut(&flow.index())?;
        (*name == flow).then_some(client)
    }

    fn remove(&mut self, flow: FlowId) {
        if self.client(flow).is_some()
            && let Some((_, client)) = self.clients.remove(&flow.index())
        {
            self.service.disconnected(client.connection);
        }
    }

    fn check(&mut self, stack: &mut HostStack) {
        let flows: Vec<FlowId> = self.clients.values().map(|(flow, _)| *flow).collect();
        for flow in flows {
            let Some((_, client)) = self.clients.get_mut(&flow.index()) else { continue };
            let mut answer = Answer::default();
            if !client.is_closing && self.service.check(&mut client.connection, &mut answer) == Flow::Close {
                client.is_closing = true;
                self.answer(stack, flow, answer);
            }
        }
    }

    fn handle(&mut self, stack: &mut HostStack, flow: FlowId, bytes: Bytes) {
        let Some((_, client)) = self.clients.get_mut(&flow.index()) else { return };
        if client.is_closing {
            return;
        }
        let mut answer = Answer::default();
        if self.service.received(&mut client.connection, bytes, &mut answer) == Flow::Close {
            client.is_closing = true;
        }
        self.answer(stack, flow, answer);
    }

    fn answer(&mut self, stack: &mut HostStack, flow: FlowId, answer: Answer) {
        let parts = answer.0.into_iter().map(|part| match part {
            Part::Copied(bytes) => stack.buffer(&bytes),
            Part::Shared(slice) => Some(slice),
        });
        let Some(parts) = parts.collect::<Option<Vec<Bytes>>>() else {
            // No memory for an answer: the client must not take a part of it for the whole.
            self.remove(flow);
            return stack.abort(flow);
        };
        if let Some(client) = self.client(flow) {
            client.unsent.extend(parts);
        }
        self.send(stack, flow);
    }

    fn send(&mut self, stack: &mut HostStack, flow: FlowId) {
        let window = self.receive_window;
        let Some(client) = self.client(flow) else { return };
        while let Some(slice) = client.unsent.front() {
            if stack.send(flow, slice.clone()).is_err() {
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
        } else if std::mem::take(&mut client.is_stopped) {
            stack.window(flow, window);
        }
    }
}

impl<S: Service> Program for Served<S> {
    fn at(&mut self, stack: &mut HostStack, now_ns: u64) {
        self.service.at(now_ns);
        if now_ns >= self.check_ns {
            self.check_ns = now_ns + SECOND_NS;
            self.check(stack);
        }
    }

    fn due_ns(&self) -> Option<u64> {
        (!self.clients.is_empty()).then_some(self.check_ns)
    }

    fn connected(&mut self, stack: &mut HostStack, flow: FlowId) {
        let mut answer = Answer::default();
        let Some(connection) = self.service.connected(&mut answer) else { return stack.abort(flow) };
        let client = Client {
            connection,
            unsent: VecDeque::new(),
            waiting: VecDeque::new(),
            is_stopped: false,
            is_finished: false,
            is_closing: false,
        };
        let before = self.clients.insert(flow.index(), (flow, client));
        assert!(before.is_none(), "flow {} opened twice", flow.index());
        self.answer(stack, flow, answer);
    }

    fn received(&mut self, stack: &mut HostStack, flow: FlowId, bytes: Bytes) {
        match self.client(flow) {
            Some(client) if client.is_stopped => client.waiting.push_back(bytes),
            Some(_) => self.handle(stack, flow, bytes),
            None => {}
        }
    }

    fn sendable(&mut self, stack: &mut HostStack, flow: FlowId) {
        self.send(stack, flow);
    }

    fn finished(&mut self, stack: &mut HostStack, flow: FlowId) {
        match self.client(flow) {
            // It wants to hear what it asked for.
            Some(client) if !client.unsent.is_empty() => client.is_finished = true,
            _ => stack.close(flow),
        }
    }

    fn closed(&mut self, _: &mut HostStack, flow: FlowId, _: Closed) {
        self.remove(flow);
    }

    fn datagram(&mut self, stack: &mut HostStack, to: SocketAddr, from: SocketAddr, bytes: Bytes) {
        for datagram in self.service.datagram(bytes) {
            let Some(bytes) = stack.buffer(&datagram) else { return };
            // A datagram that cannot be sent is lost, as datagrams are; the stack counts why.
            let _ = stack.send_datagram(to, from, Chain::from_iter([bytes]));
        }
    }
}
