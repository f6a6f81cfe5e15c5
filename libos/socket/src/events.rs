//! What the stack tells, as it changes sockets.

use crate::datagram::ArrivedDatagram;
use crate::exchange::Exchanges;
use crate::listener::{ListenAddress, Listener};
use crate::names::Answer;
use crate::readiness::Ready;
use crate::sockets::{Kind, SocketId, Table};
use crate::stream::Stream;
use core::net::SocketAddr;
use nom_net::{
    Application, Chain, Closed, Dispute, Family, Finding, FlowId, FourTuple, Observed, QueryId, Slice, Stack,
};

impl<N: Observed> Application<N> for Table<N::Buffer> {
    fn connected(&mut self, stack: &mut Stack<N>, flow: FlowId) {
        let at_ns = stack.arrived_ns();
        stack.nic().arrived(flow.index() as u32, at_ns);
        let Some(tuple) = stack.addresses(flow).copied() else { return };
        if let Some(id) = self.of_flow(flow) {
            if let Ok(stream) = self.stream(id) {
                stream.is_open = true;
            }
            return self.rise(id, Ready::WRITABLE);
        }
        match self.listener(&tuple) {
            Some(listener) if self.admits(listener) && self.queue(listener, flow, tuple.remote) => {
                stack.window(flow, self.stream_max);
                self.rise(listener, Ready::READABLE)
            }
            _ => stack.abort(flow),
        }
    }

    /// A queue that is full makes its peers wait; where nobody listens any more, the peer is to be told.
    fn has_room(&mut self, tuple: &FourTuple) -> bool {
        self.listener(tuple).is_none_or(|listener| self.has_room_at(listener))
    }

    fn received(&mut self, stack: &mut Stack<N>, flow: FlowId, bytes: Slice<N::Buffer>) {
        let at_ns = stack.arrived_ns();
        stack.nic().arrived(flow.index() as u32, at_ns);
        let Some(id) = self.of_flow(flow) else {
            // Nobody will ever read it: the peer is told so.
            return stack.abort(flow);
        };
        let has_too_many = self.clients_max.is_some_and(|most| self.clients > most);
        let Ok(stream) = self.stream(id) else { return };
        if has_too_many && stream.is_answered() {
            stack.abort(flow);
            return self.end(id, flow, Closed::Reset);
        }
        if stream.is_receive_shut {
            return;
        }
        stream.push(bytes, at_ns);
        stream.advertise(stack);
        self.rise(id, Ready::READABLE);
    }

    fn configured(&mut self, stack: &mut Stack<N>) {
        self.ear.hear(Finding::Configured(stack.config()));
    }

    fn disputed(&mut self, _: &mut Stack<N>, dispute: Dispute) {
        self.ear.hear(Finding::Disputed(dispute));
    }

    fn sendable(&mut self, _: &mut Stack<N>, flow: FlowId) {
        if let Some(id) = self.of_flow(flow) {
            self.rise(id, Ready::WRITABLE);
        }
    }

    /// A socket may go on sending when its peer does no more.
    fn finished(&mut self, stack: &mut Stack<N>, flow: FlowId) {
        let Some(id) = self.of_flow(flow) else { return stack.close(flow) };
        if let Ok(stream) = self.stream(id) {
            stream.is_finished = true;
        }
        self.rise(id, Ready::READABLE | Ready::FINISHED);
    }

    fn closed(&mut self, _: &mut Stack<N>, flow: FlowId, why: Closed) {
        if let Some(id) = self.of_flow(flow) {
            self.end(id, flow, why);
        }
    }

    fn datagram(&mut self, stack: &mut Stack<N>, to: SocketAddr, from: SocketAddr, bytes: Chain<N::Buffer>) {
        let Some(&id) = self.datagrams.get(&to.port()) else { return };
        if let Some(socket) = self.sockets.get_mut(id)
            && let Kind::Datagrams(datagrams) = &mut socket.kind
        {
            let (marks, at_ns) = (stack.arrived_marks(), stack.arrived_ns());
            datagrams.push(from, bytes, ArrivedDatagram { to: to.ip(), marks, at_ns });
        }
        self.rise(id, Ready::READABLE);
    }

    fn nobody_there(&mut self, _: &mut Stack<N>, own: SocketAddr, remote: SocketAddr) {
        let Some(&id) = self.datagrams.get(&own.port()) else { return };
        if let Some(socket) = self.sockets.get_mut(id)
            && let Kind::Datagrams(datagrams) = &mut socket.kind
        {
            datagrams.refuse(remote);
        }
        self.rise(id, Ready::READABLE | Ready::ERROR);
    }

    fn resolved(&mut self, _: &mut Stack<N>, query: QueryId, answer: Answer) {
        let waiting = self.questions.answer(query, answer);
        self.polls.wake_all(waiting);
    }
}

impl<B: nom_port::buffer::Buffer> Table<B> {
    /// Who listens for a connection between these addresses: of several who share them, the same one each
    /// time, by the peer's port.
    fn listener(&self, tuple: &FourTuple) -> Option<SocketId> {
        let family = if tuple.remote.is_ipv4() { Family::V4 } else { Family::V6 };
        let port = tuple.local.port();
        // Multiplicative hashing: ports that follow each other do not go to one.
        let hash = u32::from(tuple.remote.port()).wrapping_mul(0x9e37_79b1) >> 16;
        let addresses = [ListenAddress::One(tuple.local.ip().to_canonical()), ListenAddress::Any(family)];
        addresses.into_iter().find_map(|address| {
            let count = self.heard_at(port, address).count();
            self.heard_at(port, address).nth(hash as usize % count.max(1))
        })
    }

    /// Who listens there.
    pub fn heard_at(&self, port: u16, address: ListenAddress) -> impl Iterator<Item = SocketId> {
        let here = self.listeners.iter().filter(move |(other, at, _)| (*other, *at) == (port, address));
        here.map(|(_, _, id)| *id)
    }

    /// The flow of a socket is over.
    fn end(&mut self, id: SocketId, flow: FlowId, why: Closed) {
        self.forget_flow(flow);
        if let Ok(stream) = self.stream(id) {
            stream.end = Some(why);
            let was_client = core::mem::take(&mut stream.is_client);
            self.clients -= u32::from(was_client);
        }
        self.rise(id, Ready::READABLE | Ready::WRITABLE | Ready::FINISHED | Ready::ERROR);
    }

    /// Whether one more may connect to a listener.
    fn admits(&mut self, listener: SocketId) -> bool {
        let is_full = self.clients_max.is_some_and(|most| self.clients >= most);
        !is_full || self.listener_at(listener).is_some_and(|listener| !listener.is_counted)
    }

    fn listener_at(&mut self, id: SocketId) -> Option<&mut Listener> {
        match self.sockets.get_mut(id).map(|socket| &mut socket.kind) {
            Some(Kind::Listener(listener)) => Some(listener),
            _ => None,
        }
    }

    /// Whether one more may wait for being accepted.
    fn has_room_at(&mut self, listener: SocketId) -> bool {
        self.listener_at(listener).is_some_and(|listener| listener.pending.len() < listener.pending_max)
    }

    /// Makes a stream of a flow that somebody opened, and has it wait for being accepted; `false` if too many
    /// do.
    fn queue(&mut self, listener: SocketId, flow: FlowId, remote: SocketAddr) -> bool {
        if !self.has_room_at(listener) {
            return false;
        }
        let exchanges = self.listener_at(listener).filter(|listener| listener.is_counted);
        let exchanges = exchanges.map(|_| Exchanges::default());
        self.clients += u32::from(exchanges.is_some());
        let id = self.insert(Kind::Stream(Stream::accepted(flow, remote, exchanges)));
        self.set_flow(flow, id);
        if let Some(listener) = self.listener_at(listener) {
            listener.pending.push_back(id);
        }
        true
    }
}
