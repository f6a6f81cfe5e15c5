//! Shares by weight: start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996).
//!
//! Each client has a virtual time, which advances by what it consumed over its weight. The ready one with the
//! least is served, and its virtual time is the scheduler's. One that becomes ready goes on from the later of
//! its own and the scheduler's: it has no claim from when it wanted nothing. What a message costs need not be
//! known before it was served, so any metric will do. While two clients are ready all the time, what they get
//! over their weights differs by no more than their largest messages over their weights (theorem 1 there).

use super::seats::Seats;
use super::{
    Availability, BadClient, ClientIndex, ClientParameters, ClientStatistics, QueueHead, ResourceScheduler,
};
use crate::record::{ResourceRecord, SharedMetric};
use core::num::NonZeroU32;

/// Units of a client of weight 1, in 2^-63: so finely that no weight is rounded noticeably. In 128 bits 2^64
/// units fit.
pub(super) type VirtualTime = u128;

/// A client in virtual time.
#[derive(Debug)]
pub(super) struct VirtualClock {
    /// What one unit costs it.
    cost: u64,
    time: VirtualTime,
}

impl VirtualClock {
    /// That of a client of this weight, which comes at `time`.
    pub fn new(weight: NonZeroU32, time: VirtualTime) -> VirtualClock {
        VirtualClock { cost: (1 << 63) / u64::from(weight.get()), time }
    }

    #[inline]
    pub fn time(&self) -> VirtualTime {
        self.time
    }

    pub fn set_weight(&mut self, weight: NonZeroU32) {
        *self = VirtualClock::new(weight, self.time);
    }

    /// The client becomes ready at `time`: it has no claim from before.
    #[inline]
    pub fn wake(&mut self, time: VirtualTime) {
        self.time = self.time.max(time);
    }

    /// The client has consumed so many units.
    #[inline]
    pub fn consume(&mut self, units: u64) {
        self.time = self.time.saturating_add(VirtualTime::from(units) * VirtualTime::from(self.cost));
    }
}

/// Serves clients in proportion to their weights, by any metric that is reported.
#[derive(Debug)]
pub struct FairQueueing {
    metric: SharedMetric,
    seats: Seats<VirtualClock>,
    time: VirtualTime,
}

impl FairQueueing {
    /// Of no clients yet.
    #[must_use]
    pub fn new(metric: SharedMetric) -> Self {
        FairQueueing { metric, seats: Seats::default(), time: 0 }
    }
}

impl ResourceScheduler for FairQueueing {
    fn add_client(&mut self, client: ClientIndex, parameters: &ClientParameters) -> Result<(), BadClient> {
        self.seats.put(client, VirtualClock::new(parameters.weight, self.time));
        Ok(())
    }

    fn update_client(
        &mut self,
        client: ClientIndex,
        parameters: &ClientParameters,
        _: u64,
    ) -> Result<(), BadClient> {
        if let Some(seat) = self.seats.get_mut(client) {
            seat.set_weight(parameters.weight);
        }
        Ok(())
    }

    fn remove_client(&mut self, client: ClientIndex) {
        self.seats.remove(client);
    }

    fn schedule(&mut self, _: u64) -> Option<ClientIndex> {
        let (client, seat) = self.seats.least(|seat| seat.time())?;
        self.time = self.time.max(seat.time());
        Some(self.seats.choose(client))
    }

    fn client_ready(&mut self, client: ClientIndex, _: QueueHead, _: u64) {
        self.seats.set_ready(client, |seat| seat.wake(self.time));
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
            seat.consume(units);
        }
    }

    fn client_statistics(&self, client: ClientIndex) -> ClientStatistics {
        self.seats.statistics(client)
    }

    fn may_be_bypassed(&self) -> bool {
        true
    }
}
