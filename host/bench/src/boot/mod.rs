//! `nom bench boot`: from the kernel's first instruction to the application's, and what it takes.
//!
//! Every system boots the same machine. It says hello and ends, timed and with its instructions counted;
//! then it measures what its system calls cost; then it boots in less and less memory.

mod runs;
mod summary;
mod system;

use crate::environment::Environment;
use crate::linux::Linux;
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use runs::{Pace, Runs};
use std::path::PathBuf;
use system::System;

/// What to measure, with what, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory for `results.json`, `results.csv`, the figures and `report.html`; created.
    pub out: PathBuf,
    /// Directory for what is fetched or made once (the Debian kernel), for example `.nom/bench`; created.
    pub cache: PathBuf,
    /// nom's bootable file with the application `hello`.
    pub hello: PathBuf,
    /// nom's bootable file with the guest test `measure`, which prints `figure name=.. cycles=..` lines.
    pub measure: PathBuf,
    /// How often each timed run is repeated.
    pub repetitions: u32,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The report, for the person who asked.
    pub report: PathBuf,
    /// How each target stands: what must hold, and the verdict with the measured value.
    pub verdicts: Vec<String>,
    /// What could not be measured, and why; one sentence each.
    pub notes: Vec<String>,
}

/// Runs the bench: measures nom and, where its kernel can be had, Linux; writes everything to `options.out`.
///
/// # Errors
/// If nom does not boot, or QEMU or a directory is missing. What only Linux lacks is a note.
pub fn run(options: &Options) -> Result<Outcome> {
    std::fs::create_dir_all(&options.cache)
        .with_context(|| format!("cannot create directory {}", options.cache.display()))?;
    let choice = nom_vmm::accelerator::choose(&options.cache);
    let environment = Environment::capture(&choice.to_string())?;
    let probes = tempfile::tempdir_in(&options.cache)?;
    let mut notes = Vec::new();
    let mut systems = vec![System::nom(options, probes.path())?];
    match Linux::prepare(&options.cache) {
        Ok(linux) => {
            notes.push(format!("Linux is Debian's {}, with an init that ends at once.", linux.package));
            systems.extend(System::linux(&linux, probes.path())?);
        }
        Err(error) => notes.push(format!("Linux was not measured: {error:#}.")),
    }
    let mut runs = Runs::new(choice.accelerator);
    for (what, measure) in plan(options.repetitions) {
        for system in &systems {
            if let Err(error) = measure(&mut runs, system) {
                notes.push(format!("{} of {} not measured: {error:#}.", what, system.name));
            }
        }
    }
    notes.dedup();
    let records = summary::complete(runs.records());
    let targets = summary::TARGETS.to_vec();
    let verdicts = targets.iter().map(|target| target.sentence(&records)).collect();
    let figures = summary::figures(&records);
    let booted =
        records.iter().any(|record| record.system == system::NOM && record.metric.ends_with("_to_exit"));
    let title = "nom bench boot".into();
    let report = Report { title, environment, records, targets, figures, notes: notes.clone() };
    let report = report.write(&options.out)?;
    ensure!(booted, "nom did not boot, see {}:\n{}", report.display(), notes.join("\n"));
    Ok(Outcome { report, verdicts, notes })
}

type Measurement = fn(&mut Runs, &System) -> Result<()>;

/// Every measurement of a system in order. Each is taken of all systems before the next, so that what else
/// the host does falls on all of them.
fn plan(repetitions: u32) -> Vec<(&'static str, Measurement)> {
    let timed: [(&str, Measurement); 2] = [
        ("boot time", |runs, system| runs.boot(system, Pace::Timed)),
        ("costs", |runs, system| runs.costs(system, Pace::Timed)),
    ];
    let counted: [(&str, Measurement); 3] = [
        ("boot instructions", |runs, system| runs.boot(system, Pace::Counted)),
        ("instructions of costs", |runs, system| runs.costs(system, Pace::Counted)),
        ("sizes", Runs::sizes),
    ];
    [timed.repeat(repetitions as usize), counted.to_vec()].concat()
}
