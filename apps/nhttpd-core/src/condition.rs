//! Conditional requests (RFC 9110 section 13).

use crate::date;
use crate::request::Request;
use crate::site::File;

/// What the conditions of a request come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send the file.
    Send,
    /// The client has it already.
    NotModified,
    /// The client wants another version.
    Failed,
}

/// Evaluates the conditions in the order of section 13.2.2. `now` is in seconds since 1970.
pub fn judge<B>(request: &Request<'_>, file: &File<B>, now: u64) -> Verdict {
    let changed_since = |field: &[u8]| date::parse(field, now).map(|date| file.modified > date);
    let stands = match (request.if_match, request.if_unmodified_since) {
        (Some(tags), _) => names(tags, &file.etag, false),
        (None, Some(since)) => changed_since(since) != Some(true),
        (None, None) => true,
    };
    let is_known = match (request.if_none_match, request.if_modified_since) {
        (Some(tags), _) => names(tags, &file.etag, true),
        (None, Some(since)) => changed_since(since) == Some(false),
        (None, None) => false,
    };
    match (stands, is_known) {
        (false, _) => Verdict::Failed,
        (true, true) => Verdict::NotModified,
        (true, false) => Verdict::Send,
    }
}

/// Whether `Range` is to be obeyed: `If-Range` must name this very version.
pub fn obeys_range<B>(request: &Request<'_>, file: &File<B>, now: u64) -> bool {
    match request.if_range {
        None => true,
        Some(tag) if tag.starts_with(b"\"") => tag == file.etag.as_bytes(),
        Some(date) => date::parse(date, now) == Some(file.modified),
    }
}

/// Whether a list of entity tags has the file's; weak ones count only if `weak` (section 8.8.3.2).
fn names(tags: &[u8], etag: &str, weak: bool) -> bool {
    tags.trim_ascii() == b"*"
        || tags.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).any(|tag| match tag.strip_prefix(b"W/") {
            Some(tag) => weak && tag == etag.as_bytes(),
            None => tag == etag.as_bytes(),
        })
}
