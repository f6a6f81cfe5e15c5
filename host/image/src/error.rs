//! Why an image could not be made.

use std::path::PathBuf;

/// Result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image could not be made: which input is wrong, and what was expected of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("{}: cannot be read: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said; no `source`, which whoever prints a chain would say again.
        reason: std::io::Error,
    },
    /// A manifest is not valid TOML, or a field of it is not what it must be.
    #[error("{place}: {problem}")]
    Manifest {
        /// Where: file, and line where one is to blame.
        place: Place,
        /// Names the field and what was expected.
        problem: String,
    },
    /// The caller could not find or build a program that a manifest names.
    #[error("{place}: program `{program}`: {reason}")]
    Resolve {
        /// Where the manifest names it.
        place: Place,
        /// As the manifest names it.
        program: String,
        /// The caller's reason; no `source`, as above.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What is to go along with an application is no file, or none that can go.
    #[error("{}: {problem}", path.display())]
    Files {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// An ELF file is not what the kernel or an application must be.
    #[error("{}: {problem}", path.display())]
    Elf {
        /// The file.
        path: PathBuf,
        /// What was found and what was expected.
        problem: String,
    },
    /// A file is not what the loader must be.
    #[error("{}: {bytes} bytes, expected the loader: 8 to {room}, a multiple of 8", path.display())]
    Loader {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        room: usize,
    },
    /// The parts are fine but do not fit into one image.
    #[error("the image is too large: {0}")]
    TooLarge(String),
}

/// A place in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The manifest.
    pub file: PathBuf,
    /// Line, counted from 1; `None` if the fault is that something is missing.
    pub line: Option<usize>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}", self.file.display()),
            None => write!(out, "{}", self.file.display()),
        }
    }
}
