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
use crate::record::{self, Key, Record, Unit, format_value};
use crate::report::{Notes, Report};
use crate::statistics::{Quotient, Summary};
use crate::table::Table;
use crate::target::{Limit, SURE, Target};
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
/// The record that is judged: the point that is most surely below what it must be, or nearest to it.
const WORST: &str = "worst goodput";
/// Points whose goodput is less than it must be, and those of which that is sure.
const BELOW: [&str; 2] = ["points below", "points surely below"];
/// Of Linux's goodput, what nom's must be.
const SHARE: f64 = 0.95;

/// Measures and writes everything to `options.out`. What fails becomes a note.
///
/// # Errors
/// If this is not root, nothing can be started, or nothing was measured.
pub fn run(options: &Options) -> Result<Outcome> {
    crate::make_directory(&options.out)?;
    let environment = Environment::capture("none: nom is a process of this computer")?;
    let most = options.points.iter().map(Conditions::at_once).max().unwrap_or(1);
    let nom = (0..most).map(|_| Pair::nom(&options.project)).collect::<Result<Vec<_>>>()?;
    let linux = (0..most).map(|_| Pair::linux()).collect::<Result<Vec<_>>>()?;
    let mut systems = [("nom", nom), ("linux", linux)];
    let mut notes = Notes::default();
    notes.add(format!(
        "The cable carries {} each way and drops what would wait for 40 ms; Linux has Cubic on both ends.",
        format_value(cable::RATE as f64, Unit::BitsPerSecond)
    ));
    notes.add(
        "Values are means, and a ratio is one of means: where frames are lost at random runs differ.".into(),
    );
    let mut passed = Passed::default();
    for repetition in 0..options.repetitions {
        for conditions in &options.points {
            for load in Load::ALL {
                for (system, pairs) in &mut systems {
                    let pairs = &mut pairs[..conditions.at_once()];
                    for (number, value) in measure(pairs, *conditions, load, options.duration, repetition) {
                        match value {
                            Ok(value) => passed.add(key(system, conditions, load), number, value),
                            Err(error) => notes.add(format!("{system} at {conditions}: {error:#}.")),
                        }
                    }
                }
            }
        }
    }
    ensure!(!passed.0.is_empty(), "nothing was measured: {}", notes.into_vec().join(" "));
    conclude(options, environment, &passed, notes)
}

/// What passes between each of `pairs` at the same time, with the number of each.
fn measure(
    pairs: &mut [Pair],
    conditions: Conditions,
    load: Load,
    duration: Duration,
    repetition: u32,
) -> Vec<(u32, Result<f64>)> {
    let first = repetition * pairs.len() as u32;
    let measure_one = |pair: &mut Pair, number: u32| -> Result<f64> {
        // Whoever connects is not yet to be measured.
        pair.cable.set(conditions, u64::from(number) + 1);
        let value = load.run(&pair.client, duration);
        pair.check()?;
        value
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (first..)
            .zip(pairs)
            .map(|(number, pair)| (number, scope.spawn(move || measure_one(pair, number))))
            .collect();
        let joined = threads.into_iter().map(|(number, thread)| {
            (number, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        joined.collect()
    })
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

/// What passed, each time with its number, of which both systems have the same.
#[derive(Debug, Default)]
struct Passed(Vec<(Key, Vec<(u32, f64)>)>);

impl Passed {
    fn add(&mut self, key: Key, number: u32, value: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push((number, value)),
            None => self.0.push((key, vec![(number, value)])),
        }
    }

    /// The mean of each.
    fn means(&self) -> Vec<Record> {
        let mean = |(key, values): &(Key, Vec<(u32, f64)>)| {
            let summary = Summary::of(&values.iter().map(|(_, value)| *value).collect::<Vec<_>>())?;
            Some(Record::of(EXPERIMENT, key.clone(), summary.mean, (summary.count, summary.deviation)))
        };
        self.0.iter().filter_map(mean).collect()
    }

    /// What nom has of Linux's mean, wherever both were measured.
    fn ratios(&self) -> Vec<Record> {
        let of_nom = self.0.iter().filter(|(key, _)| key.system == "nom");
        let ratio = |(key, own): &(Key, Vec<(u32, f64)>)| {
            let of_linux = Key { system: "linux".into(), ..key.clone() };
            let (_, other) = self.0.iter().find(|(key, _)| *key == of_linux)?;
            let quotient = Quotient::of_means(own, other)?;
            let key = Key { system: "nom/linux".into(), unit: Unit::Ratio, ..key.clone() };
            Some(Record::of(EXPERIMENT, key, quotient.value, (quotient.pairs, quotient.deviation)))
        };
        of_nom.filter_map(ratio).collect()
    }
}

/// The most that a ratio may be, as far as is sure.
fn at_most(ratio: &Record) -> f64 {
    ratio.value + SURE * ratio.standard_error().unwrap_or(0.0)
}

/// How many ratios are below what they must be, and of how many that is sure.
fn below(ratios: &[Record]) -> Vec<Record> {
    let count = |of: fn(&Record) -> f64| ratios.iter().filter(|ratio| of(ratio) < SHARE).count() as f64;
    let all = |metric: &str| Key {
        system: "nom/linux".into(),
        application: "memcached",
        scenario: "all".into(),
        metric: metric.into(),
        unit: Unit::Count,
    };
    let counts = [count(|ratio| ratio.value), count(at_most)];
    let record = |(metric, count): (&&str, f64)| Record::of(EXPERIMENT, all(metric), count, (1, None));
    BELOW.iter().zip(counts).map(record).collect()
}

fn conclude(
    options: &Options,
    environment: Environment,
    passed: &Passed,
    mut notes: Notes,
) -> Result<Outcome> {
    let (means, ratios) = (passed.means(), passed.ratios());
    let worst = ratios.iter().min_by(|a, b| at_most(a).total_cmp(&at_most(b))).cloned();
    let worst = worst.map(|worst| Record { metric: WORST.into(), ..worst });
    let below = below(&ratios);
    notes.add(format!(
        "Of {} points and loads {} are below {SHARE}, {} of them by more than two standard errors.",
        ratios.len(),
        below[0].value,
        below[1].value
    ));
    let table = table(&means, &ratios);
    let target = Target {
        claim: "goodput of nom is at least 0.95 of Linux's at every point",
        system: "nom/linux",
        of: None,
        metric: WORST,
        unit: Unit::Ratio,
        limit: Limit::AtLeast(SHARE),
    };
    let records = means.into_iter().chain(ratios).chain(worst).chain(below).collect();
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
            match ratio.standard_error() {
                Some(error) => format!("{:.2} \u{b1} {error:.2}", ratio.value),
                None => format!("{:.2}", ratio.value),
            },
        ];
        table = table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_surely_below_if_chance_does_not_explain_it() {
        let mut passed = Passed::default();
        let point = Conditions::default();
        for (load, own, other) in [
            (Load::Download, [80.0, 82.0, 81.0, 79.0], [100.0; 4]),
            (Load::Upload, [20.0, 150.0, 40.0, 130.0], [100.0; 4]),
            (Load::Questions, [97.0, 98.0, 96.0, 97.0], [100.0; 4]),
        ] {
            for (number, (own, other)) in (0..).zip(own.into_iter().zip(other)) {
                passed.add(key("nom", &point, load), number, own);
                passed.add(key("linux", &point, load), number, other);
            }
        }
        let ratios = passed.ratios();
        assert_eq!(ratios.iter().map(|ratio| ratio.value).collect::<Vec<_>>(), [0.805, 0.85, 0.97]);
        assert_eq!(below(&ratios).iter().map(|count| count.value).collect::<Vec<_>>(), [2.0, 1.0]);
        let worst = ratios.iter().min_by(|a, b| at_most(a).total_cmp(&at_most(b))).unwrap();
        assert_eq!(worst.metric, Load::Download.name());
    }
}
