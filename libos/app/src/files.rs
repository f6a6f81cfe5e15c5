//! The files that go along with an application: those of its manifest, or of `nom run -v`.
//!
//! They are an archive in cpio's "newc" format, read where it lies: behind the program on nom, in a file as a
//! Linux process.

use crate::world;

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path, without a slash at the beginning.
    pub path: &'static str,
    /// Seconds since 1970 at which it was changed.
    pub modified: u64,
    /// What it holds.
    pub contents: &'static [u8],
}

/// The files, in the order of their paths; none if the manifest has no `files`.
pub fn files() -> impl Iterator<Item = File> {
    entries(world::archive())
}

fn entries(archive: &'static [u8]) -> impl Iterator<Item = File> {
    cpio_reader::iter_files(archive).map(|entry| File {
        path: entry.name(),
        modified: entry.mtime(),
        contents: entry.file(),
    })
}
