//! `nom bench boot`: from the kernel's first instruction to the application's, and what it takes.

use std::path::PathBuf;

/// What to measure, with what, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory for `results.json`, `results.csv`, the figures and `report.html`; created.
    pub out: PathBuf,
    /// Directory for what is fetched or made once (the Debian kernel), for example `.nom/bench`; created.
    pub cache: PathBuf,
    /// nom's bootable file with the application `hello`.
    pub hello: PathBuf,
    /// nom's bootable file with the guest test `measure`, which prints `figure name=.. cycles=..` lines.
    pub measure: PathBuf,
    /// How often each timed run is repeated.
    pub repetitions: u32,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The report, for the person who asked.
    pub report: PathBuf,
    /// What could not be measured, and why; one sentence each.
    pub notes: Vec<String>,
}

/// Runs the bench: measures nom and, where its kernel can be had, Linux; writes everything to `options.out`.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let _ = options;
    anyhow::bail!("nom bench boot is not written yet")
}
