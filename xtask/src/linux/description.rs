//! What is said of a suite in its file.

use super::verdicts::Results;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A suite. Commands and paths have `@` for the directory that the suite is fetched to and built in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Description {
    /// What it is.
    pub title: String,
    /// How many of its tests pass on Linux, in Debian 12: documents say so.
    pub passes: usize,
    /// Debian's source packages, each of which is unpacked into a directory of its name.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Debian's packages, which are unpacked into `root`, and not installed.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Programs that are needed to build and run it, as packages that have their names, or `PACKAGE:PROGRAM`.
    #[serde(default)]
    pub tools: Vec<String>,
    /// How it is built, by a shell, in the suite's directory. It makes the file `list`: a test a line, its
    /// name, a tab, its command.
    pub build: String,
    /// Where tests run.
    pub directory: String,
    /// What a machine needs of this computer to run it.
    pub include: Vec<String>,
    /// Variables that tests get.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Seconds after which a test is late.
    pub limit_s: u64,
    /// A machine's memory, as `nom run -m` takes it.
    pub memory: String,
    /// How what tests print is understood.
    pub results: Results,
    /// How the names of the tests begin that run whenever all suites of `nom test` do.
    #[serde(default)]
    pub quick: Vec<String>,
    /// Tests that do not run anywhere, and why.
    #[serde(default)]
    pub left_out: BTreeMap<String, String>,
}

impl Description {
    /// Reads a suite's file.
    ///
    /// # Errors
    /// If it cannot be read, or says something else than expected.
    pub fn read(path: &Path) -> Result<Description> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is no suite", path.display()))
    }
}

/// The suites that are described in a directory.
///
/// # Errors
/// If it cannot be read.
pub fn names(directory: &Path) -> Result<Vec<String>> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}
