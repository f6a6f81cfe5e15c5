//! Measures nom, and Linux beside it in the same run, and says what came out.
//!
//! Every bench makes [`Record`]s, judges them by [`Target`]s and hands both to a [`Report`], which writes
//! `results.json`, `results.csv`, figures and one self-contained `report.html`. [`machine`] runs a guest
//! in QEMU and collects what it reported; [`linux`] makes the Debian guest that nom is compared with.
//! `docs/bench.md` says how each figure is measured.
#![forbid(unsafe_code)]

pub mod boot;
pub mod demo;
pub mod environment;
pub mod figure;
pub mod linux;
pub mod machine;
pub mod record;
pub mod report;
pub mod search;
pub mod serve;
pub mod statistics;
pub mod table;
pub mod target;

use std::path::PathBuf;

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
