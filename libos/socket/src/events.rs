//! What the stack tells, as it changes sockets.

use crate::names::Answer;
use crate::readiness::Ready;
use crate::sockets::{Kind, SocketId, Table};
use crate::stream::Stream;
use core::net::SocketAddr;
use nom_net::{
    Application, Chain, Closed, Dispute, Family, Finding, FlowId, Observed, QueryId, Slice, Stack,
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
        let family = if tuple.remote.is_ipv4() { Family::V4 } else { Family::V6 };
        match self.listeners.get(&(tuple.local.port(), family)).copied() {
            Some(listener) if self.queue(listener, flow, tuple.remote) => {
                stack.window(flow, self.stream_max);
                self.rise(listener, Ready::READABLE)
            }
            _ => stack.abort(flow),
        }
    }

    fn received(&mut self, stack: &mut Stack<N>, flow: FlowId, bytes: Slice<N::Buffer>) {
        let at_ns = stack.arrived_ns();
        stack.nic().arrived(flow.index() as u32, at_ns);
        let Some(id) = self.of_flow(flow) else {
            // Nobody will ever read it: the peer is told so.
            return stack.abort(flow);
        };
        let Ok(stream) = self.stream(id) else { return };
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
        let Some(id) = self.of_flow(flow) else { return };
        self.forget_flow(flow);
        if let Ok(stream) = self.stream(id) {
            stream.end = Some(why);
        }
        self.rise(id, Ready::READABLE | Ready::WRITABLE | Ready::FINISHED | Ready::ERROR);
    }

    fn datagram(&mut self, stack: &mut Stack<N>, to: SocketAddr, from: SocketAddr, bytes: Chain<N::Buffer>) {
        let Some(&id) = self.datagrams.get(&to.port()) else { return };
        if let Some(socket) = self.sockets.get_mut(id)
            && let Kind::Datagrams(datagrams) = &mut socket.kind
        {
            datagrams.push(from, bytes, stack.arrived_ns());
        }
        self.rise(id, Ready::READABLE);
    }

    fn resolved(&mut self, _: &mut Stack<N>, query: QueryId, answer: Answer) {
        let waiting = self.questions.answer(query, answer);
        self.polls.wake_all(waiting);
    }
}

impl<B: nom_port::buffer::Buffer> Table<B> {
    /// Makes a stream of a flow that somebody opened, and has it wait for being accepted; `false` if too many
    /// do.
    fn queue(&mut self, listener: SocketId, flow: FlowId, remote: SocketAddr) -> bool {
        let has_room = match self.sockets.get(listener).map(|socket| &socket.kind) {
            Some(Kind::Listener(listener)) => listener.pending.len() < listener.pending_max,
            _ => false,
        };
        if !has_room {
            return false;
        }
        let id = self.insert(Kind::Stream(Stream::new(flow, remote, true)));
        self.set_flow(flow, id);
        if let Some(socket) = self.sockets.get_mut(listener)
            && let Kind::Listener(listener) = &mut socket.kind
        {
            listener.pending.push_back(id);
        }
        true
    }
}
