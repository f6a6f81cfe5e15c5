//! What programs ask of a system most, timed and counted by one program that both run
//! (`guest/primitives.c`, compiled when needed with this computer's C compiler).

use crate::linux::serve::Servers;
use crate::linux::{Tuning, save};
use crate::machine::{self, Guest, Setting};
use crate::serve::guests::{NOM, nom_bundle, running};
use anyhow::{Context, Result, ensure};
use nom_build::Project;
use nom_image::{Command, Root};
use std::path::{Path, PathBuf};

const SOURCE: &str = include_str!("../../guest/primitives.c");
/// What it prints last.
const END: &str = "figures end";

/// Each system's name, and its machine that runs the program and ends.
pub struct Primitives {
    /// nom's and the Debian guest's, of one processor.
    pub guests: [(&'static str, Guest); 2],
}

impl Primitives {
    /// The same machines with two processors.
    pub fn of_two(&self) -> [(&'static str, Guest); 2] {
        self.guests.clone().map(|(system, guest)| (system, Guest { cores: 2, ..guest }))
    }
}

impl Primitives {
    /// Compiles the program, and makes a machine of it for each system in `directory`.
    ///
    /// # Errors
    /// If there is no C compiler, or nom does not build.
    pub fn prepare(project: &Project, servers: &Servers, directory: &Path) -> Result<Primitives> {
        let program = compile(directory)?;
        let path = program.to_str().context("the program's path is not UTF-8")?;
        let root = Root::of_program(Path::new("/"), path, &[])?;
        let bundle = running(project, root, &Command::plain(path, &[]))?;
        let (nom, _) = nom_bundle(project, bundle, &directory.join("nom-primitives"))?;
        let initramfs = directory.join("linux-primitives");
        servers.once(&program, &initramfs)?;
        let (kernel, arguments) = (servers.bzimage.clone(), Tuning::Shipped.arguments());
        let linux = Guest { kernel, initramfs: Some(initramfs), arguments, cores: 1 };
        Ok(Primitives { guests: [(NOM, nom), (Tuning::Shipped.name(), linux)] })
    }
}

/// The figures of one run: by name, in cycles.
///
/// # Errors
/// If the program did not print them all; with what was printed last.
pub fn figures(guest: &Guest, setting: &Setting) -> Result<Vec<(String, u64)>> {
    let run = machine::run(guest, setting)?;
    let figures = run.figures();
    let last = run.outcome.serial.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let is_whole = run.outcome.serial.lines().any(|line| line.trim() == END);
    ensure!(is_whole, "the program did not come to its end, and wrote last: {}", last.trim());
    Ok(figures)
}

fn compile(directory: &Path) -> Result<PathBuf> {
    let (source, program) = (directory.join("primitives.c"), directory.join("primitives"));
    save(&source, SOURCE.as_bytes())?;
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).args([&program, &source]);
    let output = compiler.output().context("cannot run cc")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc cannot compile {}:\n{complaint}", source.display());
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_prints_its_figures_here_too() {
        let directory = tempfile::tempdir().unwrap();
        let Ok(program) = compile(directory.path()) else {
            return println!("skipped: there is no C compiler");
        };
        let output = std::process::Command::new(program).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{printed}");
        let names: Vec<&str> =
            printed.lines().filter_map(|line| line.strip_prefix("figure name=")?.split(' ').next()).collect();
        assert!(names.contains(&"context_switch") && printed.lines().last() == Some(END), "{printed}");
    }
}
