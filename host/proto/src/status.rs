//! What an application says of itself: what it serves, at which working point, and what it earns.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An application's state over the last stretch of time, and its sums so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// The machine, as the provider knows it.
    pub machine: String,
    /// The application, as its bundle names it.
    pub application: String,
    /// End of the stretch, in nanoseconds of the machine's clock.
    pub at_ns: u64,
    /// Its length.
    pub window_ns: u64,
    /// Batching delay W in force at its end, in microseconds.
    pub batching_delay_us: u32,
    /// Whether the application polls its device, rather than sleep until an interrupt.
    pub polls: bool,
    /// Cores held.
    pub cores: u32,
    /// Bytes of memory held.
    pub memory_bytes: u64,
    /// Cores that all applications of the machine hold together; 0 if it does not say.
    #[serde(default)]
    pub machine_cores: u32,
    /// Bytes of memory that the machine's applications and its kernel hold; 0 if it does not say.
    #[serde(default)]
    pub machine_memory_bytes: u64,
    /// Requests answered in the stretch.
    pub requests: u64,
    /// Bytes that left the machine in it, with their headers.
    pub sent_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Mean latency of the requests in nanoseconds; 0 if there was none.
    pub latency_mean_ns: u64,
    /// Jitter: the standard deviation of latency.
    pub latency_jitter_ns: u64,
    /// 99th percentile of latency.
    pub latency_p99_ns: u64,
    /// Revision of the prices that the application reckons with; 0 before there are any.
    pub price_revision: u64,
    /// Price of outgoing data in $/Gbit; 0 before there is one.
    pub price_network_out: f64,
    /// What users paid in the stretch, in dollars per second.
    pub revenue_per_second: f64,
    /// What the provider is owed for it.
    pub cost_per_second: f64,
    /// Revenue less cost since the application began, in dollars.
    pub profit: f64,
    /// Whether what is served pays; of who does not say, nothing is known to be amiss.
    #[serde(default)]
    pub solvency: Solvency,
    /// What each activity has consumed, if the application tells activities apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activities: Vec<Activity>,
}

/// What an activity of an application has consumed since the application began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Activity {
    /// Its name.
    pub name: String,
    /// When it was so, in nanoseconds of the machine's clock.
    pub at_ns: u64,
    /// Nanoseconds of cores.
    pub core_ns: u64,
    /// Requests answered.
    pub requests: u64,
    /// How long they took, in nanoseconds all together.
    pub latency_ns: u64,
    /// Bytes of frames that came.
    pub received_bytes: u64,
    /// Bytes of frames that left.
    pub sent_bytes: u64,
    /// Clients that are connected now.
    pub connections: u64,
    /// Bytes of memory that they hold now; 0 where nobody's is bounded.
    pub memory_bytes: u64,
    /// What its consumption has cost, in dollars.
    pub cost: f64,
    /// What it has brought, less that cost, in dollars.
    pub profit: f64,
}

/// Whether what an application serves pays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Solvency {
    /// In a word.
    pub state: State,
    /// The latency that is promised, in nanoseconds; 0 if the contract has no such objective.
    #[serde(default)]
    pub objective_ns: u64,
    /// The 99th percentile of latency at the shortest batching delay that was tried; 0 if none was.
    #[serde(default)]
    pub soonest_p99_ns: u64,
    /// That batching delay, in microseconds.
    #[serde(default)]
    pub soonest_delay_us: u64,
    /// Most clients that each core admits, if it refuses any.
    #[serde(default)]
    pub clients_max: Option<u32>,
}

/// What there is to say of a contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There is none: only costs are reckoned, and the profit is their negative.
    NoContract,
    /// Nothing is amiss.
    #[default]
    Pays,
    /// Each request costs more than it brings.
    CostsMore,
    /// Requests would pay if they were answered in time, which they are not.
    Late,
    /// Requests pay, but less than the cores and memory cost that are held.
    HeldCostsMore,
}

impl State {
    /// All, with their names.
    pub const ALL: [(State, &'static str); 5] = [
        (State::NoContract, "no_contract"),
        (State::Pays, "pays"),
        (State::CostsMore, "costs_more"),
        (State::Late, "late"),
        (State::HeldCostsMore, "held_costs_more"),
    ];
}

impl Status {
    /// Whether users pay for what it serves.
    #[must_use]
    pub fn has_contract(&self) -> bool {
        self.solvency.state != State::NoContract
    }
}

/// A status as the provider passes it on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reported {
    /// What was reported.
    #[serde(flatten)]
    pub status: Status,
    /// How long ago it was, in seconds. An application that lives reports at least every second.
    pub age_seconds: f64,
}

impl Reported {
    /// A report may be this late before its application is taken to be stuck or gone.
    pub const SILENCE_SECONDS: f64 = 5.0;

    /// Whether the application is taken to live.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.age_seconds <= Self::SILENCE_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_comes_back_from_json() {
        let status = Status {
            machine: "memcached-1".into(),
            application: "memcached".into(),
            at_ns: 5_000_000_000,
            window_ns: 1_000_000_000,
            batching_delay_us: 20,
            polls: true,
            cores: 1,
            memory_bytes: 1 << 20,
            machine_cores: 1,
            machine_memory_bytes: 1 << 20,
            requests: 40_000,
            sent_bytes: 44_000_000,
            received_bytes: 4_000_000,
            latency_mean_ns: 399_000,
            latency_jitter_ns: 121_000,
            latency_p99_ns: 800_000,
            price_revision: 3,
            price_network_out: 10.0,
            revenue_per_second: 7.0,
            cost_per_second: 3.5,
            profit: -1.25,
            solvency: Solvency { state: State::Late, clients_max: Some(4), ..Solvency::default() },
            activities: alloc::vec![Activity { name: "gold".into(), cost: 0.5, ..Activity::default() }],
        };
        let json = serde_json::to_string(&status).expect("plain data");
        assert_eq!(serde_json::from_str::<Status>(&json).expect("the same"), status);
        let reported = Reported { status: status.clone(), age_seconds: 0.5 };
        let json = serde_json::to_string(&reported).expect("plain data");
        assert_eq!(serde_json::from_str::<Reported>(&json).expect("the same"), reported);
        assert_eq!(serde_json::from_str::<Status>(&json).expect("a status with more"), status);
    }

    #[test]
    fn a_status_that_says_nothing_of_its_solvency_has_nothing_amiss() {
        let solvency: Solvency = serde_json::from_str(r#"{"state":"held_costs_more"}"#).expect("a state");
        assert_eq!(solvency, Solvency { state: State::HeldCostsMore, ..Solvency::default() });
        assert_eq!(Solvency::default().state, State::Pays);
        for (state, name) in State::ALL {
            assert_eq!(serde_json::to_string(&state).expect("a name"), format!("\"{name}\""));
        }
    }
}
