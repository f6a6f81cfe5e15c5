//! Whoever earns most by what it is served next.
//!
//! What a client earns by a unit need not be the same for every unit: a contract may pay for so much a
//! second, and for more of it less or nothing. So a client is told steps, counted from when it is told them,
//! and told anew as often as what its contract pays changes. Between clients that earn alike it is fair
//! queueing by weight. Whoever has waited for a tenth of a second is served once, whatever it earns: else
//! whoever earns much and wants all would keep everybody out who is to change that.

use super::fair::{VirtualClock, VirtualTime};
use super::seats::Seats;
use super::{
    Availability, BadClient, ClientIndex, ClientParameters, ClientStatistics, QueueHead, ResourceScheduler,
};
use crate::record::{ResourceRecord, SharedMetric};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// What the units of a client earn up to a number of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarningStep {
    /// Units, counted from when the client was told.
    pub up_to: u64,
    /// Billionths of a dollar for each of a million of them; negative: they cost more than they bring.
    pub nanodollars_a_million: i64,
}

impl EarningStep {
    /// Every unit earns the same.
    #[must_use]
    pub fn always(nanodollars_a_million: i64) -> EarningStep {
        EarningStep { up_to: u64::MAX, nanodollars_a_million }
    }
}

/// Longest that a client waits between two decisions for it.
const PATIENCE_NS: u64 = 100_000_000;

#[derive(Debug)]
struct Seat {
    clock: VirtualClock,
    earns: Vec<EarningStep>,
    served: u64,
    /// When the last decision was for it, and since when it has waited for the next.
    chosen_ns: u64,
    waits_ns: u64,
}

impl Seat {
    /// What the next unit earns; behind the last step nothing.
    fn next(&self) -> i64 {
        let step = self.earns.iter().find(|step| self.served < step.up_to);
        step.map_or(0, |step| step.nanodollars_a_million)
    }
}

fn check(earns: &[EarningStep]) -> Result<(), BadClient> {
    let disordered = earns.windows(2).find(|pair| pair[0].up_to >= pair[1].up_to);
    disordered.map_or(Ok(()), |pair| Err(BadClient::Earnings(pair[1].up_to, pair[0].up_to)))
}

/// Serves the client whose next unit earns most.
#[derive(Debug)]
pub struct MarginalProfit {
    metric: SharedMetric,
    seats: Seats<Seat>,
    time: VirtualTime,
}

impl MarginalProfit {
    /// Of no clients yet.
    #[must_use]
    pub fn new(metric: SharedMetric) -> Self {
        MarginalProfit { metric, seats: Seats::default(), time: 0 }
    }
}

impl ResourceScheduler for MarginalProfit {
    fn add_client(&mut self, client: ClientIndex, parameters: &ClientParameters) -> Result<(), BadClient> {
        check(&parameters.earns)?;
        let (clock, earns) = (VirtualClock::new(parameters.weight, self.time), parameters.earns.clone());
        self.seats.put(client, Seat { clock, earns, served: 0, chosen_ns: 0, waits_ns: 0 });
        Ok(())
    }

    fn update_client(
        &mut self,
        client: ClientIndex,
        parameters: &ClientParameters,
        _: u64,
    ) -> Result<(), BadClient> {
        check(&parameters.earns)?;
        if let Some(seat) = self.seats.get_mut(client) {
            seat.clock.set_weight(parameters.weight);
            seat.earns.clone_from(&parameters.earns);
            seat.served = 0;
        }
        Ok(())
    }

    fn remove_client(&mut self, client: ClientIndex) {
        self.seats.remove(client);
    }

    fn schedule(&mut self, now_ns: u64) -> Option<ClientIndex> {
        let (client, seat) = self.seats.least(|seat| {
            let is_starved = now_ns.saturating_sub(seat.waits_ns) >= PATIENCE_NS;
            (Reverse(is_starved), Reverse(seat.next()), seat.clock.time())
        })?;
        self.time = self.time.max(seat.clock.time());
        seat.chosen_ns = now_ns;
        Some(self.seats.choose(client))
    }

    fn client_ready(&mut self, client: ClientIndex, head: QueueHead, _: u64) {
        self.seats.set_ready(client, |seat| {
            seat.clock.wake(self.time);
            seat.waits_ns = head.arrived_ns.max(seat.chosen_ns);
        });
    }

    fn client_suspended(&mut self, client: ClientIndex) {
        self.seats.set_unready(client);
    }

    fn client_rejected(&mut self, client: ClientIndex) {
        self.seats.undo(client);
    }

    fn poll_ready(&mut self, _: u64) -> Availability {
        if self.seats.has_ready() { Availability::Now } else { Availability::Never }
    }

    fn resource_record(&mut self, client: ClientIndex, record: &ResourceRecord, _: u64) {
        let units = self.metric.of(record);
        if let Some(seat) = self.seats.get_mut(client) {
            seat.served = seat.served.saturating_add(units);
            seat.clock.consume(units);
        }
    }

    fn client_statistics(&self, client: ClientIndex) -> ClientStatistics {
        self.seats.statistics(client)
    }

    /// Who was served alone has used up of what his contract pays for.
    fn may_be_bypassed(&self) -> bool {
        false
    }
}
