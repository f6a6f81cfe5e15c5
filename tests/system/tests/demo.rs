//! The demo, end to end, with a second or two of everything: what it writes is there and adds up. How fast
//! anything was is not looked at.

use nom_bench::demo::{self, Options, Peer};
use nom_bench::{Outcome, Record};
use nom_build::Project;
use nom_system_tests::tap_is_possible;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Debian's memcached without a machine, where one would be.
const PEER: &str = "bare=ip address add ${NOM_PEER_ADDRESS%/*}/32 dev lo && exec memcached -u nobody -m 64 \
                    -p $NOM_PEER_PORT -l ${NOM_PEER_ADDRESS%/*}";

/// Debian's memcached as it is, in a machine of nom's.
const UNMODIFIED: &str = "linux-memcached";

/// One of these at a time has the computer.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // Whether another one failed does not matter.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is asked for, with a second or two of everything.
fn options(out: &Path) -> Options {
    let project = Project::find().expect("a checkout");
    // Tests fetch nothing: Linux takes part where a demo or bench was run before.
    let linux = project.root().join(".nom/bench/servers").is_dir();
    Options {
        project,
        out: out.to_owned(),
        full: false,
        applications: vec!["memcached".into()],
        repetitions: None,
        linux,
        turns: Some(Duration::from_secs(1)),
        seed: 1,
        native: false,
        phase: Some(Duration::from_secs(2)),
        functions: vec!["penalty".into()],
        connections: 3,
        peers: vec![],
        signal: Default::default(),
    }
}

/// What came of it; `None` if a client is not installed, which is said.
fn outcome(run: anyhow::Result<Outcome>) -> Option<Outcome> {
    match run {
        Ok(outcome) => Some(outcome),
        Err(error) if error.to_string().contains("clients are missing") => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

fn records(out: &Path) -> Vec<Record> {
    let json = std::fs::read(out.join("results.json")).expect("the records are written");
    serde_json::from_slice(&json).expect("records")
}

/// The value of the one record of memcached that says this.
fn value(records: &[Record], system: &str, scenario: &str, metric: &str) -> f64 {
    value_of(records, "memcached", [system, scenario, metric])
}

/// The same of an application.
fn value_of(records: &[Record], application: &str, key: [&str; 3]) -> f64 {
    let [system, scenario, metric] = key;
    let says = |record: &&Record| {
        let of = [&*record.system, &*record.scenario, &*record.metric];
        of == key && record.application == application
    };
    let found: Vec<_> = records.iter().filter(says).collect();
    assert_eq!(found.len(), 1, "{system} {scenario} {metric}: {found:?}");
    found[0].value
}

#[test]
fn what_was_served_is_paid_for_and_hindsight_is_never_poorer() {
    let (_alone, out) = (alone(), tempfile::tempdir().expect("a temporary directory"));
    // A process of the same computer: it has no TAP device to be metered at.
    let peers = vec![Peer::parse(PEER).expect("a peer")];
    let applications = vec!["memcached".into(), UNMODIFIED.into()];
    let Some(outcome) = outcome(demo::run(&Options { peers, applications, ..options(out.path()) })) else {
        return;
    };
    let said = format!("{:?}", outcome.notes);
    for name in ["report.html", "results.csv", "intervals.csv", "memcached-strategies.svg"] {
        assert!(out.path().join(name).is_file(), "{name}: {said}");
    }
    assert!(!said.contains("on nom"), "every run of nom succeeds: {said}");
    let records = records(out.path());
    for scenario in ["many", "single"] {
        assert!(value(&records, "bare", scenario, "throughput") > 0.0, "{said}");
        for system in ["nom-w-0us", "nom-adaptive-penalty"] {
            assert!(value(&records, system, scenario, "throughput") > 0.0);
            let useful = value(&records, system, scenario, "useful");
            assert!(value(&records, system, scenario, "sent") >= useful, "headers are metered, too");
        }
    }
    let oracle = value(&records, "nom-oracle", "both", "profit_penalty");
    let stays = value(&records, "nom-best-fixed", "both", "profit_penalty");
    assert!(oracle >= stays, "{oracle}, {stays}");
    for system in ["nom-best-throughput", "nom-best-latency", "nom-w-0us"] {
        assert!(stays >= value(&records, system, "both", "profit_penalty"), "{system}");
    }
    // The sum for a run is that of its two phases, of two seconds each.
    let rate = |scenario| value(&records, "nom-adaptive", scenario, "profit_rate_penalty");
    let profit = value(&records, "nom-adaptive", "both", "profit_penalty");
    assert!((profit - 2.0 * (rate("many") + rate("single"))).abs() < 1e-9 * profit.abs().max(1.0));
    assert!(value(&records, "nom-adaptive", "both", "reaction") >= 0.0, "the price change was heard");
    // Debian's memcached as it is hears of prices and takes orders, as nom's own does.
    let unmodified = |system, scenario, metric| value_of(&records, UNMODIFIED, [system, scenario, metric]);
    for (system, scenario) in ["nom-w-0us", "nom-adaptive-penalty"]
        .into_iter()
        .flat_map(|system| [(system, "many"), (system, "single")])
    {
        assert!(unmodified(system, scenario, "throughput") > 0.0, "{said}");
    }
    assert!(unmodified("nom-adaptive", "both", "reaction") >= 0.0, "the price change was heard");
    if tap_is_possible("turns of unmodified memcached") {
        assert!(unmodified("nom-adaptive", "both", "governing_share") > 0.0, "{said}");
    }
}

#[test]
fn fixed_delays_and_adapting_take_turns_within_one_process_too() {
    if !tap_is_possible("demo --native") {
        return;
    }
    let (_alone, out) = (alone(), tempfile::tempdir().expect("a temporary directory"));
    let Some(outcome) = outcome(demo::run(&Options { native: true, ..options(out.path()) })) else { return };
    let said = format!("{:?}", outcome.notes);
    let failed = |note: &&String| note.contains("not measured") && !note.contains("not asked for");
    assert_eq!(outcome.notes.iter().find(failed), None, "{said}");
    let records = records(out.path());
    for system in ["nom-w-0us", "nom-w-100us", "nom-adaptive-penalty"] {
        for scenario in ["many", "single"] {
            assert!(value(&records, system, scenario, "throughput") > 0.0);
            let useful = value(&records, system, scenario, "useful");
            assert!(value(&records, system, scenario, "sent") >= useful, "headers are metered, too");
        }
    }
    assert!(records.iter().any(|record| record.metric == "profit_penalty_by_turns"), "{said}");
    let rows = std::fs::read_to_string(out.path().join("intervals.csv")).expect("it is written");
    assert!(rows.contains("nom-adaptive-penalty-by-turns"), "every interval that counts is written");
}

#[test]
fn connections_are_chosen_by_how_much_they_slow_linux() {
    let (_alone, out) = (alone(), tempfile::tempdir().expect("a temporary directory"));
    let options = Options { repetitions: Some(1), ..options(out.path()) };
    if !options.linux || !tap_is_possible("demo --scan") {
        println!("skipped: no demo or bench fetched Linux before");
        return;
    }
    let Some(outcome) = outcome(demo::scan(&options)) else { return };
    assert!(format!("{:?}", outcome.tables).contains("Nearest to the paper's 4.9"), "{:?}", outcome.notes);
    let ratio = |scenario| value(&records(out.path()), "linux", scenario, "latency_over_single");
    assert_eq!(ratio("1 connections"), 1.0);
    assert!(ratio("64 connections") > ratio("4 connections"), "whoever comes waits for all others");
}

#[test]
fn knobs_are_turned_by_a_step_in_their_price() {
    if !tap_is_possible("demo --knobs") {
        return;
    }
    let (_alone, out) = (alone(), tempfile::tempdir().expect("a temporary directory"));
    let options = Options { phase: Some(Duration::from_secs(1)), ..options(out.path()) };
    let error = demo::turn_knobs(&options, &["disk".into()]).expect_err("there is no such knob");
    assert_eq!(error.to_string(), "no knob `disk`: expected memory or cores");
    let Some(outcome) = outcome(demo::turn_knobs(&options, &["memory".into(), "cores".into()])) else {
        return;
    };
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
    let records = records(out.path());
    let of = |system, metric| value(&records, system, "cheap", metric);
    assert!(of("memory: 64 MiB", "hit_ratio") > of("memory: 4 MiB", "hit_ratio"), "more is found in more");
    assert!(of("memory: 64 MiB", "held") > of("memory: 4 MiB", "held"));
    assert_eq!((of("cores: 1 core", "held"), of("cores: 2 cores", "held")), (1.0, 2.0));
    for knob in ["memory: adaptive", "cores: adaptive"] {
        assert!(of(knob, "throughput") > 0.0, "{knob}");
    }
}

#[test]
fn tenants_pay_by_contracts_of_their_own_under_either_scheduler() {
    if !tap_is_possible("demo --tenants") {
        return;
    }
    let (_alone, out) = (alone(), tempfile::tempdir().expect("a temporary directory"));
    let options = Options { phase: Some(Duration::from_secs(1)), ..options(out.path()) };
    let outcome = demo::tenants(&options).unwrap_or_else(|error| panic!("{error:#}"));
    let records = records(out.path());
    for scheduler in ["fair", "profit"] {
        let of = |tenant, metric| value(&records, scheduler, tenant, metric);
        let shares: f64 = ["gold", "silver", "bronze"].map(|tenant| of(tenant, "core_share")).iter().sum();
        assert!((shares - 1.0).abs() < 1e-9, "{scheduler}: all of the core is somebody's, {shares}");
        let profits: f64 = ["gold", "silver", "bronze"].map(|tenant| of(tenant, "profit")).iter().sum();
        // Records have the median of two rounds, which is their mean.
        assert!((profits - of("all", "profit")).abs() < 1e-9, "{scheduler}: {profits} in all");
        assert!(of("bronze", "throughput") > 0.0, "{scheduler}");
    }
    assert!(records.iter().any(|record| record.system == "profit/fair"), "{:?}", outcome.verdicts);
    let rows = std::fs::read_to_string(out.path().join("turns.csv")).expect("it is written");
    assert_eq!(rows.lines().count(), 1 + 2 * 2 * 3, "a row of each tenant, turn and round: {rows}");
    assert!(out.path().join("tenants.svg").is_file());
}
