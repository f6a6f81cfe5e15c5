//! The packet API answers as `udp` does, or leaves it to that.

use nom_memcached_core::{Options, Server, packet, udp};
use nom_port::buffer::Slice;
use proptest::prelude::*;
use std::sync::Arc;

type Bytes = Arc<[u8]>;

fn server() -> Server<Bytes, parking_lot::RawMutex> {
    Server::new(Options::default(), 1_000_000_000, 7)
}

/// A request of one datagram.
fn datagram(commands: &[u8]) -> Vec<u8> {
    [&[1, 2, 0, 0, 0, 1, 0, 0], commands].concat()
}

fn in_place(server: &mut Server<Bytes, parking_lot::RawMutex>, datagram: &[u8]) -> Option<Vec<u8>> {
    let mut reply = vec![b'?'; 2048];
    let len = packet::answer(server, datagram, &mut reply)?;
    assert!(reply[len..].iter().all(|byte| *byte == b'?'), "what is behind a reply is not touched");
    reply.truncate(len);
    Some(reply)
}

fn by_the_stack(server: &mut Server<Bytes, parking_lot::RawMutex>, datagram: &[u8]) -> Vec<Vec<u8>> {
    let mut reply = Vec::new();
    let Some(request) = udp::answer(server, Slice::new(Bytes::from(datagram)), &mut reply) else {
        return Vec::new();
    };
    udp::frames(request, reply.len()).map(|(frame, range)| [&frame[..], &reply[range]].concat()).collect()
}

/// As an application does it: what is not answered in place goes on.
fn answer(server: &mut Server<Bytes, parking_lot::RawMutex>, datagram: &[u8]) -> Vec<Vec<u8>> {
    match in_place(server, datagram) {
        Some(reply) => vec![reply],
        None => by_the_stack(server, datagram),
    }
}

/// Carries out commands in both ways, and checks that replies and counters agree; says which were answered in
/// place.
fn compare(commands: &[&[u8]]) -> Vec<bool> {
    let (mut one, mut other) = (server(), server());
    let each = commands.iter().map(|command| {
        let datagram = datagram(command);
        let quick = in_place(&mut one, &datagram);
        let is_in_place = quick.is_some();
        let first = quick.map_or_else(|| by_the_stack(&mut one, &datagram), |reply| vec![reply]);
        assert_eq!(first, by_the_stack(&mut other, &datagram), "{}", command.escape_ascii());
        assert_eq!(one.stats(), other.stats(), "{}", command.escape_ascii());
        is_in_place
    });
    each.collect()
}

#[test]
fn ordinary_requests_are_answered_in_place() {
    let answered = compare(&[
        b"set a 5 0 3\r\nabc\r\n",
        b"get a\r\n",
        b"gets a\r\n",
        b"get missing\r\n",
        b"add a 0 0 1\r\nx\r\n",
        b"cas a 0 0 1 1\r\n7\r\n",
        b"incr a 5\r\n",
        b"append a 0 0 2\r\n!!\r\n",
        b"incr a 5\r\n",
        b"touch a 0\r\n",
        b"delete a\r\n",
        b"delete a\r\n",
    ]);
    assert_eq!(answered, [true; 12]);
}

#[test]
fn whatever_is_unusual_goes_on() {
    let large = [&b"set large 0 0 1400\r\n"[..], &[b'v'; 1400], b"\r\n"].concat();
    let long = [b"get ", &[b'k'; 251][..], b"\r\n"].concat();
    let answered = compare(&[
        &large,
        b"get large\r\n",
        b"get a b\r\n",
        b"get a\r\nget b\r\n",
        b"get a\n",
        b"get a",
        b"gat 0 a\r\n",
        b"set a 0 0 1 noreply\r\nx\r\n",
        b"set a 0 0 1\r\nxx\r\n",
        b"set a 0 0 3\r\nx\r\n",
        b"mg a v\r\n",
        b"version\r\n",
        b"stats\r\n",
        b"nothing\r\n",
        b"",
        b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        &long,
    ]);
    assert_eq!(answered, [false; 17]);
}

#[test]
fn requests_of_several_datagrams_go_on() {
    for frame in [[1, 2, 0, 0, 0, 2, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0], [1, 2, 0, 0, 1, 1, 0, 0]] {
        assert_eq!(in_place(&mut server(), &[&frame[..], b"get a\r\n"].concat()), None);
    }
    for len in 0..8 {
        assert_eq!(in_place(&mut server(), &[0; 8][..len]), None);
    }
}

#[test]
fn without_room_nothing_is_done() {
    let mut server = server();
    let mut room = [0; 60];
    assert_eq!(packet::answer(&mut server, &datagram(b"set a 0 0 1\r\nx\r\n"), &mut room), None);
    assert_eq!((server.items(), server.stats()), (0, Default::default()));
}

fn command() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("get"),
        Just("set"),
        Just("cas"),
        Just("incr"),
        Just("a"),
        Just("b"),
        Just("0"),
        Just("1"),
        Just("3"),
        Just("noreply"),
        Just("\r\n"),
        Just("abc\r\n"),
        Just("delete"),
        Just("touch"),
    ];
    proptest::collection::vec(word, 0..8)
        .prop_map(|words| [words.join(" ").replace("\n ", "\n").as_bytes(), b"\r\n"].concat())
}

proptest! {
    #[test]
    fn any_requests_are_answered_alike(commands in proptest::collection::vec(command(), 1..20)) {
        let commands: Vec<&[u8]> = commands.iter().map(Vec::as_slice).collect();
        compare(&commands);
    }

    #[test]
    fn no_datagram_makes_it_panic(
        start in prop_oneof![Just(&[][..]), Just(&[1, 2, 0, 0, 0, 1, 0, 0][..])],
        rest in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        answer(&mut server(), &[start, &rest].concat());
    }
}
