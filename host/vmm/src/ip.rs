//! The command `ip` (package iproute2), by which networks are made.

use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Runs `ip` and returns what it printed. A signal of the terminal does not reach it, or it would be ended in
/// the middle of a step.
///
/// # Errors
/// If it is not installed, or refuses: the error has its words.
pub fn ip<S: AsRef<OsStr>>(arguments: &[S]) -> Result<String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).process_group(0).output();
    let output = output.context("cannot run ip: is iproute2 installed?")?;
    let words = || arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {}` failed: {}", words(), complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
