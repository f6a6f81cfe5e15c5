//! What a scheduler is: the omni-kernel's appendix A.
//!
//! Its Table III has twelve functions. Two of them make a scheduler, `init` for all cores and `init_core` for
//! one: here the values themselves are made, one a core. `load_share` chooses for all cores together and
//! stands apart ([`RoutingTags`](crate::RoutingTags)). The others are methods here, with the table's names;
//! [`ResourceScheduler::client_rejected`] is a thirteenth, for a resource that is full.

pub mod deadline;
pub mod fair;
pub mod profit;
pub mod rate;
pub mod round_robin;
mod seats;
pub mod two_level;

use crate::record::ResourceRecord;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::num::{NonZeroU32, NonZeroU64};
use profit::EarningStep;

/// A client of a scheduler: a request queue, by its number, which is below [`CLIENTS_MAX`].
pub type ClientIndex = usize;

/// How many clients a scheduler may have.
pub const CLIENTS_MAX: usize = 64;

/// How fast a client may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Units of the scheduler's metric a second.
    pub per_second: NonZeroU64,
    /// Units that may come at once after a pause.
    pub burst: NonZeroU64,
}

/// What a scheduler is told about a client. Each scheduler reads what it goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientParameters {
    /// Its share is its weight over those of all that are ready.
    pub weight: NonZeroU32,
    /// How long a message may wait.
    pub deadline_ns: Option<NonZeroU64>,
    /// How fast it may be served; none: as fast as can be.
    pub rate: Option<RateLimit>,
    /// What its next units earn, from when it is told on.
    pub earns: Vec<EarningStep>,
    /// Which of the upper level's clients it belongs to.
    pub group: usize,
}

impl Default for ClientParameters {
    fn default() -> Self {
        ClientParameters {
            weight: NonZeroU32::MIN,
            deadline_ns: None,
            rate: None,
            earns: Vec::new(),
            group: 0,
        }
    }
}

/// Why a scheduler cannot serve a client by what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadClient {
    /// The scheduler goes by deadlines.
    #[error("no deadline, expected one for each activity of a scheduler by deadlines")]
    NoDeadline,
    /// A scheduler has room for fewer.
    #[error("client {0}, expected one below {CLIENTS_MAX}")]
    Number(usize),
    /// There is no such group.
    #[error("group {0}, expected one below {1}")]
    Group(usize, usize),
    /// What it earns is not told in order.
    #[error("earnings up to {0} units behind those up to {1}, expected the fewer first")]
    Earnings(u64, u64),
}

/// The message that a client would be served next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueHead {
    /// When it came.
    pub arrived_ns: u64,
}

/// When a scheduler can decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// At once.
    Now,
    /// In so many nanoseconds, though clients are ready.
    After(NonZeroU64),
    /// When a client becomes ready.
    Never,
}

/// What a scheduler knows of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStatistics {
    /// How often it was chosen.
    pub decisions: u64,
}

/// Chooses which of its clients a resource serves next, on one core.
///
/// A client is ready between [`ResourceScheduler::client_ready`] and the decision for it; it is told again
/// after that was served if there is more.
pub trait ResourceScheduler: Debug {
    /// There is a new client, of a number that no other has.
    ///
    /// # Errors
    /// [`BadClient`]; there is no such client then.
    fn add_client(&mut self, client: ClientIndex, parameters: &ClientParameters) -> Result<(), BadClient>;

    /// A client is to be treated otherwise from `now_ns` on.
    ///
    /// # Errors
    /// [`BadClient`]; it is treated as before.
    fn update_client(
        &mut self,
        client: ClientIndex,
        parameters: &ClientParameters,
        now_ns: u64,
    ) -> Result<(), BadClient>;

    /// A client is gone.
    fn remove_client(&mut self, client: ClientIndex);

    /// Chooses a client, which is no longer ready; none if none is ready or may be served.
    fn schedule(&mut self, now_ns: u64) -> Option<ClientIndex>;

    /// A client has messages.
    fn client_ready(&mut self, client: ClientIndex, head: QueueHead, now_ns: u64);

    /// A client must not be served until it is ready again.
    fn client_suspended(&mut self, client: ClientIndex);

    /// The resource had no room for what a decision let go: it is back in its queue, and was not served.
    fn client_rejected(&mut self, client: ClientIndex);

    /// When [`ResourceScheduler::schedule`] would choose somebody.
    fn poll_ready(&mut self, now_ns: u64) -> Availability;

    /// What serving a client consumed.
    fn resource_record(&mut self, client: ClientIndex, record: &ResourceRecord, now_ns: u64);

    /// What is known of a client.
    fn client_statistics(&self, client: ClientIndex) -> ClientStatistics;

    /// Whether a resource may be called past this scheduler while nobody waits: whoever is alone is served at
    /// once, and owes nothing for it when others come.
    fn may_be_bypassed(&self) -> bool;
}
