//! Builds the kernel and guest packages for bare metal.

use crate::freshness::Stamp;
use crate::toolchain::Toolchain;
use crate::traces::{self, Traces};
use crate::{Listener, Project};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Features of the standard library: memory functions of its own, and small code where that is a choice (it
/// sorts and formats numbers off the path of requests only).
const STD_FEATURES: &str = "-Zbuild-std-features=compiler-builtins-mem,optimize_for_size";

/// The profile of everything that runs in a machine; `Cargo.toml` says what is in it.
pub(crate) const PROFILE: &str = "guest";
/// One world of guest code: its target and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// Before ring 0: what unpacks it.
    Loader,
    /// Ring 0.
    Kernel,
    /// Ring 3.
    Application,
}

impl World {
    /// Arguments that choose the target.
    fn target_arguments(self, root: &Path) -> Vec<String> {
        let target = match self {
            World::Loader => root.join("targets/i686-nom-loader.json").display().to_string(),
            World::Kernel => "x86_64-unknown-none".to_owned(),
            World::Application => root.join("targets/x86_64-nom.json").display().to_string(),
        };
        vec!["--target".to_owned(), target, "-Zjson-target-spec".to_owned()]
    }

    /// What cargo calls the target.
    fn triple(self) -> &'static str {
        match self {
            World::Loader => "i686-nom-loader",
            World::Kernel => "x86_64-unknown-none",
            World::Application => "x86_64-nom",
        }
    }

    /// Directory of the target's outputs below the target directory.
    pub(crate) fn output(self) -> PathBuf {
        Path::new(self.triple()).join(PROFILE)
    }

    /// Everything its programs are made of; what is absent counts as never changed.
    fn sources(self, root: &Path) -> Vec<PathBuf> {
        let own: &[&str] = match self {
            World::Loader => &["loader", "targets"],
            World::Kernel => &["kernel"],
            World::Application => &["libos", "economy", "apps", "tests/guest", "host/bench/guest", "targets"],
        };
        let common = ["abi", ".cargo", "Cargo.toml", "Cargo.lock"];
        own.iter().chain(&common).map(|path| root.join(path)).collect()
    }
}

/// What cargo is told to build programs of `world` into `target_directory`, but for what to build.
pub(crate) fn cargo(toolchain: &Toolchain, root: &Path, target_directory: &Path, world: World) -> Command {
    let mut cargo = toolchain.cargo();
    cargo
        .args(["build", "--profile", PROFILE])
        .args(world.target_arguments(root))
        .args(["-Zbuild-std=core,alloc,compiler_builtins", STD_FEATURES])
        .arg("--target-dir")
        .arg(target_directory)
        .stdout(Stdio::null());
    cargo
}

/// Builds `package` unless nothing that it is made of changed, and returns the directory of its programs.
///
/// # Errors
/// If there is no toolchain for it, or cargo fails; what cargo said is on standard error, or in the error.
pub(crate) fn build(project: &Project, world: World, package: &str) -> Result<PathBuf> {
    let (root, target_directory) = (project.root(), project.guest_target());
    let output = target_directory.join(world.output());
    let toolchain = Toolchain::find(root)?;
    let key = format!("{} {:?} {}", toolchain.key(), project.traces(), traces::SAID_ALONE);
    let stamp = Stamp::new(stamp_path(project, package), key);
    if stamp.is_fresh(&world.sources(root)) {
        return Ok(output);
    }
    let started = SystemTime::now();
    let mut cargo = cargo(&toolchain, root, &target_directory, world);
    cargo.current_dir(root).args(["--package", package, "--bins"]).stdin(Stdio::null());
    if project.traces() == Traces::Removed {
        cargo.args(["--config", "profile.guest.debug=false"]);
    }
    let flags = traces::flags_of_guests(project)?;
    cargo.arg("--config").arg(format!("target.{}.rustflags={flags:?}", world.triple()));
    run(cargo, &project.listener, stamp.exists())
        .with_context(|| format!("{package} does not build for the guest"))?;
    stamp.mark(started).context("cannot write the build stamp")?;
    Ok(output)
}

/// Where it is noted when a package was built.
pub(crate) fn stamp_path(project: &Project, package: &str) -> PathBuf {
    project.guest_target().join(format!("{package}.stamp"))
}

/// Runs cargo, which talks to the terminal, if at all, or to `listener`.
fn run(mut cargo: Command, listener: &Listener, quiet: bool) -> Result<()> {
    let name = cargo.get_program().display().to_string();
    let Some(listener) = &listener.0 else {
        if quiet {
            cargo.arg("--quiet");
        }
        let status = cargo.status().with_context(|| format!("cannot run {name}"))?;
        ensure!(status.success(), "cargo ended with {status}");
        return Ok(());
    };
    let mut child = cargo.stderr(Stdio::piped()).spawn().with_context(|| format!("cannot run {name}"))?;
    let said = child.stderr.take().context("cargo has a standard error")?;
    let mut all = String::new();
    for line in BufReader::new(said).lines().map_while(Result::ok) {
        listener(line.trim());
        all += &line;
        all.push('\n');
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo ended with {status}:\n{all}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Says two lines to standard error, and ends with this status.
    fn talker(status: u8) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("printf '  Compiling a\n  no room\n' >&2; exit {status}")]);
        command
    }

    #[test]
    fn whoever_listens_hears_each_line_and_the_terminal_none() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = heard.clone();
        let listener =
            Listener(Some(Arc::new(move |line: &str| ear.lock().expect("unshared").push(line.to_owned()))));
        run(talker(0), &listener, false).expect("it succeeds");
        assert_eq!(*heard.lock().expect("unshared"), ["Compiling a", "no room"]);
        let error = run(talker(3), &listener, false).expect_err("it fails").to_string();
        assert!(error.contains("3") && error.contains("no room"), "{error}");
    }
}
