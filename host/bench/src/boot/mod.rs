//! `nom bench boot`: from the kernel's first instruction to the application's, and what it takes.
//!
//! Every system boots the same machine. It says hello and ends, timed and with its instructions counted;
//! then it measures what its system calls cost; then it boots in less and less memory.

mod runs;
mod summary;
mod system;

use crate::Outcome;
use crate::environment::Environment;
use crate::linux::Linux;
use crate::record::Record;
use crate::report::{Notes, Report};
use anyhow::{Result, ensure};
use nom_build::Project;
use nom_vmm::Accelerator;
use runs::{Pace, Runs};
use std::path::PathBuf;
use system::System;

/// What to measure, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout that nom is built from; what is fetched or made once lies in its `.nom/bench`.
    pub project: Project,
    /// Directory for `results.json`, `results.csv`, the figures and `report.html`; created.
    pub out: PathBuf,
    /// How often each timed run is repeated.
    pub repetitions: u32,
}

/// Runs the bench: measures nom and, where its kernel can be had, Linux; writes everything to `options.out`.
///
/// # Errors
/// If nom does not boot, or QEMU or a directory is missing. What only Linux lacks is a note.
pub fn run(options: &Options) -> Result<Outcome> {
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let images = tempfile::tempdir_in(&cache)?;
    let mut notes = Notes::default();
    let mut systems = vec![System::nom(&options.project, images.path())?];
    match Linux::prepare(&cache) {
        Ok(linux) => {
            notes.add(format!("Linux is Debian's {}, with an init that ends at once.", linux.package));
            systems.extend(System::linux(&linux, images.path())?);
        }
        Err(error) => notes.add(format!("Linux was not measured: {error:#}.")),
    }
    let records = summary::complete(measure(choice.accelerator, &systems, options.repetitions, &mut notes));
    let booted = summary::nom_booted(&records);
    let report = Report {
        title: "nom bench boot".into(),
        environment,
        tables: Vec::new(),
        targets: summary::TARGETS.to_vec(),
        figures: summary::figures(&records),
        records,
        notes: notes.into_vec(),
    };
    let outcome = report.conclude(&options.out)?;
    ensure!(booted, "nom did not boot, see {}", outcome.report.display());
    Ok(outcome)
}

/// Takes every measurement of every system; what fails becomes a note. Each measurement is taken of all
/// systems before the next, so that what else the host does falls on all of them.
fn measure(accelerator: Accelerator, systems: &[System], repetitions: u32, notes: &mut Notes) -> Vec<Record> {
    let mut runs = Runs::new(accelerator);
    for (what, measurement) in plan(repetitions) {
        for system in systems {
            if let Err(error) = measurement(&mut runs, system) {
                notes.add(format!("{what} of {} not measured: {error:#}.", system.name));
            }
        }
    }
    runs.records()
}

type Measurement = fn(&mut Runs, &System) -> Result<()>;

/// Every measurement of a system, in order.
fn plan(repetitions: u32) -> Vec<(&'static str, Measurement)> {
    let timed: [(&str, Measurement); 2] = [
        ("time to boot", |runs, system| runs.boot(system, Pace::Timed)),
        ("costs", |runs, system| runs.costs(system, Pace::Timed)),
    ];
    // Twice, so that the report shows how well they repeat.
    let counted: [(&str, Measurement); 2] = [
        ("instructions to boot", |runs, system| runs.boot(system, Pace::Counted)),
        ("instructions of costs", |runs, system| runs.costs(system, Pace::Counted)),
    ];
    let once: [(&str, Measurement); 1] = [("sizes", Runs::sizes)];
    [timed.repeat(repetitions as usize), counted.repeat(2), once.to_vec()].concat()
}
