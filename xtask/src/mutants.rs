//! `nom test mutants`: breaks the kernel in one place after the other, and a test must fail each time.
//!
//! Mutants made by hand stand in `tests/mutants/by-hand.toml`; `cargo-mutants` makes others of `kernel/pure`
//! and `abi`. Those that no test notices are named in `tests/mutants/survivors.toml`, which may only shrink.

mod by_hand;
mod generated;
mod schemata;
mod survivors;
mod together;
mod tree;

use crate::counts::Counts;
use anyhow::{Context, Result};
use clap::Args;
use nom_build::Project;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use survivors::Survivors;

/// Which mutants.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Suite mutants")]
pub struct Options {
    /// Only mutants whose name or file, or whose test's package, holds this text.
    #[arg(long, value_name = "TEXT")]
    mutant: Option<String>,
    /// Minutes for a sample of the generated mutants; 0 for none.
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    minutes: u64,
    /// All generated mutants, or with --mutant all of a file: hours for the whole.
    #[arg(long, conflicts_with = "minutes")]
    all: bool,
    /// No mutants made by hand.
    #[arg(long)]
    generated: bool,
    /// Which sample, as an earlier run printed it.
    #[arg(long, value_name = "NUMBER")]
    sample: Option<u64>,
}

/// How much of the suite runs.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// The few that take seconds each: what runs whenever all suites do.
    Cheap,
    /// What was asked for by name.
    Asked(&'a Options),
}

/// Where mutants live and die: a copy of the checkout, so that nobody meets one elsewhere.
struct Lab {
    root: PathBuf,
    /// The host's programs of the checkout itself, which are not mutated: the system tests.
    target: PathBuf,
    tree: PathBuf,
    /// Where the copy is built.
    build: PathBuf,
    tools: PathBuf,
}

impl Lab {
    fn open(project: &Project) -> Result<Lab> {
        let home = project.target().join("mutants");
        let tree = home.join("tree");
        tree::copy(project.root(), &tree)?;
        let (root, target) = (project.root().to_owned(), project.target().to_owned());
        Ok(Lab { root, target, tree, build: home.join("build"), tools: home.join("tools") })
    }

    /// Runs a command that may take so many seconds, after which it has failed.
    fn run(&self, directory: &Path, seconds: u32, words: &[&str]) -> Result<Output> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &seconds.to_string()]).args(words).current_dir(directory);
        command.env("CARGO_TARGET_DIR", &self.build).env("NOM_ROOT", &self.tree).stdin(Stdio::null());
        if directory == self.tree {
            // One line differs: what did not change is not compiled again, which takes a sixth of the time.
            command.env("CARGO_PROFILE_DEV_INCREMENTAL", "true").env_remove("CARGO_INCREMENTAL");
        }
        command.output().with_context(|| format!("cannot run `timeout {}`", words.join(" ")))
    }
}

/// Tries mutants; each that is noticed counts as passed.
///
/// # Errors
/// If the lists cannot be read, or the checkout cannot be copied.
pub fn run(project: &Project, part: Part<'_>) -> Result<Counts> {
    let lab = Lab::open(project)?;
    let survivors = Survivors::read(project.root())?;
    let mut counts = match part {
        Part::Asked(Options { generated: true, .. }) => Counts::default(),
        _ => by_hand::run(&lab, part, &survivors)?,
    };
    if let Part::Asked(options) = part {
        counts += generated::run(&lab, options, &survivors)?;
    }
    Ok(counts)
}
