//! What each part of an image costs, for `nom build --json`.

use serde::Serialize;

/// Sizes of a whole image, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageReport {
    /// The image file.
    pub file_bytes: u64,
    /// The kernel.
    pub kernel: PartReport,
    /// Each application, in the bundle's order.
    pub applications: Vec<PartReport>,
    /// The bundle's tables and strings without symbols.
    pub tables_bytes: u64,
    /// The whole bundle.
    pub bundle_bytes: u64,
}

/// Sizes of the kernel or of one application, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// `kernel`, or the application's name.
    pub name: String,
    /// Executable contents.
    pub text_bytes: u64,
    /// Read-only contents.
    pub rodata_bytes: u64,
    /// Contents that may change.
    pub data_bytes: u64,
    /// Memory that starts as zeros and takes no room in the file.
    pub zero_bytes: u64,
    /// Symbol table.
    pub symbols_bytes: u64,
    /// Number of functions in the symbol table.
    pub symbols: u32,
}
