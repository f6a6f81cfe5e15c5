//! Heads of requests: what they ask for, and how their message goes on.

use core::mem::MaybeUninit;
use httparse::{Error, Header};

/// Most fields of a request.
const FIELDS_MAX: usize = 64;

/// Codes of replies, with their phrases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "RFC 9110 section 15 describes each")]
pub enum Status {
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    PreconditionFailed,
    ContentTooLarge,
    UriTooLong,
    RangeNotSatisfiable,
    ExpectationFailed,
    HeaderFieldsTooLarge,
    NotImplemented,
    ServiceUnavailable,
    VersionNotSupported,
}

impl Status {
    /// Code and phrase.
    pub fn line(self) -> &'static str {
        match self {
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::RequestTimeout => "408 Request Timeout",
            Status::PreconditionFailed => "412 Precondition Failed",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::UriTooLong => "414 URI Too Long",
            Status::RangeNotSatisfiable => "416 Range Not Satisfiable",
            Status::ExpectationFailed => "417 Expectation Failed",
            Status::HeaderFieldsTooLarge => "431 Request Header Fields Too Large",
            Status::NotImplemented => "501 Not Implemented",
            Status::ServiceUnavailable => "503 Service Unavailable",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    /// One of HTTP that files do not have.
    Other,
    Unknown,
}

/// Whether the connection goes on behind the reply, and how to say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It does, as HTTP/1.1's do.
    Implied,
    /// It does, because an HTTP/1.0 client asked for it.
    Granted,
    /// It ends.
    Close,
}

/// How the content of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// By its length in bytes.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: Method,
    pub target: &'a str,
    /// What the field `Host` says: nothing, if there is none.
    pub host: &'a [u8],
    pub persistence: Persistence,
    pub framing: Framing,
    /// The client waits for `100 Continue` before it sends the content.
    pub expects_continue: bool,
    pub range: Option<&'a [u8]>,
    pub if_range: Option<&'a [u8]>,
    pub if_match: Option<&'a [u8]>,
    pub if_none_match: Option<&'a [u8]>,
    pub if_modified_since: Option<&'a [u8]>,
    pub if_unmodified_since: Option<&'a [u8]>,
}

/// Fields that say how messages are delimited; each must be unambiguous, or a client and a proxy before this
/// server could take different bytes for the next request (RFC 9112 section 6.3).
#[derive(Default)]
struct Delimiters<'a> {
    hosts: u32,
    is_host_bad: bool,
    content_length: Option<&'a [u8]>,
    transfer_encoding: Option<&'a [u8]>,
    repeated: bool,
    expect: Option<&'a [u8]>,
    close: bool,
    keep_alive: bool,
}

/// Reads a head, given up to and with the empty line at its end.
pub fn parse(head: &[u8]) -> Result<Request<'_>, Status> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, &mut fields) {
        Ok(status) if status.is_complete() => {}
        Err(Error::TooManyHeaders) => return Err(Status::HeaderFieldsTooLarge),
        Err(Error::Version) if names_a_version(head) => return Err(Status::VersionNotSupported),
        _ => return Err(Status::BadRequest),
    }
    let mut delimiters = Delimiters::default();
    let mut request = Request {
        method: method(parsed.method.unwrap_or_default()),
        target: parsed.path.unwrap_or_default(),
        host: b"",
        persistence: Persistence::Close,
        framing: Framing::Empty,
        expects_continue: false,
        range: None,
        if_range: None,
        if_match: None,
        if_none_match: None,
        if_modified_since: None,
        if_unmodified_since: None,
    };
    parsed.headers.iter().for_each(|field| request.take(field, &mut delimiters));
    request.conclude(&delimiters, parsed.version == Some(1))
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH" | "TRACE" | "CONNECT" => Method::Other,
        _ => Method::Unknown,
    }
}

/// Whether the request line ends as that of another version of HTTP would.
fn names_a_version(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let version = line.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    // Two blanks before it, and it is no version that the client got wrong.
    let has_one_blank = !line.strip_suffix(version).unwrap_or_default().ends_with(b"  ");
    has_one_blank && matches!(version, [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'])
}

/// Whether a byte may be in the name of a host and its port (RFC 9112 section 3.2: any other value is
/// refused).
fn is_of_host(byte: &u8) -> bool {
    OF_HOST[usize::from(*byte)]
}

/// The same, looked at once for each byte that there is: a look-up instead of a search.
static OF_HOST: [bool; 256] = {
    let (mut table, mut byte, others) = ([false; 256], 0, b"-._~%!$&'()*+,;=:[]");
    while byte < table.len() {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};

impl<'a> Request<'a> {
    fn take(&mut self, field: &Header<'a>, delimiters: &mut Delimiters<'a>) {
        let value = field.value;
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            4 if is("host") => {
                delimiters.hosts += 1;
                self.host = value;
                delimiters.is_host_bad |= !value.iter().all(is_of_host);
            }
            5 if is("range") => self.range = Some(value),
            6 if is("expect") => delimiters.expect = Some(value),
            8 if is("if-match") => self.if_match = Some(value),
            8 if is("if-range") => self.if_range = Some(value),
            10 if is("connection") => delimiters.connection(value),
            13 if is("if-none-match") => self.if_none_match = Some(value),
            14 if is("content-length") => {
                delimiters.repeated |= delimiters.content_length.replace(value).is_some();
            }
            17 if is("if-modified-since") => self.if_modified_since = Some(value),
            17 if is("transfer-encoding") => {
                delimiters.repeated |= delimiters.transfer_encoding.replace(value).is_some();
            }
            19 if is("if-unmodified-since") => self.if_unmodified_since = Some(value),
            _ => {}
        }
    }

    fn conclude(mut self, delimiters: &Delimiters<'_>, is_1_1: bool) -> Result<Request<'a>, Status> {
        if delimiters.hosts > 1 || delimiters.is_host_bad || (is_1_1 && delimiters.hosts == 0) {
            return Err(Status::BadRequest);
        }
        self.framing = delimiters.framing(is_1_1)?;
        self.expects_continue = match delimiters.expect {
            Some(expectation) if !expectation.eq_ignore_ascii_case(b"100-continue") => {
                return Err(Status::ExpectationFailed);
            }
            // An HTTP/1.0 client cannot mean it (RFC 9110 section 10.1.1).
            expectation => expectation.is_some() && is_1_1 && self.framing != Framing::Empty,
        };
        self.persistence = match (is_1_1, delimiters.close, delimiters.keep_alive) {
            (true, false, _) => Persistence::Implied,
            (false, false, true) => Persistence::Granted,
            _ => Persistence::Close,
        };
        Ok(self)
    }
}

impl Delimiters<'_> {
    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn framing(&self, is_1_1: bool) -> Result<Framing, Status> {
        match (self.content_length, self.transfer_encoding) {
            _ if self.repeated => Err(Status::BadRequest),
            (None, None) => Ok(Framing::Empty),
            (Some(_), Some(_)) => Err(Status::BadRequest),
            (None, Some(_)) if !is_1_1 => Err(Status::BadRequest),
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
            (None, Some(_)) => Err(Status::NotImplemented),
            (Some(digits), None) => length(digits),
        }
    }
}

fn length(digits: &[u8]) -> Result<Framing, Status> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Status::BadRequest);
    }
    let digit = |value: u64, digit: &u8| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    match digits.iter().try_fold(0, digit) {
        Some(0) => Ok(Framing::Empty),
        Some(length) => Ok(Framing::Length(length)),
        None => Err(Status::ContentTooLarge),
    }
}
