//! The suites of `nom test`.

use crate::counts::Counts;
use crate::mutants::{self, Part};
use crate::{browser, disk, fresh, linux, newest, release, tidy};
use anyhow::{Context, Result};
use clap::ValueEnum;
use nom_build::debian::{self, Tool};
use nom_build::toolchain::MIRI_ADVICE;
use nom_build::{Catalogue, Project, World};
use std::io::BufReader;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A suite of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// The project's mechanical rules.
    Tidy,
    /// Formatting.
    Fmt,
    /// Lints of the compiler and of clippy.
    Clippy,
    /// Unit, property and documentation tests on the host, with the corpora of the fuzzers.
    Unit,
    /// The kernel and all applications build for the guest.
    Guest,
    /// Whole machines.
    System,
    /// Test suites of others, which run on Linux and in a machine: their quick part (`nom test linux --all`).
    Linux,
    /// The provider's page in Chromium.
    Browser,
    /// The servers on a simulated network: fixed seeds, each twice, and some fresh ones.
    Sim,
    /// The kernel broken in many places, each of which a test must notice; a few of them unless named.
    Mutants,
    /// The kernel's decisions under Miri, where a nightly with Miri is there.
    Miri,
    /// Lints and guests with the newest stable Rust, which is fetched: tells, and never fails. Only by name.
    Newest,
    /// Two commands in a fresh Debian 12, from nothing, as root; takes half an hour. Only by name.
    Fresh,
    /// A release in a clean Debian 12 without compiler and network, as root. Only by name.
    Release,
}

/// What came of a suite.
pub enum Verdict {
    /// So many passed and failed.
    Ran(Counts),
    /// It could not run, and why.
    Skipped(String),
    /// It tells something, and passes whatever that is.
    Told(String),
}

/// A suite that is over.
struct Report {
    suite: Suite,
    verdict: Verdict,
    time: Duration,
}

/// Runs suites, all if none is named; `false` if a test failed. With `fail_fast` it stops at the first suite
/// that fails. The last line it prints is the sum.
///
/// # Errors
/// If something other than a test fails: a tool that is missing, for example.
pub fn run(project: &Project, suites: &[Suite], fail_fast: bool, mutants: &mutants::Options) -> Result<bool> {
    let part = if suites.is_empty() { Part::Cheap } else { Part::Asked(mutants) };
    let usual: Vec<Suite> =
        Suite::value_variants().iter().copied().filter(|suite| suite.is_usual()).collect();
    let suites = if suites.is_empty() { &usual } else { suites };
    suites.iter().for_each(|suite| suite.set_up());
    let mut reports = Vec::new();
    for &suite in suites {
        println!("\n==== {}", suite.name());
        let start = Instant::now();
        let verdict = suite.run(project, part)?;
        let failed = matches!(&verdict, Verdict::Ran(counts) if counts.failed > 0);
        reports.push(Report { suite, verdict, time: start.elapsed() });
        if failed && fail_fast {
            break;
        }
    }
    let passed = summarise(&reports);
    if !passed && let Some(room) = disk::room(project.target()) {
        disk::complaint(project.target(), room).iter().for_each(|said| println!("{said}"));
    }
    Ok(passed)
}

fn summarise(reports: &[Report]) -> bool {
    let mut total = Counts::default();
    println!("\n==== summary");
    for Report { suite, verdict, time } in reports {
        let (name, seconds) = (suite.name(), time.as_secs());
        match verdict {
            Verdict::Skipped(reason) => println!("{name:8} skipped: {reason}"),
            Verdict::Told(what) => println!("{name:8} {what} ({seconds} s)"),
            Verdict::Ran(counts) => {
                println!("{name:8} {} passed, {} failed ({seconds} s)", counts.passed, counts.failed);
                total += *counts;
            }
        }
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    total.failed == 0
}

impl Suite {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether it runs if none is named.
    fn is_usual(self) -> bool {
        !matches!(self, Suite::Newest | Suite::Fresh | Suite::Release)
    }

    /// What it needs beside the compiler; tests that lack something are skipped, or fail.
    fn tools(self) -> Vec<Tool> {
        match self {
            Suite::Unit => [&debian::CLIENTS[..], &debian::PROGRAMS].concat(),
            Suite::System => debian::CLIENTS.to_vec(),
            Suite::Browser => browser::TOOLS.to_vec(),
            Suite::Fresh | Suite::Release => fresh::TOOLS.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Installs that, now rather than after half an hour.
    fn set_up(self) {
        if let Err(error) = debian::set_up(&self.tools()) {
            eprintln!("nom: suite {} lacks something: {error:#}", self.name());
        }
    }

    fn run(self, project: &Project, mutants: Part<'_>) -> Result<Verdict> {
        match self {
            Suite::Tidy => tidy::run(project.root()).map(|passed| Verdict::Ran(Counts::one(passed))),
            Suite::Fmt => check(project, &["fmt", "--all", "--check", "--message-format", "short"]),
            Suite::Clippy => clippy(project),
            Suite::Unit => cargo_tests(project, Command::new("cargo").args(TEST)),
            Suite::Guest => guest(project),
            Suite::System => {
                cargo_tests(project, Command::new("cargo").args(TEST).args(["--package", "nom-system-tests"]))
            }
            Suite::Linux => linux(project),
            Suite::Browser => browser(project),
            Suite::Sim => sim(project),
            Suite::Mutants => mutants::run(project, mutants).map(Verdict::Ran),
            Suite::Miri => miri(project),
            Suite::Newest => newest::run(project),
            Suite::Fresh => fresh::run(project),
            Suite::Release => release::run(project).map(Verdict::Ran),
        }
    }
}

/// Tests of all packages that are built for the host: the workspace's default members.
const TEST: &[&str] = &["test", "--quiet", "--no-fail-fast"];

/// Lints everything for the host. What builds for the guest alone is seen as libraries; applications build
/// for both.
fn clippy(project: &Project) -> Result<Verdict> {
    if let Some(why) = foreign_clippy()? {
        return Ok(Verdict::Skipped(why));
    }
    let start = ["clippy", "--quiet"];
    let end = ["--", "--deny", "warnings"];
    let scopes: [&[&str]; 7] = [
        &["--all-targets"],
        &["--all-targets", "--package", "nom-system-tests", "--package", "nom-browser-tests"],
        &["--lib", "--package", "nom-kernel-x86", "--package", "nom-sys", "--package", "nom-guest-tests"],
        &["--lib", "--package", "nom-kernel-selfcheck"],
        &["--bins", "--package", "nom-hello", "--package", "nom-memcached"],
        &["--bins", "--package", "nom-netpipe", "--package", "nom-nhttpd", "--package", "nom-echo"],
        &["--bins", "--package", "nom-tls-proxy"],
    ];
    let mut counts = Counts::default();
    for scope in scopes {
        match check(project, &[&start[..], scope, &end].concat())? {
            Verdict::Ran(more) => counts += more,
            other => return Ok(other),
        }
    }
    Ok(Verdict::Ran(counts))
}

/// What is wrong with a clippy of another toolchain's, which cargo finds on the search path where its own has
/// none: it cannot read what this compiler built.
fn foreign_clippy() -> Result<Option<String>> {
    let version = |program: &str, arguments: &[&str]| -> Result<String> {
        let output = Command::new(program).args(arguments).output();
        let output = output.with_context(|| format!("cannot run {program}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let clippy = version("cargo", &["clippy", "--version"])?;
    let compiler = version("rustc", &["--version"])?;
    let foreign = minor(&clippy).is_some() && minor(&clippy) != minor(&compiler);
    Ok(foreign.then(|| format!("there is {clippy}, which is not that of {compiler}")))
}

/// Second number of the release in what clippy (`clippy 0.1.95 (...)`) or the compiler (`rustc 1.95.0 (...)`)
/// says of itself, which they share.
fn minor(version: &str) -> Option<&str> {
    let release = version.split_whitespace().nth(1)?;
    release.strip_prefix("0.1.").or_else(|| release.strip_prefix("1."))?.split(['.', '-']).next()
}

/// A cargo command that says nothing but yes or no.
fn check(project: &Project, arguments: &[&str]) -> Result<Verdict> {
    let present =
        Command::new("cargo").args([arguments[0], "--version"]).output().is_ok_and(|o| o.status.success());
    if !present {
        return Ok(Verdict::Skipped("this toolchain does not have it".to_owned()));
    }
    let status = Command::new("cargo").current_dir(project.root()).args(arguments).status();
    Ok(Verdict::Ran(Counts::one(status.context("cannot run cargo")?.success())))
}

/// Runs cargo tests, passes their output on and counts them. A build that fails counts as one failure.
fn cargo_tests(project: &Project, command: &mut Command) -> Result<Verdict> {
    let mut child =
        command.current_dir(project.root()).stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut counts = Counts::pass_on(BufReader::new(output), std::io::stdout())?;
    if !child.wait()?.success() && counts.failed == 0 {
        counts.failed = 1;
    }
    Ok(Verdict::Ran(counts))
}

fn guest(project: &Project) -> Result<Verdict> {
    let mut counts = Counts::one(passes("nom-loader", project.loader()));
    counts += Counts::one(passes("nom-kernel", project.kernel()));
    for package in Catalogue::read(project.root())?.packages() {
        counts += Counts::one(passes(package, project.build(World::Application, package)));
    }
    Ok(Verdict::Ran(counts))
}

fn passes<T>(package: &str, outcome: Result<T>) -> bool {
    match outcome {
        Ok(_) => println!("{package} builds for the guest"),
        Err(error) => {
            println!("{error:#}");
            return false;
        }
    }
    true
}

/// What cannot be fetched or built here is told, not failed: it is somebody else's.
fn linux(project: &Project) -> Result<Verdict> {
    match linux::run(project, &linux::Options::default()) {
        Ok(counts) => Ok(Verdict::Ran(counts)),
        Err(error) if error.is::<linux::Unobtainable>() => Ok(Verdict::Skipped(format!("{error:#}"))),
        Err(error) => Err(error),
    }
}

/// Chromium, and what drives it, which is installed where it is missing.
fn browser(project: &Project) -> Result<Verdict> {
    let python = match browser::set_up(project) {
        Ok(python) => python,
        Err(error) => return Ok(Verdict::Skipped(format!("{error:#}"))),
    };
    let mut tests = Command::new("cargo");
    tests.args(TEST).args(["--package", "nom-browser-tests"]).env("NOM_BROWSER_PYTHON", python);
    cargo_tests(project, &mut tests)
}

/// Runs of the simulator, which prints the command that replays one that failed.
fn sim(project: &Project) -> Result<Verdict> {
    const FIXED: &[&str] = &["--seed", "1", "--count", "8", "--twice"];
    const FRESH: &[&str] = &["--count", "8"];
    // A client's clock passes over its last act and its end at once.
    const FOUND: &[&str] = &["--seed", "205114546", "storm"];
    let mut counts = Counts::default();
    for seeds in [FIXED, FRESH, FOUND] {
        let run = ["run", "--quiet", "--profile", "sim", "--package", "nom-sim", "--"];
        let status = Command::new("cargo").current_dir(project.root()).args(run).args(seeds).status();
        counts += Counts::one(status.context("cannot run cargo")?.success());
    }
    Ok(Verdict::Ran(counts))
}

/// Modules of the kernel's decisions that Miri gets through in minutes. The others fill megabytes, or wait
/// on a clock; the crate forbids `unsafe`, so it is their arithmetic and the layouts in `abi` that Miri sees.
const QUICK_UNDER_MIRI: &[&str] = &["bundle::", "clock::", "paging::", "space::", "symbols::", "wfq::"];

/// A cargo command of a nightly toolchain. By rustup, for the cargo of the search path may be no proxy of
/// its.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).env_remove("RUSTC").env_remove("CARGO");
    command
}

fn miri(project: &Project) -> Result<Verdict> {
    let succeeds =
        |words: &[&str]| nightly().args(words).output().is_ok_and(|output| output.status.success());
    if !succeeds(&["miri", "--version"]) {
        return Ok(Verdict::Skipped(format!("no nightly toolchain with Miri: {MIRI_ADVICE}")));
    }
    if !succeeds(&["miri", "setup"]) {
        return Ok(Verdict::Skipped(format!("Miri cannot build its library here: {MIRI_ADVICE}")));
    }
    let mut counts = Counts::default();
    let packages =
        [("nom-abi", &[][..]), ("nom-kernel-pure", QUICK_UNDER_MIRI), ("nom-virtio", &["memory::"])];
    for (package, filters) in packages {
        if let Verdict::Ran(more) = cargo_tests(project, &mut miri_command(project, package, filters))? {
            counts += more;
        }
    }
    Ok(Verdict::Ran(counts))
}

fn miri_command(project: &Project, package: &str, filters: &[&str]) -> Command {
    let mut command = nightly();
    command
        .args(["miri", "test", "--quiet", "--lib", "--package", package, "--target-dir"])
        .arg(project.target().join("miri"))
        .arg("--")
        .args(filters)
        // Miri is some hundred times slower than the processor: fewer cases, and no files of old failures.
        .env("PROPTEST_CASES", "4")
        .env("PROPTEST_FAILURE_PERSISTENCE", "off")
        // Drivers leak their places on purpose: handles may outlive whatever made them.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks");
    command
}

#[cfg(test)]
mod tests {
    use super::minor;

    #[test]
    fn clippy_and_compiler_share_the_second_number_of_their_release() {
        let clippy = minor("clippy 0.1.95 (59807616e1 2026-04-14)");
        assert_eq!(clippy, Some("95"));
        assert_eq!(clippy, minor("rustc 1.95.0 (59807616e 2026-04-14)"));
        assert_eq!(minor("rustc 1.96.0-nightly (ac68faa20 2026-05-25)"), Some("96"));
        assert_eq!(minor(""), None);
    }
}
