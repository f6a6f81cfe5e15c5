//! What all sums are made of, as CSV: what clients were served, and what adaptive applications said.

use super::analysis::Run;
use super::experiment;
use super::findings::Findings;
use super::money::Interval;
use super::runner::Adaptation;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// What the names of systems end in that took turns within one machine.
const BY_TURNS: &str = "-by-turns";

/// An interval, and whose it was, as a row of `intervals.csv`.
#[derive(Serialize)]
struct Row<'a> {
    application: &'a str,
    system: String,
    run: u32,
    phase: &'a str,
    price: f64,
    end_s: f64,
    seconds: f64,
    operations: f64,
    useful_bytes: f64,
    sent_bytes: f64,
    latency_s: f64,
    jitter_s: f64,
}

/// Writes rows to a file, below the names of their fields.
///
/// # Errors
/// If it cannot be written.
pub fn save(path: &Path, rows: impl IntoIterator<Item = impl Serialize>) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let mut writer = csv::Writer::from_path(path).with_context(failed)?;
    rows.into_iter().try_for_each(|row| writer.serialize(row)).with_context(failed)?;
    writer.flush().with_context(failed)
}

/// Writes every interval of every run: what all sums are made of.
pub fn save_intervals(all: &[Findings], out: &Path) -> Result<()> {
    let own = all.iter().flat_map(|one| one.accounts.iter().map(move |account| (one, account, "")));
    // Of those who took turns the fixed ones are accounts of their own already.
    let turned = all.iter().flat_map(|one| one.turned.iter().map(move |(_, accounts)| (one, accounts)));
    let turned =
        turned.flat_map(|(one, accounts)| accounts.iter().map(move |account| (one, account, BY_TURNS)));
    let turned = turned.filter(|(_, account, _)| account.system.delay_us().is_none());
    let mut rows = Vec::new();
    for (findings, account, how) in own.chain(turned) {
        let system = account.system.name() + how;
        for Run { repetition, halves } in &account.runs {
            for (phase, interval) in experiment::PHASES
                .iter()
                .zip(halves)
                .flat_map(|(phase, all)| all.iter().map(move |i| (phase, i)))
            {
                rows.push(row(findings.application, system.clone(), *repetition, phase.name, interval));
            }
        }
    }
    save(&out.join("intervals.csv"), rows)
}

fn row<'a>(application: &'a str, system: String, run: u32, phase: &'a str, interval: &Interval) -> Row<'a> {
    let Interval { end_s, seconds, operations, useful_bytes, sent_bytes, latency_s, jitter_s, price } =
        *interval;
    Row {
        application,
        system,
        run,
        phase,
        price,
        end_s,
        seconds,
        operations,
        useful_bytes,
        sent_bytes,
        latency_s,
        jitter_s,
    }
}

/// A status, and of which run it was, as a row of `statuses.csv`.
#[derive(Serialize)]
struct Said<'a> {
    application: &'a str,
    function: &'a str,
    run: usize,
    heard_s: f64,
    guest_s: f64,
    window_s: f64,
    batching_delay_us: u32,
    polls: bool,
    requests: u64,
    sent_bytes: u64,
    latency_s: f64,
    jitter_s: f64,
    price_revision: u64,
    price: f64,
    profit: f64,
}

/// Writes every status that was heard of an adaptive run.
pub fn save_statuses(all: &[Findings], adaptations: &[Vec<Adaptation>], out: &Path) -> Result<()> {
    let rows = all.iter().zip(adaptations).flat_map(|(findings, runs)| {
        let runs = runs.iter().enumerate();
        runs.flat_map(|(number, run)| said(findings.application, number, run))
    });
    save(&out.join("statuses.csv"), rows)
}

fn said<'a>(application: &'a str, run: usize, adaptation: &'a Adaptation) -> impl Iterator<Item = Said<'a>> {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    adaptation.heard.iter().map(move |heard| Said {
        application,
        function: adaptation.function.name(),
        run,
        heard_s: heard.at_s,
        guest_s: seconds(heard.status.at_ns),
        window_s: seconds(heard.status.window_ns),
        batching_delay_us: heard.status.batching_delay_us,
        polls: heard.status.polls,
        requests: heard.status.requests,
        sent_bytes: heard.status.sent_bytes,
        latency_s: seconds(heard.status.latency_mean_ns),
        jitter_s: seconds(heard.status.latency_jitter_ns),
        price_revision: heard.status.price_revision,
        price: heard.status.price_network_out,
        profit: heard.status.profit,
    })
}
