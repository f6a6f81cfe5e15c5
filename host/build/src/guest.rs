//! Builds the kernel and guest packages for bare metal.

use crate::freshness::Stamp;
use crate::toolchain::Toolchain;
use crate::traces::Traces;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Features of the standard library: memory functions of its own, and small code where that is a choice (it
/// sorts and formats numbers off the path of requests only).
const STD_FEATURES: &str = "-Zbuild-std-features=compiler-builtins-mem,optimize_for_size";

/// The profile of everything that runs in a machine; `Cargo.toml` says what is in it.
pub(crate) const PROFILE: &str = "guest";
/// Removes what tells where a program was built: paths from messages of panics, and line tables.
const TRACELESS: [&str; 5] =
    ["-Ztrim-paths", "--config", "profile.guest.trim-paths=\"all\"", "--config", "profile.guest.debug=false"];

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

    /// Directory of the target's outputs below the target directory.
    pub(crate) fn output(self) -> &'static str {
        match self {
            World::Loader => "i686-nom-loader/guest",
            World::Kernel => "x86_64-unknown-none/guest",
            World::Application => "x86_64-nom/guest",
        }
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
/// If there is no toolchain for it, or cargo fails; what cargo said is on standard error.
pub fn build(
    root: &Path,
    target_directory: &Path,
    world: World,
    package: &str,
    traces: Traces,
) -> Result<PathBuf> {
    let output = target_directory.join(world.output());
    let toolchain = Toolchain::find()?;
    let stamp = Stamp::new(target_directory.join(format!("{package}.stamp")), toolchain.key());
    if stamp.is_fresh(&world.sources(root)) {
        return Ok(output);
    }
    let started = SystemTime::now();
    let mut cargo = cargo(&toolchain, root, target_directory, world);
    cargo.current_dir(root).args(["--package", package, "--bins"]);
    if traces == Traces::Removed {
        cargo.args(TRACELESS);
    }
    if stamp.exists() {
        cargo.arg("--quiet");
    }
    let status =
        cargo.status().with_context(|| format!("cannot run {}", toolchain.bin.join("cargo").display()))?;
    if !status.success() {
        bail!("{package} does not build for the guest: cargo ended with {status}");
    }
    stamp.mark(started).context("cannot write the build stamp")?;
    Ok(output)
}
