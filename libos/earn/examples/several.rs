//! What the real governor makes of simulated servers whose delay, cores, memory and clients matter at once,
//! against who knows the best of all settings of each time beforehand: with all knobs as one decision, and
//! with each knob alone. `cargo run --release -p nom-earn --example several -- [--first SEED] [--seeds N]
//! [--json]`; `--told` says each second of one seed.

#[path = "../tests/common/mod.rs"]
mod common;

use clap::Parser;
use common::estate::{Earned, Estate};
use nom_economy_sim::resources::Resources;
use serde_json::json;

/// What governs: its name, and its knobs.
const GOVERNORS: [(&str, &str); 5] = [
    ("together", "batching_delay,cores,memory,admission"),
    ("delay-alone", "batching_delay"),
    ("cores-alone", "cores"),
    ("memory-alone", "memory"),
    ("admission-alone", "admission"),
];

/// Seeds below this number were looked at while the decision was made; those from it on only report.
const REPORTING: u64 = 200_000;

/// Lets the real governor decide over several knobs of simulated servers.
#[derive(Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = REPORTING)]
    first: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Print records.
    #[arg(long)]
    json: bool,
    /// Say what is set, each second, with all knobs.
    #[arg(long, conflicts_with = "json")]
    told: bool,
}

/// The share of the best of all settings that the governor makes of a seed, in percent.
fn share(seed: u64, knobs: &'static str, is_told: bool) -> f64 {
    let scenario = Resources::random(seed);
    let mut estate = Estate::new(&scenario, knobs, seed);
    estate.is_told = is_told;
    let earned = estate.live();
    let sum = |of: fn(&Earned) -> f64| earned.iter().map(of).sum::<f64>();
    100.0 * sum(|earned| earned.profit) / sum(|earned| earned.oracle)
}

/// Least and mean of some figures, and their sample standard deviation.
fn summary(shares: &[f64]) -> (f64, f64, f64) {
    let count = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / count;
    let square: f64 = shares.iter().map(|share| (share - mean) * (share - mean)).sum();
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    (least, mean, (square / (count - 1.0).max(1.0)).sqrt())
}

fn main() -> serde_json::Result<()> {
    let Arguments { first, seeds, json, told } = Arguments::parse();
    if told {
        println!("{:.2}%", share(first, GOVERNORS[0].1, true));
        return Ok(());
    }
    let mut records = Vec::new();
    for (system, knobs) in GOVERNORS {
        let shares: Vec<f64> = (first..first + seeds).map(|seed| share(seed, knobs, false)).collect();
        let (least, mean, deviation) = summary(&shares);
        if !json {
            println!("{system:<16} mean {mean:>8.2}%, deviation {deviation:>6.2}%, least {least:>8.2}%");
        }
        let mut record = |metric: &str, value: f64, deviation: Option<f64>| {
            records.push(json!({
                "experiment": "several", "system": system, "application": "governor",
                "scenario": "simulated knobs", "metric": metric, "unit": "%",
                "value": (100.0 * value).round() / 100.0, "repetitions": seeds, "deviation": deviation,
            }));
        };
        record("share_mean", mean, Some((100.0 * deviation).round() / 100.0));
        record("share_least", least, None);
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&records)?);
    }
    Ok(())
}
