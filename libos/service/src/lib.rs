//! The contract: what protocols, the server that runs them, governors, the runtime and the economy say to
//! each other. Each knows this crate, and none of them needs another for a word of it.
//!
//! A [`Service`] sees streams and datagrams, writes what it answers into a [`Reply`], and says by [`Stream`]
//! whether a stream goes on; by [`Demand`] it says what it makes of memory. A [`Governor`] hears what
//! happened in each [`Window`] and chooses the next [`Setting`]. Whoever does work names the [`Activity`]
//! that pays; [`Rules`] tell whose clients and requests are whose.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod active;
mod activity;
mod consumed;
mod curve;
mod demand;
mod governor;
mod metrics;
mod reply;
mod rules;
mod service;

pub use active::{ClientId, Course, Happening, Reaction, StreamEnd, Wanted};
pub use activity::{Activity, ByActivity, GOVERNING, INFRASTRUCTURE, OTHERS, Urgent};
pub use consumed::Consumed;
pub use curve::{Curve, NoCurve};
pub use demand::Demand;
pub use governor::{CostRates, Earned, Governor, Latency, Setting, Window};
pub use metrics::{Metric, Metrics};
pub use reply::{Payer, Reply};
pub use rules::{AddressPrefix, BadRules, Class, RULES_MAX, Rule, Rules};
pub use service::{Service, Stream};
