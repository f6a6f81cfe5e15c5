//! Each in its turn.

use super::seats::Seats;
use super::{
    Availability, BadClient, ClientIndex, ClientParameters, ClientStatistics, QueueHead, ResourceScheduler,
};
use crate::record::ResourceRecord;

/// Serves whoever became ready first: with everybody ready, each in its turn.
#[derive(Debug, Default)]
pub struct RoundRobin {
    seats: Seats<()>,
}

impl ResourceScheduler for RoundRobin {
    fn add_client(&mut self, client: ClientIndex, _: &ClientParameters) -> Result<(), BadClient> {
        self.seats.put(client, ());
        Ok(())
    }

    fn update_client(&mut self, _: ClientIndex, _: &ClientParameters, _: u64) -> Result<(), BadClient> {
        Ok(())
    }

    fn remove_client(&mut self, client: ClientIndex) {
        self.seats.remove(client);
    }

    fn schedule(&mut self, _: u64) -> Option<ClientIndex> {
        // They differ in how long they have been ready alone.
        let (client, ()) = self.seats.least(|()| 0)?;
        Some(self.seats.choose(client))
    }

    fn client_ready(&mut self, client: ClientIndex, _: QueueHead, _: u64) {
        self.seats.set_ready(client, |()| ());
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
