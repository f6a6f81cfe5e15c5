//! The servers on their stacks and event loops, on virtual time and a simulated network, from a seed.
//!
//! Whatever is random is drawn from the seed, so a run that fails is run again, bit for bit. What holds in
//! every run is asserted while it runs: [`world`] looks at the stacks, [`clients`] at what they carry.
#![forbid(unsafe_code)]

pub mod card;
pub mod clients;
pub mod core_pool;
mod cores;
pub mod cut;
pub mod delay;
pub mod foreign;
pub mod govern;
pub mod host;
pub mod machine;
pub mod memory;
pub mod network;
pub mod nic;
mod prices;
pub mod program;
pub mod random;
pub mod scenario;
pub mod servers;
mod sockets;
pub mod trace;
pub mod trial;
pub mod virtio;
#[cfg(test)]
mod work;
pub mod world;

pub use scenario::{Scenario, run};
pub use trial::{Talk, Trial};
pub use world::Outcome;
