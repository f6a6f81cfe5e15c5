//! Servers, loads and prices from a seed, and what a controller makes of them.
//!
//! The ground on which controllers are compared (`cargo run --release -p nom-economy --example compare`).

mod beforehand;
mod host;
mod noise;
mod random;
mod run;
mod scenario;
mod server;

pub use beforehand::measured;
pub use host::{Host, Moment};
pub use noise::Noise;
pub use random::Random;
pub use run::{EARLY_SECONDS, Outcome, run, run_taught};
pub use scenario::{Contract, Phase, Scenario};
pub use server::Server;
