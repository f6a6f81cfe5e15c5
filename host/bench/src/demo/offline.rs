//! Responses measured beforehand, for a controller that shall not begin from nothing: the paper's way (nom,
//! VEE'16, section 6.1).
//!
//! One machine for each batching delay, loaded by the demo's clients, many and then a single one. What is
//! written down is what the application itself says of each, for that is what its controller will see.

use super::market::{Heard, Set};
use super::progress::Progress;
use super::runner;
use super::schedule::Schedule;
use super::{Asked, Means, Stage};
use crate::report::Notes;
use anyhow::{Context, Result};
use nom_build::{Project, debian};
use nom_economy::controller::{BatchingDelays, WorkingPoints};
use nom_economy::table::{Load, ResponseTable, Row};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Reports this soon after a load began tell of the time before, too, or of clients that are not ready.
const SETTLING_S: f64 = 0.3;

/// What to measure, and where to.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// The checkout that nom is built from.
    pub project: Project,
    /// Of which application.
    pub application: String,
    /// The longest batching delay, in microseconds; the others are those among which a controller chooses.
    pub longest_us: u32,
    /// How long each load lasts.
    pub phase: Duration,
    /// The file to write.
    pub out: PathBuf,
    /// The number of a signal that asks for an end, once there is one.
    pub signal: Arc<AtomicUsize>,
}

/// Measures the responses and writes them. Returns what could not be done as hoped.
///
/// # Errors
/// If there is no such application, a client or QEMU is missing, nothing is served, the file cannot be
/// written, or somebody interrupts ([`super::Interrupted`]).
pub fn table(options: &TableOptions) -> Result<Vec<String>> {
    let application = runner::named(&options.application)?;
    debian::set_up(&debian::CLIENTS)?;
    let cache = crate::cache(&options.project)?;
    let accelerator = nom_vmm::accelerator::choose(&cache).accelerator;
    let mut notes = Notes::default();
    let points = BatchingDelays::up_to(options.longest_us);
    let mut delays: Vec<u32> = (0..points.count()).map(|point| points.micros(point)).collect();
    // The longest may be the one before, rounded.
    delays.dedup();
    let schedule = Schedule { phase: options.phase, runs: 1 };
    let planned = super::building(&options.project) + schedule.run() * delays.len() as u32;
    let about = humantime::format_duration(Duration::from_secs(planned.as_secs()));
    eprintln!("{} with {} batching delays: about {about}", application.label(), delays.len());
    let mut progress = Progress::new(planned, options.signal.clone());
    let means = Means { servers: None, accelerator, cache: &cache, native: false };
    let stage = Stage::build(&options.project, &[application], means, &mut progress, &mut notes)?;
    let asked = Asked {
        project: &options.project,
        schedule,
        connections: super::CONNECTIONS,
        functions: &[],
        turning: Duration::ZERO,
        seed: 0,
        native: false,
    };
    let mut loads = vec![Load::default(); 2];
    for us in delays {
        let run = stage.runner(&asked, application, &mut progress, &mut notes).reporting(us)?;
        for (load, row) in loads.iter_mut().zip(rows(us, &run.0, &run.1)) {
            load.response.extend(row);
        }
    }
    let table = ResponseTable { load: loads };
    table.check().context("what was measured is no table")?;
    let text = format!(
        "# Responses of {} under many clients and under a single one, measured by `nom bench table`.\n{}",
        application.label(),
        toml::to_string(&table).context("a table is TOML")?
    );
    let out = &options.out;
    std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
    Ok(notes.into_vec())
}

/// The response to each load, as far as something was served.
fn rows(us: u32, begun: &[Set], heard: &[Heard]) -> Vec<Option<Row>> {
    // The first price was set before the machine was there.
    let begins: Vec<f64> = begun.iter().skip(1).map(|set| set.at_s).collect();
    let ends = begins.iter().skip(1).copied().chain([f64::INFINITY]);
    let of = |(begin_s, end_s): (&f64, f64)| {
        let within = |heard: &&Heard| heard.at_s > begin_s + SETTLING_S && heard.at_s <= end_s;
        row(us, &heard.iter().filter(within).collect::<Vec<_>>())
    };
    begins.iter().zip(ends).map(of).collect()
}

/// All reports together; latencies weigh by their requests.
fn row(us: u32, heard: &[&Heard]) -> Option<Row> {
    // Whoever is asked nothing any more says so, too.
    let served = || heard.iter().map(|heard| &heard.status).filter(|status| status.requests > 0);
    let sum = |value: fn(&nom_proto::status::Status) -> f64| served().map(value).sum::<f64>();
    let (seconds, requests) = (sum(|s| s.window_ns as f64) / 1e9, sum(|s| s.requests as f64));
    if seconds <= 0.0 || requests <= 0.0 {
        return None;
    }
    let gbits = |bytes: f64| bytes * 8e-9 / seconds;
    let latency = sum(|s| s.requests as f64 * s.latency_mean_ns as f64) / requests;
    let square = sum(|s| {
        s.requests as f64 * ((s.latency_mean_ns as f64).powi(2) + (s.latency_jitter_ns as f64).powi(2))
    });
    Some(Row {
        batching_delay: us,
        throughput: requests / seconds,
        sent: gbits(sum(|s| s.sent_bytes as f64)),
        received: gbits(sum(|s| s.received_bytes as f64)),
        latency: latency / 1e9,
        jitter: (square / requests - latency.powi(2)).max(0.0).sqrt() / 1e9,
        p99: sum(|s| s.requests as f64 * s.latency_p99_ns as f64) / requests / 1e9,
    })
}

#[cfg(test)]
mod tests {
    use super::super::market::tests::heard;
    use super::*;

    fn says(at_s: f64, requests: u64, latency_mean_ns: u64) -> Heard {
        let mut heard = heard(at_s, at_s, 1);
        (heard.status.requests, heard.status.latency_mean_ns) = (requests, latency_mean_ns);
        (heard.status.latency_jitter_ns, heard.status.latency_p99_ns) = (0, 2 * latency_mean_ns);
        (heard.status.sent_bytes, heard.status.received_bytes) = (1000 * requests, 100 * requests);
        heard.status.window_ns = 100_000_000;
        heard
    }

    #[test]
    fn each_load_has_its_response_and_what_is_between_has_none() {
        let begun = [0.0, 2.0, 5.0].map(|at_s| Set { at_s, revision: 1 });
        let all = [
            says(1.0, 7, 1),
            says(2.2, 9, 1),
            says(3.0, 100, 100_000),
            says(3.1, 300, 200_000),
            says(3.2, 0, 0),
            says(5.2, 5, 5),
            says(6.0, 50, 50_000),
        ];
        let rows = rows(7, &begun, &all);
        let (many, single) = (rows[0].unwrap(), rows[1].unwrap());
        assert_eq!((many.batching_delay, many.throughput, single.throughput), (7, 2000.0, 500.0));
        assert!((many.latency - 175e-6).abs() < 1e-12 && (many.p99 - 350e-6).abs() < 1e-12);
        assert!((many.jitter - 43.301e-6).abs() < 1e-9, "{}", many.jitter);
        assert!((many.sent - 0.016).abs() < 1e-12 && (many.received - 0.0016).abs() < 1e-12);
        assert!(super::rows(7, &begun, &[]).iter().all(Option::is_none));
    }

    #[test]
    fn what_is_written_is_what_a_manifest_takes() {
        let row = row(3, &[&says(1.0, 10, 1000)]).unwrap();
        let table = ResponseTable { load: vec![Load { response: vec![row] }] };
        let text = toml::to_string(&table).unwrap();
        assert!(text.contains("[[load.response]]\nbatching_delay = 3\n"), "{text}");
        let directory = tempfile::tempdir().unwrap();
        let manifest = format!(
            "name = \"a\"\nprogram = \"a\"\nresponses = \"table.toml\"\n\n{}",
            super::super::contract::manifest(
                super::super::contract::Function::Refund,
                super::super::contract::Slowness::PAPER
            )
        );
        std::fs::write(directory.path().join("table.toml"), text).unwrap();
        std::fs::write(directory.path().join("app.toml"), manifest).unwrap();
        let bundle = nom_image::manifest::load(&directory.path().join("app.toml"));
        let bundle = bundle.unwrap_or_else(|error| panic!("{error}"));
        let told = &bundle.applications[0].environment["responses"];
        assert_eq!(told.parse::<ResponseTable>().unwrap(), table);
    }
}
