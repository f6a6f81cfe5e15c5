//! Which request queue a core serves next.
//!
//! The interface follows the omni-kernel's (appendix A, Table III). Of its functions, `init` and
//! `init_core` are constructors here; `client_statistics` is answered by the loop, which has every record
//! anyway; `load_share` chooses a core for a message before it is in any queue, so it is not this core's
//! decision.

use crate::meter::Record;
use alloc::collections::VecDeque;
use core::num::NonZeroU32;

slotmap::new_key_type! {
    /// Names a request queue of one core: the client of its scheduler.
    pub struct QueueId;
}

/// What a scheduler is told about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Its share of the core is its weight over the weights of all that are ready.
    pub weight: NonZeroU32,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { weight: NonZeroU32::MIN }
    }
}

/// Decides between the request queues of one core.
///
/// The loop asks only if there is a choice: while a single queue is ready it is served directly, as long as
/// the scheduler [conserves work](Scheduler::is_work_conserving). So a client that is ready may have been
/// served without being scheduled, and may even be empty when it is; the loop then asks again.
pub trait Scheduler {
    /// A new client. It is not ready.
    fn add_client(&mut self, client: QueueId, parameters: Parameters);

    /// Changes what the scheduler was told about a client.
    fn update_client(&mut self, client: QueueId, parameters: Parameters);

    /// Forgets a client.
    fn remove_client(&mut self, client: QueueId);

    /// The client has something to do. Said when its queue is no longer empty, and again after it was
    /// scheduled if there is more.
    fn client_ready(&mut self, client: QueueId, now_ns: u64);

    /// The client is not to be served until it is said to be ready again.
    fn client_suspended(&mut self, client: QueueId);

    /// Takes the ready client that is to be served now; nothing if there is none, or if all must wait.
    fn schedule(&mut self, now_ns: u64) -> Option<QueueId>;

    /// Nanoseconds until [`Scheduler::schedule`] will find a client; nothing if none is ready.
    fn poll_ready(&self, now_ns: u64) -> Option<u64>;

    /// What a client has consumed since it was last said.
    fn resource_record(&mut self, client: QueueId, record: Record);

    /// Whether a ready client never waits while no other is ready.
    fn is_work_conserving(&self) -> bool {
        true
    }
}

/// One after the other.
#[derive(Debug, Default)]
pub struct RoundRobin {
    ready: VecDeque<QueueId>,
}

impl Scheduler for RoundRobin {
    fn add_client(&mut self, _client: QueueId, _parameters: Parameters) {}

    fn update_client(&mut self, _client: QueueId, _parameters: Parameters) {}

    fn remove_client(&mut self, client: QueueId) {
        self.ready.retain(|other| *other != client);
    }

    fn client_ready(&mut self, client: QueueId, _now_ns: u64) {
        self.ready.push_back(client);
    }

    fn client_suspended(&mut self, client: QueueId) {
        self.remove_client(client);
    }

    fn schedule(&mut self, _now_ns: u64) -> Option<QueueId> {
        self.ready.pop_front()
    }

    fn poll_ready(&self, _now_ns: u64) -> Option<u64> {
        (!self.ready.is_empty()).then_some(0)
    }

    fn resource_record(&mut self, _client: QueueId, _record: Record) {}
}
