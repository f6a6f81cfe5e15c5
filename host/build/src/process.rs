//! Applications as programs of this computer.

use crate::Project;
use anyhow::{Context, Result, bail};
use nom_image::manifest::{self, Application, Program};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An application that was built for this computer.
#[derive(Clone, Debug)]
pub struct Process {
    /// What its manifest says; of that a process heeds arguments and environment.
    pub application: Application,
    /// The ELF file.
    pub program: PathBuf,
}

impl Process {
    /// The application, to be started by `command`, which is a command that starts [`Process::program`].
    pub fn furnish<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.args(&self.application.arguments).envs(&self.application.environment)
    }
}

impl Project {
    /// Builds the application of a manifest for this computer. `arguments`, if given, take the place of the
    /// manifest's.
    ///
    /// # Errors
    /// If the manifest is wrong or has not exactly one application, or the program does not build.
    pub fn process(&self, manifest: &Path, arguments: Option<&[String]>) -> Result<Process> {
        let mut bundle = manifest::load(manifest)?;
        if let Some(arguments) = arguments {
            bundle = bundle.with_arguments(arguments);
        }
        let count = bundle.applications.len();
        let Ok([application]) = <[Application; 1]>::try_from(bundle.applications) else {
            bail!("{}: {count} applications, but a process is one", manifest.display());
        };
        let Program::Package(name) = &application.program else {
            bail!("{}: `program` is a file for nom; expected a package", manifest.display());
        };
        let program = match self.own_program(&application.places.program.file, name)? {
            Some(own) => self.build_own_process(&own)?,
            None => {
                let found = self.catalogue()?.find(name)?;
                self.build_process(&found.package, &found.binary)?
            }
        };
        Ok(Process { application, program })
    }

    /// Builds a binary for this computer, optimised; cargo sees to it that nothing is built twice.
    fn build_process(&self, package: &str, binary: &str) -> Result<PathBuf> {
        let target = self.target().join("process");
        let program = target.join("release").join(binary);
        let mut cargo = Command::new("cargo");
        cargo.current_dir(self.root()).args(["build", "--release", "--package", package, "--bin", binary]);
        cargo.arg("--target-dir").arg(&target).stdout(Stdio::null());
        if program.exists() {
            cargo.arg("--quiet");
        }
        let status = cargo.status().context("cannot run cargo")?;
        if !status.success() {
            bail!("{package} does not build for this computer: cargo ended with {status}");
        }
        Ok(program)
    }
}
