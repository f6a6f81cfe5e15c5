//! Where an image's parts lie: a directory, or a tar archive of one (OCI image specification, "Image
//! Layout"). Each part is named by the digest of its bytes, which are looked at before they are believed.

use crate::error::Result;
use crate::root::error;
use oci_spec::image::{Descriptor, Digest, DigestAlgorithm};
use sha2::{Digest as _, Sha256, Sha512};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Largest part: there is no room for more in an image.
const PART_BYTES_MAX: u64 = 1 << 30;
/// Largest file that says what there is, as registries have it.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// Brings a part that is not there yet to this path, or says why not. Whether it is the right one is looked
/// at afterwards.
pub type Fetch<'f> = dyn Fn(&Descriptor, &Path) -> Result<(), String> + 'f;

/// A layout of images.
pub(super) struct Layout<'f> {
    path: PathBuf,
    /// Of an archive, where each file is: its beginning and its bytes.
    archived: Option<BTreeMap<String, (u64, u64)>>,
    /// Of a directory that is filled as parts of it are asked for.
    fetch: Option<&'f Fetch<'f>>,
}

impl<'f> Layout<'f> {
    /// A directory of parts, each of which is brought when it is first asked for.
    pub fn filled_by(path: &Path, fetch: &'f Fetch<'f>) -> Layout<'f> {
        Layout { path: path.to_owned(), archived: None, fetch: Some(fetch) }
    }

    /// The layout at a path.
    ///
    /// # Errors
    /// If there is neither a directory nor a tar archive.
    pub fn open(path: &Path) -> Result<Layout<'static>> {
        let unreadable = |reason: io::Error| error(path, format!("cannot be read: {reason}"));
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if metadata.is_dir() {
            return Ok(Layout { path: path.to_owned(), archived: None, fetch: None });
        }
        let problem = |reason: io::Error| {
            error(path, format!("expected an OCI image layout, a directory or a tar archive: {reason}"))
        };
        let mut archive = tar::Archive::new(File::open(path).map_err(unreadable)?);
        let mut files = BTreeMap::new();
        for entry in archive.entries_with_seek().map_err(problem)? {
            let entry = entry.map_err(problem)?;
            if entry.header().entry_type().is_file() {
                let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
                let name = name.trim_start_matches("./").to_owned();
                files.insert(name, (entry.raw_file_position(), entry.size()));
            }
        }
        Ok(Layout { path: path.to_owned(), archived: Some(files), fetch: None })
    }

    /// How a file of it is called in a complaint.
    pub fn place(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file of it, with the number of its bytes.
    fn file(&self, name: &str) -> io::Result<(Box<dyn Read>, u64)> {
        match &self.archived {
            None => {
                let file = File::open(self.path.join(name))?;
                let metadata = file.metadata()?;
                match metadata.is_file() {
                    true => Ok((Box::new(file), metadata.len())),
                    false => Err(io::Error::other("it is no file")),
                }
            }
            Some(files) => {
                let (start, bytes) = *files.get(name).ok_or(io::ErrorKind::NotFound)?;
                let mut file = File::open(&self.path)?;
                file.seek(SeekFrom::Start(start))?;
                Ok((Box::new(file.take(bytes)), bytes))
            }
        }
    }

    /// All of a file whose digest nobody has said.
    ///
    /// # Errors
    /// If it is absent, or too large.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        self.read_as(name, None, DOCUMENT_BYTES_MAX)
    }

    fn read_as(&self, name: &str, bytes: Option<u64>, most: u64) -> Result<Vec<u8>> {
        let problem = |problem: String| error(&self.place(name), problem);
        let unreadable = |reason: io::Error| match reason.kind() {
            io::ErrorKind::NotFound => problem("no such file in the layout".to_owned()),
            _ => problem(format!("cannot be read: {reason}")),
        };
        let (file, there) = self.file(name).map_err(unreadable)?;
        match bytes {
            Some(expected) if there != expected => {
                return Err(problem(format!(
                    "{there} bytes, expected the {expected} that it is said to have"
                )));
            }
            _ if there > most => return Err(problem(format!("{there} bytes, expected at most {most}"))),
            _ => {}
        }
        let mut contents = Vec::new();
        file.take(there).read_to_end(&mut contents).map_err(unreadable)?;
        if contents.len() as u64 != there {
            return Err(problem(format!("ends after {} of its {there} bytes", contents.len())));
        }
        Ok(contents)
    }

    /// The part that a descriptor names, if it is as that says.
    ///
    /// # Errors
    /// If it is absent, or of another size or digest.
    pub fn part(&self, descriptor: &Descriptor, kind: Part) -> Result<Vec<u8>> {
        let digest = descriptor.digest();
        let name = part_name(digest);
        let most = match kind {
            Part::Document => DOCUMENT_BYTES_MAX,
            Part::Layer => PART_BYTES_MAX,
        };
        if let Some(fetch) = self.fetch.filter(|_| !self.place(&name).exists()) {
            if descriptor.size() > most {
                let problem = format!("{} bytes, expected at most {most}", descriptor.size());
                return Err(error(&self.place(&name), problem));
            }
            fetch(descriptor, &self.place(&name)).map_err(|reason| error(Path::new(&name), reason))?;
        }
        let contents = self.read_as(&name, Some(descriptor.size()), most)?;
        let mut hasher = Hasher::new(digest).map_err(|reason| error(&self.place(&name), reason))?;
        hasher.update(&contents);
        hasher.check(digest).map_err(|reason| error(&self.place(&name), reason))?;
        Ok(contents)
    }
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Something to be parsed.
    Document,
    /// An archive of files.
    Layer,
}

/// The file of a layout that a part is in.
pub(super) fn part_name(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm(), digest.digest())
}

/// Computes a digest piece by piece.
pub(super) enum Hasher {
    /// Of 256 bits.
    Sha256(Sha256),
    /// Of 512.
    Sha512(Sha512),
}

impl Hasher {
    /// One of the kind that a digest has.
    ///
    /// # Errors
    /// If nom knows no such kind.
    pub fn new(digest: &Digest) -> Result<Hasher, String> {
        match digest.algorithm() {
            DigestAlgorithm::Sha256 => Ok(Hasher::Sha256(Sha256::new())),
            DigestAlgorithm::Sha512 => Ok(Hasher::Sha512(Sha512::new())),
            other => Err(format!("named by a digest of the kind {other}, expected sha256 or sha512")),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// Whether the digest is the expected one.
    ///
    /// # Errors
    /// Both of them, if it is not.
    pub fn check(self, expected: &Digest) -> Result<(), String> {
        let found = match self {
            Hasher::Sha256(hasher) => format!("sha256:{}", hex(&hasher.finalize())),
            Hasher::Sha512(hasher) => format!("sha512:{}", hex(&hasher.finalize())),
        };
        if found == expected.to_string() {
            return Ok(());
        }
        Err(format!("its digest is {found}, expected {expected}"))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
