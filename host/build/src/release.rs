//! An installed release: manifests, and programs that were built elsewhere, each with its checksum.
//!
//! `host/package` writes it; [`FILES`] below its root is what both agree on.

use crate::nearest;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a release lies, from the directory of the command `nom`.
const BESIDE_COMMAND: &str = "../lib/nom";
/// Its list of checksums, as `sha256sum --check` reads it: every file of the release but itself.
pub const CHECKSUMS: &str = "SHA256SUMS";
/// The loader.
pub const LOADER: &str = "loader";
/// The kernel's ELF file, with symbols.
pub const KERNEL: &str = "kernel";
/// Directory of the ELF files for nom, each called as manifests call it.
pub const PROGRAMS: &str = "programs";
/// Directory of the same for this computer.
pub const PROCESSES: &str = "processes";

/// A release that was found.
#[derive(Clone, Debug)]
pub struct Release {
    root: PathBuf,
    /// SHA-256 of each file, in hexadecimal digits, by its path from the root.
    checksums: BTreeMap<String, String>,
}

impl Release {
    /// The release that the program `command` belongs to, if it belongs to one.
    ///
    /// # Errors
    /// If its list of checksums cannot be read.
    pub fn of(command: &Path) -> Result<Option<Release>> {
        let root = command.parent().map(|directory| directory.join(BESIDE_COMMAND));
        match root.and_then(|root| root.canonicalize().ok()).filter(|root| root.join(CHECKSUMS).is_file()) {
            Some(root) => Release::at(&root).map(Some),
            None => Ok(None),
        }
    }

    /// The release at `root`.
    ///
    /// # Errors
    /// If its list of checksums cannot be read.
    pub fn at(root: &Path) -> Result<Release> {
        let path = root.join(CHECKSUMS);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut checksums = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let Some((sum, name)) = line.split_once("  ").filter(|(sum, _)| sum.len() == 64) else {
                bail!("{}:{number}: expected a SHA-256 checksum, two spaces and a path", path.display());
            };
            checksums.insert(name.to_owned(), sum.to_owned());
        }
        Ok(Release { root: root.to_owned(), checksums })
    }

    /// Its root directory, with `apps` in it.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Path of a file of the release, whose contents are as they were packed.
    ///
    /// # Errors
    /// If it is no part of the release, is gone, or has other contents.
    pub fn file(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        let Some(expected) = self.checksums.get(name) else {
            bail!("{}: no file of this release", path.display());
        };
        let contents = std::fs::read(&path)
            .with_context(|| format!("cannot read {}, a file of this release", path.display()))?;
        let found = checksum(&contents);
        if found != *expected {
            bail!(
                "{} is damaged: its SHA-256 is {found}, expected {expected}; install the release again",
                path.display()
            );
        }
        Ok(path)
    }

    /// The ELF file of the program that manifests call `name`, in one of the directories of programs.
    ///
    /// # Errors
    /// If the release does not have it, or it is damaged.
    pub fn program(&self, directory: &str, name: &str) -> Result<PathBuf> {
        let file = format!("{directory}/{name}");
        if !self.checksums.contains_key(&file) {
            let known: Vec<&str> = self.names(directory).collect();
            let lead = "this release, which cannot build others, has no";
            bail!("{}", nearest::unknown(lead, name, &known));
        }
        self.file(&file)
    }

    /// Looks at every file; returns how many there are.
    ///
    /// # Errors
    /// The first that is gone or damaged.
    pub fn check(&self) -> Result<usize> {
        self.checksums.keys().try_for_each(|name| self.file(name).map(drop))?;
        Ok(self.checksums.len())
    }

    fn names<'r>(&'r self, directory: &'r str) -> impl Iterator<Item = &'r str> {
        self.checksums.keys().filter_map(move |file| file.strip_prefix(directory)?.strip_prefix('/'))
    }
}

/// SHA-256 in hexadecimal digits, as a list of checksums has it.
pub fn checksum(contents: &[u8]) -> String {
    Sha256::digest(contents).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A release with a loader and two programs, and the path that its command would have.
    fn release() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().join("lib/nom");
        let mut list = String::new();
        for name in ["loader", "programs/nom-hello", "programs/nom-memcached"] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(&path, name).expect("written");
            list.push_str(&format!("{}  {name}\n", checksum(name.as_bytes())));
        }
        std::fs::write(root.join(CHECKSUMS), list).expect("written");
        let binaries = directory.path().join("bin");
        std::fs::create_dir_all(&binaries).expect("made");
        (directory, binaries.join("nom"))
    }

    #[test]
    fn a_release_is_found_beside_its_command() {
        let (directory, command) = release();
        let found = Release::of(&command).expect("readable").expect("there is one");
        assert_eq!(found.root(), directory.path().join("lib/nom").canonicalize().expect("it is there"));
        assert_eq!(found.check().expect("all is well"), 3);
        let program = found.program(PROGRAMS, "nom-hello").expect("it is there");
        assert_eq!(std::fs::read_to_string(program).expect("read"), "programs/nom-hello");
        assert!(Release::of(directory.path()).expect("readable").is_none(), "there is none");
    }

    #[test]
    fn a_damaged_file_is_named() {
        let (_directory, command) = release();
        let found = Release::of(&command).expect("readable").expect("there is one");
        std::fs::write(found.root().join("loader"), "loadex").expect("written");
        for error in [found.file(LOADER).expect_err("damaged"), found.check().expect_err("damaged")] {
            let said = error.to_string();
            assert!(said.contains("lib/nom/loader is damaged") && said.contains("expected"), "{said}");
        }
        std::fs::remove_file(found.root().join("loader")).expect("removed");
        let said = found.file(LOADER).expect_err("gone").to_string();
        assert!(said.contains("lib/nom/loader"), "{said}");
    }

    #[test]
    fn what_a_release_does_not_have_is_refused_by_name() {
        let (_directory, command) = release();
        let found = Release::of(&command).expect("readable").expect("there is one");
        let said = found.program(PROGRAMS, "nom-memcachd").expect_err("unknown").to_string();
        assert!(said.contains("`nom-memcachd`") && said.contains("`nom-memcached`"), "{said}");
        assert!(!said.contains("nom-hello") && said.contains("cannot build"), "{said}");
        std::fs::write(found.root().join(CHECKSUMS), "nonsense\n").expect("written");
        let said = Release::of(&command).expect_err("unreadable").to_string();
        assert!(said.contains("SHA256SUMS:1: expected"), "{said}");
    }
}
