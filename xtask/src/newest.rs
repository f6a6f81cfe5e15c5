//! `nom test newest`: how the newest stable Rust takes what the pinned one builds.
//!
//! Whoever has no rustup builds with a distribution's compiler, which moves on; so do the people who raise
//! the pin. What a new release complains about is told, and fails nothing: it is no fault of a change under
//! test.

use crate::suites::Verdict;
use anyhow::{Context, Result, bail};
use nom_build::Project;
use nom_build::toolchain::PIN;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The channel's name.
const CHANNEL: &str = "stable";
/// What is done with it: lints of everything, and everything that is built for the guest.
const SUITES: [&str; 2] = ["clippy", "guest"];

/// Fetches the newest stable toolchain into a place of nom's own, so that no toolchain of the user's moves,
/// and has the suites run with it; tells what it complained about.
///
/// # Errors
/// If this program cannot be run again.
pub fn run(project: &Project) -> Result<Verdict> {
    let home = project.target().join("rustup");
    let bin = match fetch(&home) {
        Ok(bin) => bin,
        Err(error) => return Ok(Verdict::Skipped(format!("{error:#}"))),
    };
    let mut again = Command::new(std::env::current_exe()?);
    again.arg("test").args(SUITES).current_dir(project.root()).env("PATH", path(&bin)?);
    again.env("CARGO_TARGET_DIR", project.target().join("newest"));
    for variable in ["RUSTUP_TOOLCHAIN", "RUSTC", "CARGO"] {
        again.env_remove(variable);
    }
    let mut child = again.stderr(Stdio::piped()).spawn().context("cannot run the suites")?;
    let complaints = BufReader::new(child.stderr.take().context("it has a standard error")?);
    let mut warnings = 0;
    for line in complaints.lines().map_while(Result::ok) {
        eprintln!("{line}");
        warnings += usize::from(complains(&line));
    }
    let version = Command::new(bin.join("rustc")).arg("--version").output()?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    Ok(Verdict::Told(match child.wait()?.success() {
        true if warnings == 0 => format!("{version} builds everything without a warning"),
        true => format!("{version} builds everything, with {warnings} warnings"),
        false => format!("{version} refuses something, see above ({warnings} warnings and errors)"),
    }))
}

/// Whether a line begins a warning or an error of the compiler's.
fn complains(line: &str) -> bool {
    ["warning: ", "warning[", "error: ", "error["].iter().any(|start| line.starts_with(start))
}

/// Directory of the newest stable toolchain's programs in the rustup home `home`, which is made; the one that
/// is there, if none can be fetched.
fn fetch(home: &Path) -> Result<PathBuf> {
    eprintln!("nom: fetching the newest stable Rust into {}: about 600 MB, a minute", home.display());
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", CHANNEL, "--no-self-update", "--profile", "minimal"]);
    rustup.args(["--component", &PIN.components().join(",")]).env("RUSTUP_HOME", home);
    rustup.env_remove("RUSTUP_TOOLCHAIN").stdin(Stdio::null());
    let status = rustup.status().context("no rustup")?;
    let toolchains = std::fs::read_dir(home.join("toolchains")).into_iter().flatten().flatten();
    let mut bins = toolchains
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(CHANNEL))
        .map(|entry| entry.path().join("bin"));
    match bins.find(|bin| bin.join("cargo").is_file()) {
        Some(bin) => Ok(bin),
        None => bail!("rustup cannot fetch the newest stable toolchain: {status}"),
    }
}

/// The search path with `bin` before everything else.
fn path(bin: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(all).context("a directory of the search path has a colon")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_from_what_is_said_otherwise() {
        for line in ["warning: use of deprecated method", "error: could not compile", "error[E0001]: x"] {
            assert!(complains(line), "{line}");
        }
        assert!(!complains("   Compiling warning v1.0") && !complains("  |  warning: in a source"));
    }

    #[test]
    fn a_toolchain_comes_before_the_others() {
        let path = path(Path::new("/a toolchain/bin")).expect("a path");
        assert_eq!(std::env::split_paths(&path).next().expect("one"), Path::new("/a toolchain/bin"));
    }
}
