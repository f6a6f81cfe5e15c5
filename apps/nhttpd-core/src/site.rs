//! What is served: files by path, with all that can be said of them in advance.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::Hasher;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use nom_port::buffer::{Buffer, Slice};
use siphasher::sip::SipHasher13;

use crate::date;

/// What a directory's path shows.
const INDEX: &[u8] = b"index.html";

/// A file, as it lies in memory.
#[derive(Debug)]
pub struct File<B> {
    pub(crate) body: Slice<B>,
    /// Entity tag, in quotes.
    pub(crate) etag: String,
    /// Seconds since 1970 at which it was changed.
    pub(crate) modified: u64,
    pub(crate) content_type: String,
    /// The fields that tell one version from another, as lines.
    pub(crate) validators: String,
    /// The head of the reply that sends all of it, but for `Date` and what depends on the connection.
    pub(crate) head: String,
}

/// Where a path leads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// To the file of this number.
    File(usize),
    /// To the same path with a slash at its end.
    Directory,
}

/// The files of a server.
#[derive(Debug)]
pub struct Site<B> {
    files: Vec<File<B>>,
    entries: HashMap<Box<[u8]>, Entry, FixedState>,
}

impl<B: Buffer> Default for Site<B> {
    fn default() -> Site<B> {
        Site::new()
    }
}

impl<B: Buffer> Site<B> {
    /// Nothing.
    pub fn new() -> Site<B> {
        Site { files: Vec::new(), entries: HashMap::with_hasher(FixedState::default()) }
    }

    /// Adds a file, or replaces the one at its path, which begins with a slash and is not encoded. `modified`
    /// is in seconds since 1970. An `index.html` is also what its directory shows.
    pub fn insert(&mut self, path: &str, content_type: &str, modified: u64, body: Slice<B>) {
        let number = self.files.len();
        self.files.push(File::new(content_type, modified, body));
        let path = path.as_bytes();
        self.entries.insert(path.into(), Entry::File(number));
        if let Some(directory) = path.strip_suffix(INDEX).filter(|directory| directory.ends_with(b"/")) {
            self.entries.insert(directory.into(), Entry::File(number));
            let bare = &directory[..directory.len() - 1];
            if !bare.is_empty() {
                self.entries.entry(bare.into()).or_insert(Entry::Directory);
            }
        }
    }

    /// Number of paths that lead to something.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn entry(&self, path: &[u8]) -> Option<Entry> {
        self.entries.get(path).copied()
    }

    pub(crate) fn file(&self, number: usize) -> &File<B> {
        &self.files[number]
    }
}

impl<B: Buffer> File<B> {
    fn new(content_type: &str, modified: u64, body: Slice<B>) -> File<B> {
        let etag = format!("\"{:016x}\"", fingerprint(&body));
        let date = date::format(modified);
        let date = core::str::from_utf8(&date).expect("dates are ASCII");
        let validators = format!("ETag: {etag}\r\nLast-Modified: {date}\r\n");
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Accept-Ranges: bytes\r\n{validators}",
            body.len()
        );
        File { body, etag, modified, content_type: content_type.into(), validators, head }
    }
}

/// A number that is the same for the same bytes, on every machine and after every start.
fn fingerprint(body: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(body);
    hasher.finish()
}

/// The media type of a file, by the end of its name.
pub fn content_type_of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" | "text" | "log" | "md" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "xml" => "text/xml; charset=utf-8",
        "json" | "map" => "application/json",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/vnd.microsoft.icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_come_from_names() {
        assert_eq!(content_type_of("/a/INDEX.HTML"), "text/html; charset=utf-8");
        assert_eq!(content_type_of("/a.css/b"), "application/octet-stream");
        assert_eq!(content_type_of(""), "application/octet-stream");
    }
}
