//! Whose a flow is: the service's, or the control port's.

use crate::clients::{Clients, Guest, Measured, Migration};
use crate::control::{Desk, Order, Snapshot};
use crate::metered::Metered;
use crate::payers::label;
use alloc::boxed::Box;
use core::net::SocketAddr;
use nom_elastic::{CameBy, ElasticCore, Epoch, ForwardCounts, Mail};
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
    /// This core among the others, if there are any.
    pub core: Option<ElasticCore<B, Migration<B, S::Connection>>>,
    /// Who hears what this core finds out about addresses.
    pub ear: Ear,
    /// What the server has earned, if this core tells it.
    pub earned: Option<Earned>,
    /// How the frame at hand came here.
    came_by: CameBy,
}

impl<B: Buffer, S: Service<B>> Front<B, S> {
    /// All are the service's, on one core.
    pub fn new(clients: Clients<B, S>) -> Front<B, S> {
        Front { clients, desk: None, core: None, ear: Ear::default(), earned: None, came_by: CameBy::Device }
    }

    /// Takes what other cores sent here.
    pub fn take_mail<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, now: Instant) {
        while let Some(mail) = self.core.as_mut().and_then(ElasticCore::take) {
            match mail {
                Mail::Frame(frame, came_by) => {
                    self.count(|counts| &mut counts.taken);
                    self.came_by = came_by;
                    stack.take(now, self, frame);
                    self.came_by = CameBy::Device;
                }
                Mail::Flow(migration) => self.welcome(stack, migration),
                Mail::Addresses(found) => stack.configure(&found),
            }
        }
    }

    /// Gives all flows away, for none is to stay here.
    fn give_all<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, epoch: Epoch) {
        let mut at = self.core.as_ref().map_or(0, ElasticCore::index);
        let mut next = 0;
        while let Some(flow) = stack.flow_from(next) {
            self.give(stack, flow, epoch.active_for(at));
            (at, next) = (at + 1, flow.index() + 1);
        }
    }

    /// Gives the cores `to`, which have none, a fair part of the open flows.
    fn give_share<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        to: core::ops::Range<usize>,
    ) {
        let mut at = self.core.as_ref().map_or(0, ElasticCore::index);
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

    fn count(&mut self, of: fn(&mut ForwardCounts) -> &mut u64) {
        if let Some(core) = &mut self.core {
            *of(&mut core.counts) += 1;
        }
    }

    /// Gives a flow to core `to`, with its client.
    fn give<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId, to: usize) {
        let Some(core) = &mut self.core else { return };
        let left = usize::from(core.newest().active).saturating_sub(1);
        let Some(detached) = stack.detach(flow) else { return };
        let desk = self.desk.as_mut().and_then(|desk| desk.take_out(flow)).map(Guest::Desk);
        let guest = desk.or_else(|| self.clients.take_out(flow).map(Guest::Service));
        let guest = guest.unwrap_or(Guest::Nobody);
        core.counts.given += 1;
        core.give(to, Box::new(Migration { flow: detached, guest, left }));
    }

    /// Takes a flow in that another core has given.
    fn welcome<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        migration: Box<Migration<B, S::Connection>>,
    ) {
        let Some(core) = &mut self.core else { return };
        let epoch = core.newest();
        if !epoch.has(core.index()) {
            core.give(epoch.active_for(core.index()), migration);
            return core.ring_present();
        }
        let Migration { flow, guest, left } = *migration;
        match stack.adopt(flow) {
            Ok(flow) => {
                core.counts.adopted += 1;
                if let Some(stopwatch) = stack.nic().stopwatch() {
                    stopwatch.forget(flow.index());
                }
                self.take_in(flow, guest);
            }
            Err((AdoptError::Full, flow)) if left > 0 => {
                let next = epoch.active_for(core.index() + 1);
                core.give(next, Box::new(Migration { flow, guest, left: left - 1 }));
                core.ring_present();
            }
            Err((why, flow)) => {
                core.counts.refused += 1;
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

    /// Does what the newest epoch asks of this core.
    pub fn follow<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, now: Instant) {
        let Some(core) = &mut self.core else { return };
        let (before, epoch, own) = (core.epoch(), core.newest(), core.index());
        core.follow(epoch);
        stack.set_admitting(epoch.has(own));
        // All that came by an older epoch: flows among it are to be given away, too.
        self.take_mail(stack, now);
        let given = self.counts().given;
        if !epoch.has(own) {
            self.give_all(stack, epoch);
        } else if epoch.is_moving && before.has(own) && before.active < epoch.active {
            self.give_share(stack, before.active.into()..epoch.active.into());
        }
        if let Some(core) = &mut self.core {
            if core.counts.given != given {
                core.ring_present();
            }
            core.set_done();
        }
    }

    /// What went from core to core.
    pub fn counts(&self) -> ForwardCounts {
        self.core.as_ref().map_or(ForwardCounts::default(), |core| core.counts)
    }

    /// Tells the control port of a window, which has ended.
    pub fn report<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, window: Window) {
        let counts = self.counts();
        let service = &self.clients.service;
        if let Some(desk) = &mut self.desk {
            let earned = self.earned;
            desk.service.report(window, || Snapshot { earned, ..Snapshot::of(stack, counts, service) });
        }
    }

    /// Tells the control port that this core leaves.
    pub fn report_away<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>) {
        let counts = self.counts();
        if let Some(desk) = &mut self.desk {
            let earned = self.earned;
            desk.service.leave(Snapshot { earned, ..Snapshot::of(stack, counts, &self.clients.service) });
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
        if let (Some(desk), Some(core)) = (&self.desk, &self.core) {
            desk.service.control().set_serving(core.newest().active);
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
        if let Some(core) = &mut self.core
            && self.came_by == CameBy::Device
            && frame.frame.first().is_some_and(|bytes| concerns_all(bytes))
        {
            core.copy(&frame);
        }
        self.clients.filter(stack, frame)
    }

    fn stranger(
        &mut self,
        _: &mut Measured<N, C>,
        frame: Received<N::Buffer>,
    ) -> Option<Received<N::Buffer>> {
        let Some(core) = &mut self.core else { return Some(frame) };
        let frame = if self.came_by == CameBy::Device { core.hand_on(frame)? } else { frame };
        core.forward(frame, self.came_by)
    }

    fn newcomer(
        &mut self,
        _: &mut Measured<N, C>,
        frame: Received<N::Buffer>,
    ) -> Option<Received<N::Buffer>> {
        match &mut self.core {
            Some(core) => core.hand_on(frame),
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
        self.core.iter().for_each(|core| core.tell(stack.config()));
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
        let counts = self.counts();
        let Some(desk) = &mut self.desk else { return };
        let earned = self.earned;
        desk.service.refresh(Snapshot { earned, ..Snapshot::of(stack, counts, &self.clients.service) });
        desk.received(stack, flow, bytes);
    }

    fn kept(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        if self.desk_of(flow).is_none() {
            self.clients.kept(stack, flow);
        }
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
