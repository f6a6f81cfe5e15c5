//! `nom demo`.

use crate::arguments::Demo;
use crate::attend::watch_signals;
use crate::produce::print_outcome;
use anyhow::Result;
use nom_bench::demo::{self, Interrupted, Options};
use nom_build::Project;
use std::time::Duration;

/// A shell's status for a process that a signal ended is this and the signal's number.
const SIGNALLED: u8 = 128;

/// `nom demo`.
///
/// # Errors
/// If something that it needs is missing, or nothing is served.
pub fn demo(options: &Demo) -> Result<u8> {
    let outcome = demo::run(&Options {
        project: Project::find_checkout("`nom demo`")?,
        out: options.out.clone(),
        full: options.full,
        applications: options.applications.clone(),
        repetitions: options.repetitions,
        linux: !options.without_linux,
        connections: options.connections,
        peers: options.peers.clone(),
        phase: options.seconds.map(Duration::from_secs),
        functions: options.functions.clone(),
        signal: watch_signals()?,
    });
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
                eprintln!("nom: {error}");
                Ok(SIGNALLED + *signal as u8)
            }
            None => Err(error),
        },
    }
}
