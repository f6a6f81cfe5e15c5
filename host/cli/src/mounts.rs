//! `-v DIRECTORY:/PATH`, `-v FILE:/PATH`, `-v DISK:/PATH`: directories, files and disks of this computer that
//! an application finds.
//!
//! A program of Linux reads and writes the directory or file itself, as with Docker, or what the disk has.
//! What an application of nom's own finds is a copy of a directory, which goes along with it.

use anyhow::{Context, Result, bail, ensure};
use nom_image::manifest::{BundleManifest, Mount};
use nom_vmm::{DirectoryAccess, Lent, LentDirectory, Owners, disk};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A directory of the host and where the application finds its files, as people type it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    mount: Mount,
    /// What is said of it.
    access: Option<DirectoryAccess>,
}

impl FromStr for Volume {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Volume> {
        let expected = "expected DIRECTORY:/PATH or FILE:/PATH, as /srv/www:/, with :ro or :rw behind it \
                        or without";
        let (place, access) = match text.rsplit_once(':') {
            Some((place, "ro")) => (place, Some(DirectoryAccess::ReadOnly)),
            Some((place, "rw")) => (place, Some(DirectoryAccess::ReadWrite)),
            _ => (text, None),
        };
        match place.rsplit_once(':').filter(|(directory, at)| !directory.is_empty() && at.starts_with('/')) {
            Some((directory, at)) => {
                ensure!(!at.split('/').any(|part| part == ".."), "`..` in a path: {expected}");
                let mount = Mount { directory: PathBuf::from(directory), at: at.to_owned() };
                Ok(Volume { mount, access })
            }
            None => bail!("{expected}"),
        }
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.mount.directory.display(), self.mount.at)
    }
}

/// The bundle with copies of these files.
///
/// # Errors
/// If no application of it reads files, or they are to be written.
pub fn given_files(bundle: BundleManifest, volumes: &[Volume]) -> Result<BundleManifest> {
    if let Some(volume) = volumes.iter().find(|volume| volume.access == Some(DirectoryAccess::ReadWrite)) {
        bail!("-v {volume}:rw: files go along as a copy, which is read-only: expected no :rw");
    }
    let mounts: Vec<Mount> = volumes.iter().map(|volume| volume.mount.clone()).collect();
    bundle.with_files(&mounts).map_err(|mount| {
        let volume = Volume { mount, access: None };
        anyhow::anyhow!("-v {volume}: nothing here reads files: expected a manifest with the field `files`")
    })
}

/// The directories that a machine uses for these volumes.
///
/// # Errors
/// If one is neither a directory or file that this process can read nor a disk that it can mount, or two are
/// to be at one place.
pub fn lent_directories(volumes: &[Volume]) -> Result<Vec<LentDirectory>> {
    let mut places: Vec<&str> = volumes.iter().map(Volume::place).collect();
    places.sort_unstable();
    if let Some(pair) = places.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("-v: two directories at {}, expected one", pair[0]);
    }
    volumes.iter().map(Volume::lent).collect()
}

impl Volume {
    /// As it is typed where its directory counts from `base`.
    pub fn within(&self, base: &Path) -> String {
        let access = match self.access {
            Some(DirectoryAccess::ReadOnly) => ":ro",
            Some(DirectoryAccess::ReadWrite) => ":rw",
            None => "",
        };
        format!("{}:{}{access}", base.join(&self.mount.directory).display(), self.mount.at)
    }

    /// Where the program finds it.
    pub fn place(&self) -> &str {
        match self.mount.at.trim_end_matches('/') {
            "" => "/",
            place => place,
        }
    }

    fn lent(&self) -> Result<LentDirectory> {
        ensure!(
            self.place() != "/",
            "-v {self}: the root has the program's own files, expected a path below it"
        );
        let path = self.mount.directory.canonicalize().with_context(|| format!("-v {self}"))?;
        ensure!(path.to_str().is_some(), "-v {self}: its path is not UTF-8");
        let access = self.access.unwrap_or(DirectoryAccess::ReadWrite);
        let lent = if path.is_dir() {
            std::fs::read_dir(&path).with_context(|| format!("-v {self}: cannot read {}", path.display()))?;
            Lent::Directory(path)
        } else if self.is_file() {
            disk::check_file(&path).with_context(|| format!("-v {self}"))?;
            Lent::File(path)
        } else {
            disk::check(&path, access).with_context(|| format!("-v {self}"))?;
            Lent::Disk(path)
        };
        Ok(LentDirectory { lent, access, owners: Owners::of_this_process() })
    }

    /// Whether nobody can write there.
    pub fn is_read_only(&self) -> bool {
        self.access == Some(DirectoryAccess::ReadOnly)
    }

    /// Whether it is a file alone: neither a directory nor a disk.
    pub fn is_file(&self) -> bool {
        let path = &self.mount.directory;
        path.is_file() && !disk::is_one(path).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_read_as_docker_reads_it() {
        let (ro, rw) = (Some(DirectoryAccess::ReadOnly), Some(DirectoryAccess::ReadWrite));
        for (text, directory, at, access) in [
            ("www:/", "www", "/", None),
            ("/srv/a:b:/docs:ro", "/srv/a:b", "/docs", ro),
            ("/srv:/docs:rw", "/srv", "/docs", rw),
            (".:/x/y", ".", "/x/y", None),
        ] {
            let Volume { mount, access: found } = text.parse().expect(text);
            assert_eq!((mount.directory.to_str(), mount.at.as_str()), (Some(directory), at));
            assert_eq!(found, access, "{text}");
        }
        for text in ["www", "www:", ":/", "www:docs", "www:/a/../b", "", "ro", ":ro"] {
            let error = text.parse::<Volume>().expect_err(text).to_string();
            assert!(error.contains("DIRECTORY:/PATH"), "{text}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_lent_is_named() {
        let site = tempfile::tempdir().expect("a directory");
        let (there, file) = (site.path().display(), site.path().join("file"));
        std::fs::write(&file, [0; 4096]).expect("written");
        let lent = |texts: &[String]| {
            let volumes: Vec<Volume> = texts.iter().map(|text| text.parse().expect("a volume")).collect();
            lent_directories(&volumes).map_err(|error| format!("{error:#}"))
        };
        let writable = lent(&[format!("{there}:/data/")]).expect("lent");
        assert_eq!(writable[0].access, DirectoryAccess::ReadWrite);
        assert_eq!(lent(&[format!("{there}:/data:ro")]).expect("lent")[0].access, DirectoryAccess::ReadOnly);
        for (texts, said) in [
            (vec!["/absent:/data".to_owned()], "-v /absent:/data: No such file"),
            (vec![format!("{there}/file:/data")], "file is no directory and has no ext4"),
            (vec![format!("{there}:/")], "expected a path below it"),
            (vec![format!("{there}:/a"), format!("{there}:/a/")], "two directories at /a, expected one"),
        ] {
            let error = lent(&texts).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }
}
