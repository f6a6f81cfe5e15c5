//! memcached's protocols: text, binary and meta on a stream, and datagrams in both ways of answering them.

use crate::input::{Input, pieces};
use nom_memcached_core::{Connection, Options, Server, packet, udp};
use nom_port::buffer::Slice;
use std::sync::Arc;

type Bytes = Arc<[u8]>;

const MEMORY: usize = 1 << 16;

fn server() -> Server<Bytes, parking_lot::RawMutex> {
    let options = Options { memory: MEMORY, item_max: 1 << 15, ..Options::default() };
    Server::new(options, 1_800_000_000, 7)
}

/// The replies to a stream in pieces.
fn replies(stream: &[u8], cut: u8) -> (Vec<u8>, bool) {
    let (mut server, mut connection) = (server(), Connection::new());
    let mut sent = Vec::new();
    let mut is_open = true;
    for piece in pieces(stream, cut) {
        let flow = connection.receive(&mut server, Slice::new(Bytes::from(piece)), &mut sent);
        is_open = flow == nom_service::Stream::Open;
    }
    assert!(server.memory_used() <= MEMORY, "{} bytes are used", server.memory_used());
    (sent, is_open)
}

/// The counter that depends on how a stream is cut.
const COUNT: &[u8] = b"bytes_read";

/// How a stream is cut must not matter.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let cut = input.byte();
    let (whole, is_open) = replies(input.0, 0);
    let (cut_replies, cut_is_open) = replies(input.0, cut);
    // Bytes are counted as they come: who asks for that in the middle of a piece hears of all of it.
    if !whole.windows(COUNT.len()).any(|name| name == COUNT) {
        assert_eq!(
            (cut_replies.escape_ascii().to_string(), cut_is_open),
            (whole.escape_ascii().to_string(), is_open),
            "cut into pieces of {cut}"
        );
    }
}

/// Datagrams with their lengths in front; whether one is answered in place must not matter.
pub fn run_udp(data: &[u8]) {
    let mut input = Input(data);
    let (mut plain, mut quick) = (server(), server());
    while !input.is_empty() {
        let len = usize::from(input.word() % 1500);
        let datagram = input.bytes(len);
        let expected = answer(&mut plain, datagram);
        let mut room = [0; 1500];
        let answered = match packet::answer(&mut quick, datagram, &mut room) {
            Some(len) => vec![room[..len].to_vec()],
            None => answer(&mut quick, datagram),
        };
        assert_eq!(answered, expected, "{}", datagram.escape_ascii());
        assert_eq!(plain.stats(), quick.stats(), "{}", datagram.escape_ascii());
    }
}

fn answer(server: &mut Server<Bytes, parking_lot::RawMutex>, datagram: &[u8]) -> Vec<Vec<u8>> {
    let mut reply = Vec::new();
    let Some(request) = udp::answer(server, Slice::new(Bytes::from(datagram)), &mut reply) else {
        return Vec::new();
    };
    udp::frames(request, reply.len()).map(|(frame, range)| [&frame[..], &reply[range]].concat()).collect()
}
