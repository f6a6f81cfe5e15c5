//! `nom bench wire`: what nom's stack brings over a bad path, beside Linux's.
//!
//! The client is Linux both times, and the cable between is this process: its delay and faults are the same
//! for both. Servers take turns, and every byte that comes is compared.

pub mod cable;
pub mod conditions;
pub mod load;
pub mod peers;

use crate::Outcome;
use crate::environment::Environment;
use crate::record::{self, Key, Record, Samples, Unit, format_value};
use crate::report::{Notes, Report};
use crate::table::Table;
use crate::target::{Limit, Target};
use anyhow::{Result, ensure};
use conditions::Conditions;
use load::Load;
use nom_build::Project;
use peers::Pair;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout that nom is built from.
    pub project: Project,
    /// Directory for `results.json`, `results.csv` and `report.html`; created.
    pub out: PathBuf,
    /// How often each point is measured.
    pub repetitions: u32,
    /// How long each load lasts.
    pub duration: Duration,
    /// Where to measure.
    pub points: Vec<Conditions>,
}

const EXPERIMENT: &str = "wire";
/// The record that is judged: the worst point.
const WORST: &str = "worst goodput";
/// Of Linux's goodput, what nom's must be.
const SHARE: f64 = 0.95;

/// Measures and writes everything to `options.out`. What fails becomes a note.
///
/// # Errors
/// If this is not root, nothing can be started, or nothing was measured.
pub fn run(options: &Options) -> Result<Outcome> {
    crate::make_directory(&options.out)?;
    let environment = Environment::capture("none: nom is a process of this computer")?;
    let mut pairs = [("nom", Pair::nom(&options.project)?), ("linux", Pair::linux()?)];
    let mut notes = Notes::default();
    notes.add(format!(
        "The cable carries {} each way and drops what would wait for 40 ms; Linux has Cubic on both ends.",
        format_value(cable::RATE as f64, Unit::BitsPerSecond)
    ));
    let mut samples = Samples::new(EXPERIMENT);
    for repetition in 0..options.repetitions {
        for conditions in &options.points {
            for load in Load::ALL {
                for (system, pair) in &mut pairs {
                    match measure(pair, *conditions, load, options.duration, repetition) {
                        Ok(value) => samples.push(key(system, conditions, load), value),
                        Err(error) => notes.add(format!("{system} at {conditions}: {error:#}.")),
                    }
                }
            }
        }
    }
    let measured = samples.records();
    ensure!(!measured.is_empty(), "nothing was measured: {}", notes.into_vec().join(" "));
    conclude(options, environment, measured, notes)
}

fn measure(
    pair: &mut Pair,
    conditions: Conditions,
    load: Load,
    duration: Duration,
    seed: u32,
) -> Result<f64> {
    // Whoever connects is not yet to be measured.
    pair.cable.set(conditions, u64::from(seed) + 1);
    let value = load.run(&pair.client, duration);
    pair.check()?;
    value
}

fn key(system: &str, conditions: &Conditions, load: Load) -> Key {
    let unit = if load == Load::Questions { Unit::PerSecond } else { Unit::BitsPerSecond };
    Key {
        system: system.to_owned(),
        application: "memcached",
        scenario: conditions.to_string(),
        metric: load.name().to_owned(),
        unit,
    }
}

fn conclude(
    options: &Options,
    environment: Environment,
    measured: Vec<Record>,
    notes: Notes,
) -> Result<Outcome> {
    let ratios = record::ratios(&measured, "nom", "linux");
    let worst = ratios.iter().min_by(|a, b| a.value.total_cmp(&b.value)).cloned();
    let worst = worst.map(|worst| Record { metric: WORST.into(), ..worst });
    let table = table(&measured, &ratios);
    let target = Target {
        claim: "goodput of nom is at least 0.95 of Linux's at every point",
        system: "nom/linux",
        of: None,
        metric: WORST,
        unit: Unit::Ratio,
        limit: Limit::AtLeast(SHARE),
    };
    let records = measured.into_iter().chain(ratios).chain(worst).collect();
    let report = Report {
        title: "nom bench wire".into(),
        environment,
        records,
        tables: vec![table],
        targets: vec![target],
        figures: Vec::new(),
        notes: notes.into_vec(),
    };
    report.conclude(&options.out)
}

fn table(measured: &[Record], ratios: &[Record]) -> Table {
    let head = ["round trip, faults", "load", "nom", "linux", "nom/linux"];
    let mut table = Table::new("What passes a bad path", head);
    for ratio in ratios {
        let of = |system| record::cell(measured, system, &ratio.metric, ratio);
        let cells = [
            ratio.scenario.clone(),
            ratio.metric.clone(),
            of("nom"),
            of("linux"),
            format!("{:.2}", ratio.value),
        ];
        table = table.row(cells);
    }
    table
}
