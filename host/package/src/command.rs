//! Builds the command `nom` for a release: optimised, stripped, and the same wherever it is built.

use anyhow::{Context, Result, bail, ensure};
use nom_build::{Project, traces};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds the command; returns its file.
///
/// # Errors
/// If it does not build; what cargo said is on standard error.
pub fn build(project: &Project) -> Result<PathBuf> {
    let target = project.target().join("command");
    let mut cargo = Command::new("cargo");
    cargo.current_dir(project.root()).args(["build", "--release", "--locked", "--package", "nom-cli"]);
    cargo.args(["--config", "profile.release.strip=true", "--target-dir"]).arg(&target);
    traces::remove(&mut cargo, project)?;
    let status = cargo.stdout(Stdio::null()).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the command does not build: cargo ended with {status}");
    }
    Ok(target.join("release/nom"))
}

/// What the command prints when it is run with these arguments.
///
/// # Errors
/// If it cannot be run, or fails.
pub fn ask(command: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(command).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {}", command.display()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`nom {}`: {}", arguments.join(" "), complaint.trim());
    Ok(output.stdout)
}
