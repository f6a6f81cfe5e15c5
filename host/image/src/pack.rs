//! The bootable ELF file.

use crate::error::Result;
use crate::lower::Lowered;
use crate::report::ImageReport;
use std::path::Path;

/// Whether the image carries the symbol tables behind readable backtraces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symbols {
    /// Of the kernel and of every application.
    #[default]
    Keep,
    /// None: addresses stay numbers.
    Omit,
}

/// A bootable image.
#[derive(Clone, Debug)]
pub struct Image {
    /// The ELF file.
    pub elf: Vec<u8>,
    /// What each part of it costs.
    pub report: ImageReport,
}

/// Packs the kernel and the bundle into one bootable ELF file.
pub fn pack(_kernel: &Path, _bundle: &Lowered, _symbols: Symbols) -> Result<Image> {
    todo!()
}
