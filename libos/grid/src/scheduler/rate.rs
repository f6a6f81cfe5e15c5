//! A limit that holds though nobody else wants anything: a bucket of tokens each.
//!
//! What a message costs is known only when it was served, so who has any token left is served, and may owe
//! some afterwards: over any time a client gets at most its rate, one burst and one message.

use super::seats::Seats;
use super::{
    Availability, BadClient, ClientIndex, ClientParameters, ClientStatistics, QueueHead, RateLimit,
    ResourceScheduler,
};
use crate::record::{ResourceRecord, SharedMetric};
use core::num::NonZeroU64;

/// Parts of a token: what a rate of one a second brings in a nanosecond.
const TOKEN: i128 = 1_000_000_000;

#[derive(Debug)]
struct Seat {
    limit: Option<RateLimit>,
    /// In parts of a token; negative: owed.
    tokens: i128,
    filled_ns: u64,
}

impl Seat {
    fn new(limit: Option<RateLimit>) -> Seat {
        let tokens = limit.map_or(0, |limit| i128::from(limit.burst.get()) * TOKEN);
        Seat { limit, tokens, filled_ns: 0 }
    }

    fn fill(&mut self, now_ns: u64) {
        let Some(RateLimit { per_second, burst }) = self.limit else { return };
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = self.filled_ns.max(now_ns);
        let more = i128::from(elapsed_ns) * i128::from(per_second.get());
        self.tokens = (self.tokens + more).min(i128::from(burst.get()) * TOKEN);
    }

    /// How long until it may be served, as of the last filling; 0: at once.
    fn wait_ns(&self) -> u64 {
        let Some(limit) = self.limit else { return 0 };
        let missing = 1 - self.tokens;
        if missing <= 0 {
            return 0;
        }
        let rate = i128::from(limit.per_second.get());
        u64::try_from((missing + rate - 1) / rate).unwrap_or(u64::MAX)
    }
}

/// Serves clients in turn, each no faster than it may be: does not conserve work.
#[derive(Debug)]
pub struct RateLimiter {
    metric: SharedMetric,
    seats: Seats<Seat>,
}

impl RateLimiter {
    /// Of no clients yet.
    #[must_use]
    pub fn new(metric: SharedMetric) -> Self {
        RateLimiter { metric, seats: Seats::default() }
    }

    /// The ready client that may be served first, of equal ones the one that waited longest, and how long it
    /// must wait.
    fn first(&mut self, now_ns: u64) -> Option<(ClientIndex, u64)> {
        let (client, seat) = self.seats.least(|seat| {
            seat.fill(now_ns);
            seat.wait_ns()
        })?;
        Some((client, seat.wait_ns()))
    }
}

impl ResourceScheduler for RateLimiter {
    fn add_client(&mut self, client: ClientIndex, parameters: &ClientParameters) -> Result<(), BadClient> {
        self.seats.put(client, Seat::new(parameters.rate));
        Ok(())
    }

    fn update_client(
        &mut self,
        client: ClientIndex,
        parameters: &ClientParameters,
        now_ns: u64,
    ) -> Result<(), BadClient> {
        if let Some(seat) = self.seats.get_mut(client) {
            seat.fill(now_ns);
            let most = parameters.rate.map_or(0, |limit| i128::from(limit.burst.get()) * TOKEN);
            seat.limit = parameters.rate;
            seat.tokens = seat.tokens.min(most);
            seat.filled_ns = seat.filled_ns.max(now_ns);
        }
        Ok(())
    }

    fn remove_client(&mut self, client: ClientIndex) {
        self.seats.remove(client);
    }

    fn schedule(&mut self, now_ns: u64) -> Option<ClientIndex> {
        let (client, _) = self.first(now_ns).filter(|(_, wait_ns)| *wait_ns == 0)?;
        Some(self.seats.choose(client))
    }

    fn client_ready(&mut self, client: ClientIndex, _: QueueHead, _: u64) {
        self.seats.set_ready(client, |_| ());
    }

    fn client_suspended(&mut self, client: ClientIndex) {
        self.seats.set_unready(client);
    }

    fn client_rejected(&mut self, client: ClientIndex) {
        self.seats.undo(client);
    }

    fn poll_ready(&mut self, now_ns: u64) -> Availability {
        match self.first(now_ns) {
            None => Availability::Never,
            Some((_, wait_ns)) => NonZeroU64::new(wait_ns).map_or(Availability::Now, Availability::After),
        }
    }

    fn resource_record(&mut self, client: ClientIndex, record: &ResourceRecord, now_ns: u64) {
        let units = self.metric.of(record);
        if let Some(seat) = self.seats.get_mut(client) {
            seat.fill(now_ns);
            seat.tokens = seat.tokens.saturating_sub(i128::from(units) * TOKEN);
        }
    }

    fn client_statistics(&self, client: ClientIndex) -> ClientStatistics {
        self.seats.statistics(client)
    }

    fn may_be_bypassed(&self) -> bool {
        false
    }
}
