//! Fetching and building suites. Debian's packages are fetched by lists of their own, which know sources,
//! too, and leave this computer's as they are.

use super::Suite;
use anyhow::{Context, Result, ensure};
use nom_build::debian::{self, Tool};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's release that suites are of.
const LISTS: &str = "\
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
";

/// Fetches and builds what is not there, or is of another description.
///
/// # Errors
/// If something is missing, or fails; what a build printed is in `build.log`.
pub fn set_up(suite: &Suite<'_>) -> Result<()> {
    let Suite { description, home, .. } = suite;
    let stamp = home.join("built");
    let key = format!("{description:?}");
    if fs::read_to_string(&stamp).is_ok_and(|built| built == key) {
        return Ok(());
    }
    let tool = |name: &String| {
        let name: &'static str = name.clone().leak();
        let (package, program) = name.split_once(':').unwrap_or((name, name));
        Tool { package, probe: vec![program].leak() }
    };
    debian::set_up(&description.tools.iter().map(tool).collect::<Vec<_>>()).context(Unobtainable)?;
    if home.exists() {
        fs::remove_dir_all(home).with_context(|| format!("cannot remove {}", home.display()))?;
    }
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    if !description.sources.is_empty() || !description.packages.is_empty() {
        fetch(suite).context(Unobtainable)?;
    }
    build(suite)?;
    fs::write(&stamp, key).with_context(|| format!("cannot write {}", stamp.display()))
}

/// A suite cannot be fetched, or built with what there is here.
#[derive(Debug)]
pub struct Unobtainable;

impl std::fmt::Display for Unobtainable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the sources of suites cannot be fetched here")
    }
}

/// apt-get with lists of its own.
fn apt_get(suite: &Suite<'_>) -> Result<(Command, PathBuf)> {
    let own = suite.project.target().join("linux-suites/apt");
    fs::create_dir_all(own.join("lists/partial")).context("cannot make a directory for apt's lists")?;
    let list = own.join("sources.list");
    fs::write(&list, LISTS).context("cannot write a list for apt")?;
    let mut command = Command::new("apt-get");
    command.args(["-qq", "-o", "Dir::Etc::SourceParts=/dev/null", "-o", "APT::Sandbox::User=root"]);
    command.arg("-o").arg(format!("Dir::Etc::SourceList={}", list.display()));
    command.arg("-o").arg(format!("Dir::State::Lists={}", own.join("lists").display()));
    command.current_dir(&suite.home);
    Ok((command, own))
}

fn fetch(suite: &Suite<'_>) -> Result<()> {
    let (mut update, own) = apt_get(suite)?;
    let updated = own.join("updated");
    if !updated.exists() {
        finish(update.arg("update"))?;
        fs::write(&updated, "").context("cannot note that apt's lists are there")?;
    }
    let fetched = |kind: &str, names: &[String]| match names {
        [] => Ok(()),
        names => finish(apt_get(suite)?.0.args(kind.split(' ')).args(names)),
    };
    fetched("source --download-only", &suite.description.sources)?;
    fetched("download", &suite.description.packages)?;
    for name in &suite.description.sources {
        let found = matching(&suite.home, &format!("{name}_"), ".dsc")?;
        finish(
            Command::new("dpkg-source").arg("--no-check").arg("-x").arg(found).arg(suite.home.join(name)),
        )?;
    }
    for name in &suite.description.packages {
        let found = matching(&suite.home, &format!("{name}_"), ".deb")?;
        finish(Command::new("dpkg-deb").arg("-x").arg(found).arg(suite.home.join("root")))?;
    }
    Ok(())
}

/// The file whose name begins and ends so.
fn matching(directory: &Path, start: &str, end: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut found = entries.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && name.ends_with(end)
    });
    found.next().with_context(|| format!("apt-get fetched no {start}*{end}"))
}

fn build(suite: &Suite<'_>) -> Result<()> {
    let log = suite.home.join("build.log");
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new("sh");
    command.args(["-eu", "-c", &suite.place(&suite.description.build)]).current_dir(&suite.home);
    command.envs(suite.environment()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().context("cannot run sh")?;
    ensure!(status.success(), "it does not build: {} says why", log.display());
    let each = suite.project.root().join("tests/linux/each.c");
    finish(Command::new("cc").args(["-O1", "-o"]).arg(suite.home.join("each")).arg(each))
}

/// Runs a command whose output is of no interest unless it fails.
fn finish(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", complaint.trim());
    Ok(())
}

impl Suite<'_> {
    /// `text` with the suite's directory in place of `@`.
    pub fn place(&self, text: &str) -> String {
        text.replace('@', &self.home.display().to_string())
    }

    /// Variables of its build and its tests.
    pub fn environment(&self) -> Vec<(String, String)> {
        let own = self.description.environment.iter();
        own.map(|(name, value)| (name.clone(), self.place(value))).collect()
    }
}
