//! A site to test with, and the core fed with pieces.

use nom_nhttpd_core::{Connection, Server, Site, content_type_of};
use nom_port::buffer::Slice;
use nom_service::Stream;
use std::sync::Arc;

pub type Bytes = Arc<[u8]>;

/// Wed, 01 Jan 2025 00:00:00 GMT
pub const MODIFIED: u64 = 1_735_689_600;

/// Sat, 21 Nov 2026 12:00:00 GMT
pub const NOW: u64 = 1_795_262_400;

/// Letters that do not repeat before 26.
pub fn letters(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at % 26) as u8).collect()
}

/// The site.
pub fn files() -> [(&'static str, Vec<u8>); 6] {
    [
        ("/index.html", b"<h1>nom</h1>\n".to_vec()),
        ("/docs/index.html", b"<h1>docs</h1>\n".to_vec()),
        ("/docs/a b.txt", b"a blank\n".to_vec()),
        ("/letters.txt", letters(26)),
        ("/large.bin", letters(10_000)),
        ("/empty.txt", Vec::new()),
    ]
}

pub fn server() -> Server<Bytes> {
    let mut site = Site::new();
    for (path, body) in files() {
        site.insert(path, content_type_of(path), MODIFIED, Slice::new(Bytes::from(body)));
    }
    Server::new(site, NOW, 0x6e6f_6d00)
}

/// The replies to a stream that comes in pieces of the given lengths, again and again.
pub fn replies(stream: &[u8], lens: &[usize]) -> (Vec<u8>, Stream) {
    let (mut server, mut connection) = (server(), Connection::new(NOW));
    let (mut sent, mut rest, mut flow) = (Vec::new(), stream, Stream::Open);
    let mut lens = lens.iter().copied().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(lens.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        flow = connection.receive(&mut server, Slice::new(Bytes::from(piece)), &mut sent);
        rest = after;
    }
    (sent, flow)
}
