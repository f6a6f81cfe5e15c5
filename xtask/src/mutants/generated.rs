//! Mutants that `cargo-mutants` makes of `kernel/pure` and `abi`: functions replaced, operators exchanged.

use super::survivors::Survivors;
use super::{Lab, Options};
use crate::counts::Counts;
use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The release that is used: others make other mutants.
const VERSION: &str = "27.1.0";
const PACKAGES: [&str; 4] = ["--package", "nom-kernel-pure", "--package", "nom-abi"];
/// About how long one takes: to build, and to run the package's tests.
const SECONDS_EACH: u64 = 40;
/// How long the tests of one may take: tests that loop have noticed, too.
const PATIENCE_S: &str = "120";

/// Tries a sample, or all.
pub fn run(lab: &Lab, options: &Options, survivors: &Survivors) -> Result<Counts> {
    if options.minutes == 0 && !options.all {
        return Ok(Counts::default());
    }
    let tool = install(lab)?;
    let chosen = options.mutant.as_ref().map(|text| format!("**/*{text}*"));
    let mut words: Vec<&str> = PACKAGES.to_vec();
    if let Some(files) = &chosen {
        words.extend(["--file", files]);
    }
    let total = list(lab, &tool, &words)?;
    let shards = (total * SECONDS_EACH).div_ceil(options.minutes.max(1) * 60).max(1);
    let complete = options.all || shards == 1;
    let sample = options.sample.unwrap_or_else(now) % shards;
    let shard = format!("{sample}/{shards}");
    if total == 0 {
        return Ok(Counts::default());
    }
    if complete {
        println!("all {total} generated mutants");
    } else {
        println!("sample {sample} of {shards} of {total} generated mutants: again by --sample {sample}");
        words.extend(["--shard", &shard]);
    }
    try_them(lab, &tool, &words)?;
    conclude(lab, survivors, complete)
}

/// Seconds since 1970: a different sample each time.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The program, which is built if it is not there.
fn install(lab: &Lab) -> Result<PathBuf> {
    let tool = lab.tools.join("bin/cargo-mutants");
    if !tool.is_file() {
        println!("installing cargo-mutants {VERSION}: some minutes, once");
        let mut cargo = Command::new("cargo");
        cargo.args(["install", "--quiet", "--locked", "cargo-mutants", "--version", VERSION, "--root"]);
        cargo.arg(&lab.tools).arg("--target-dir").arg(lab.tools.join("build"));
        let status = cargo.status().context("cannot run cargo")?;
        ensure!(status.success(), "cargo-mutants {VERSION} cannot be installed: {status}");
    }
    Ok(tool)
}

/// How many there are.
fn list(lab: &Lab, tool: &std::path::Path, words: &[&str]) -> Result<u64> {
    let mut command = Command::new(tool);
    let output = command.current_dir(&lab.tree).args(["mutants", "--list"]).args(words).output()?;
    ensure!(output.status.success(), "cargo-mutants: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64)
}

fn try_them(lab: &Lab, tool: &std::path::Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new(tool);
    command.current_dir(&lab.tree).env("CARGO_TARGET_DIR", &lab.build).env_remove("NOM_ROOT");
    command.args(["mutants", "--in-place", "--no-times", "--no-shuffle", "--timeout", PATIENCE_S]);
    command.args(words).arg("--output").arg(&lab.tools);
    let status = command.status().context("cannot run cargo-mutants")?;
    match status.code() {
        // All were noticed; some were missed; some ran out of time.
        Some(0 | 2 | 3) => Ok(()),
        Some(4) => bail!("the tests of kernel/pure or abi fail without any mutant"),
        _ => bail!("cargo-mutants ended with {status}"),
    }
}

/// Holds what was found against the list.
fn conclude(lab: &Lab, survivors: &Survivors, complete: bool) -> Result<Counts> {
    let read = |name: &str| std::fs::read_to_string(lab.tools.join("mutants.out").join(name));
    let (missed, caught) = (read("missed.txt")?, read("caught.txt")? + &read("timeout.txt")?);
    let found = survivors.compare(&missed, &caught, complete);
    found.told.iter().for_each(|name| println!("survives, in a file that is not examined yet: {name}"));
    found.new.iter().for_each(|name| println!("SURVIVED {name}"));
    found.stale.iter().for_each(|name| println!("WRONG is noticed now, take it off the list: {name}"));
    let failed = (found.new.len() + found.stale.len()) as u64;
    Ok(Counts { passed: caught.lines().count() as u64, failed })
}
