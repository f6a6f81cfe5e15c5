//! Mutants that `cargo-mutants` makes of `kernel/pure` and `abi`: functions replaced, operators exchanged.

use super::survivors::Survivors;
use super::together::{self, Found};
use super::{Lab, Options};
use crate::counts::Counts;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The release that is used: others make other mutants.
const VERSION: &str = "27.1.0";
const PACKAGES: [&str; 4] = ["--package", "nom-kernel-pure", "--package", "nom-abi"];
/// About how long one takes among many.
const SECONDS_EACH: u64 = 3;

/// What `cargo-mutants` would do somewhere.
#[derive(Clone, Debug, Deserialize)]
pub struct Generated {
    pub name: String,
    pub package: String,
    pub file: String,
    pub genre: String,
    pub replacement: String,
    pub span: Span,
}

impl Generated {
    /// The file's text with it.
    pub fn apply(&self, text: &str) -> String {
        let (start, end) = (self.span.start.offset(text), self.span.end.offset(text));
        [&text[..start], " ", &self.replacement, " ", &text[end..]].concat()
    }
}

/// Where.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Span {
    pub start: Place,
    pub end: Place,
}

/// Line and column, both counted from 1.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Place {
    line: usize,
    column: usize,
}

impl Place {
    pub fn place(self) -> (usize, usize) {
        (self.line, self.column)
    }

    /// The same in a text, counted in bytes.
    fn offset(self, text: &str) -> usize {
        let line = text.split_inclusive('\n').nth(self.line - 1).unwrap_or_default();
        let before: usize = text.split_inclusive('\n').take(self.line - 1).map(str::len).sum();
        before + line.chars().take(self.column - 1).map(char::len_utf8).sum::<usize>()
    }
}

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
    let mut mutants = list(lab, &tool, &words)?;
    let total = mutants.len() as u64;
    let shards = (total * SECONDS_EACH).div_ceil(options.minutes.max(1) * 60).max(1);
    let complete = options.all || shards == 1;
    let sample = options.sample.unwrap_or_else(now) % shards;
    if total == 0 {
        return Ok(Counts::default());
    }
    if complete {
        println!("all {total} generated mutants");
    } else {
        println!("sample {sample} of {shards} of {total} generated mutants: again by --sample {sample}");
        let mut number = 0..;
        mutants.retain(|_| number.next().is_some_and(|number: u64| number % shards == sample));
    }
    let found = together::run(lab, &mutants)?;
    conclude(&found, survivors, complete)
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

/// All there are.
fn list(lab: &Lab, tool: &std::path::Path, words: &[&str]) -> Result<Vec<Generated>> {
    let mut command = Command::new(tool);
    command.current_dir(&lab.tree).args(["mutants", "--list", "--json"]).args(words);
    let output = command.output().context("cannot run cargo-mutants")?;
    ensure!(output.status.success(), "cargo-mutants: {}", String::from_utf8_lossy(&output.stderr).trim());
    serde_json::from_slice(&output.stdout).context("cargo-mutants' list")
}

/// Holds what was found against the list.
fn conclude(outcome: &Found, survivors: &Survivors, complete: bool) -> Result<Counts> {
    let found = survivors.compare(&outcome.missed, &outcome.caught, complete);
    found.told.iter().for_each(|name| println!("survives, in a file that is not examined yet: {name}"));
    found.new.iter().for_each(|name| println!("SURVIVED {name}"));
    found.stale.iter().for_each(|name| println!("WRONG is noticed now, take it off the list: {name}"));
    let failed = (found.new.len() + found.stale.len()) as u64;
    Ok(Counts { passed: outcome.caught.len() as u64, failed })
}
