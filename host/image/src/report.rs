//! What each part of an image costs, for `nom build --json`.

use crate::bundle::Encoded;
use crate::kernel::Kernel;
use crate::lower::{Lowered, LoweredApplication};
use crate::symbols::{SymbolTable, Symbols};
use nom_abi::Protection;
use serde::Serialize;

/// Sizes of a whole image, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageReport {
    /// The image file.
    pub file_bytes: u64,
    /// Kernel and bundle, as the file has them: compressed, if it is to be small. All sizes below are as
    /// unpacked.
    pub packed_bytes: u64,
    /// The whole bundle, as loaded.
    pub bundle_bytes: u64,
    /// The bundle's tables and strings.
    pub tables_bytes: u64,
    /// All symbol tables; equal ones are there once.
    pub symbols_bytes: u64,
    /// The kernel.
    pub kernel: PartReport,
    /// Each application, in the bundle's order. Contents that several have are there once.
    pub applications: Vec<PartReport>,
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
    /// Functions in the symbol table.
    pub symbols: u64,
}

impl ImageReport {
    pub(crate) fn new(
        (file_bytes, packed_bytes): (usize, usize),
        kernel: &Kernel<'_>,
        bundle: &Lowered,
        encoded: &Encoded,
        symbols: Symbols,
    ) -> ImageReport {
        ImageReport {
            file_bytes: file_bytes as u64,
            packed_bytes: packed_bytes as u64,
            bundle_bytes: encoded.bytes.len() as u64,
            tables_bytes: encoded.tables_bytes as u64,
            symbols_bytes: encoded.symbols_bytes as u64,
            kernel: kernel_report(kernel, symbols),
            applications: bundle.applications.iter().map(|app| application_report(app, symbols)).collect(),
        }
    }
}

impl PartReport {
    fn new(name: &str, table: &SymbolTable, symbols: Symbols) -> PartReport {
        let (symbols_bytes, symbols) = match symbols {
            Symbols::Keep => (table.encode().len() as u64, table.len() as u64),
            Symbols::Omit => (0, 0),
        };
        let name = name.to_owned();
        PartReport {
            name,
            text_bytes: 0,
            rodata_bytes: 0,
            data_bytes: 0,
            zero_bytes: 0,
            symbols_bytes,
            symbols,
        }
    }

    fn add(&mut self, protection: Protection, contents: &[u8], memory_bytes: u64) {
        let file_bytes = contents.len() as u64;
        *match protection {
            Protection::ReadWrite => &mut self.data_bytes,
            Protection::ReadExecute => &mut self.text_bytes,
            Protection::Read | Protection::None => &mut self.rodata_bytes,
        } += file_bytes;
        self.zero_bytes += memory_bytes - file_bytes;
    }
}

fn kernel_report(kernel: &Kernel<'_>, symbols: Symbols) -> PartReport {
    let mut report = PartReport::new("kernel", &kernel.symbols, symbols);
    for load in &kernel.loads {
        report.add(load.protection(), load.contents, load.memory_bytes);
    }
    report
}

fn application_report(app: &LoweredApplication, symbols: Symbols) -> PartReport {
    let mut report = PartReport::new(&app.manifest.name, &app.program.symbols, symbols);
    for segment in app.segments() {
        report.add(segment.protection, &segment.contents, segment.memory_bytes);
    }
    report
}
