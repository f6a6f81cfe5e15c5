//! Replies.

use crate::condition::{self, Verdict};
use crate::known::Meaning;
use crate::path::{self, BadTarget};
use crate::range::{self, Wanted};
use crate::request::{Method, Persistence, Request, Status};
use crate::server::Server;
use crate::site::{Entry, File};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use nom_port::buffer::{Asked, Buffer, Sink, Slice};

/// Files up to this many bytes are copied: that is cheaper than to gather one more piece.
const COPY_MAX: usize = 256;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Answers a request whose content is done with; says with which file, if it found one.
pub(crate) fn answer<B: Buffer>(
    server: &mut Server<B>,
    request: &Request<'_>,
    sink: &mut impl Sink<B>,
) -> Option<usize> {
    let refused = match request.method {
        Method::Unknown => Err(Status::NotImplemented),
        Method::Other => Err(Status::MethodNotAllowed),
        Method::Get | Method::Head => find(server, request, sink),
    };
    match refused {
        Ok(Found::File(number)) => {
            send_file(server, request, number, sink);
            return Some(number);
        }
        Ok(Found::Directory(path)) => send_redirect(server, request, path, sink),
        Err(status) => send_error(server, status, Some(request), sink),
    }
    None
}

/// Answers a head that came before.
pub(crate) fn answer_known<B: Buffer>(server: &mut Server<B>, meaning: Meaning, sink: &mut impl Sink<B>) {
    send_whole(server, (Method::Get, meaning.persistence), server.site.file(meaning.file), sink);
    server.stats.served += 1;
}

enum Found<'a> {
    File(usize),
    /// The path, to which a slash belongs.
    Directory(&'a str),
}

fn find<'a, B: Buffer>(
    server: &Server<B>,
    request: &Request<'a>,
    sink: &mut impl Sink<B>,
) -> Result<Found<'a>, Status> {
    let refuse = |bad| match bad {
        BadTarget::Malformed => Status::BadRequest,
        BadTarget::Traversal => Status::Forbidden,
    };
    let raw = path::raw_path(request.target).map_err(refuse)?;
    let path = path::decode(raw).map_err(refuse)?;
    if sink.tells_apart() {
        // As files are found, however the client has written it: nobody has another pay by a `%`.
        sink.asked(Asked::Page { host: path::host(request.target, request.host), path: &path });
    }
    match server.site.entry(&path) {
        Some(Entry::File(number)) => Ok(Found::File(number)),
        Some(Entry::Directory) => Ok(Found::Directory(raw)),
        None => Err(Status::NotFound),
    }
}

/// Says that the client may send its content.
pub(crate) fn send_continue<B: Buffer>(sink: &mut impl Sink<B>) {
    sink.copy(CONTINUE);
}

/// Sends an error. Without a request, which then was not understood, the connection ends.
pub(crate) fn send_error<B: Buffer>(
    server: &mut Server<B>,
    status: Status,
    request: Option<&Request<'_>>,
    sink: &mut impl Sink<B>,
) {
    send_error_with(server, status, "", request, sink);
}

fn send_error_with<B: Buffer>(
    server: &mut Server<B>,
    status: Status,
    fields: &str,
    request: Option<&Request<'_>>,
    sink: &mut impl Sink<B>,
) {
    server.stats.refused += 1;
    let line = status.line();
    sink.copy(b"HTTP/1.1 ");
    sink.copy(line.as_bytes());
    sink.copy(b"\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ");
    send_number(line.len() + 1, sink);
    sink.copy(b"\r\n");
    if status == Status::MethodNotAllowed {
        sink.copy(b"Allow: GET, HEAD\r\n");
    }
    sink.copy(fields.as_bytes());
    end_head(server, request.map_or(Persistence::Close, |request| request.persistence), sink);
    if request.is_none_or(|request| request.method != Method::Head) {
        sink.copy(line.as_bytes());
        sink.copy(b"\n");
    }
}

fn send_redirect<B: Buffer>(
    server: &mut Server<B>,
    request: &Request<'_>,
    path: &str,
    sink: &mut impl Sink<B>,
) {
    server.stats.redirected += 1;
    sink.copy(b"HTTP/1.1 301 Moved Permanently\r\nContent-Length: 0\r\nLocation: ");
    sink.copy(path.as_bytes());
    sink.copy(b"/");
    sink.copy(path::query(request.target).as_bytes());
    sink.copy(b"\r\n");
    end_head(server, request.persistence, sink);
}

fn send_file<B: Buffer>(
    server: &mut Server<B>,
    request: &Request<'_>,
    number: usize,
    sink: &mut impl Sink<B>,
) {
    let file = server.site.file(number);
    match condition::judge(request, file, server.now) {
        Verdict::Send => {}
        Verdict::Failed => return send_error(server, Status::PreconditionFailed, Some(request), sink),
        Verdict::NotModified => {
            sink.copy(b"HTTP/1.1 304 Not Modified\r\n");
            sink.copy(file.validators.as_bytes());
            end_head(server, request.persistence, sink);
            server.stats.served += 1;
            return;
        }
    }
    let range = request.range.filter(|_| request.method == Method::Get);
    let range = range.filter(|_| condition::obeys_range(request, file, server.now));
    let wanted = range.map_or(Wanted::Everything, |range| range::parse(range, file.body.len()));
    match wanted {
        Wanted::Everything => send_whole(server, (request.method, request.persistence), file, sink),
        Wanted::Nothing => {
            let field = format!("Content-Range: bytes */{}\r\n", file.body.len());
            return send_error_with(server, Status::RangeNotSatisfiable, &field, Some(request), sink);
        }
        Wanted::Parts(parts) if parts.len() == 1 => send_part(server, request, file, &parts[0], sink),
        Wanted::Parts(parts) => send_parts(server, request, file, &parts, sink),
    }
    server.stats.served += 1;
}

fn send_whole<B: Buffer>(
    server: &Server<B>,
    (method, persistence): (Method, Persistence),
    file: &File<B>,
    sink: &mut impl Sink<B>,
) {
    sink.copy(file.head.as_bytes());
    end_head(server, persistence, sink);
    if method == Method::Get {
        send_body(&file.body, 0..file.body.len(), sink);
    }
}

fn send_part<B: Buffer>(
    server: &Server<B>,
    request: &Request<'_>,
    file: &File<B>,
    part: &Range<usize>,
    sink: &mut impl Sink<B>,
) {
    let head = format!("HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n", part.len());
    sink.copy(head.as_bytes());
    sink.copy(part_fields(file, part).as_bytes());
    sink.copy(file.validators.as_bytes());
    end_head(server, request.persistence, sink);
    send_body(&file.body, part.clone(), sink);
}

/// The fields that describe a part.
fn part_fields<B>(file: &File<B>, part: &Range<usize>) -> String
where
    B: Buffer,
{
    let (first, last, len) = (part.start, part.end - 1, file.body.len());
    format!("Content-Type: {}\r\nContent-Range: bytes {first}-{last}/{len}\r\n", file.content_type)
}

/// Sends several parts as `multipart/byteranges` (RFC 9110 section 14.6).
fn send_parts<B: Buffer>(
    server: &Server<B>,
    request: &Request<'_>,
    file: &File<B>,
    parts: &[Range<usize>],
    sink: &mut impl Sink<B>,
) {
    let boundary = &server.boundary;
    let part_head = |part| format!("\r\n--{boundary}\r\n{}\r\n", part_fields(file, part));
    let heads: Vec<String> = parts.iter().map(part_head).collect();
    let end = format!("\r\n--{boundary}--\r\n");
    let len: usize = heads.iter().zip(parts).map(|(head, part)| head.len() + part.len()).sum();
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Type: multipart/byteranges; boundary={boundary}\r\n\
         Content-Length: {}\r\n",
        len + end.len()
    );
    sink.copy(head.as_bytes());
    sink.copy(file.validators.as_bytes());
    end_head(server, request.persistence, sink);
    for (head, part) in heads.iter().zip(parts) {
        sink.copy(head.as_bytes());
        send_body(&file.body, part.clone(), sink);
    }
    sink.copy(end.as_bytes());
}

fn send_body<B: Buffer>(body: &Slice<B>, part: Range<usize>, sink: &mut impl Sink<B>) {
    match part.len() <= COPY_MAX {
        true => sink.copy(&body[part]),
        false => sink.lend(body.part(part)),
    }
}

/// Sends the fields that depend on time and connection, and the end of the head.
fn end_head<B: Buffer>(server: &Server<B>, persistence: Persistence, sink: &mut impl Sink<B>) {
    sink.copy(&server.date);
    sink.copy(match persistence {
        Persistence::Implied => b"\r\n",
        Persistence::Granted => b"Connection: keep-alive\r\n\r\n",
        Persistence::Close => b"Connection: close\r\n\r\n",
    });
}

fn send_number<B: Buffer>(number: usize, sink: &mut impl Sink<B>) {
    let mut digits = itoa::Buffer::new();
    sink.copy(digits.format(number).as_bytes());
}
