//! `nom bench floods`: what floods leave of an honest client's rate.
//!
//! `tests/foreign/flood.py` sends them, in turns to a booted memcached and to nobody on the same wire, which
//! costs the computer the same; the client's requests under the one over those under the other are a sample.

use crate::Outcome;
use crate::environment::Environment;
use crate::others::Watch;
use crate::record::{self, Key, Record, Samples, Unit};
use crate::report::{Notes, Report};
use crate::serve::guests::{NOM, Provider};
use crate::serve::running::Running;
use crate::serve::{runs, service};
use crate::table::Table;
use crate::target::{Limit, Target};
use anyhow::{Context, Result, ensure};
use nom_build::Project;
use nom_build::debian::{Tool, set_up};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

/// What to measure, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout that nom is built from.
    pub project: Project,
    /// Directory for `results.json`, `results.csv` and `report.html`; created.
    pub out: PathBuf,
    /// How often each flood comes, to the machine and to nobody.
    pub turns: u32,
    /// How long each time.
    pub duration: Duration,
    /// Frames a second.
    pub rate: u32,
    /// Which of [`KINDS`]; all of them if empty.
    pub kinds: Vec<String>,
}

/// What `tests/foreign/flood.py` knows.
pub const KINDS: [&str; 9] = ["syn", "ack", "rst", "fin", "fragments", "icmp", "arp", "nd", "slow"];

const EXPERIMENT: &str = "floods";
/// Of its rate under a flood of nobody, what an honest client must keep.
const SHARE: f64 = 0.95;
const KEPT: &str = "rate_kept";
/// The record that is judged: the worst flood.
const WORST: &str = "worst_rate_kept";
/// Who is flooded for comparison.
const NOBODY: &str = "nobody";
/// Debian's Python, which sees Debian's Scapy.
const PYTHON: &str = "/usr/bin/python3";
const SCAPY: Tool = Tool::new("python3-scapy", &[PYTHON, "-c", "import scapy"]);
/// How long all of it may take beyond the floods themselves.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the flooder says.
#[derive(Debug, Deserialize)]
struct Said {
    /// Requests in each turn: under a flood of nobody, and of the machine.
    counts: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Measures and writes everything to `options.out`.
///
/// # Errors
/// If this is not root, Scapy or QEMU is missing, or the honest client was not answered.
pub fn run(options: &Options) -> Result<Outcome> {
    set_up(&[SCAPY])?;
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let images = tempfile::tempdir_in(&cache)?;
    let provider = Provider::nom(&options.project, &service::MEMCACHED, images.path())?;
    let running =
        Running::start(&provider.guest, &service::MEMCACHED, &runs::serving(choice.accelerator), &[])?;
    let watch = Watch::begin();
    let said = flood(options, &running)?;
    let others = watch.and_then(|watch| watch.record(EXPERIMENT));
    let mut samples = Samples::new(EXPERIMENT);
    for (kind, counts) in &said.counts {
        for (nobody, nom) in counts {
            let seconds = options.duration.as_secs_f64();
            samples.push(key(NOBODY, kind, "throughput", Unit::PerSecond), nobody / seconds);
            samples.push(key(NOM, kind, "throughput", Unit::PerSecond), nom / seconds);
            samples.push(key(&format!("{NOM}/{NOBODY}"), kind, KEPT, Unit::Ratio), nom / nobody.max(1.0));
        }
    }
    let mut records = samples.records();
    records.extend(others);
    conclude(options, environment, records)
}

/// Has the flooder run in the machine's network.
fn flood(options: &Options, running: &Running) -> Result<Said> {
    let script = options.project.root().join("tests/foreign/flood.py");
    let seconds = options.duration.as_secs_f64();
    let kinds = if options.kinds.is_empty() { KINDS.join(",") } else { options.kinds.join(",") };
    let halves = 2.0 * KINDS.len() as f64 * f64::from(options.turns);
    let limit = PATIENCE.as_secs_f64() + halves * (seconds + 1.0);
    let mut command = running.namespace().command("timeout");
    command.args([&format!("{limit:.0}"), PYTHON]).arg(&script);
    command.args(["--turns", &options.turns.to_string(), "--seconds", &seconds.to_string()]);
    command.args(["--rate", &options.rate.to_string(), "--kinds", &kinds]);
    let Output { status, stdout, stderr } = command.output().context("cannot run timeout")?;
    let complaint = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{} failed with {status}: {}", script.display(), complaint.trim());
    serde_json::from_slice(&stdout).with_context(|| format!("{} printed no counts", script.display()))
}

fn key(system: &str, kind: &str, metric: &str, unit: Unit) -> Key {
    Key {
        system: system.to_owned(),
        application: "memcached",
        scenario: kind.to_owned(),
        metric: metric.to_owned(),
        unit,
    }
}

fn conclude(options: &Options, environment: Environment, mut records: Vec<Record>) -> Result<Outcome> {
    let table = table(&records);
    let kept = records.iter().filter(|record| record.metric == KEPT);
    let worst = kept.min_by(|a, b| a.value.total_cmp(&b.value)).cloned();
    records.extend(worst.map(|worst| Record { metric: WORST.into(), ..worst }));
    let target = Target {
        claim: "an honest client keeps 0.95 of its rate under each flood",
        system: "nom/nobody",
        of: None,
        metric: WORST,
        unit: Unit::Ratio,
        limit: Limit::AtLeast(SHARE),
    };
    let mut notes = Notes::default();
    notes.add(format!(
        "{} frames a second to the machine, and to an address that nobody has, in {} turns of {:?}.",
        options.rate, options.turns, options.duration
    ));
    let slow = "`slow` are a hundred readers that do not read, when no queue of theirs takes more, and a \
                hundred writers of a byte at a time; they come and go between two times without them.";
    notes.add(slow.into());
    let report = Report {
        title: "nom bench floods".into(),
        environment,
        records,
        tables: vec![table],
        targets: vec![target],
        figures: Vec::new(),
        notes: notes.into_vec(),
    };
    report.conclude(&options.out)
}

fn table(records: &[Record]) -> Table {
    let mut table =
        Table::new("What floods leave of a client's rate", ["flood", "to nobody", "to nom", "kept"]);
    for kept in records.iter().filter(|record| record.metric == KEPT) {
        let of = |system| record::cell(records, system, "throughput", kept);
        let error = kept.standard_error().map(|error| format!(" ± {error:.3}")).unwrap_or_default();
        table = table.row([kept.scenario.clone(), of(NOBODY), of(NOM), format!("{:.3}{error}", kept.value)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_flooder_says_becomes_samples() {
        let said: Said = serde_json::from_str(
            r#"{"rate": 2000, "free_bytes": [1], "counts": {"syn": [[100, 96], [110, 99]]}}"#,
        )
        .unwrap();
        assert_eq!(said.counts["syn"], [(100.0, 96.0), (110.0, 99.0)]);
    }

    #[test]
    fn a_table_has_a_row_for_each_flood() {
        let mut samples = Samples::new(EXPERIMENT);
        for value in [0.9, 1.0] {
            samples.push(key("nom/nobody", "syn", KEPT, Unit::Ratio), value);
            samples.push(key(NOM, "syn", "throughput", Unit::PerSecond), 100.0 * value);
        }
        let printed = table(&samples.records()).to_string();
        assert!(printed.contains("syn") && printed.contains("0.950 ±"), "{printed}");
    }
}
