//! The initramfs: a cpio archive in the "newc" format
//! (Linux, `Documentation/driver-api/early-userspace/buffer-format.rst`).

use anyhow::{Context, Result};
use cpio::newc::{Builder, ModeFileType, trailer};
use std::collections::BTreeSet;
use std::io::Write;

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    /// An archive with the console that Linux opens for `/init`.
    pub fn new() -> Result<Archive> {
        let mut archive = Archive::default();
        archive.directory("dev")?;
        let console = Builder::new("dev/console").mode(0o600).set_mode_file_type(ModeFileType::Char);
        archive.entry(console.rdev_major(5).rdev_minor(1), &[])?;
        Ok(archive)
    }

    /// Adds a directory and those that it is in, unless they are there.
    pub fn directory(&mut self, path: &str) -> Result<()> {
        if path.is_empty() || self.directories.contains(path) {
            return Ok(());
        }
        self.directory(parent(path))?;
        self.directories.insert(path.into());
        self.entry(Builder::new(path).mode(0o755).set_mode_file_type(ModeFileType::Directory), &[])
    }

    /// Adds a file that everybody may read and execute, and the directories that it is in.
    pub fn file(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.directory(parent(path))?;
        self.entry(Builder::new(path).mode(0o755).set_mode_file_type(ModeFileType::Regular), content)
    }

    fn entry(&mut self, entry: Builder, content: &[u8]) -> Result<()> {
        self.entries += 1;
        let length = u32::try_from(content.len()).context("no file of 4 GiB fits into an initramfs")?;
        let mut writer = entry.ino(self.entries).write(&mut self.bytes, length);
        writer.write_all(content)?;
        writer.finish()?;
        Ok(())
    }

    /// The whole archive.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        trailer(&mut self.bytes)?;
        Ok(self.bytes)
    }
}

/// The directory that `path` is in; empty at the top.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// An archive that holds `program` as `/init`, and the console that Linux opens for it.
pub fn archive(program: &[u8]) -> Result<Vec<u8>> {
    let mut archive = Archive::new()?;
    archive.file("init", program)?;
    archive.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;
    use std::io::Read;

    type Entry = (String, u32, u32, u32, String);

    fn entries(archive: &[u8]) -> Vec<Entry> {
        assert!(archive.starts_with(b"070701") && archive.len().is_multiple_of(4));
        let mut entries = Vec::new();
        let mut rest = archive;
        loop {
            let mut reader = Reader::new(rest).unwrap();
            let entry = reader.entry().clone();
            let mut content = String::new();
            reader.read_to_string(&mut content).unwrap();
            rest = reader.finish().unwrap();
            if entry.is_trailer() {
                return entries;
            }
            entries.push((
                entry.name().to_owned(),
                entry.mode(),
                entry.rdev_major(),
                entry.rdev_minor(),
                content,
            ));
        }
    }

    #[test]
    fn archive_holds_the_program_and_its_console() {
        let expected = [
            ("dev", 0o040755, 0, 0, ""),
            ("dev/console", 0o020600, 5, 1, ""),
            ("init", 0o100755, 0, 0, "program"),
        ];
        let expected = expected
            .map(|(name, mode, major, minor, content)| (name.into(), mode, major, minor, content.into()));
        assert_eq!(entries(&archive(b"program").unwrap()), expected);
    }

    #[test]
    fn directories_come_once_and_before_what_is_in_them() {
        let mut archive = Archive::default();
        archive.file("a/b/c", b"1").unwrap();
        archive.file("a/b/d", b"2").unwrap();
        let paths: Vec<_> = entries(&archive.finish().unwrap()).into_iter().map(|entry| entry.0).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b/d"]);
    }
}
