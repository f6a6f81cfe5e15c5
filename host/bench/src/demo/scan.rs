//! How many clients there should be: as many as slow Linux down as the paper's did.
//!
//! A closed loop of N clients waits about N times as long as one where a server has one processor, on any
//! machine; so their number, not the machine's speed, says how crowded it is.

use super::money::{Interval, Served};
use super::progress::Progress;
use super::schedule::{LINUX_START, Schedule};
use super::{Asked, FETCHING, Options, prepare, runner};
use crate::Outcome;
use crate::environment::Environment;
use crate::others::Watch;
use crate::record::{Key, Record, Samples, Unit, format_value};
use crate::report::{Notes, Report};
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use nom_build::debian;
use std::time::Duration;

/// Numbers of connections that are tried, the single one first.
const CONNECTIONS: [u32; 12] = [1, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64];
/// Mean latency of Linux with many clients over that with one in the paper (table 1): 402 and 82 us.
pub const PAPER: f64 = 402.0 / 82.0;
/// How often all are tried, every other time backwards.
const PASSES: u32 = 2;
/// How long each number is tried each time.
const PHASE: Duration = Duration::from_secs(5);
const EXPERIMENT: &str = "demo-scan";
const LINUX: &str = "linux";
const METRIC: &str = "latency_over_single";

/// Tries numbers of connections on Linux, and says which is nearest to the paper's ratio.
///
/// # Errors
/// If Linux or a client cannot be had, nothing is served, or somebody interrupts ([`super::Interrupted`]).
pub fn scan(options: &Options) -> Result<Outcome> {
    ensure!(options.linux, "a scan needs Linux: expected no --without-linux");
    debian::set_up(&debian::CLIENTS)?;
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let phase = options.phase.unwrap_or(PHASE);
    let passes = options.repetitions.unwrap_or(PASSES);
    let planned = FETCHING + LINUX_START + phase * (passes * CONNECTIONS.len() as u32);
    let mut progress = Progress::new(planned, options.signal.clone());
    let mut notes = Notes::default();
    let stage = prepare(options, &[], choice.accelerator, &cache, &mut progress, &mut notes)?;
    let watch = Watch::begin();
    let asked = Asked {
        project: &options.project,
        schedule: Schedule { phase, runs: 1 },
        connections: 1,
        functions: &[],
        turning: Duration::ZERO,
        seed: 0,
        native: options.native,
    };
    let forth_and_back = |pass: u32| {
        let order =
            move |index: usize| if pass.is_multiple_of(2) { index } else { CONNECTIONS.len() - 1 - index };
        (0..CONNECTIONS.len()).map(move |index| CONNECTIONS[order(index)])
    };
    let order: Vec<u32> = (0..passes).flat_map(forth_and_back).collect();
    let mut runner = stage.runner(&asked, runner::MEMCACHED, &mut progress, &mut notes);
    let served = runner.crowds(&order, phase)?;
    progress.finish();
    let mut records = records(&served)?;
    let table = table(&records);
    records.extend(watch.and_then(|watch| watch.record(EXPERIMENT)));
    let report = Report {
        title: "nom demo --scan: how many clients".into(),
        environment,
        records,
        tables: vec![table],
        targets: vec![],
        figures: vec![],
        notes: notes.into_vec(),
    };
    report.conclude(&options.out)
}

/// What each number of connections was served, and by how much longer its clients waited than a single one.
fn records(served: &[(u32, Vec<Interval>)]) -> Result<Vec<Record>> {
    let of = |connections: u32| {
        let all = served.iter().filter(|(of, _)| *of == connections);
        Served::of(&all.flat_map(|(_, intervals)| intervals.iter().copied()).collect::<Vec<_>>())
    };
    let single = of(CONNECTIONS[0]).context("a single client was served nothing")?;
    let mut samples = Samples::new(EXPERIMENT);
    for (connections, served) in CONNECTIONS.iter().filter_map(|of_all| Some((*of_all, of(*of_all)?))) {
        let mut push = |metric: &str, unit, value| {
            let (system, scenario, metric) = (LINUX.into(), scenario(connections), metric.into());
            samples.push(Key { system, application: "memcached", scenario, metric, unit }, value);
        };
        push("throughput", Unit::PerSecond, served.throughput);
        push("latency_mean", Unit::Seconds, served.latency_s);
        push(METRIC, Unit::Ratio, served.latency_s / single.latency_s);
    }
    Ok(samples.records())
}

fn scenario(connections: u32) -> String {
    format!("{connections} connections")
}

/// The number of connections whose ratio is nearest to the paper's, with that ratio.
fn nearest(records: &[Record]) -> Option<(u32, f64)> {
    let ratio = |connections: &u32| {
        let is_it = |record: &&Record| record.metric == METRIC && record.scenario == scenario(*connections);
        Some((*connections, records.iter().find(is_it)?.value))
    };
    let distance = |(_, ratio): &(u32, f64)| (ratio / PAPER).ln().abs();
    let ratios = CONNECTIONS.iter().filter_map(ratio);
    ratios.min_by(|one, other| distance(one).total_cmp(&distance(other)))
}

fn table(records: &[Record]) -> Table {
    let value = |connections: u32, metric: &str| {
        let is_it = |record: &&Record| record.metric == metric && record.scenario == scenario(connections);
        records.iter().find(is_it).map(|record| record.value)
    };
    let table =
        Table::new("How crowded Linux is", ["connections", "throughput", "latency", "over a single one"]);
    let row = |table: Table, connections: &u32| {
        let cell = |metric, unit| {
            value(*connections, metric).map_or("nothing".into(), |value| format_value(value, unit))
        };
        let ratio = value(*connections, METRIC).map_or("nothing".into(), |ratio| format!("{ratio:.1}"));
        let cells = [cell("throughput", Unit::PerSecond), cell("latency_mean", Unit::Seconds), ratio];
        table.row([connections.to_string()].into_iter().chain(cells))
    };
    let table = CONNECTIONS.iter().fold(table, row);
    let said = nearest(records).map(|(connections, ratio)| {
        format!("Nearest to the paper's {PAPER:.1}: --connections {connections}, {ratio:.1}.")
    });
    said.into_iter().fold(table, Table::remark)
}

#[cfg(test)]
mod tests {
    use super::super::money::tests::second;
    use super::*;

    #[test]
    fn the_number_nearest_to_the_papers_ratio_is_named() {
        // Each client waits for all others.
        let served = CONNECTIONS.map(|count| (count, vec![second(1.0, 1e-4 * f64::from(count), 1.0)]));
        let records = records(&served).unwrap();
        assert_eq!(nearest(&records), Some((5, 5.0)));
        let text = table(&records).to_string();
        assert!(text.contains("--connections 5, 5.0") && text.contains("64"), "{text}");
        assert!(super::records(&served[1..]).is_err(), "without a single client there is nothing to compare");
        assert_eq!(nearest(&[]), None);
    }
}
