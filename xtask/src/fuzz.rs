//! `nom fuzz`: runs one fuzzer of `tests/fuzz` for a while.

use anyhow::{Context, Result, bail};
use nom_build::Project;
use std::path::Path;
use std::process::Command;

/// Memory of a fuzzer, in MiB: with the address sanitizer it takes several times what the target does.
const MEMORY_MIB: u32 = 3000;
/// Longest input: more only makes runs slow.
const INPUT_MAX: u32 = 4096;

/// Runs the fuzzer of `target` for so many seconds on its corpus; `false` if it found something. New inputs
/// go to `tests/fuzz/fuzz/new`, those that find something to `tests/fuzz/fuzz/artifacts`.
///
/// # Errors
/// If there is no such target, or no cargo-fuzz.
pub fn run(project: &Project, target: &str, seconds: u32) -> Result<bool> {
    let directory = project.root().join("tests/fuzz");
    let known = targets(&directory)?;
    if !known.iter().any(|name| name == target) {
        bail!("no fuzzer `{target}`: there are {}", known.join(", "));
    }
    // By rustup, for the cargo of the search path may be no proxy of its.
    let nightly = ["run", "nightly", "cargo", "fuzz"];
    let has_tool = Command::new("rustup").args(nightly).arg("--version").output();
    if !has_tool.is_ok_and(|output| output.status.success()) {
        bail!("no cargo-fuzz: `rustup toolchain install nightly` and `cargo install cargo-fuzz` install it");
    }
    let new = directory.join("fuzz/new").join(target);
    std::fs::create_dir_all(&new).with_context(|| format!("cannot create {}", new.display()))?;
    let mut fuzzer = Command::new("rustup");
    fuzzer.current_dir(&directory).args(nightly).args(["run", target]).arg(&new);
    fuzzer.arg(directory.join("corpus").join(target)).arg("--");
    fuzzer.args([
        format!("-max_total_time={seconds}"),
        format!("-max_len={INPUT_MAX}"),
        format!("-rss_limit_mb={MEMORY_MIB}"),
    ]);
    // Hash states are leaked on purpose (memcached's store says why).
    fuzzer.env("ASAN_OPTIONS", "detect_leaks=0").env_remove("RUSTC");
    Ok(fuzzer.status().context("cannot run cargo")?.success())
}

/// Targets that have a corpus: all of them, as their replay sees to.
fn targets(directory: &Path) -> Result<Vec<String>> {
    let corpora = directory.join("corpus");
    let entries =
        std::fs::read_dir(&corpora).with_context(|| format!("cannot read {}", corpora.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}
