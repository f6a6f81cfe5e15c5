//! `nom sim`: runs scenarios from seeds, and says which seed to replay if something is wrong.
#![forbid(unsafe_code)]

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use nom_sim::{Scenario, run};
use std::io::Write as _;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Run the servers on a simulated network. The same seed always does the same.
#[derive(Debug, Parser)]
#[command(
    name = "nom sim",
    max_term_width = 100,
    after_help = "Examples:
  nom sim                        every scenario, from a fresh seed
  nom sim --seed 7 storm         one run, again
  nom sim --seed 7 --trace storm every frame of it
  nom sim --count 100            a hundred seeds"
)]
struct Arguments {
    /// Scenarios; all if none is named.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,
    /// The first seed; otherwise a fresh one.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds, one after the other.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Print every frame.
    #[arg(long)]
    trace: bool,
    /// Run each seed twice, and compare.
    #[arg(long)]
    twice: bool,
}

fn main() -> ExitCode {
    match execute(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("nom sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was asked for; the number of runs that failed.
fn execute(arguments: &Arguments) -> Result<usize> {
    ensure!(arguments.count > 0, "--count 0: expected at least 1");
    let scenarios =
        if arguments.scenarios.is_empty() { Scenario::value_variants() } else { &arguments.scenarios };
    let first = match arguments.seed {
        Some(seed) => seed,
        // Short enough to be typed.
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64 % 1_000_000_000,
    };
    let mut failed = Vec::new();
    for seed in (0..arguments.count).map(|index| first.wrapping_add(index)) {
        for scenario in scenarios {
            if !one(*scenario, seed, arguments)? {
                failed.push(format!("nom sim --seed {seed} {}", name(*scenario)));
            }
        }
    }
    failed.iter().for_each(|command| println!("failed; to replay: {command}"));
    Ok(failed.len())
}

fn name(scenario: Scenario) -> String {
    scenario.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// One run, in one line; `false` if it failed, of which the panic has told already.
fn one(scenario: Scenario, seed: u64, arguments: &Arguments) -> Result<bool> {
    let start = Instant::now();
    let Ok(outcome) = catch_unwind(|| run(scenario, seed, arguments.trace)) else {
        return Ok(false);
    };
    let mut out = std::io::stdout().lock();
    let virtual_s = outcome.virtual_ns as f64 / 1e9;
    let (frames, achieved, hash) = (outcome.frames, outcome.achieved, outcome.hash);
    let name = name(scenario);
    writeln!(
        out,
        "{name:<10} seed {seed:<10} hash {hash:016x}  {virtual_s:8.1} s  {frames:>8} frames  \
         {achieved:>9} achieved  ({:.1} s)",
        start.elapsed().as_secs_f64()
    )?;
    if arguments.twice && catch_unwind(|| run(scenario, seed, false)).ok() != Some(outcome) {
        writeln!(out, "{name} seed {seed}: the second run went another way")?;
        return Ok(false);
    }
    Ok(true)
}
