//! Replies to requests, as they are kept in `golden`, and what must hold for all of them.
//!
//! `golden/NAME.request` is what a client sends, `golden/NAME.reply` what it gets, both with the line ends of
//! the host; with `UPDATE_GOLDEN` in the environment the replies are written anew.

#[allow(dead_code, reason = "each test uses a part")]
mod common;

use common::{Bytes, NOW, letters, replies, server};
use nom_nhttpd_core::{Connection, Places};
use nom_port::buffer::{Sink, Slice};
use nom_service::Stream;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

fn files(directory: &str, extension: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = fs::read_dir(directory).expect("the directory is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().unwrap_or_default() == extension).collect();
    paths.sort();
    paths
}

fn to_crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}

#[test]
fn replies_are_the_golden_ones() {
    let requests = files("tests/golden", "request");
    assert!(requests.len() >= 30, "only {} requests", requests.len());
    for path in requests {
        let request = to_crlf(&fs::read_to_string(&path).expect("it is text"));
        let (sent, flow) = replies(request.as_bytes(), &[usize::MAX]);
        let sent = String::from_utf8(sent).expect("the small files are text").replace("\r\n", "\n");
        let sent = format!("{sent}\n[{flow:?}]\n");
        let golden = path.with_extension("reply");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &sent).expect("it can be written");
        }
        let expected = fs::read_to_string(&golden).expect("it is text");
        assert_eq!(sent, expected, "{}", path.display());
    }
}

#[test]
fn who_asks_again_is_answered_the_same() {
    let mut server = server();
    for path in files("tests/golden", "request").iter().cycle().take(200) {
        let request = to_crlf(&fs::read_to_string(path).expect("it is text"));
        let (mut again, mut connection) = (Vec::new(), Connection::new(NOW));
        let piece = Slice::new(Bytes::from(request.as_bytes()));
        let flow = connection.receive(&mut server, piece, &mut again);
        assert_eq!((again, flow), replies(request.as_bytes(), &[usize::MAX]), "{}", path.display());
    }
}

/// Reads a stream of replies to requests that are not HEAD, and says how many they are.
fn count_replies(mut stream: &[u8]) -> usize {
    let mut count = 0;
    while !stream.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut reply = httparse::Response::new(&mut fields);
        let parsed = reply.parse(stream).expect("the head is well-formed");
        let httparse::Status::Complete(head) = parsed else {
            panic!("a head is cut: {}", stream.escape_ascii())
        };
        let length = reply.headers.iter().find(|field| field.name == "Content-Length");
        let length =
            length.map_or(0, |field| String::from_utf8_lossy(field.value).parse().expect("a number"));
        let has_date = reply.headers.iter().any(|field| field.name == "Date");
        assert!(has_date || reply.code == Some(100), "{}", stream[..head].escape_ascii());
        stream = &stream[head + length..];
        count += usize::from(reply.code != Some(100));
    }
    count
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut stream = Vec::new();
    for at in 0..200 {
        let range = at % 26;
        stream.extend_from_slice(
            format!("GET /letters.txt HTTP/1.1\r\nHost: a\r\nRange: bytes={range}-{range}\r\n\r\n")
                .as_bytes(),
        );
    }
    let (sent, flow) = replies(&stream, &[usize::MAX]);
    assert_eq!((count_replies(&sent), flow), (200, Stream::Open));
    let bodies: Vec<u8> = sent
        .split(|&byte| byte == b'\n')
        .filter_map(|line| match line {
            [letter, rest @ ..] if rest.is_empty() || rest.starts_with(b"HTTP/1.1") => Some(*letter),
            _ => None,
        })
        .filter(u8::is_ascii_lowercase)
        .collect();
    assert_eq!(bodies, letters(26).into_iter().cycle().take(200).collect::<Vec<_>>());
}

#[test]
fn the_corpus_is_answered_the_same_however_it_is_cut() {
    let mut streams: Vec<Vec<u8>> = Vec::new();
    for path in files("tests/golden", "request") {
        streams.push(to_crlf(&fs::read_to_string(path).expect("it is text")).into_bytes());
    }
    streams.extend(files("corpus", "bin").iter().map(|path| fs::read(path).expect("it can be read")));
    for stream in streams {
        let whole = replies(&stream, &[usize::MAX]);
        for len in [1, 2, 3, 7, 100, 1448] {
            assert_eq!(replies(&stream, &[len]), whole, "{} in pieces of {len}", stream.escape_ascii());
        }
    }
}

const LINES: [&str; 30] = [
    "GET / HTTP/1.1",
    "GET /docs HTTP/1.1",
    "HEAD /letters.txt HTTP/1.1",
    "GET /large.bin HTTP/1.0",
    "POST / HTTP/1.1",
    "BREW /pot HTTP/1.1",
    "GET /../x HTTP/1.1",
    "GET /%zz HTTP/1.1",
    "GET / HTTP/2.0",
    "GET /",
    "Host: a",
    "Host: a",
    "Host: a",
    "host: b",
    "Content-Length: 5",
    "Content-Length: x",
    "Connection: close",
    "Transfer-Encoding: chunked",
    "Expect: 100-continue",
    "Range: bytes=1-2,5-",
    "If-None-Match: *",
    "If-Match: *",
    "Connection: Keep-Alive",
    "",
    "",
    "",
    "5",
    "hello",
    "0",
    " folded",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn requests_are_understood_however_they_are_cut(
        lines in vec(0usize..LINES.len(), 1..40), lens in vec(1usize..60, 1..6),
        faults in vec(any::<(prop::sample::Index, u8)>(), 0..2),
    ) {
        let lines: String = lines.iter().map(|&at| format!("{}\r\n", LINES[at])).collect();
        let mut stream = lines.into_bytes();
        for (index, byte) in faults {
            let at = index.index(stream.len());
            stream[at] = byte;
        }
        let whole = replies(&stream, &[usize::MAX]);
        prop_assert_eq!(&replies(&stream, &lens), &whole);
        prop_assert_eq!(&replies(&stream, &[1]), &whole);
    }

    #[test]
    fn any_bytes_are_survived(stream in vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(replies(&stream, &[1]), replies(&stream, &[usize::MAX]));
    }

    #[test]
    fn any_ranges_get_what_they_name(field in "[-0-9, ]{0,20}") {
        let stream = format!("GET /letters.txt HTTP/1.1\r\nHost: a\r\nRange: bytes={field}\r\n\r\n");
        let (sent, _) = replies(stream.as_bytes(), &[usize::MAX]);
        prop_assert_eq!(count_replies(&sent), 1);
    }
}

#[test]
fn heads_and_contents_are_limited() {
    let status = |stream: &str| {
        let (sent, flow) = replies(stream.as_bytes(), &[1000]);
        (String::from_utf8_lossy(&sent[9..12.min(sent.len())]).into_owned(), flow)
    };
    let closed = |code: &str| (code.to_owned(), Stream::Close);
    let long = "x".repeat(20_000);
    assert_eq!(status(&format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")), closed("414"));
    assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: a\r\nA: {long}\r\n\r\n")), closed("431"));
    assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(65))), closed("431"));
    let content =
        |field: &str, rest: &str| status(&format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n{rest}"));
    assert_eq!(content("Content-Length: 1048577", ""), closed("413"));
    assert_eq!(content("Content-Length: 99999999999999999999999", ""), closed("413"));
    assert_eq!(content("Transfer-Encoding: chunked", "100001\r\n"), closed("413"));
    let chunk = format!("80000\r\n{}\r\n", "x".repeat(0x80000));
    assert_eq!(content("Transfer-Encoding: chunked", &format!("{chunk}{chunk}1\r\n")), closed("413"));
    assert_eq!(
        content("Transfer-Encoding: chunked", &format!("{chunk}{chunk}0\r\n\r\n")),
        ("200".to_owned(), Stream::Open)
    );
    assert_eq!(
        content("Transfer-Encoding: chunked", &format!("0\r\n{}", "A: b\r\n".repeat(1000))),
        closed("431")
    );
    assert_eq!(content("Transfer-Encoding: chunked", &format!("1;{long}\r\n")), closed("400"));
}

#[test]
fn slow_clients_are_sent_away() {
    let (mut server, mut connection, mut sent) = (server(), Connection::new(NOW), Vec::new());
    let half = Slice::new(Bytes::from(&b"GET / HT"[..]));
    assert_eq!(connection.receive(&mut server, half, &mut sent), Stream::Open);
    server.set_time(NOW + 20);
    assert_eq!(connection.check_time(&mut server, &mut sent), Stream::Open);
    server.set_time(NOW + 21);
    assert_eq!(connection.check_time(&mut server, &mut sent), Stream::Close);
    assert!(sent.starts_with(b"HTTP/1.1 408 Request Timeout\r\n"), "{}", sent.escape_ascii());
    let (mut idle, mut silence) = (Connection::new(NOW), Vec::new());
    server.set_time(NOW + 60);
    assert_eq!(idle.check_time(&mut server, &mut silence), Stream::Open);
    server.set_time(NOW + 61);
    assert_eq!((idle.check_time(&mut server, &mut silence), silence.len()), (Stream::Close, 0));
    assert_eq!(server.stats.timed_out, 2);
}

#[test]
fn a_long_reply_that_is_read_is_no_idleness() {
    let (mut server, mut connection, mut sent) = (server(), Connection::new(NOW), Vec::new());
    let request = Slice::new(Bytes::from(&b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..]));
    assert_eq!(connection.receive(&mut server, request, &mut sent), Stream::Open);
    for second in 1..=200 {
        server.set_time(NOW + second);
        connection.progressed(&server);
        assert_eq!(connection.check_time(&mut server, &mut sent), Stream::Open, "after {second} s");
    }
    server.set_time(NOW + 261);
    assert_eq!(connection.check_time(&mut server, &mut sent), Stream::Close, "it reads no more");
}

/// A file is sent from where it lies.
#[test]
fn files_are_not_copied() {
    #[derive(Default)]
    struct Shares(Vec<usize>);
    impl Sink<Bytes> for Shares {
        fn copy(&mut self, bytes: &[u8]) {
            assert!(bytes.len() < 300);
        }
        fn share(&mut self, slice: Slice<Bytes>) {
            self.0.push(slice.len());
        }
    }
    let (mut server, mut connection, mut shares) = (server(), Connection::new(NOW), Shares::default());
    let request = "GET /large.bin HTTP/1.1\r\nHost: a\r\n";
    let stream = format!("{request}Range: bytes=0-999,-500\r\n\r\n{request}\r\n");
    let _open = connection.receive(&mut server, Slice::new(Bytes::from(stream.as_bytes())), &mut shares);
    assert_eq!(shares.0, [1000, 500, 10_000]);
}

#[test]
fn who_is_one_too_many_is_told_so_and_counted() {
    let mut server = server().with_places(Places::new(1));
    let mut told = Vec::new();
    assert!(server.connected(&mut told).is_some() && told.is_empty());
    assert!(server.connected(&mut told).is_none());
    assert!(told.starts_with(b"HTTP/1.1 503 Service Unavailable\r\n"), "{}", told.escape_ascii());
    server.disconnected();
    assert!(server.connected(&mut Vec::new()).is_some());
    server.refused();
    assert_eq!(server.stats.connections_refused, 2);
}
