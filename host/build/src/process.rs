//! Applications as programs of this computer.

use crate::Project;
use crate::release::PROCESSES;
use crate::traces::{self, Traces};
use anyhow::{Context, Result, bail};
use nom_image::Place;
use nom_image::manifest::{Application, BundleManifest, Files, Program};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// An application that was built for this computer.
#[derive(Clone, Debug)]
pub struct Process {
    /// What its manifest says; of that a process heeds arguments and environment.
    pub application: Application,
    /// The ELF file.
    pub program: PathBuf,
    /// The archive of its files, in memory, which the processes that are started inherit.
    files: Option<Arc<File>>,
}

impl Process {
    /// The application, to be started by `command`, which is a command that starts [`Process::program`].
    pub fn furnish<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        // Opened anew by whoever starts, each from its beginning.
        let files = self.files.iter().map(|files| format!("/proc/self/fd/{}", files.as_raw_fd()));
        command.args(&self.application.arguments).envs(&self.application.environment);
        command.envs(files.map(|path| ("files", path)))
    }
}

impl Project {
    /// Builds the application of a bundle for this computer.
    ///
    /// # Errors
    /// If the bundle has not exactly one application, the program does not build, or a file that goes along
    /// with it cannot be read.
    pub fn process(&self, bundle: BundleManifest) -> Result<Process> {
        let count = bundle.applications.len();
        let Ok([application]) = <[Application; 1]>::try_from(bundle.applications) else {
            bail!("{count} applications in a bundle, but a process is one");
        };
        let place = &application.places.program;
        // Before the program, which may have to be built.
        let files = application.files.as_ref().map(in_memory).transpose()?;
        let Program::Package(name) = &application.program else {
            bail!("{place}: `program` is a file for nom; expected a package");
        };
        let program = match self.release() {
            Some(release) => release.program(PROCESSES, name),
            None => self.process_program(place, name),
        };
        let program = program.with_context(|| format!("{place}: program `{name}`"))?;
        Ok(Process { application, program, files })
    }

    /// The program that the manifest at `place` calls `name`, built for this computer.
    fn process_program(&self, place: &Place, name: &str) -> Result<PathBuf> {
        match self.own_program(&place.file, name)? {
            Some(own) => self.build_own_process(&own),
            None => {
                let found = self.catalogue()?.find(name)?;
                self.build_process(&found.package, &found.binary)
            }
        }
    }

    /// Builds a program of the project's own with one of cargo's profiles; returns its file.
    ///
    /// # Errors
    /// If it does not build; what cargo said is on standard error.
    pub fn tool(&self, package: &str, profile: &str) -> Result<PathBuf> {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(self.root()).args(["build", "--quiet", "--profile", profile, "--package", package]);
        let status = cargo.arg("--target-dir").arg(self.target()).status().context("cannot run cargo")?;
        if !status.success() {
            bail!("{package} does not build: cargo ended with {status}");
        }
        // Cargo's own name for the directory of this one profile.
        let directory = if profile == "dev" { "debug" } else { profile };
        Ok(self.target().join(directory).join(package))
    }

    /// Builds a binary for this computer, optimised; cargo sees to it that nothing is built twice.
    fn build_process(&self, package: &str, binary: &str) -> Result<PathBuf> {
        let target = self.target().join("process");
        let program = target.join("release").join(binary);
        let mut cargo = Command::new("cargo");
        cargo.current_dir(self.root()).args(["build", "--release", "--package", package, "--bin", binary]);
        cargo.arg("--target-dir").arg(&target).stdout(Stdio::null());
        if self.traces() == Traces::Removed {
            cargo.args(["--config", "profile.release.strip=true"]);
            traces::remove(&mut cargo, self)?;
        }
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

/// The archive of these files in a file that has no name and goes with the last who has it open.
fn in_memory(files: &Files) -> Result<Arc<File>> {
    let archive = files.archive()?;
    let mut file = File::from(memfd_create("nom-files", MemfdFlags::empty()).context("no file in memory")?);
    file.write_all(&archive).context("no memory for the archive of files")?;
    Ok(Arc::new(file))
}
