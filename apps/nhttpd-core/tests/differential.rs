//! The same requests to this server and to the distribution's nginx: what a client, or a proxy in front, acts
//! on must be the same: how many answers there are, their status, length, range and body, and whether the
//! connection goes on. Where they differ on purpose, it is said here.

#[allow(dead_code, reason = "each test uses a part")]
mod common;

use common::{MODIFIED, files, replies};
use nom_service::Stream;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

/// nginx on loopback, ended with the test.
struct Nginx {
    process: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

const CONFIGURATION: &str = "daemon off; master_process off; error_log stderr crit; pid {root}/pid;
events {}
http {
    access_log off; client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3;
    uwsgi_temp_path {root}/t4; scgi_temp_path {root}/t5; keepalive_requests 10000;
    server { listen 127.0.0.1:{port}; root {root}/site; etag off; }
}
";

impl Nginx {
    /// Starts it with the files of the tests; `None`, and a note, if it is not installed.
    fn start() -> Option<Nginx> {
        let path = Path::new("/usr/sbin/nginx");
        if !path.is_file() {
            eprintln!("skipped: nginx is not installed");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        for (name, body) in files() {
            let path = root.join("site").join(name.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
            std::fs::write(&path, body).expect("it is written");
            let file = std::fs::File::options().write(true).open(&path).expect("it is there");
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED)).expect("it is set");
        }
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("a port is free").port();
        let text = CONFIGURATION.replace("{root}", &root.display().to_string());
        std::fs::write(root.join("conf"), text.replace("{port}", &port.to_string())).expect("it is written");
        let process = Command::new(path).arg("-c").arg(root.join("conf")).spawn().expect("nginx starts");
        Some(Nginx { process, port, _directory: directory })
    }

    /// All that it answers, and whether it then closes by itself.
    fn ask(&self, request: &[u8]) -> (Vec<u8>, bool) {
        let connect = || TcpStream::connect(("127.0.0.1", self.port));
        let mut tries = (0..100).map(|_| connect().inspect_err(|_| std::thread::sleep(SHORT)));
        let mut stream = tries.find_map(Result::ok).expect("nginx listens");
        stream.set_read_timeout(Some(SHORT)).expect("a timeout is set");
        stream.write_all(request).expect("it is sent");
        let (mut all, mut buffer) = (Vec::new(), [0; 65536]);
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return (all, true),
                Ok(len) => all.extend_from_slice(&buffer[..len]),
                Err(error) => return (all, error.kind() != std::io::ErrorKind::WouldBlock),
            }
        }
    }
}

const SHORT: Duration = Duration::from_millis(120);

/// What counts of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// Of what was asked for; an error's text is each server's own.
    body: Option<Vec<u8>>,
    range: Option<String>,
    says_close: bool,
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// The answers in a stream, to requests of which `heads` says whether each is HEAD.
fn answers(mut stream: &[u8], heads: &[bool]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some(end) = stream.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&stream[..end]).into_owned();
        stream = &stream[end + 4..];
        let status = head.get(9..12).and_then(|status| status.parse().ok()).expect("a status line");
        let is_head = heads.get(answers.len()).copied().unwrap_or(false);
        let len = field(&head, "content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
        let len = if is_head || status == 304 { 0 } else { len };
        let (body, rest) = stream.split_at(usize::min(len, stream.len()));
        stream = rest;
        let is_success = matches!(status, 200 | 206);
        answers.push(Answer {
            status,
            body: is_success.then(|| body.to_vec()),
            range: field(&head, "content-range").map(str::to_owned),
            says_close: field(&head, "connection") == Some("close"),
        });
    }
    answers
}

/// Requests, each with whether it asks by HEAD.
struct Case {
    text: String,
    heads: Vec<bool>,
}

fn case(text: impl Into<String>) -> Case {
    let text = text.into();
    let starts = text.lines().filter(|line| line.contains(" HTTP/1."));
    Case { heads: starts.map(|line| line.starts_with("HEAD ")).collect(), text }
}

const HOST: &str = "Host: site\r\n";

const RANGES: &[&str] = &[
    "bytes=0-0",
    "bytes=0-9",
    "bytes=5-",
    "bytes=-5",
    "bytes=-0",
    "bytes=25-25",
    "bytes=26-",
    "bytes=100-200",
    "bytes=0-100000",
    "bytes=9-5",
    "bytes=a-b",
    "bytes=",
    "bytes",
    "items=0-5",
    "bytes=00-05",
    "bytes=-100000",
    "bytes=18446744073709551616-",
    "bytes=-18446744073709551616",
    "bytes=1-2-3",
    "bytes=--1",
    "bytes=+1-2",
    "bytes=1 -2",
    "bytes=0-5x",
];

fn ranges() -> impl Iterator<Item = Case> {
    let paths = ["/letters.txt", "/large.bin", "/empty.txt"];
    let asked = RANGES.iter().flat_map(move |range| paths.map(|path| (*range, path)));
    asked.flat_map(|(range, path)| {
        ["GET", "HEAD"]
            .map(|method| case(format!("{method} {path} HTTP/1.1\r\n{HOST}Range: {range}\r\n\r\n")))
    })
}

fn conditions() -> impl Iterator<Item = Case> {
    let dates = [
        "Wed, 01 Jan 2025 00:00:00 GMT",
        "Tue, 31 Dec 2024 23:59:59 GMT",
        "Wed, 01 Jan 2025 00:00:01 GMT",
        "Wednesday, 01-Jan-25 00:00:00 GMT",
        "yesterday",
        "",
    ];
    let fields = ["If-Modified-Since", "If-Unmodified-Since", "Range: bytes=3-4\r\nIf-Range"];
    let one = fields.into_iter().flat_map(move |field| {
        dates.map(|date| case(format!("GET /letters.txt HTTP/1.1\r\n{HOST}{field}: {date}\r\n\r\n")))
    });
    let stars = ["If-Match: *", "If-Match: \"x\"", "If-None-Match: \"x\""];
    one.chain(stars.map(|field| case(format!("GET /letters.txt HTTP/1.1\r\n{HOST}{field}\r\n\r\n"))))
}

fn targets() -> impl Iterator<Item = Case> {
    let targets = [
        "/",
        "/docs/",
        "/none",
        "/docs/a%20b.txt",
        "//letters.txt",
        "/./letters.txt",
        "/docs/../letters.txt",
        "/letters.txt?x=y",
        "/%6cetters.txt",
        "/letters.txt/",
        "/letters.txt#x",
        "/docs/%2e%2e/letters.txt",
        "http://site/letters.txt",
        "http://site",
        "http://site/",
        "HTTP://site/letters.txt",
        "letters.txt",
        "*",
        "http://other/letters.txt",
        "/letters.txt%",
        "/%zz",
        "/%00",
        "/letters.tx%74?%zz",
    ];
    targets.into_iter().map(|target| case(format!("GET {target} HTTP/1.1\r\n{HOST}\r\n")))
}

const NEXT: &str = "GET /letters.txt HTTP/1.1\r\nHost: site\r\n\r\n";

fn messages() -> impl Iterator<Item = Case> {
    let get = |fields: &str, body: &str| {
        case(format!("GET /letters.txt HTTP/1.1\r\n{HOST}{fields}\r\n{body}{NEXT}"))
    };
    let chunked = "Transfer-Encoding: chunked\r\n";
    let bodies = [
        get("", ""),
        get("Content-Length: 0\r\n", ""),
        get("Content-Length: 5\r\n", "hello"),
        get(chunked, "5\r\nhello\r\n0\r\n\r\n"),
        get(chunked, "5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n"),
        get(chunked, "0\r\n\r\n"),
        get(chunked, "A\r\n0123456789\r\n0\r\n\r\n"),
        get("Connection: close\r\n", ""),
        get("Connection: keep-alive\r\n", ""),
    ];
    let smuggled = [
        get("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        get("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"),
        get("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
        get("Content-Length: +5\r\n", "hello"),
        get("Content-Length: -5\r\n", "hello"),
        get("Content-Length: 5, 5\r\n", "hello"),
        get("Content-Length: 0x5\r\n", "hello"),
        get("Content-Length: \r\n", ""),
        get("Content-Length : 5\r\n", "hello"),
        get("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        get("Transfer-Encoding: identity\r\n", ""),
        get("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        get("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        get("A: b\r\n c: d\r\n", ""),
        get("A: b\0c\r\n", ""),
        get(" A: b\r\n", ""),
        get("A b\r\n", ""),
        get(": b\r\n", ""),
        get("Host: other\r\n", ""),
        get(chunked, "g\r\nhello\r\n0\r\n\r\n"),
        get(chunked, "-5\r\nhello\r\n0\r\n\r\n"),
        get(chunked, "0x5\r\nhello\r\n0\r\n\r\n"),
        get(chunked, "5\r\nhelloX\r\n0\r\n\r\n"),
        get(chunked, "fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
    ];
    let starts = [
        "GET /letters.txt HTTP/1.1\r\n\r\n",
        "GET /letters.txt HTTP/1.0\r\n\r\n",
        "GET /letters.txt\r\n\r\n",
        "GET /letters.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "GET /letters.txt HTTP/2.0\r\n\r\n",
        "GET /letters.txt HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "get /letters.txt HTTP/1.1\r\n\r\n",
        "GET  /letters.txt HTTP/1.1\r\nHost: site\r\n\r\n",
        "GET /letters.txt  HTTP/1.1\r\nHost: site\r\n\r\n",
        "\r\nGET /letters.txt HTTP/1.1\r\nHost: site\r\n\r\n",
        "GET /letters.txt HTTP/1.1\nHost: site\n\n",
        "POST /letters.txt HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello",
        "PUT / HTTP/1.1\r\nHost: site\r\n\r\n",
        "HEAD /letters.txt HTTP/1.1\r\nHost: site\r\n\r\nGET / HTTP/1.1\r\nHost: site\r\n\r\n",
        "GET /none HTTP/1.1\r\nHost: site\r\n\r\nGET / HTTP/1.1\r\nHost: site\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: \r\n\r\n",
        "\0GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    bodies.into_iter().chain(smuggled).chain(starts.map(case))
}

/// Where nginx answers otherwise, and why ours is right or as good; with what ours is.
fn on_purpose(text: &str) -> Option<(u16, &'static str)> {
    let has = |part: &str| text.contains(part);
    let is_get = text.starts_with("GET ");
    let range = text.split("Range: ").nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let is_malformed = ["9-5", "a-b", "", "1-2-3", "--1", "+1-2", "1 -2", "0-5x", "bytes"];
    let is_malformed =
        is_malformed.iter().any(|end| range == *end || range == format!("bytes={end}")) || range == "bytes=";
    let reasons = [
        (text.starts_with("HEAD ") && has("Range: "), 200, "ranges are GET's alone (RFC 9110 section 14.2)"),
        (has("Range: ") && is_malformed && is_get, 200, "what is no range may be ignored (section 14.2)"),
        (has("bytes=-18446744073709551616"), 206, "more than all of the end is all (section 14.1.2)"),
        (has("/empty.txt") && has("Range: "), 416, "no byte of nothing can be sent"),
        (
            has("If-Modified-Since: Wed, 01 Jan 2025 00:00:01"),
            304,
            "later than the file is after it (13.1.3)",
        ),
        (has("If-Unmodified-Since: Tue"), 412, "the connection goes on"),
        (has("If-Unmodified-Since: yesterday"), 200, "no date, no condition (section 13.1.4)"),
        (has("If-Unmodified-Since: \r\n"), 200, "no date, no condition"),
        (has("If-Match: \"x\""), 412, "the connection goes on"),
        (has("GET //letters.txt "), 404, "names of files are not mended"),
        (has("/./") || has("/../") || has("/%2e%2e/"), 403, "nobody climbs, not even in vain"),
        (has("GET letters.txt ") || has("GET * "), 400, "the head is understood: the connection goes on"),
        (has("GET /letters.txt% ") || has("/%zz HTTP") || has("/%00 "), 400, "the connection goes on"),
        (text == "GET /letters.txt\r\n\r\n", 400, "HTTP/0.9 is not spoken"),
        (has("GET  /") || has("txt  HTTP"), 400, "one blank separates (RFC 9112 section 3)"),
        (has("Host: \r\n"), 200, "a target may have no authority (RFC 9112 section 3.2)"),
    ];
    reasons.into_iter().find(|(applies, ..)| *applies).map(|(_, status, why)| (status, why))
}

#[test]
fn nginx_answers_the_same() {
    let Some(nginx) = Nginx::start() else { return };
    let cases: Vec<Case> = ranges().chain(conditions()).chain(targets()).chain(messages()).collect();
    assert!(cases.len() >= 200, "{} requests", cases.len());
    let mut differences = Vec::new();
    for Case { text, heads } in &cases {
        let (theirs, closed) = nginx.ask(text.as_bytes());
        let (ours, flow) = replies(text.as_bytes(), &[text.len()]);
        let (theirs, ours) = (answers(&theirs, heads), answers(&ours, heads));
        if (&ours, flow == Stream::Close) == (&theirs, closed) {
            continue;
        }
        let reason =
            on_purpose(text).filter(|(status, _)| ours.first().is_some_and(|first| first.status == *status));
        if reason.is_none() {
            differences.push(format!(
                "{}\n  nom   {ours:?} {flow:?}\n  nginx {theirs:?} closed {closed}",
                text.escape_default()
            ));
        }
    }
    assert!(differences.is_empty(), "{} of {}\n{}", differences.len(), cases.len(), differences.join("\n"));
}
