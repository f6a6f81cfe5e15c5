//! Makes a release: everything that runs applications on a computer without a compiler or a network, as a
//! tar archive and as a Debian package.
//!
//! ```text
//! checkout --build--> command, loader, kernel, programs --assemble--> Tree --> nom-VERSION-...tar.gz
//! cargo metadata ---> licences --------------------------------------^    \-> nom_VERSION_amd64.deb
//! ```
//!
//! Equal sources make equal bytes: files are sorted, nobody owns them, all times are one, and no program
//! names a directory of the computer that built it. `nom_build::Release` reads what is written here, and
//! `docs/package.md` is for whoever installs it.
#![forbid(unsafe_code)]

mod archive;
mod assemble;
mod command;
mod debian;
mod libraries;
mod licences;
mod tree;

use anyhow::{Context, Result};
use nom_build::Project;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use tree::{Entry, Tree};

/// The version of everything in this workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How a release is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory for both files; it is made if it is absent.
    pub out: PathBuf,
    /// Time of every file, in seconds since 1970.
    pub time: u64,
    /// Where the programs in it come from.
    pub programs: Programs,
}

/// Which programs go into a release.
#[derive(Clone, Debug)]
pub enum Programs {
    /// Optimised ones, without a trace of where they were built.
    Release,
    /// This command `nom`, and the checkout's programs as they are: for tests.
    AsTheyAre(PathBuf),
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The tar archive.
    pub archive: PathBuf,
    /// The Debian package.
    pub debian: PathBuf,
}

/// Makes both files of a release.
///
/// # Errors
/// If something does not build, a licence is not permissive, or a file cannot be read or written.
pub fn package(project: &Project, options: &Options) -> Result<Made> {
    let (project, command) = match &options.programs {
        Programs::Release => {
            let project = project.for_release()?;
            let command = command::build(&project)?;
            (project, command)
        }
        Programs::AsTheyAre(command) => (project.clone(), command.clone()),
    };
    let needed = libraries::debian_packages(&command)?;
    let tree = assemble::assemble(&project, &command, options.time)?;
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    let archive = options.out.join(format!("nom-{VERSION}-x86_64-linux.tar.gz"));
    write(&archive, &archive::tar_gz(&tree, &format!("nom-{VERSION}/"), options.time)?)?;
    let debian = options.out.join(format!("nom_{VERSION}_amd64.deb"));
    write(&debian, &debian::package(&tree, &needed, options.time)?)?;
    Ok(Made { archive, debian })
}

fn write(path: &Path, contents: &[u8]) -> Result<()> {
    std::fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

/// The time that a release of this checkout is to have: `given`, the variable `SOURCE_DATE_EPOCH`
/// (reproducible-builds.org), else that of the last commit, else 0.
///
/// # Errors
/// If what is given is no number of seconds.
pub fn time(project: &Project, given: Option<&str>) -> Result<u64> {
    if let Some(given) = given {
        return given
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH is `{given}`: expected seconds since 1970"));
    }
    let mut git = Command::new("git");
    git.arg("-C").arg(project.root()).args(["log", "--max-count=1", "--format=%ct"]);
    let output = git.output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    Ok(text.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
}
