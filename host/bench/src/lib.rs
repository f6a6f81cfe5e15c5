//! Measures nom, and Linux beside it in the same run, and says what came out.
//!
//! Every bench makes [`Record`]s, judges them by [`Target`]s and hands both to a [`Report`], which writes
//! `results.json`, `results.csv`, figures and one self-contained `report.html`. [`machine`] runs a guest
//! in QEMU and collects what it reported; [`linux`] makes the Debian guest that nom is compared with.
//! `docs/bench.md` says how each figure is measured.
#![forbid(unsafe_code)]

pub mod boot;
pub mod bulk;
pub mod demo;
pub mod environment;
pub mod figure;
pub mod floods;
pub mod grid;
pub mod linux;
pub mod machine;
pub mod others;
pub mod record;
pub mod report;
pub mod search;
pub mod serve;
pub mod statistics;
pub mod table;
pub mod target;
pub mod unmodified;
pub mod wire;

use anyhow::{Context, Result};
use nom_build::Project;
use std::path::{Path, PathBuf};

/// What came out of a bench.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The report, for the person who asked.
    pub report: PathBuf,
    /// What was found, for a terminal; none where the verdicts say it all.
    pub tables: Vec<Table>,
    /// How each target stands: what must hold, and the verdict with the measured value.
    pub verdicts: Vec<String>,
    /// What could not be measured, and why; one sentence each.
    pub notes: Vec<String>,
}

pub use record::{Record, Unit};
pub use report::Report;
pub use table::Table;
pub use target::Target;

/// The directory in which what is fetched or made once lies; it is made if it is not there.
fn cache(project: &Project) -> Result<PathBuf> {
    let cache = project.cache().join("bench");
    make_directory(&cache)?;
    Ok(cache)
}

/// Makes a directory now, and not after minutes of measuring.
fn make_directory(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot create directory {}", directory.display()))
}
