//! `nom bench bulk`: many bytes to and from a machine, nom beside a Debian guest.
//!
//! nom's machine runs memcached, which is asked for values of 100 KB and given values of 10 KB by the client
//! of [`crate::wire::load`]; the guest runs `iperf3`, which does nothing with its bytes, and neither does its
//! client. The device offers to cut and to join, or one of the two, or nothing, to both.

pub mod offloads;

use crate::Outcome;
use crate::environment::Environment;
use crate::linux::Tuning;
use crate::linux::serve::{Server, Servers};
use crate::others::Watch;
use crate::record::{self, Key, Record, Samples, Unit};
use crate::report::{Notes, Report};
use crate::serve::counts::{self, Counters};
use crate::serve::guests::{NOM, Provider};
use crate::serve::running::Running;
use crate::serve::runs;
use crate::serve::service::{self, Service};
use crate::table::Table;
use crate::target::{Limit, Target};
use crate::wire::load::Load;
use anyhow::{Context, Result, ensure};
use nom_build::Project;
use nom_build::debian::{Tool, set_up};
use nom_vmm::Accelerator;
use offloads::Offloads;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to measure, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout that nom is built from.
    pub project: Project,
    /// Directory for `results.json`, `results.csv` and `report.html`; created.
    pub out: PathBuf,
    /// How often each system is started and loaded.
    pub repetitions: u32,
    /// How long each load lasts.
    pub duration: Duration,
    /// What the device offers.
    pub offloads: Vec<Offloads>,
}

const EXPERIMENT: &str = "bulk";
const LINUX: &str = "linux";
/// The record that is judged: the worst of all ways and offloads.
const WORST: &str = "worst_goodput";
/// Of the guest's goodput, what nom's must be.
const SHARE: f64 = 1.25;
const GOODPUT: &str = "goodput";
const COST: &str = "instructions_per_byte";

/// The guest's server.
static IPERF3: Service = Service {
    name: "iperf3",
    application: "memcached",
    arguments: &[],
    linux: Server {
        package: "iperf3",
        program: "usr/bin/iperf3",
        script: "exec /usr/bin/iperf3 --server\n",
        files: &[],
        reads: &[],
    },
    port: 5201,
    greeting: b"",
};
const CLIENT: Tool = Tool::new("iperf3", &["iperf3", "--version"]);

/// Measures and writes everything to `options.out`. What fails becomes a note.
///
/// # Errors
/// If this is not root, a client or QEMU is missing, or nothing was measured.
pub fn run(options: &Options) -> Result<Outcome> {
    set_up(&[CLIENT])?;
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let images = tempfile::tempdir_in(&cache)?;
    let providers = providers(&options.project, &cache, images.path())?;
    let mut bench =
        Bench { samples: Samples::new(EXPERIMENT), notes: Notes::default(), duration: options.duration };
    let watch = Watch::begin();
    for _ in 0..options.repetitions {
        bench.all(&providers, &options.offloads, choice.accelerator, None);
    }
    let plugin = counts::plugin(&cache)?;
    bench.all(&providers, &options.offloads, Accelerator::Tcg, Some(&plugin));
    let mut records = bench.samples.records();
    ensure!(!records.is_empty(), "nothing was measured: {}", bench.notes.into_vec().join(" "));
    records.extend(watch.and_then(|watch| watch.record(EXPERIMENT)));
    conclude(options, environment, records, bench.notes)
}

/// nom's machine and the guest.
fn providers(project: &Project, cache: &Path, images: &Path) -> Result<[Provider; 2]> {
    // With those of the serve bench, which has them in the same place.
    let servers: Vec<Server> =
        service::ALL.iter().map(|service| service.linux).chain([IPERF3.linux]).collect();
    let servers = Servers::prepare(cache, &servers)?;
    let linux = Provider::linux(&servers, &IPERF3, Tuning::ALL[0], images)?;
    Ok([Provider::nom(project, &service::MEMCACHED, images)?, linux])
}

/// What is measured so far.
struct Bench {
    samples: Samples,
    notes: Notes,
    duration: Duration,
}

impl Bench {
    /// Each system with each of `offloads`; with a plugin only instructions are counted.
    fn all(
        &mut self,
        providers: &[Provider],
        offloads: &[Offloads],
        accelerator: Accelerator,
        plugin: Option<&Path>,
    ) {
        for offloads in offloads {
            for provider in providers {
                if let Err(error) = self.one(provider, *offloads, accelerator, plugin) {
                    self.notes.add(format!("{} with {offloads} not measured: {error:#}.", provider.system));
                }
            }
        }
    }

    fn one(
        &mut self,
        provider: &Provider,
        offloads: Offloads,
        accelerator: Accelerator,
        plugin: Option<&Path>,
    ) -> Result<()> {
        let directory = tempfile::tempdir()?;
        let mut counters = Counters::new(directory.path());
        let mut arguments = offloads.arguments();
        arguments.extend(plugin.iter().flat_map(|plugin| counters.arguments(plugin)));
        let setting = runs::serving(accelerator);
        let running = Running::start(&provider.guest, provider.service, &setting, &arguments)?;
        for load in [Load::Download, Load::Upload] {
            let key = |metric: &str, unit| Key {
                system: provider.system.to_owned(),
                application: "bulk",
                scenario: format!("{}, {offloads}", load.name()),
                metric: metric.to_owned(),
                unit,
            };
            let Some(_) = plugin else {
                let rate = self.goodput(provider, &running, load)?;
                self.samples.push(key(GOODPUT, Unit::BitsPerSecond), rate);
                continue;
            };
            let (before, start) = (counters.now()?, Instant::now());
            let rate = self.goodput(provider, &running, load)?;
            let bytes = rate / 8.0 * start.elapsed().as_secs_f64().min(self.duration.as_secs_f64());
            let instructions = counters.now()?.since(before).instructions;
            self.samples.push(key(COST, Unit::Instructions), instructions as f64 / bytes.max(1.0));
        }
        Ok(())
    }

    /// Bits a second.
    fn goodput(&self, provider: &Provider, running: &Running, load: Load) -> Result<f64> {
        if provider.system == NOM {
            return load.run(running.namespace(), self.duration);
        }
        // It serves one client at a time, and whoever looked whether it is there was one.
        runs::patiently(|| self.iperf3(running, load))
    }

    fn iperf3(&self, running: &Running, load: Load) -> Result<f64> {
        let seconds = self.duration.as_secs().max(1);
        let mut command = running.namespace().command("timeout");
        command.args([&(seconds + 30).to_string(), "iperf3", "--json", "--time", &seconds.to_string()]);
        command.args(["--client", &running.target().ip().to_string()]);
        if load == Load::Download {
            command.arg("--reverse");
        }
        let output = command.output().context("cannot run timeout")?;
        parse(&output.stdout).with_context(|| format!("iperf3 ended with {}", output.status))
    }
}

/// What iperf3's receiver got, in bits a second.
fn parse(printed: &[u8]) -> Result<f64> {
    let said: serde_json::Value = serde_json::from_slice(printed).context("it printed no JSON")?;
    let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.with_context(|| format!("it says nothing of bits: {}", said["error"]))
}

fn conclude(
    options: &Options,
    environment: Environment,
    measured: Vec<Record>,
    notes: Notes,
) -> Result<Outcome> {
    let ratios = record::ratios(&measured, NOM, LINUX);
    let goodputs = ratios.iter().filter(|ratio| ratio.metric == GOODPUT);
    let worst = goodputs.min_by(|a, b| a.value.total_cmp(&b.value)).cloned();
    let worst = worst.map(|worst| Record { metric: WORST.into(), ..worst });
    let table = table(&measured, &ratios);
    let target = Target {
        claim: "bulk to and from nom is at least 1.25 of the Debian guest's",
        system: "nom/linux",
        of: None,
        metric: WORST,
        unit: Unit::Ratio,
        limit: Limit::AtLeast(SHARE),
    };
    let report = Report {
        title: "nom bench bulk".into(),
        environment,
        records: measured.into_iter().chain(ratios).chain(worst).collect(),
        tables: vec![table],
        targets: vec![target],
        figures: Vec::new(),
        notes: notes.into_vec(),
    };
    report.conclude(&options.out)
}

fn table(measured: &[Record], ratios: &[Record]) -> Table {
    let mut table =
        Table::new("Bulk to and from a machine", ["way, offloads", "metric", "nom", "linux", "nom/linux"]);
    for ratio in ratios {
        let of = |system| record::cell(measured, system, &ratio.metric, ratio);
        let (way, metric) = (ratio.scenario.clone(), ratio.metric.clone());
        table = table.row([way, metric, of(NOM), of(LINUX), format!("{:.2}", ratio.value)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_says_what_its_receiver_got() {
        let said = r#"{"start": {}, "end": {"sum_sent": {"bits_per_second": 2.0},
            "sum_received": {"bits_per_second": 1e9}}}"#;
        assert_eq!(parse(said.as_bytes()).unwrap(), 1e9);
        let error = format!("{:#}", parse(br#"{"error": "unable to connect"}"#).unwrap_err());
        assert!(error.contains("unable to connect"), "{error}");
        assert!(parse(b"iperf3: parameter error").is_err());
    }
}
