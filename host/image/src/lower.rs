//! Manifest and programs together.

use crate::error::Result;
use crate::manifest::{BundleManifest, Program};
use std::path::PathBuf;

/// A bundle whose programs have been read and checked.
#[derive(Clone, Debug)]
pub struct Lowered {}

/// Reads and checks each program of the bundle; `resolve` gives the ELF file of a program.
pub fn lower(
    _bundle: &BundleManifest,
    _resolve: impl Fn(&Program) -> std::result::Result<PathBuf, Box<dyn std::error::Error + Send + Sync>>,
) -> Result<Lowered> {
    todo!()
}
