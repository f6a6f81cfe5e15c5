//! `nom demo`.

use crate::arguments::Demo;
use crate::attend::watch_signals;
use crate::numbers::whole;
use crate::produce::print_outcome;
use anyhow::Result;
use clap::Args;
use nom_bench::demo::{self, Interrupted, Options};
use nom_build::Project;
use std::time::Duration;

/// A shell's status for a process that a signal ended is this and the signal's number.
const SIGNALLED: u8 = 128;

/// What else than the usual is measured, and how.
#[derive(Debug, Args)]
pub struct Variant {
    /// How many seconds fixed and adaptive batching delays take turns within one machine under each function;
    /// by default 42, with --full 300; 0: each delay has a machine of its own.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=36_000))]
    pub turns: Option<u64>,
    /// What the order of turns follows from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Servers are processes of this computer, without a machine (as root; memcached only).
    #[arg(long)]
    pub native: bool,
    /// Only find out how many connections slow Linux down as much as the paper's did; takes two minutes.
    #[arg(long)]
    pub scan: bool,
    /// Instead, turn these knobs, separated by commas, of memory and cores, by a step in their price, against
    /// every static setting (as root).
    #[arg(long, value_name = "KNOB", value_delimiter = ',', conflicts_with = "scan")]
    pub knobs: Vec<String>,
    /// Instead, three tenants of one memcached with contracts of their own: what they pay where whoever earns
    /// most is served first, against fair shares, by turns in one machine (as root).
    #[arg(long, conflicts_with_all = ["scan", "knobs", "native", "applications", "functions", "peers"])]
    pub tenants: bool,
}

/// `nom demo`.
///
/// # Errors
/// If something that it needs is missing, or nothing is served.
pub fn demo(options: &Demo) -> Result<u8> {
    let variant = &options.variant;
    let asked = Options {
        project: Project::find_checkout("`nom demo`")?,
        out: options.out.clone(),
        full: options.full,
        applications: options.applications.clone(),
        repetitions: options.repetitions,
        linux: !options.without_linux,
        connections: options.connections,
        peers: options.peers.clone(),
        turns: options.variant.turns.map(Duration::from_secs),
        seed: options.variant.seed,
        native: options.variant.native,
        phase: options.seconds.map(Duration::from_secs),
        functions: options.functions.clone(),
        signal: watch_signals()?,
    };
    let outcome = match (variant.scan, &variant.knobs[..]) {
        (true, _) => demo::scan(&asked),
        (false, []) if variant.tenants => demo::tenants(&asked),
        (false, []) => demo::run(&asked),
        (false, knobs) => demo::turn_knobs(&asked, knobs),
    };
    interruptible(outcome.map(|outcome| print_outcome(&outcome)))
}

/// The status of what a signal may end.
///
/// # Errors
/// Everything else.
pub fn interruptible(outcome: Result<()>) -> Result<u8> {
    match outcome {
        Ok(()) => Ok(0),
        Err(error) => match error.downcast_ref::<Interrupted>() {
            Some(Interrupted(signal)) => {
                eprintln!("nom: {error:#}");
                Ok(SIGNALLED + *signal as u8)
            }
            None => Err(error),
        },
    }
}
