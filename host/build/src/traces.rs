//! What a program tells of the computer that built it, and how to remove that: so that equal sources make
//! equal programs.

use crate::Project;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What takes the place of the checkout's directory in what a program says of itself.
const SOURCES: &str = "nom";
/// The same for the packages that cargo fetched, and for the standard library.
const FETCHED: &str = "cargo";
const LIBRARY: &str = "rust";

/// Has the compiler replace directories in what a program says alone, and not in what is for a debugger.
pub(crate) const SAID_ALONE: &str = "--remap-path-scope=macro";

/// What a program tells of where it was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traces {
    /// Where its sources are, line by line, for a debugger.
    Kept,
    /// Nothing: it is the same wherever it is built.
    Removed,
}

/// Has a cargo command for this computer build programs without directories of this computer in them.
///
/// # Errors
/// If the compiler cannot be asked where its library is.
pub fn remove(cargo: &mut Command, project: &Project) -> Result<()> {
    // Flags are separated by a byte that no path has.
    cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags(project)?.join("\u{1f}"));
    // Those of the C compiler by blanks: a path with one is left as it is.
    let flags: Vec<String> = mappings(project)?
        .iter()
        .map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()))
        .filter(|flag| !flag.contains(' '))
        .collect();
    cargo.env("CFLAGS", flags.join(" "));
    Ok(())
}

/// Flags of the compiler for that.
///
/// # Errors
/// As [`remove`].
pub fn flags(project: &Project) -> Result<Vec<String>> {
    let flag = |(from, to): (PathBuf, &str)| format!("--remap-path-prefix={}={to}", from.display());
    Ok(mappings(project)?.into_iter().map(flag).collect())
}

/// The same for what runs in machines. If a debugger is to find its sources, these alone are told where they
/// are: what a program says of itself, when it panics, is then as short, and the same wherever it is built.
///
/// # Errors
/// As [`remove`].
pub fn flags_of_guests(project: &Project) -> Result<Vec<String>> {
    let mut flags = flags(project)?;
    if project.traces() == Traces::Kept {
        flags.push(SAID_ALONE.into());
    }
    Ok(flags)
}

/// Directories of this computer and what is to be read in their places; the last that fits holds.
fn mappings(project: &Project) -> Result<Vec<(PathBuf, &'static str)>> {
    let sysroot = Command::new("rustc").current_dir(project.root()).args(["--print", "sysroot"]).output();
    let sysroot = sysroot.context("cannot run rustc")?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
    let home = || std::env::home_dir().map(|home| home.join(".cargo"));
    let cargo =
        std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("no home directory")?;
    let library = sysroot.join(Path::new("lib/rustlib/src/rust"));
    // Cargo names what is in the checkout from there on.
    let within = library.strip_prefix(project.root()).ok().map(Path::to_owned);
    let mut mappings = vec![
        (cargo, FETCHED),
        (project.root().to_owned(), SOURCES),
        (project.target().to_owned(), SOURCES),
        (library, LIBRARY),
    ];
    mappings.extend(within.map(|within| (within, LIBRARY)));
    Ok(mappings)
}
