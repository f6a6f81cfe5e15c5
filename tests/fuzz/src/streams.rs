//! The other servers' protocols: HTTP, and NetPIPE's. How a stream is cut must not matter.

use crate::input::{Input, pieces};
use nom_netpipe_core::{Options, Session};
use nom_nhttpd_core::{Connection, Server, Site, content_type_of};
use nom_port::buffer::Slice;
use nom_service::Stream;
use std::sync::Arc;

type Bytes = Arc<[u8]>;

/// Sat, 21 Nov 2026 12:00:00 GMT
const NOW: u64 = 1_795_262_400;

fn site() -> Site<Bytes> {
    let mut site = Site::new();
    let files = [("/index.html", 12), ("/docs/index.html", 3), ("/a b.txt", 0), ("/letters.txt", 26)];
    for (path, len) in files {
        let body: Vec<u8> = (b'a'..=b'z').take(len).collect();
        site.insert(path, content_type_of(path), NOW - 1000, Slice::new(Bytes::from(body)));
    }
    site
}

pub fn http(data: &[u8]) {
    let mut input = Input(data);
    let cut = input.byte();
    assert_eq!(pages(input.0, cut), pages(input.0, 0), "cut into pieces of {cut}");
}

fn pages(stream: &[u8], cut: u8) -> (Vec<u8>, Stream) {
    let (mut server, mut connection) = (Server::new(site(), NOW, 7), Connection::new(NOW));
    let (mut sent, mut flow) = (Vec::new(), Stream::Open);
    for piece in pieces(stream, cut) {
        flow = connection.receive(&mut server, Slice::new(Bytes::from(piece)), &mut sent);
    }
    assert!(sent.is_empty() || sent.starts_with(b"HTTP/1.1 "), "{}", sent.escape_ascii());
    (sent, flow)
}

/// What it cannot follow ends a session with an error, and is not kept.
pub fn netpipe(data: &[u8]) {
    let mut input = Input(data);
    let (cut, choice) = (input.byte(), input.byte());
    let options = Options {
        first: 1 + u32::from(choice & 3),
        last: 8,
        streaming: choice & 4 != 0,
        reset: choice & 8 != 0,
        ..Options::default()
    };
    assert_eq!(returned(&options, input.0, cut), returned(&options, input.0, 0), "cut into pieces of {cut}");
}

/// What comes back, and whether the session failed.
fn returned(options: &Options, stream: &[u8], cut: u8) -> (Vec<u8>, bool) {
    let mut session = Session::<Bytes>::new(options.clone());
    let mut back = Vec::new();
    session.connected(&mut back);
    for piece in pieces(stream, cut) {
        match session.receive(Slice::new(Bytes::from(piece)), 1, &mut back) {
            Ok(Stream::Open) => {}
            Ok(Stream::Close) => return (back, false),
            Err(_) => return (back, true),
        }
    }
    (back, false)
}
