//! Applications outside of the checkout: a cargo package beside the manifest whose `program` it is.
//!
//! Such a package knows nothing of targets, profiles and flags: they are the checkout's, and given to cargo
//! here. Cargo itself finds out whether anything changed, since only it knows all that a stranger's package
//! is made of.

use crate::guest::{self, PROFILE};
use crate::programs::Package;
use crate::{Project, Toolchain, World};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The directory below a package's target directory in which nom builds.
const TARGET: &str = "target/nom";

/// A program of a package outside of the checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnProgram {
    /// The package's directory.
    pub directory: PathBuf,
    /// The binary's name.
    pub binary: String,
}

impl Project {
    /// The program that the manifest `file` calls `name`, if a package beside that file makes it. `None` if
    /// there is no package, or it is one of the checkout's.
    ///
    /// # Errors
    /// If the package cannot be read, or makes no such program though the checkout does not either.
    pub(crate) fn own_program(&self, file: &Path, name: &str) -> Result<Option<OwnProgram>> {
        let Some(directory) = self.own_directory(file)? else { return Ok(None) };
        let package = Package::read(&directory)?;
        match package.binary(name) {
            Some(binary) => Ok(Some(OwnProgram { binary: binary.to_owned(), directory })),
            None if self.catalogue()?.find(name).is_ok() => Ok(None),
            None => bail!(
                "{}: `program` is `{name}`, but {} makes {}",
                file.display(),
                directory.join("Cargo.toml").display(),
                if package.binaries.is_empty() { "no program".into() } else { package.binaries.join(", ") }
            ),
        }
    }

    /// The directory of the package beside the manifest `file`, unless that is in the checkout.
    fn own_directory(&self, file: &Path) -> Result<Option<PathBuf>> {
        let file = file.canonicalize().with_context(|| format!("no manifest {}", file.display()))?;
        let directory = file.parent().unwrap_or(Path::new("/"));
        let is_own = directory.join("Cargo.toml").is_file() && !directory.starts_with(self.root());
        Ok(is_own.then(|| directory.to_owned()))
    }

    /// Builds a program of one's own for the guest; returns its ELF file, with symbols.
    ///
    /// # Errors
    /// If there is no toolchain for it, or cargo fails; what cargo said is on standard error.
    pub(crate) fn build_own(&self, program: &OwnProgram) -> Result<PathBuf> {
        let toolchain = Toolchain::find(self.root())?;
        let target = program.directory.join(TARGET).join("guest");
        let mut cargo = guest::cargo(&toolchain, self.root(), &target, World::Application);
        cargo.args(self.profile_settings()?.iter().flat_map(|setting| ["--config", setting]));
        let output = target.join(World::Application.output()).join(&program.binary);
        program.run(cargo, &output, "the guest")?;
        Ok(output)
    }

    /// Builds a program of one's own for this computer, optimised, with line numbers for profilers.
    ///
    /// # Errors
    /// As [`Project::build_own`].
    pub(crate) fn build_own_process(&self, program: &OwnProgram) -> Result<PathBuf> {
        let target = program.directory.join(TARGET).join("process");
        let mut cargo = host_cargo(self.root())?;
        cargo.args(["build", "--release", "--config", "profile.release.debug='line-tables-only'"]);
        cargo.arg("--target-dir").arg(&target).stdout(Stdio::null());
        let output = target.join("release").join(&program.binary);
        program.run(cargo, &output, "this computer")?;
        Ok(output)
    }

    /// Runs the tests of the package in `directory`; `arguments` go to cargo. Whether they passed.
    ///
    /// # Errors
    /// If `directory` has no package, or cargo cannot be run.
    pub fn test_own(&self, directory: &Path, arguments: &[String]) -> Result<bool> {
        Package::read(directory)?;
        let mut cargo = host_cargo(self.root())?;
        let status = cargo.current_dir(directory).arg("test").args(arguments).status();
        Ok(status.context("cannot run cargo")?.success())
    }

    /// The profile of guests as cargo's option `--config` takes it, which a package outside of the checkout's
    /// workspace does not have.
    fn profile_settings(&self) -> Result<Vec<String>> {
        let path = self.root().join("Cargo.toml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let manifest: toml::Table =
            toml::from_str(&text).with_context(|| format!("{} is no manifest", path.display()))?;
        let profile = manifest.get("profile").and_then(|profiles| profiles.get(PROFILE));
        let profile = profile.with_context(|| format!("{} has no profile {PROFILE}", path.display()))?;
        Ok(dotted(&format!("profile.{PROFILE}"), profile))
    }
}

impl OwnProgram {
    /// Lets cargo build it where it is; it says what it does if there is no `output` yet.
    fn run(&self, mut cargo: Command, output: &Path, world: &str) -> Result<()> {
        cargo.current_dir(&self.directory).args(["--bin", &self.binary]);
        if output.exists() {
            cargo.arg("--quiet");
        }
        let status = cargo.status().context("cannot run cargo")?;
        if !status.success() {
            bail!("{} does not build for {world}: cargo ended with {status}", self.directory.display());
        }
        Ok(())
    }
}

/// Cargo of the same toolchain as for guests, but for programs of this computer.
fn host_cargo(root: &Path) -> Result<Command> {
    let mut cargo = Toolchain::find(root)?.cargo();
    cargo.env_remove("RUSTC_BOOTSTRAP");
    Ok(cargo)
}

/// The leaves of a table, each as `KEY=VALUE` with all keys that lead to it.
fn dotted(key: &str, value: &toml::Value) -> Vec<String> {
    match value {
        toml::Value::Table(table) => {
            table.iter().flat_map(|(name, value)| dotted(&format!("{key}.{name}"), value)).collect()
        }
        leaf => vec![format!("{key}={leaf}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A checkout with one application, and a directory for packages beside it.
    fn places() -> (tempfile::TempDir, Project, PathBuf) {
        let root = tempfile::tempdir().expect("a temporary directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("nom/kernel/Cargo.toml", "");
        write("nom/Cargo.toml", "[profile.guest]\nlto = 'fat'\n[profile.guest.package.a]\nopt-level = 3");
        write("nom/apps/hello/Cargo.toml", "[package]\nname = 'nom-hello'");
        write("nom/apps/hello/app.toml", "name = 'hello'\nprogram = 'nom-hello'");
        write("nom/apps/hello/src/main.rs", "");
        write("kv/Cargo.toml", "[package]\nname = 'kv'");
        write("kv/src/main.rs", "");
        write("kv/app.toml", "");
        let project = Project::at(&root.path().join("nom")).expect("a checkout");
        let kv = root.path().canonicalize().expect("it is there").join("kv");
        (root, project, kv)
    }

    #[test]
    fn a_package_beside_the_manifest_is_found_by_its_name_alone() {
        let (_root, project, kv) = places();
        let found = project.own_program(&kv.join("app.toml"), "kv").expect("legal");
        assert_eq!(found, Some(OwnProgram { directory: kv.clone(), binary: "kv".into() }));
        let of_the_checkout = project.own_program(&kv.join("app.toml"), "nom-hello").expect("legal");
        assert_eq!(of_the_checkout, None);
        let hello = project.root().join("apps/hello/app.toml");
        assert_eq!(project.own_program(&hello, "nom-hello").expect("legal"), None);
    }

    #[test]
    fn what_is_wrong_with_a_package_is_said() {
        let (_root, project, kv) = places();
        let error = |name: &str| {
            format!("{:#}", project.own_program(&kv.join("app.toml"), name).expect_err("refused"))
        };
        let misspelt = error("kw");
        assert!(misspelt.contains("`program` is `kw`") && misspelt.ends_with("makes kv"), "{misspelt}");
        fs::write(kv.join("Cargo.toml"), "[package\nname = 'kv'").expect("written");
        let broken = error("kv");
        assert!(broken.contains("kv/Cargo.toml") && broken.contains("line 1"), "{broken}");
        fs::remove_file(kv.join("Cargo.toml")).expect("it is there");
        assert_eq!(project.own_program(&kv.join("app.toml"), "kv").expect("legal"), None);
    }

    #[test]
    fn a_package_is_given_the_profile_of_guests() {
        let (_root, project, _) = places();
        let settings = project.profile_settings().expect("it has one");
        assert_eq!(settings, ["profile.guest.lto=\"fat\"", "profile.guest.package.a.opt-level=3"]);
    }
}
