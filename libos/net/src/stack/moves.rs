//! Flows that move from one stack of a host to another: when a core is given back, or taken again.
//!
//! What moves is all that there is of a flow: sequence numbers, what is queued or not acknowledged, what came
//! too early, timers, answers that are due. The peer sees a connection that goes on where it was.

use super::Stack;
use super::flows::{Flow, Open};
use crate::frame::Mac;
use crate::presence::{Presence, Transit};
use crate::table::{FlowId, FourTuple};
use crate::tcp::connection::State;
use crate::time::Instant;
use alloc::sync::Arc;
use core::net::IpAddr;
use nom_port::nic::Nic;

/// A flow that no stack has.
#[derive(Debug)]
pub struct Detached<B> {
    tuple: FourTuple,
    flow: Flow<B>,
    /// The time that its stack knew: the timestamps that the peer saw must not go back.
    now: Instant,
    /// The neighbour through which its peer is reached, if that was known.
    neighbour: Option<(IpAddr, Mac)>,
    /// So that all stacks of the host know that there is such a flow.
    transit: Option<Transit>,
}

impl<B> Detached<B> {
    /// Its addresses.
    pub fn addresses(&self) -> &FourTuple {
        &self.tuple
    }

    /// Whether the application was told of it, and not yet that it is over.
    pub fn is_known(&self) -> bool {
        matches!(&self.flow, Flow::Open(open) if open.is_known)
    }
}

/// Why a flow was not adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptError {
    /// All places in the table are taken.
    Full,
    /// There is a flow of these addresses.
    Present,
}

impl core::fmt::Display for AdoptError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            AdoptError::Full => "all places for flows are taken",
            AdoptError::Present => "there is a flow of these addresses",
        })
    }
}

impl core::error::Error for AdoptError {}

impl<N: Nic> Stack<N> {
    /// Makes it one of several stacks of a host with the same addresses and keys. From now on
    /// [`super::Application::stranger`] hears only of segments that may be for a flow of another, and a
    /// cookie that another gave out is taken here, too.
    pub fn share(&mut self, presence: Arc<Presence>) {
        self.flows.share(presence);
    }

    /// Takes a flow out, in whatever state it is, for another stack of this host to [adopt](Stack::adopt).
    /// Its name means nothing from now on; nothing is said of it to the application.
    pub fn detach(&mut self, flow: FlowId) -> Option<Detached<N::Buffer>> {
        let tuple = *self.flows.get(flow)?.0;
        let next = self.config.next_hop(tuple.remote.ip());
        let neighbour = next.and_then(|next| Some((next, self.neighbours.mac(next)?)));
        let transit = self.flows.see_off(&tuple);
        let flow = self.take_out(flow)?;
        Some(Detached { tuple, flow, now: self.now, neighbour, transit })
    }

    /// Takes a flow over that another stack had, and goes on with it as it was; what it has to send goes with
    /// the next [`Stack::poll`]. A flow that is established takes the place of one of the same addresses that
    /// is not yet, or that only waits for strays.
    ///
    /// # Errors
    /// [`AdoptError`], with the flow.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal is rare; a box would be an allocation for every flow"
    )]
    pub fn adopt(
        &mut self,
        detached: Detached<N::Buffer>,
    ) -> Result<FlowId, (AdoptError, Detached<N::Buffer>)> {
        if let Some(present) = self.flows.find(&detached.tuple) {
            if !self.gives_way(present, &detached.flow) {
                return Err((AdoptError::Present, detached));
            }
            self.remove(present);
        }
        self.make_room();
        if self.flows.len() >= self.config.flows_max {
            return Err((AdoptError::Full, detached));
        }
        let Detached { tuple, flow, now, neighbour, transit } = detached;
        self.now = self.now.max(now);
        if let Some((address, mac)) = neighbour {
            self.neighbours.suppose(self.now, address, mac);
        }
        let until = if let Flow::Waiting(waiting) = &flow { Some(waiting.until) } else { None };
        let remote = tuple.remote.ip();
        let id = self.flows.insert(tuple, flow).expect("there is room, and no such flow");
        drop(transit);
        match until {
            // Behind those that were here, though its time may come before theirs.
            Some(until) => self.waiting.push_back((until, id)),
            None => {
                self.shares.add(remote);
                self.settle_in(id);
            }
        }
        Ok(id)
    }

    /// Whether a flow that is here makes room for one that comes. Of two handshakes the younger goes on: its
    /// peer asked again because it had not heard of the older.
    fn gives_way(&self, present: FlowId, coming: &Flow<N::Buffer>) -> bool {
        let rank = |flow: &Flow<N::Buffer>| match flow {
            Flow::Waiting(_) => (0, Instant::default()),
            Flow::Open(open) if open.connection.is_half_open => (1, open.connection.heard_at),
            Flow::Open(_) => (2, Instant::default()),
        };
        self.flows.get(present).is_some_and(|(_, present)| rank(present) < rank(coming))
    }

    /// Counts an open flow that was adopted. It is looked at with the next emission, which sets its timer.
    fn settle_in(&mut self, id: FlowId) {
        let Some(open) = self.open_mut(id) else { return };
        let Open { connection, hop, template, looked_at, is_dirty, .. } = open;
        // What this core's stack knows of neighbours and timers is not what the other's did.
        (*hop, *template, *looked_at, *is_dirty) = (None, None, None, false);
        let is_half_open = connection.is_half_open;
        if connection.state == State::SynReceived {
            // Said again, so that a device that steers by what is sent sends the peer's answer here.
            connection.send.next = connection.send.una;
            connection.timed = None;
        }
        self.half_open += usize::from(is_half_open);
        if let Some((_, Flow::Open(open))) = self.flows.get(id) {
            self.held.remember(&open.connection);
        }
        self.mark(id);
    }

    /// Ends a flow that no stack has, by a reset.
    pub fn reset(&mut self, detached: Detached<N::Buffer>) {
        if let Flow::Open(mut open) = detached.flow
            && let Some(reset) = open.connection.abort()
        {
            self.reply(&detached.tuple, &reset);
        }
    }

    /// The first flow whose [index](FlowId::index) is at least `index`, TIME-WAIT included: to walk through
    /// all of them while some go.
    pub fn flow_from(&self, index: usize) -> Option<FlowId> {
        self.flows.first_from(index)
    }

    /// Whether a flow is there and does not only wait for strays.
    pub fn is_open(&self, flow: FlowId) -> bool {
        matches!(self.flows.get(flow), Some((_, Flow::Open(_))))
    }

    /// Whether connections that peers ask for begin here; if not, [`super::Application::newcomer`] hears of
    /// them. At first they do.
    pub fn set_admitting(&mut self, is_admitting: bool) {
        self.is_admitting = is_admitting;
    }

    /// Whether there is nothing here that a core would have to stay for: no flow, no packet to send.
    pub fn is_deserted(&self) -> bool {
        let has_packets =
            !self.dirty.is_empty() || !self.link.batch.is_empty() || self.neighbours.is_holding();
        self.flows.is_empty() && !has_packets && !self.has_more
    }
}
