//! Whose a flow is: the service's, or the control port's.

use crate::clients::{Clients, Guest, Measured, Moving};
use crate::control::{Desk, Order, Snapshot};
use crate::metered::Metered;
use crate::payers::label;
use crate::peers::{Passed, Passing, Peers, Way};
use crate::plan::Plan;
use alloc::boxed::Box;
use core::net::SocketAddr;
use nom_net::common::concerns_all;
use nom_net::{
    AdoptError, Application, Chain, Closed, Dispute, Ear, Finding, FlowId, FourTuple, Instant, Slice,
};
use nom_port::buffer::Buffer;
use nom_port::nic::{Label, Nic, Received};
use nom_port::world::Clock;
use nom_service::{Earned, Service, Window};

/// The clients of a server.
pub(crate) struct Front<B: Buffer, S: Service<B>> {
    pub clients: Clients<B, S>,
    /// Clients of the control port, if there is one.
    pub desk: Option<Clients<B, Desk>>,
    /// The other cores, if there are any.
    pub peers: Option<Peers<B, S::Connection>>,
    /// Who hears what this core finds out about addresses.
    pub ear: Ear,
    /// What the server has earned, if this core tells it.
    pub earned: Option<Earned>,
    /// How the frame at hand came here.
    way: Way,
}

impl<B: Buffer, S: Service<B>> Front<B, S> {
    /// All are the service's, on one core.
    pub fn new(clients: Clients<B, S>) -> Front<B, S> {
        Front { clients, desk: None, peers: None, ear: Ear::default(), earned: None, way: Way::Device }
    }

    /// Takes what other cores passed here.
    pub fn take_passed<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, now: Instant) {
        while let Some(passed) = self.peers.as_mut().and_then(Peers::take) {
            match passed {
                Passed::Frame(frame, way) => {
                    self.count(|passing| &mut passing.taken);
                    self.way = way;
                    stack.take(now, self, frame);
                    self.way = Way::Device;
                }
                Passed::Flow(moving) => self.welcome(stack, moving),
                Passed::Addresses(found) => stack.configure(&found),
            }
        }
    }

    /// Gives all flows away, for none is to stay here.
    fn give_all<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, plan: Plan) {
        let mut at = self.peers.as_ref().map_or(0, Peers::index);
        let mut next = 0;
        while let Some(flow) = stack.flow_from(next) {
            self.give(stack, flow, plan.active_for(at));
            (at, next) = (at + 1, flow.index() + 1);
        }
    }

    /// Gives the cores `to`, which have none, a fair part of the open flows.
    fn give_share<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        to: core::ops::Range<usize>,
    ) {
        let mut at = self.peers.as_ref().map_or(0, Peers::index);
        let (mut next, mut owed) = (0, 0);
        while let Some(flow) = stack.flow_from(next) {
            next = flow.index() + 1;
            if !stack.is_open(flow) {
                continue;
            }
            owed += to.len();
            if owed >= to.end {
                owed -= to.end;
                self.give(stack, flow, to.start + at % to.len());
                at += 1;
            }
        }
    }

    fn count(&mut self, of: fn(&mut Passing) -> &mut u64) {
        if let Some(peers) = &mut self.peers {
            *of(&mut peers.passing) += 1;
        }
    }

    /// Gives a flow to core `to`, with its client.
    fn give<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId, to: usize) {
        let Some(peers) = &mut self.peers else { return };
        let left = usize::from(peers.newest().active).saturating_sub(1);
        let Some(detached) = stack.detach(flow) else { return };
        let desk = self.desk.as_mut().and_then(|desk| desk.take_out(flow)).map(Guest::Desk);
        let guest = desk.or_else(|| self.clients.take_out(flow).map(Guest::Service));
        let guest = guest.unwrap_or(Guest::Nobody);
        peers.passing.given += 1;
        peers.give(to, Box::new(Moving { flow: detached, guest, left }));
    }

    /// Takes a flow in that another core has given.
    fn welcome<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        moving: Box<Moving<B, S::Connection>>,
    ) {
        let Some(peers) = &mut self.peers else { return };
        let plan = peers.newest();
        if !plan.has(peers.index()) {
            peers.give(plan.active_for(peers.index()), moving);
            return peers.ring_present();
        }
        let Moving { flow, guest, left } = *moving;
        match stack.adopt(flow) {
            Ok(flow) => {
                peers.passing.adopted += 1;
                if let Some(stopwatch) = stack.nic().stopwatch() {
                    stopwatch.forget(flow.index());
                }
                self.take_in(flow, guest);
            }
            Err((AdoptError::Full, flow)) if left > 0 => {
                let next = plan.active_for(peers.index() + 1);
                peers.give(next, Box::new(Moving { flow, guest, left: left - 1 }));
                peers.ring_present();
            }
            Err((why, flow)) => {
                peers.passing.refused += 1;
                // Of two flows of the same addresses, only one was ever the peer's.
                if why == AdoptError::Full {
                    stack.reset(flow);
                }
                if let Guest::Service(client) = guest {
                    self.clients.turn_away(client);
                }
            }
        }
    }

    fn take_in(&mut self, flow: FlowId, guest: Guest<B, S::Connection>) {
        match guest {
            Guest::Service(client) => self.clients.take_in(flow, client),
            Guest::Desk(client) => {
                let desk = self.desk.as_mut().expect("a control port is on all cores or on none");
                desk.take_in(flow, client);
            }
            Guest::Nobody => {}
        }
    }

    #[inline]
    fn desk_of(&mut self, flow: FlowId) -> Option<&mut Clients<B, Desk>> {
        self.desk.as_mut().filter(|desk| desk.has(flow))
    }

    /// What somebody has ordered since the last call.
    #[inline]
    pub fn order(&mut self) -> Option<Order> {
        self.desk.as_mut()?.service.order()
    }

    /// Does what the newest plan asks of this core.
    pub fn follow<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, now: Instant) {
        let Some(peers) = &mut self.peers else { return };
        let (before, plan, own) = (peers.plan(), peers.newest(), peers.index());
        peers.follow(plan);
        stack.set_admitting(plan.has(own));
        // All that came by an older plan: flows among it are to be given away, too.
        self.take_passed(stack, now);
        let given = self.passing().given;
        if !plan.has(own) {
            self.give_all(stack, plan);
        } else if plan.is_moving && before.has(own) && before.active < plan.active {
            self.give_share(stack, before.active.into()..plan.active.into());
        }
        if let Some(peers) = &mut self.peers {
            if peers.passing.given != given {
                peers.ring_present();
            }
            peers.set_done();
        }
    }

    /// What went from core to core.
    pub fn passing(&self) -> Passing {
        self.peers.as_ref().map_or(Passing::default(), |peers| peers.passing)
    }

    /// Tells the control port of a window, which has ended.
    pub fn report<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, window: Window) {
        let passing = self.passing();
        let service = &self.clients.service;
        if let Some(desk) = &mut self.desk {
            let earned = self.earned;
            desk.service.report(window, || Snapshot { earned, ..Snapshot::of(stack, passing, service) });
        }
    }

    /// Tells the control port that this core leaves.
    pub fn report_away<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>) {
        let passing = self.passing();
        if let Some(desk) = &mut self.desk {
            let earned = self.earned;
            desk.service.leave(Snapshot { earned, ..Snapshot::of(stack, passing, &self.clients.service) });
        }
    }

    /// Tells the control port that cores can be given back.
    pub fn lend(&self) {
        if let Some(desk) = &self.desk {
            desk.service.control().lend();
        }
    }

    /// Tells the control port how many cores serve.
    pub fn tell_serving(&self) {
        if let (Some(desk), Some(peers)) = (&self.desk, &self.peers) {
            desk.service.control().set_serving(peers.newest().active);
        }
    }
}

impl<N: Nic, C: Clock, S: Service<N::Buffer>> Application<Metered<N, C>> for Front<N::Buffer, S> {
    /// The packet API is datagrams', and what concerns all cores is not for one connection.
    #[inline]
    fn filters_segments(&self) -> bool {
        false
    }

    fn filter(
        &mut self,
        stack: &mut Measured<N, C>,
        frame: Received<N::Buffer>,
    ) -> Option<Received<N::Buffer>> {
        if let Some(peers) = &mut self.peers
            && self.way == Way::Device
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
        let frame = if self.way == Way::Device { peers.hand_on(frame)? } else { frame };
        peers.pass_on(frame, self.way)
    }

    fn newcomer(
        &mut self,
        _: &mut Measured<N, C>,
        frame: Received<N::Buffer>,
    ) -> Option<Received<N::Buffer>> {
        match &mut self.peers {
            Some(peers) => peers.hand_on(frame),
            None => Some(frame),
        }
    }

    fn classify(&mut self, tuple: &FourTuple) -> Label {
        if self.desk.as_ref().is_some_and(|desk| desk.service.port() == tuple.local.port()) {
            return Label::default();
        }
        let class = self.clients.class(tuple);
        label(class.base(), class.is_by_request())
    }

    fn configured(&mut self, stack: &mut Measured<N, C>) {
        self.peers.iter().for_each(|peers| peers.tell(stack.config()));
        self.ear.hear(Finding::Configured(stack.config()));
    }

    fn disputed(&mut self, _: &mut Measured<N, C>, dispute: Dispute) {
        self.ear.hear(Finding::Disputed(dispute));
    }

    fn refused(&mut self, _: &mut Measured<N, C>, port: u16) {
        if self.desk.as_ref().is_none_or(|desk| desk.service.port() != port) {
            self.clients.service.refused();
        }
    }

    fn connected(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        let port = stack.addresses(flow).map(|addresses| addresses.local.port());
        match &mut self.desk {
            Some(desk) if port == Some(desk.service.port()) => desk.connected(stack, flow),
            _ => self.clients.connected(stack, flow),
        }
    }

    #[inline]
    fn received(&mut self, stack: &mut Measured<N, C>, flow: FlowId, bytes: Slice<N::Buffer>) {
        if self.desk_of(flow).is_none() {
            return self.clients.received(stack, flow, bytes);
        }
        let passing = self.passing();
        let Some(desk) = &mut self.desk else { return };
        let earned = self.earned;
        desk.service.refresh(Snapshot { earned, ..Snapshot::of(stack, passing, &self.clients.service) });
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
