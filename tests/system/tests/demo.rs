//! The demo, end to end, with a second or two of everything: what it writes is there and adds up. How fast
//! anything was is not looked at.

use nom_bench::demo::{self, Options, Peer};
use nom_bench::{Outcome, Record};
use nom_build::Project;
use std::path::Path;
use std::time::Duration;

/// Debian's memcached without a machine, where one would be.
const PEER: &str = "bare=ip address add ${NOM_PEER_ADDRESS%/*}/32 dev lo && exec memcached -u nobody -m 64 \
                    -p $NOM_PEER_PORT -l ${NOM_PEER_ADDRESS%/*}";

/// Runs it; `None` if a client is not installed, which is said.
fn demo(out: &Path) -> Option<Outcome> {
    let project = Project::find().expect("a checkout");
    // Tests fetch nothing: Linux takes part where a demo or bench was run before.
    let linux = project.root().join(".nom/bench/servers").is_dir();
    let options = Options {
        project,
        out: out.to_owned(),
        full: false,
        applications: vec!["memcached".into()],
        repetitions: None,
        linux,
        phase: Some(Duration::from_secs(2)),
        functions: vec!["penalty".into()],
        connections: 3,
        // A process of the same computer: it has no TAP device to be metered at.
        peers: vec![Peer::parse(PEER).expect("a peer")],
        signal: Default::default(),
    };
    match demo::run(&options) {
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

/// The value of the one record that says this.
fn value(records: &[Record], system: &str, scenario: &str, metric: &str) -> f64 {
    let says = |record: &&Record| {
        (&*record.system, &*record.scenario, &*record.metric) == (system, scenario, metric)
    };
    let found: Vec<_> = records.iter().filter(says).collect();
    assert_eq!(found.len(), 1, "{system} {scenario} {metric}: {found:?}");
    found[0].value
}

#[test]
fn what_was_served_is_paid_for_and_hindsight_is_never_poorer() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let Some(outcome) = demo(out.path()) else { return };
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
}
