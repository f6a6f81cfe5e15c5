//! What the real governor makes of simulated servers whose delay, cores, memory and clients matter at once,
//! against who knows the best of all settings of each time beforehand:
//! `cargo run --release -p nom-earn --example several -- [FIRST [COUNT]]`; with one seed, each second of it.

#[path = "../tests/common/mod.rs"]
mod common;

use common::estate::Estate;
use nom_economy_sim::resources::Resources;

/// All there are.
const KNOBS: &str = "batching_delay,cores,memory,admission";

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (first, count) = (numbers.next().unwrap_or(100_000), numbers.next().unwrap_or(1));
    let mut shares: Vec<(f64, u64)> = (first..first + count)
        .map(|seed| {
            let scenario = Resources::random(seed);
            let mut estate = Estate::new(&scenario, KNOBS, seed);
            estate.is_told = count == 1;
            let earned = estate.live();
            let sum = |of: fn(&common::estate::Earned) -> f64| earned.iter().map(of).sum::<f64>();
            (sum(|earned| earned.profit) / sum(|earned| earned.oracle), seed)
        })
        .collect();
    shares.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mean = shares.iter().map(|share| share.0).sum::<f64>() / shares.len() as f64;
    println!("mean {:.2}% of {}, least {:?}", 100.0 * mean, shares.len(), &shares[..shares.len().min(12)]);
}
