//! `nom package`.

use anyhow::Result;
use clap::Args;
use nom_build::Project;
use nom_package::{Options, Programs};
use std::path::PathBuf;

/// Options of `nom package`.
#[derive(Debug, Args)]
pub struct Package {
    /// Directory for both files.
    #[arg(long, value_name = "DIR", default_value = "release")]
    out: PathBuf,
}

/// Makes a release, and says where it is.
///
/// # Errors
/// If something does not build, a licence is not permissive, or a file cannot be written.
pub fn run(project: &Project, options: &Package) -> Result<bool> {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let time = nom_package::time(project, given.as_deref())?;
    let made = nom_package::package(
        project,
        &Options { out: options.out.clone(), time, programs: Programs::Release },
    )?;
    println!("{}\n{}", made.archive.display(), made.debian.display());
    Ok(true)
}
