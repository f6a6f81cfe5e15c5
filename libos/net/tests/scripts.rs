//! Every script in `tests/pkt`.

mod common;
mod script;

use std::path::{Path, PathBuf};

fn scripts() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pkt");
    let entries = std::fs::read_dir(directory).expect("tests/pkt is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pkt"));
    paths.sort();
    paths
}

#[test]
fn every_script_runs_as_it_says() {
    let scripts = scripts();
    assert!(scripts.len() > 20, "{} scripts", scripts.len());
    let failures: Vec<String> = scripts
        .iter()
        .filter_map(|path| {
            let text = std::fs::read_to_string(path).expect("readable");
            let error = script::run(&text).err()?;
            Some(format!("{}: {error}", path.file_name().expect("a file").display()))
        })
        .collect();
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_script_that_is_wrong_is_told_so() {
    let syn = "+0 < S 0:0(0) win 1000 <mss 1460>\n";
    for (rest, error) in [
        ("", "also sent"),
        ("+0 > . 0:0(0) ack 1", "expected"),
        ("+0.5 > S. 0:0(0) ack 1 <mss 1460>", "too early"),
        ("+0 > S. 0:0(0) ack 1 <mss 1460>\n+0 app connected", "happened"),
        ("counter nonsense 1", "no counter"),
        ("+0 < X 0:0(0)", "one of S F R P"),
    ] {
        let found = script::run(&format!("{syn}{rest}")).expect_err(rest);
        assert!(found.contains(error), "{rest}: {found}");
    }
}
