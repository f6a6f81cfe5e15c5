//! The project's habits, each one command: `cargo xtask build`, `test`, `tidy`, `abi-doc`.
#![forbid(unsafe_code)]

mod abi_doc;
mod browser;
mod counts;
mod disk;
mod fresh;
mod fuzz;
mod linux;
mod mutants;
mod newest;
mod package;
mod release;
mod results;
mod suites;
mod tidy;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use nom_build::{Catalogue, Project, World};
use std::path::PathBuf;
use std::process::ExitCode;

/// Build, test and check nom.
#[derive(Debug, Parser)]
#[command(name = "xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the kernel and every package of applications for the guest.
    Build,
    /// Run all suites of tests, or those named.
    #[command(visible_alias = "ci")]
    Test(Test),
    /// Run test suites of others on Linux and in a machine, and compare.
    Linux(linux::Options),
    /// Check the sources against the project's mechanical rules.
    Tidy,
    /// Run a fuzzer of tests/fuzz for a while.
    Fuzz {
        /// Its name.
        target: String,
        /// For how long.
        #[arg(default_value_t = 60)]
        seconds: u32,
    },
    /// Make a release: a tar archive and a Debian package, with all programs ready-made.
    Package(package::Package),
    /// Write docs/abi.md from the tables in `abi`.
    AbiDoc,
    /// Keep the records of a run under docs/results, and have documents that cite them say its numbers.
    Results {
        /// Directory that a bench wrote.
        run: PathBuf,
        /// Name under docs/results: a date and a word, such as 2026-11-22-demo.
        name: String,
    },
}

#[derive(Debug, Args)]
struct Test {
    /// Suites; all but newest, fresh and release if none is named.
    #[arg(value_enum, value_name = "SUITE")]
    suites: Vec<suites::Suite>,
    /// Stop at the first suite that fails.
    #[arg(long)]
    fail_fast: bool,
    #[command(flatten)]
    mutants: mutants::Options,
}

fn main() -> ExitCode {
    match Project::find().and_then(|project| execute(&project, Arguments::parse().command)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; `false` if it found something wrong.
fn execute(project: &Project, command: Command) -> Result<bool> {
    match command {
        Command::Build => build(project),
        Command::Test(options) => suites::run(project, &options.suites, options.fail_fast, &options.mutants),
        Command::Linux(options) => linux::run(project, &options).map(|counts| counts.failed == 0),
        Command::Tidy => tidy::run(project.root()),
        Command::Fuzz { target, seconds } => fuzz::run(project, &target, seconds),
        Command::Package(options) => package::run(project, &options),
        Command::AbiDoc => abi_doc::write(project.root()),
        Command::Results { run, name } => results::keep(project.root(), &run, &name),
    }
}

fn build(project: &Project) -> Result<bool> {
    println!("{}", project.kernel()?.display());
    for package in Catalogue::read(project.root())?.packages() {
        println!("{}: {package}", project.build(World::Application, package)?.display());
    }
    Ok(true)
}
