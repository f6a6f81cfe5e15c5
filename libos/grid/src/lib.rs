//! The resource grid of the omni-kernel (Kvalnes and others): request queues before a resource, one for each
//! activity, and a scheduler that says from which of them the resource is served next.
//!
//! Whoever sends a resource work puts it into the [`RequestQueues`] before it, in the name of an
//! [`Activity`]; whoever runs the resource takes what is served next, and says with a [`ResourceRecord`]
//! what that consumed. Where nobody waits and the scheduler withholds nothing, the resource is called
//! directly ([`RequestQueues::is_direct`]): a grid costs nothing where it decides nothing.
//!
//! Nothing here knows a machine or a clock: times are arguments, in nanoseconds of any one clock.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod activity;
pub mod plan;
mod queues;
mod record;
mod routing;
mod scheduler;

pub use activity::{Activity, ByActivity};
pub use plan::{
    ActivityTerms, BadGrid, Earnings, GridPlan, GridResource, GroupPlan, ResourcePlan, SchedulerKind,
};
pub use queues::{Next, QueueLimits, QueueRefusal, RequestQueues};
pub use record::{ResourceRecord, SharedMetric};
pub use routing::{AffinityLabel, DependencyLabel, RoutingTag, RoutingTags};
pub use scheduler::deadline::EarliestDeadline;
pub use scheduler::fair::FairQueueing;
pub use scheduler::profit::{EarningStep, MarginalProfit};
pub use scheduler::rate::RateLimiter;
pub use scheduler::round_robin::RoundRobin;
pub use scheduler::two_level::TwoLevel;
pub use scheduler::{
    Availability, BadClient, CLIENTS_MAX, ClientIndex, ClientParameters, ClientStatistics, QueueHead,
    RateLimit, ResourceScheduler,
};
