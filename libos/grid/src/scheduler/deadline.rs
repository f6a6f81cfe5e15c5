//! Whoever must be served first: earliest deadline first.

use super::seats::Seats;
use super::{
    Availability, BadClient, ClientIndex, ClientParameters, ClientStatistics, QueueHead, ResourceScheduler,
};
use crate::record::ResourceRecord;
use core::num::NonZeroU64;

#[derive(Debug)]
struct Seat {
    within_ns: NonZeroU64,
    /// When its next message is due.
    due_ns: u64,
}

/// Serves the client whose next message is due first. A message is due so long after it came as its client
/// was told.
#[derive(Debug, Default)]
pub struct EarliestDeadline {
    seats: Seats<Seat>,
}

impl ResourceScheduler for EarliestDeadline {
    fn add_client(&mut self, client: ClientIndex, parameters: &ClientParameters) -> Result<(), BadClient> {
        let within_ns = parameters.deadline_ns.ok_or(BadClient::NoDeadline)?;
        self.seats.put(client, Seat { within_ns, due_ns: 0 });
        Ok(())
    }

    fn update_client(
        &mut self,
        client: ClientIndex,
        parameters: &ClientParameters,
        _: u64,
    ) -> Result<(), BadClient> {
        let within_ns = parameters.deadline_ns.ok_or(BadClient::NoDeadline)?;
        if let Some(seat) = self.seats.get_mut(client) {
            let arrived_ns = seat.due_ns.saturating_sub(seat.within_ns.get());
            *seat = Seat { within_ns, due_ns: arrived_ns.saturating_add(within_ns.get()) };
        }
        Ok(())
    }

    fn remove_client(&mut self, client: ClientIndex) {
        self.seats.remove(client);
    }

    fn schedule(&mut self, _: u64) -> Option<ClientIndex> {
        let (client, _) = self.seats.least(|seat| seat.due_ns)?;
        Some(self.seats.choose(client))
    }

    fn client_ready(&mut self, client: ClientIndex, head: QueueHead, _: u64) {
        self.seats.set_ready(client, |seat| {
            seat.due_ns = head.arrived_ns.saturating_add(seat.within_ns.get());
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

    fn resource_record(&mut self, _: ClientIndex, _: &ResourceRecord, _: u64) {}

    fn client_statistics(&self, client: ClientIndex) -> ClientStatistics {
        self.seats.statistics(client)
    }

    fn may_be_bypassed(&self) -> bool {
        true
    }
}
