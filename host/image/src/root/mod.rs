//! The files of a Linux program: a tree of names with their rights, lowered to an archive in cpio's "newc"
//! format, which `nom-fs` reads where it lies in the image.

mod disk;
mod gather;
mod layer;
mod lookup;
mod needs;

use crate::error::{Error, Result};
use crate::files::ARCHIVE_BYTES_MAX;
use crate::start::StopSignal;
use cpio::newc::{Builder, trailer};
pub(crate) use layer::Layers;
use nom_port::root_disk::{ELSEWHERE, PAGE_BYTES};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a page: contents of at least as many begin on one, so that they can be mapped where they lie.
const PAGE: usize = 4096;
/// Bytes of a header in the archive.
const HEADER: usize = 110;
/// Where in it the field `check` is, up to its end.
const CHECK: usize = 102;
const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// The files of a Linux program, by their paths, which begin with no slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    entries: BTreeMap<String, Entry>,
    /// A file that was changed later is said to be changed then, in seconds since 1970.
    newest: Option<u64>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// As `st_mode` has it.
    mode: u32,
    user: u32,
    group: u32,
    modified: u64,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Nothing,
    /// Where a link leads, or what a file holds; names of one file share it.
    Bytes(Arc<[u8]>),
    /// What a file of the host holds; with its device and number if it has several names.
    Host(PathBuf, Option<(u64, u64)>),
}

/// What an archive has of an entry.
#[derive(Default)]
struct Packed {
    bytes: Vec<u8>,
    /// They say where its contents are.
    is_elsewhere: bool,
}

/// What two names of one file have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FileName {
    /// Device and number on the host.
    Host(u64, u64),
    /// Where its bytes are in memory.
    Memory(usize),
}

impl Body {
    fn bytes(bytes: &[u8]) -> Body {
        Body::Bytes(bytes.into())
    }

    fn file_name(&self) -> Option<FileName> {
        match self {
            Body::Nothing => None,
            Body::Bytes(bytes) => Some(FileName::Memory(bytes.as_ptr().addr())),
            Body::Host(_, several) => several.map(|(device, number)| FileName::Host(device, number)),
        }
    }

    /// Bytes that it has.
    fn len(&self) -> Result<u64> {
        match self {
            Body::Nothing => Ok(0),
            Body::Bytes(bytes) => Ok(bytes.len() as u64),
            Body::Host(host, _) => {
                host.metadata().map(|found| found.len()).map_err(|reason| unreadable(host, &reason))
            }
        }
    }

    /// What a file holds, or where a link leads.
    fn contents(&self) -> Result<Vec<u8>> {
        match self {
            Body::Nothing => Ok(Vec::new()),
            Body::Bytes(bytes) => Ok(bytes.to_vec()),
            Body::Host(host, _) => std::fs::read(host).map_err(|reason| unreadable(host, &reason)),
        }
    }
}

/// What a program that is to run in a machine consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Path of the program in the root.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment, each `NAME=VALUE`.
    pub environment: Vec<String>,
    /// Where it begins.
    pub directory: String,
    /// As whom it begins: user and group.
    pub user: (u32, u32),
    /// What asks it to end; otherwise SIGTERM.
    pub stop_signal: Option<StopSignal>,
}

impl Root {
    /// Nothing but the directories that every root has.
    pub fn new() -> Root {
        let mut root = Root::default();
        for (path, mode) in [
            ("dev", 0o755),
            ("proc", 0o555),
            ("sys", 0o555),
            ("tmp", 0o1777),
            ("run", 0o755),
            ("root", 0o700),
            ("var", 0o755),
            ("var/tmp", 0o1777),
        ] {
            root.insert(path, DIRECTORY | mode, Body::Nothing);
        }
        root
    }

    /// Paths of all files, and bytes of their contents.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        let files = self.entries.iter().filter(|(_, entry)| entry.mode & TYPE_MASK == FILE);
        files.map(|(path, entry)| (path.as_str(), entry.body.len().unwrap_or(0)))
    }

    /// Bytes that a machine needs to know the files, and for those that are small, if others are on a disk.
    pub fn index_bytes(&self) -> u64 {
        /// What is known of a file, in the index and in the tree.
        const KNOWN: u64 = 1024;
        let small = self.files().map(|(_, bytes)| bytes).filter(|bytes| *bytes < PAGE_BYTES);
        small.sum::<u64>() + self.entries.len() as u64 * KNOWN
    }

    /// Whether there is something of this path.
    pub fn contains(&self, path: &str) -> bool {
        self.entries.contains_key(path.trim_matches('/'))
    }

    /// Bytes of all contents.
    pub fn bytes(&self) -> u64 {
        self.files().map(|(_, bytes)| bytes).sum()
    }

    /// Puts a file there, which belongs to root and everybody may read.
    pub fn write(&mut self, path: &str, contents: &[u8]) {
        self.insert(path, FILE | 0o644, Body::bytes(contents));
    }

    fn insert(&mut self, path: &str, mode: u32, body: Body) {
        self.place(path, Entry { mode, user: 0, group: 0, modified: 0, body });
    }

    /// Puts an entry there, and directories above it.
    fn place(&mut self, path: &str, entry: Entry) {
        let path = path.trim_matches('/');
        for (slash, _) in path.match_indices('/') {
            self.entries.entry(path[..slash].to_owned()).or_insert(Entry {
                mode: DIRECTORY | 0o755,
                user: 0,
                group: 0,
                modified: entry.modified,
                body: Body::Nothing,
            });
        }
        if !path.is_empty() {
            self.entries.insert(path.to_owned(), entry);
        }
    }

    /// A file of the host, as it is there, at this path.
    ///
    /// # Errors
    /// If it is neither file, directory nor link, or cannot be read.
    fn copy(&mut self, path: &str, host: &Path) -> Result<()> {
        let metadata = host.symlink_metadata().map_err(|reason| unreadable(host, &reason))?;
        let body = match metadata.mode() & TYPE_MASK {
            DIRECTORY => Body::Nothing,
            LINK => {
                let target = std::fs::read_link(host).map_err(|reason| unreadable(host, &reason))?;
                Body::bytes(text(&target)?.as_bytes())
            }
            FILE => {
                let several = (metadata.nlink() > 1).then_some((metadata.dev(), metadata.ino()));
                Body::Host(host.to_owned(), several)
            }
            _ => return Err(error(host, "neither a file, a directory nor a link")),
        };
        self.place(path, entry_of(&metadata, body));
        Ok(())
    }

    /// The archive, parents before what is in them.
    ///
    /// # Errors
    /// A file that cannot be read any more; more than an image takes.
    pub fn archive(&self) -> Result<Vec<u8>> {
        self.pack(ARCHIVE_BYTES_MAX, |entry| {
            Ok(Packed { bytes: entry.body.contents()?, is_elsewhere: false })
        })
    }

    /// The archive of what `packed` says of each entry, with so many bytes at most.
    fn pack<'a>(&'a self, most: u64, mut packed: impl FnMut(&'a Entry) -> Result<Packed>) -> Result<Vec<u8>> {
        let mut archive = Vec::new();
        let mut names: BTreeMap<FileName, u32> = BTreeMap::new();
        for name in self.entries.values().filter_map(|entry| entry.body.file_name()) {
            *names.entry(name).or_default() += 1;
        }
        let mut known: BTreeMap<FileName, u32> = BTreeMap::new();
        for ((path, entry), number) in self.entries.iter().zip(1..) {
            let name = entry.body.file_name();
            let links = name.map_or(1, |name| names[&name]);
            let first = name.filter(|_| links > 1).map(|name| *known.entry(name).or_insert(number));
            let (number, Packed { bytes: contents, is_elsewhere }) = match first {
                Some(first) if first != number => (first, Packed::default()),
                _ => (number, packed(entry)?),
            };
            if archive.len() as u64 + contents.len() as u64 > most {
                let problem = format!("with it the root takes more than {most} bytes");
                return Err(error(Path::new(&format!("/{path}")), problem));
            }
            let name = padded(path, archive.len(), contents.len());
            let modified = entry.modified.min(self.newest.unwrap_or(u64::MAX));
            let builder = Builder::new(&name)
                .ino(number)
                .mode(entry.mode)
                .uid(entry.user)
                .gid(entry.group)
                .nlink(links)
                .mtime(u32::try_from(modified).unwrap_or(u32::MAX));
            let start = archive.len();
            let mut writer = builder.write(&mut archive, contents.len() as u32);
            writer.write_all(&contents).and_then(|()| writer.finish()).expect("memory takes everything");
            if is_elsewhere {
                let check = format!("{ELSEWHERE:08x}");
                archive[start + CHECK..start + HEADER].copy_from_slice(check.as_bytes());
            }
        }
        Ok(trailer(archive).expect("memory takes everything"))
    }
}

/// The name with so many zeros behind it that contents of a page and more begin on a page.
fn padded(name: &str, at: usize, bytes: usize) -> String {
    if bytes < PAGE {
        return name.to_owned();
    }
    let start = at + HEADER + name.len() + 1;
    let zeros = start.next_multiple_of(PAGE) - start;
    format!("{name}{}", "\0".repeat(zeros))
}

fn entry_of(metadata: &Metadata, body: Body) -> Entry {
    let modified = u64::try_from(metadata.mtime()).unwrap_or(0);
    Entry { mode: metadata.mode(), user: metadata.uid(), group: metadata.gid(), modified, body }
}

fn text(path: &Path) -> Result<String> {
    match path.to_str().filter(|text| !text.contains('\0')) {
        Some(text) => Ok(text.to_owned()),
        None => Err(error(path, "its name is not UTF-8")),
    }
}

pub(crate) fn error(path: &Path, problem: impl Into<String>) -> Error {
    Error::Files { path: path.to_owned(), problem: problem.into() }
}

fn unreadable(path: &Path, reason: &std::io::Error) -> Error {
    match reason.kind() {
        std::io::ErrorKind::NotFound => error(path, "no such file or directory"),
        _ => error(path, format!("cannot be read: {reason}")),
    }
}

#[cfg(test)]
mod tests;
