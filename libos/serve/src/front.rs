//! Whose a flow is: the service's, or the control port's.

use crate::clients::{Clients, Measured};
use crate::control::{Desk, Snapshot};
use crate::governor::Window;
use crate::metered::Metered;
use crate::peers::{Passed, Peers};
use crate::service::Service;
use core::net::SocketAddr;
use core::time::Duration;
use nom_net::common::concerns_all;
use nom_net::{Application, Chain, Closed, FlowId, Instant, Slice};
use nom_port::buffer::Buffer;
use nom_port::nic::{Nic, Received};
use nom_port::world::Clock;

/// The clients of a server.
pub(crate) struct Front<B: Buffer, S: Service<B>> {
    pub clients: Clients<B, S>,
    /// Clients of the control port, if there is one.
    pub desk: Option<Clients<B, Desk>>,
    /// The other cores, if there are any.
    pub peers: Option<Peers<B>>,
    /// To how many more cores the frame at hand may go, if it came from another.
    left: Option<usize>,
}

impl<B: Buffer, S: Service<B>> Front<B, S> {
    /// All are the service's, on one core.
    pub fn new(clients: Clients<B, S>) -> Front<B, S> {
        Front { clients, desk: None, peers: None, left: None }
    }

    /// Takes what other cores passed here.
    pub fn take_passed<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, now: Instant) {
        while let Some(Passed { frame, left }) = self.peers.as_mut().and_then(Peers::take) {
            self.left = Some(left);
            stack.take(now, self, frame);
            self.left = None;
        }
    }

    fn desk_of(&mut self, flow: FlowId) -> Option<&mut Clients<B, Desk>> {
        self.desk.as_mut().filter(|desk| desk.has(flow))
    }

    /// The batching delay that somebody has ordered since the last call.
    #[inline]
    pub fn ordered_delay(&mut self) -> Option<Duration> {
        self.desk.as_mut()?.service.ordered_delay()
    }

    /// Tells the control port of a window, which has ended.
    pub fn report<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, window: Window) {
        if let Some(desk) = &mut self.desk {
            desk.service.report(window, || Snapshot::of(stack));
        }
    }
}

impl<N: Nic, C: Clock, S: Service<N::Buffer>> Application<Metered<N, C>> for Front<N::Buffer, S> {
    fn filter(
        &mut self,
        stack: &mut Measured<N, C>,
        frame: Received<N::Buffer>,
    ) -> Option<Received<N::Buffer>> {
        if let Some(peers) = &mut self.peers
            && self.left.is_none()
            && frame.frame.first().is_some_and(|bytes| concerns_all(bytes))
        {
            peers.copy(&frame);
        }
        self.clients.filter(stack, frame)
    }

    fn stranger(
        &mut self,
        _: &mut Measured<N, C>,
        frame: Received<N::Buffer>,
    ) -> Option<Received<N::Buffer>> {
        let Some(peers) = &mut self.peers else { return Some(frame) };
        match self.left.unwrap_or(peers.count()) {
            0 => return Some(frame),
            left => peers.pass_on(frame, left),
        }
        None
    }

    fn connected(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        let port = stack.addresses(flow).map(|addresses| addresses.local.port());
        match &mut self.desk {
            Some(desk) if port == Some(desk.service.port()) => desk.connected(stack, flow),
            _ => self.clients.connected(stack, flow),
        }
    }

    fn received(&mut self, stack: &mut Measured<N, C>, flow: FlowId, bytes: Slice<N::Buffer>) {
        let Some(desk) = self.desk_of(flow) else { return self.clients.received(stack, flow, bytes) };
        desk.service.refresh(Snapshot::of(stack));
        desk.received(stack, flow, bytes);
    }

    fn sendable(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        match self.desk_of(flow) {
            Some(desk) => desk.sendable(stack, flow),
            None => self.clients.sendable(stack, flow),
        }
    }

    fn finished(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        match self.desk_of(flow) {
            Some(desk) => desk.finished(stack, flow),
            None => self.clients.finished(stack, flow),
        }
    }

    fn closed(&mut self, stack: &mut Measured<N, C>, flow: FlowId, why: Closed) {
        match self.desk_of(flow) {
            Some(desk) => desk.closed(stack, flow, why),
            None => self.clients.closed(stack, flow, why),
        }
    }

    fn datagram(
        &mut self,
        stack: &mut Measured<N, C>,
        to: SocketAddr,
        from: SocketAddr,
        bytes: Chain<N::Buffer>,
    ) {
        self.clients.datagram(stack, to, from, bytes);
    }
}
