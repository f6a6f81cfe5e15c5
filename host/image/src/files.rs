//! Files that go along with an application: the directories of its manifest, as an initial archive in
//! cpio's "newc" format (that of Linux's initramfs), which the application finds behind its program.

use crate::error::{Error, Result};
use crate::manifest::{Files, Mount};
use crate::root::Root;
use cpio::newc::{Builder, ModeFileType, trailer};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use walkdir::{DirEntry, WalkDir};

/// Largest file: what the largest network buffer holds, from which it is sent without a copy.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Largest archive: it is in the machine's memory, and in that of whoever makes the image.
pub const ARCHIVE_BYTES_MAX: u64 = 256 << 20;
/// Permissions of every file.
const MODE: u32 = 0o444;

/// Files by their paths in the archive, which begin with no slash.
type Tree = BTreeMap<String, PathBuf>;

impl Files {
    /// The archive, of what the directories hold now.
    ///
    /// # Errors
    /// A directory that is absent, a file that cannot be read or has no name in UTF-8, a link that leads out
    /// of its directory, and files that are too large; each by its path.
    pub fn archive(&self) -> Result<Vec<u8>> {
        if self.root.is_some() {
            return self.whole_root()?.archive();
        }
        let mut tree = Tree::new();
        for mount in &self.mounts {
            mount.add(&mut tree)?;
        }
        let mut archive = Vec::new();
        for ((name, path), number) in tree.iter().zip(1..) {
            self.append(&mut archive, name, path, number)?;
            if archive.len() as u64 > ARCHIVE_BYTES_MAX {
                return Err(error(
                    path,
                    format!("with it the files take more than {ARCHIVE_BYTES_MAX} bytes in all"),
                ));
            }
        }
        Ok(trailer(archive).expect("memory takes everything"))
    }

    /// Writes the disk that a machine reads the root of its Linux program from.
    ///
    /// # Errors
    /// A file that cannot be read; a disk that cannot be written.
    pub fn write_disk(&self, path: &Path) -> Result<()> {
        self.whole_root()?.write_disk(path)
    }

    /// The first sector of that disk, by which one whose files have changed is told.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn disk_header(&self) -> Result<Vec<u8>> {
        self.whole_root()?.disk_header()
    }

    /// The root, with the directories and files that are added to it.
    fn whole_root(&self) -> Result<Root> {
        let mut root = self.root.clone().unwrap_or_default();
        for mount in &self.mounts {
            match mount.directory.is_file() {
                true => root.add_file(&mount.directory, &mount.at)?,
                false => root.add_directory(&mount.directory, &mount.at)?,
            }
        }
        Ok(root)
    }

    fn append(&self, archive: &mut Vec<u8>, name: &str, path: &Path, number: u32) -> Result<()> {
        let metadata = std::fs::metadata(path).map_err(|reason| unreadable(path, reason))?;
        if metadata.len() > FILE_BYTES_MAX {
            let problem = format!("{} bytes, expected at most {FILE_BYTES_MAX} in a file", metadata.len());
            return Err(error(path, problem));
        }
        let contents = std::fs::read(path).map_err(|reason| unreadable(path, reason))?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map_or(0, |time| time.as_secs()).min(self.newest.unwrap_or(u64::MAX));
        let entry = Builder::new(name)
            .ino(number)
            .mode(MODE)
            .set_mode_file_type(ModeFileType::Regular)
            .mtime(u32::try_from(modified).unwrap_or(u32::MAX));
        let mut writer = entry.write(archive, contents.len() as u32);
        writer.write_all(&contents).and_then(|()| writer.finish()).expect("memory takes everything");
        Ok(())
    }
}

impl Mount {
    /// Puts the files of the directory in the place of whatever the tree has there.
    fn add(&self, tree: &mut Tree) -> Result<()> {
        let root = self.directory.canonicalize().map_err(|reason| unreadable(&self.directory, reason))?;
        if !root.is_dir() {
            return Err(error(&self.directory, "expected a directory".to_owned()));
        }
        let prefix = self.at.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        tree.retain(|name, _| !name.starts_with(&prefix));
        for entry in WalkDir::new(&self.directory).follow_links(true).sort_by_file_name() {
            let entry = entry.map_err(|error| walk_error(&self.directory, &error))?;
            check(&entry, &root)?;
            if entry.file_type().is_dir() {
                continue;
            }
            let path = entry.path();
            let below = path.strip_prefix(&self.directory).expect("the walk began there");
            let Some(below) = below.to_str().filter(|name| !name.contains('\0')) else {
                return Err(error(path, "its name is not UTF-8".to_owned()));
            };
            tree.insert(format!("{prefix}{below}"), path.to_owned());
        }
        Ok(())
    }
}

/// Refuses what is neither a file nor a directory below `root`.
fn check(entry: &DirEntry, root: &Path) -> Result<()> {
    let path = entry.path();
    if entry.path_is_symlink() {
        let target = path.canonicalize().map_err(|reason| unreadable(path, reason))?;
        if entry.depth() > 0 && !target.starts_with(root) {
            let problem = format!("a link to {}, out of {}", target.display(), root.display());
            return Err(error(path, problem));
        }
    }
    let kind = entry.file_type();
    match kind.is_dir() || kind.is_file() {
        true => Ok(()),
        false => Err(error(path, "neither a file nor a directory".to_owned())),
    }
}

fn walk_error(directory: &Path, found: &walkdir::Error) -> Error {
    let path = found.path().unwrap_or(directory);
    match (found.loop_ancestor(), found.io_error()) {
        (Some(ancestor), _) => error(path, format!("a link to {}, which it is in", ancestor.display())),
        (None, Some(reason)) if reason.kind() == ErrorKind::NotFound && path.is_symlink() => {
            error(path, "a link to nothing".to_owned())
        }
        (None, Some(reason)) => unreadable(path, std::io::Error::new(reason.kind(), reason.to_string())),
        (None, None) => error(path, found.to_string()),
    }
}

fn error(path: &Path, problem: String) -> Error {
    Error::Files { path: path.to_owned(), problem }
}

fn unreadable(path: &Path, reason: std::io::Error) -> Error {
    match reason.kind() {
        ErrorKind::NotFound => error(path, "no such file or directory".to_owned()),
        _ => error(path, format!("cannot be read: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;
    use std::os::unix::fs::symlink;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, contents) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(path, contents).expect("written");
        }
        directory
    }

    fn files(mounts: &[(&Path, &str)]) -> Files {
        let mount =
            |&(directory, at): &(&Path, &str)| Mount { directory: directory.to_owned(), at: at.to_owned() };
        Files { mounts: mounts.iter().map(mount).collect(), newest: None, root: None, on_disk: false }
    }

    /// Names and contents.
    fn read(mut archive: &[u8]) -> Vec<(String, String)> {
        let mut files = Vec::new();
        loop {
            let mut reader = Reader::new(archive).expect("an entry");
            if reader.entry().is_trailer() {
                return files;
            }
            let mut contents = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut contents).expect("contents");
            files.push((reader.entry().name().to_owned(), String::from_utf8(contents).expect("text")));
            archive = reader.finish().expect("more");
        }
    }

    fn problem(files: &Files) -> String {
        files.archive().expect_err("refused").to_string()
    }

    #[test]
    fn what_a_directory_holds_is_archived_in_order() {
        let site = tree(&[("index.html", "one"), ("b/c.txt", "two"), ("b/a.txt", ""), ("b.txt", "three")]);
        symlink("index.html", site.path().join("home.html")).expect("linked");
        let archive = files(&[(site.path(), "/")]).archive().expect("archived");
        let pairs = [
            ("b.txt", "three"),
            ("b/a.txt", ""),
            ("b/c.txt", "two"),
            ("home.html", "one"),
            ("index.html", "one"),
        ];
        assert_eq!(read(&archive), pairs.map(|(name, contents)| (name.to_owned(), contents.to_owned())));
        std::fs::write(site.path().join("b.txt"), "changed").expect("written");
        assert_ne!(files(&[(site.path(), "/")]).archive().expect("archived"), archive);
    }

    #[test]
    fn a_later_directory_takes_the_place_of_what_was_there() {
        let (one, two) = (tree(&[("index.html", "old"), ("docs/a", "a")]), tree(&[("b", "b")]));
        let names = |mounts: &[(&Path, &str)]| -> Vec<String> {
            read(&files(mounts).archive().expect("archived")).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&[(one.path(), "/"), (two.path(), "/")]), ["b"]);
        assert_eq!(names(&[(one.path(), "/"), (two.path(), "/docs")]), ["docs/b", "index.html"]);
    }

    #[test]
    fn the_same_files_make_the_same_archive_whenever_they_were_written() {
        let archive = || {
            let site = tree(&[("index.html", "one")]);
            Files { newest: Some(1), ..files(&[(site.path(), "/")]) }.archive().expect("archived")
        };
        assert_eq!(archive(), archive());
    }

    #[test]
    fn what_cannot_go_along_is_named() {
        let site = tree(&[("index.html", "one")]);
        let path = |name: &str| site.path().join(name);
        let absent = path("absent");
        assert_eq!(
            problem(&files(&[(&absent, "/")])),
            format!("{}: no such file or directory", absent.display())
        );
        let page = path("index.html");
        assert_eq!(problem(&files(&[(&page, "/")])), format!("{}: expected a directory", page.display()));

        let large = std::fs::File::create(path("large")).expect("made");
        large.set_len(FILE_BYTES_MAX + 1).expect("grown");
        assert!(
            problem(&files(&[(site.path(), "/")]))
                .contains("large: 16777217 bytes, expected at most 16777216")
        );
        std::fs::remove_file(path("large")).expect("removed");

        for (link, target, said) in [
            ("out", "/etc/hostname", "out: a link to /etc/hostname, out of "),
            ("nothing", "gone", "nothing: a link to nothing"),
            ("round", ".", "round: a link to "),
        ] {
            symlink(target, path(link)).expect("linked");
            let problem = problem(&files(&[(site.path(), "/")]));
            assert!(problem.contains(said), "{problem}");
            std::fs::remove_file(path(link)).expect("removed");
        }
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("bound");
        assert!(problem(&files(&[(site.path(), "/")])).contains("socket: neither a file nor a directory"));
    }
}
