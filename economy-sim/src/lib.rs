//! Servers, loads and prices from a seed, and what a controller makes of them.
//!
//! The ground on which controllers are compared (`cargo run --release -p nom-economy-sim --example compare`),
//! with two that lost: [`Climb`] and [`Bandit`].
#![forbid(unsafe_code)]

mod bandit;
mod beforehand;
mod climb;
mod host;
mod informed;
mod noise;
mod random;
pub mod resources;
mod run;
mod scenario;
mod server;
mod spectator;
mod strategy;

pub use bandit::Bandit;
pub use beforehand::measured;
pub use climb::Climb;
pub use host::{Host, Moment};
pub use informed::Informed;
pub use noise::Noise;
pub use random::Random;
pub use run::{EARLY_SECONDS, Outcome, run, run_taught, run_with};
pub use scenario::{Contract, Phase, Scenario};
pub use server::{Load, Server};
pub use spectator::Spectator;
pub use strategy::Strategy;
