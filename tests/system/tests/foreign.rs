//! A peer that is no nom and no Linux: Scapy sends what neither would, by the tables in `tests/foreign`.

use nom_build::debian::{Tool, set_up};
use nom_system_tests::{Guest, Server};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's Python, which sees Debian's Scapy.
const PYTHON: &str = "/usr/bin/python3";
const SCAPY: Tool = Tool::new("python3-scapy", &[PYTHON, "-c", "import scapy"]);

/// All tables, in the order of their names.
fn tables(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the tables are there");
    let mut tables: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    tables.retain(|path| path.extension().is_some_and(|extension| extension == "tbl"));
    tables.sort();
    tables
}

#[test]
fn what_linux_would_not_send_is_answered_by_the_standards() {
    if let Err(error) = set_up(&[SCAPY]) {
        return println!("skipped: {error:#}");
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign");
    let guest = Guest::app("memcached").arguments(&["-U", "11211"]);
    Server::on_cores("foreign", guest, 11211, 1, |_| {
        let mut command = Command::new("timeout");
        command.args(["300", PYTHON]).arg(directory.join("run.py")).args(tables(&directory));
        let output = command.output().expect("`timeout` runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}\n{error}");
        println!("{}", said.lines().last().unwrap_or_default());
    });
}

/// Free memory after each of three rounds of all floods, beside which an honest client has every request
/// answered (or the flooder fails).
#[test]
fn floods_take_no_memory_for_good_and_nothing_from_honest_clients() {
    const TAKEN_MOST: u64 = 1 << 20;
    if let Err(error) = set_up(&[SCAPY]) {
        return println!("skipped: {error:#}");
    }
    let flood = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign/flood.py");
    Server::on_cores("flood", Guest::app("memcached"), 11211, 1, |_| {
        let mut command = Command::new("timeout");
        let output = command.args(["300", PYTHON]).arg(flood).args(["--rounds", "3"]).output();
        let output = output.expect("`timeout` runs");
        let (said, error) = (output.stdout, String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{error}");
        let result: serde_json::Value = serde_json::from_slice(&said).expect("one line of JSON");
        println!("{result}");
        let free: Vec<u64> = serde_json::from_value(result["free_bytes"].clone()).expect("three numbers");
        // The first round makes tables as large as they get; a slow client may meet another state of them.
        // Memory is taken in slabs of 256 KiB; a kind of packet that kept its buffer would keep 4 MiB.
        assert!(free[0].saturating_sub(free[2]) < TAKEN_MOST, "free after each round: {free:?}");
        assert_eq!(result["left"].as_object().map(|kinds| kinds.len()), Some(9), "{result}");
    });
}
