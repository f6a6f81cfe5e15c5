//! What activities hold of memory by their connections, where somebody may not hold all that he likes.
//!
//! Counted of a connection is what it holds whatever happens ([`CONNECTION_BYTES`]), answers that its peer
//! has not acknowledged, those that the stack has no room for yet, what came and waits behind them or behind
//! a hole, and what the service keeps for it ([`Service::held`]): requests of which a part came. A connection
//! is looked at when something comes for it, or goes; acknowledgements alone change nothing, so that whoever
//! seems to have used up what he may is looked at once more, all of him, before he is refused.

use super::{Clients, Measured};
use crate::payers::Payers;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use nom_net::FlowId;
use nom_port::buffer::Buffer;
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_service::{Activity, INFRASTRUCTURE, Service, StreamEnd};

/// What a connection holds that says nothing: of the stack, of its service and of its place in both tables.
/// About as much as the design allows an idle one.
const CONNECTION_BYTES: u64 = 1024;

/// What one connection holds, and who pays for that.
#[derive(Clone, Copy, Debug)]
struct Holding {
    payer: Activity,
    bytes: u64,
}

const NOTHING: Holding = Holding { payer: INFRASTRUCTURE, bytes: 0 };

/// The accounts of all activities.
#[derive(Debug)]
pub(super) struct Accounts {
    payers: Rc<Payers>,
    /// How much each may hold, by the activities' numbers; as much as there is, if it is not said.
    most: Vec<Option<NonZeroU64>>,
    /// By the flows' numbers.
    holdings: Vec<Holding>,
    /// Connections, and how often one was looked at since all were: a look at all costs no more than those.
    count: usize,
    looks: usize,
}

impl Accounts {
    fn new(payers: Rc<Payers>) -> Accounts {
        Accounts { payers, most: Vec::new(), holdings: Vec::new(), count: 0, looks: 0 }
    }

    /// A connection holds so much, at the expense of `payer`.
    fn hold(&mut self, index: usize, payer: Activity, bytes: u64) {
        if index >= self.holdings.len() {
            self.holdings.resize(index + 1, NOTHING);
        }
        let before = core::mem::replace(&mut self.holdings[index], Holding { payer, bytes });
        self.count += usize::from(bytes > 0);
        self.count -= usize::from(before.bytes > 0);
        self.looks += 1;
        self.payers.holds(before.payer, |sum| sum - before.bytes);
        self.payers.holds(payer, |sum| sum + bytes);
    }

    /// What a connection holds is at the expense of another from now on.
    pub fn charge(&mut self, index: usize, payer: Activity) {
        if let Some(Holding { payer: before, bytes }) = self.holdings.get(index).copied()
            && before != payer
        {
            self.hold(index, payer, bytes);
        }
    }

    fn is_full(&self, activity: Activity) -> bool {
        let most = self.most.get(activity.0 as usize).copied().flatten();
        most.is_some_and(|most| self.payers.memory(activity) + CONNECTION_BYTES > most.get())
    }
}

impl<B: Buffer, S: Service<B>> Clients<B, S> {
    /// Lets each activity hold so much, by its number, or as much as there is. Nothing is counted as long as
    /// everybody may; what there was before is counted as something comes for it.
    pub fn set_memory(&mut self, most: Vec<Option<NonZeroU64>>) {
        if self.accounts.is_none() && most.iter().any(Option::is_some) {
            self.accounts = self.payers.clone().map(Accounts::new);
        }
        if let Some(accounts) = &mut self.accounts {
            accounts.most = most;
        }
    }

    /// Whether an activity may hold more; it is noted if not.
    pub(super) fn has_memory<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &Measured<N, C>,
        activity: Activity,
    ) -> bool {
        if !self.accounts.as_ref().is_some_and(|accounts| accounts.is_full(activity)) {
            return true;
        }
        if self.accounts.as_ref().is_some_and(|accounts| accounts.looks >= accounts.count) {
            self.count_all(stack);
        }
        let Some(accounts) = &self.accounts else { return true };
        let is_full = accounts.is_full(activity);
        if is_full {
            accounts.payers.refused(activity);
        }
        !is_full
    }

    /// The same for whom a connection's requests are for.
    #[inline]
    pub(super) fn may_ask<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &Measured<N, C>,
        flow: FlowId,
    ) -> bool {
        let Some(accounts) = &self.accounts else { return true };
        let payer = accounts.holdings.get(flow.index()).map(|holding| holding.payer);
        payer.is_none_or(|payer| self.has_memory(stack, payer))
    }

    /// Turns out who asked although he may hold no more.
    #[cold]
    pub(super) fn refuse<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        if S::IS_ACTIVE {
            self.end(stack, flow, StreamEnd::NoMemory);
        } else {
            self.give_up(stack, flow);
        }
    }

    /// Counts what a connection holds now.
    #[inline]
    pub(super) fn count_memory<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &Measured<N, C>,
        flow: FlowId,
    ) {
        if self.accounts.is_some() {
            self.count_one(stack, flow);
        }
    }

    fn count_one<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &Measured<N, C>, flow: FlowId) {
        let Some(Some(client)) = self.clients.get(flow.index()) else { return };
        let Some(accounts) = &mut self.accounts else { return };
        if client.flow != flow || client.is_own {
            return;
        }
        let stacks = stack.queued(flow) + stack.kept(flow);
        let ours = client.owned_len() + client.waiting_len() + self.service.held(&client.connection);
        let bytes = CONNECTION_BYTES + (stacks + ours) as u64;
        let known = accounts.holdings.get(flow.index()).filter(|holding| holding.bytes > 0);
        let payer = known.map_or(client.class.base(), |holding| holding.payer);
        accounts.hold(flow.index(), payer, bytes);
    }

    /// Counts what all connections hold.
    #[cold]
    fn count_all<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &Measured<N, C>) {
        for index in 0..self.clients.len() {
            let flow = self.clients[index].as_ref().map(|client| client.flow);
            if let Some(flow) = flow {
                self.count_one(stack, flow);
            }
        }
        if let Some(accounts) = &mut self.accounts {
            accounts.looks = 0;
        }
    }

    /// A connection is over, or goes to another core: it holds nothing here.
    pub(super) fn forget_memory(&mut self, flow: FlowId) {
        if let Some(accounts) = &mut self.accounts
            && let Some(payer) = accounts.holdings.get(flow.index()).map(|holding| holding.payer)
        {
            accounts.hold(flow.index(), payer, 0);
        }
    }
}
