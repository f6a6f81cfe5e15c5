//! Requests and responses of the control port: the little of HTTP/1.1 (RFC 9112) that it takes.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use httparse::Status;

/// Most fields of a request.
const FIELDS_MAX: usize = 32;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Put,
    Other,
}

/// A request that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub method: Method,
    /// Without a query.
    pub path: &'a str,
    pub body: &'a [u8],
    /// Bytes of it.
    pub len: usize,
    /// Whether the client wants no more on this connection.
    pub is_last: bool,
}

/// The first request of `input`; nothing if it has not come whole.
pub(super) fn parse(input: &[u8]) -> Result<Option<Request<'_>>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let head = match parsed.parse(input) {
        Ok(Status::Complete(head)) => head,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err("expected a request of HTTP/1.1"),
    };
    let mut body = 0;
    let mut is_last = parsed.version == Some(0);
    for field in parsed.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            body = length(field.value).ok_or("content-length: expected a number of bytes")?;
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("expected a body of a content-length");
        } else if field.name.eq_ignore_ascii_case("connection") {
            is_last |= field.value.eq_ignore_ascii_case(b"close");
        }
    }
    let method = match parsed.method {
        Some("GET") => Method::Get,
        Some("PUT") => Method::Put,
        _ => Method::Other,
    };
    let path = parsed.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let len = head.saturating_add(body);
    Ok(input.get(head..len).map(|body| Request { method, path, body, len, is_last }))
}

fn length(value: &[u8]) -> Option<usize> {
    let digits = core::str::from_utf8(value).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// What is answered.
#[derive(Clone, Debug)]
pub(super) struct Response {
    status: &'static str,
    content_type: &'static str,
    /// Further fields, each with its line end.
    fields: String,
    body: String,
    closes: bool,
}

const PLAIN: &str = "text/plain; charset=utf-8";

impl Response {
    pub fn ok(content_type: &'static str, body: String) -> Response {
        Response { status: "200 OK", content_type, fields: String::new(), body, closes: false }
    }

    /// A line.
    pub fn text(line: &str) -> Response {
        Response::ok(PLAIN, format!("{line}\n"))
    }

    /// A line with a number.
    pub fn number(number: u32) -> Response {
        Response::text(itoa::Buffer::new().format(number))
    }

    fn error(status: &'static str, why: String) -> Response {
        Response { status, ..Response::text(&why) }
    }

    pub fn bad_request(why: String) -> Response {
        Response::error("400 Bad Request", why)
    }

    pub fn not_found(path: &str, there_are: &str) -> Response {
        Response::error("404 Not Found", format!("{path}: expected one of {there_are}"))
    }

    pub fn conflict(why: &str) -> Response {
        Response::error("409 Conflict", why.to_string())
    }

    pub fn not_allowed(methods: &str) -> Response {
        let response = Response::error("405 Method Not Allowed", format!("expected one of {methods}"));
        Response { fields: format!("Allow: {methods}\r\n"), ..response }
    }

    pub fn too_large() -> Response {
        Response::error("413 Content Too Large", "expected a short request".to_string())
    }

    /// The same as the last on its connection.
    pub fn closing(self) -> Response {
        Response { closes: true, ..self }
    }

    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Puts it behind what `out` has.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Response { status, content_type, fields, body, closes } = self;
        let connection = if *closes { "Connection: close\r\n" } else { "" };
        let len = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\n\
             {fields}{connection}\r\n"
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(body.as_bytes());
    }
}
