//! Any bytes, cut anywhere: the same replies as uncut, and never a panic.

#[allow(dead_code, reason = "each test uses a part")]
mod common;

use common::Bytes;
use common::script::{Dice, binary_command, text_command};
use nom_memcached_core::{Connection, Options, Server, udp};
use nom_port::buffer::Slice;
use nom_service::Stream;
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;

const UNIX: u64 = 1_800_000_000;

/// The replies to a stream that comes in pieces of the given lengths, the last of them for the rest; and to
/// how many commands they are.
fn replies(stream: &[u8], lens: &[usize]) -> (Vec<u8>, Stream, u32) {
    let options = Options { memory: 1 << 16, item_max: 1 << 15, ..Options::default() };
    let mut server = Server::<Bytes, parking_lot::RawMutex>::new(options, UNIX, 7);
    let mut connection = Connection::new();
    let (mut sent, mut rest, mut flow) = (Vec::new(), stream, Stream::Open);
    let mut lens = lens.iter().copied().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(lens.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        flow = connection.receive(&mut server, Slice::new(Bytes::from(piece)), &mut sent);
        rest = after;
    }
    assert!(server.memory_used() <= 1 << 16, "{} bytes are used", server.memory_used());
    (sent, flow, connection.take_done())
}

#[test]
fn every_command_of_a_burst_counts() {
    let burst = b"set a 0 0 2 noreply\r\nab\r\nget a b\r\nnonsense\r\nset b 0 0 99999999\r\nmn\r\n";
    assert_eq!(replies(burst, &[usize::MAX]).2, 4, "what is skipped is no command");
    assert_eq!(replies(&burst[..30], &[7]).2, 1, "of the next, half is there");
}

/// A stream of commands from a seed, some bytes of it wrong.
fn stream(command: fn(&mut Dice) -> Vec<u8>, seed: u64, faults: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    let mut stream: Vec<u8> = (0..30).flat_map(|_| command(&mut dice)).collect();
    for (index, byte) in faults {
        let at = index.index(stream.len());
        stream[at] = *byte;
    }
    stream
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn text_is_understood_however_it_is_cut(
        seed: u64, faults in vec(any::<(prop::sample::Index, u8)>(), 0..3), lens in vec(1usize..900, 1..9),
    ) {
        let stream = stream(text_command, seed, &faults);
        prop_assert_eq!(replies(&stream, &lens), replies(&stream, &[usize::MAX]));
        prop_assert_eq!(replies(&stream, &[1]), replies(&stream, &[usize::MAX]));
    }

    #[test]
    fn binary_is_understood_however_it_is_cut(
        seed: u64, faults in vec(any::<(prop::sample::Index, u8)>(), 0..3), lens in vec(1usize..900, 1..9),
    ) {
        let stream = stream(binary_command, seed, &faults);
        prop_assert_eq!(replies(&stream, &lens), replies(&stream, &[usize::MAX]));
        prop_assert_eq!(replies(&stream, &[1]), replies(&stream, &[usize::MAX]));
    }

    #[test]
    fn any_bytes_are_answered_the_same_however_they_are_cut(
        stream in vec(any::<u8>(), 0..300), len in 1usize..50,
    ) {
        prop_assert_eq!(replies(&stream, &[len]), replies(&stream, &[usize::MAX]));
    }

    #[test]
    fn any_datagram_is_survived(datagram in vec(any::<u8>(), 0..100)) {
        let mut server = Server::<Bytes, parking_lot::RawMutex>::new(Options::default(), UNIX, 7);
        let mut reply = Vec::new();
        let answered = udp::answer(&mut server, Slice::new(Bytes::from(&datagram[..])), &mut reply);
        prop_assert_eq!(answered.is_some(), datagram.len() >= udp::FRAME_LEN);
    }
}

/// The corpus: what once was, or might be, hard.
#[test]
fn the_corpus_is_answered_the_same_however_it_is_cut() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is there") {
        let path = entry.expect("it can be listed").path();
        let stream = std::fs::read(&path).expect("it can be read");
        let whole = replies(&stream, &[usize::MAX]);
        for len in [1, 2, 3, 7, 24, 100] {
            assert_eq!(replies(&stream, &[len]), whole, "{} in pieces of {len}", path.display());
        }
        files += 1;
    }
    assert!(files >= 10, "only {files} files");
}

/// Time passes as it is told.
#[test]
fn items_expire_and_are_flushed_on_time() {
    let mut server = Server::<Bytes, parking_lot::RawMutex>::new(Options::default(), UNIX, 7);
    let mut say = |second: u64, line: &str| {
        server.set_time(UNIX + second);
        let mut reply = Vec::new();
        let _open =
            Connection::new().receive(&mut server, Slice::new(Bytes::from(line.as_bytes())), &mut reply);
        String::from_utf8(reply).expect("only text is sent")
    };
    say(0, "set relative 0 10 1\r\na\r\nset absolute 0 1800000020 1\r\nb\r\nset past 0 -1 1\r\nc\r\n");
    say(0, "set month 0 2592000 1\r\nd\r\nset long_ago 0 2592001 1\r\ne\r\n");
    assert_eq!(say(9, "mg relative v t\r\n"), "VA 1 t1\r\na\r\n");
    assert_eq!(
        say(10, "mg relative v\r\nmg absolute t\r\nmg past\r\nmg long_ago\r\n"),
        "EN\r\nHD t10\r\nEN\r\nEN\r\n"
    );
    assert_eq!(say(20, "mg absolute\r\ntouch month 1\r\n"), "EN\r\nTOUCHED\r\n");
    assert_eq!(
        say(21, "mg month\r\nset a 0 0 0\r\n\r\nflush_all 5\r\nmg a\r\n"),
        "EN\r\nSTORED\r\nOK\r\nHD\r\n"
    );
    assert_eq!(say(25, "set b 0 0 0\r\n\r\nmg b\r\n"), "STORED\r\nHD\r\n");
    assert_eq!(say(26, "mg a\r\nmg b\r\nset c 0 0 0\r\n\r\nmg c\r\n"), "EN\r\nEN\r\nSTORED\r\nHD\r\n");
    // Flags act in their order.
    assert_eq!(say(26, "mg d T-1 N0\r\nmg d\r\nmg e N0 T-1\r\nmg e\r\n"), "HD W\r\nHD Z\r\nHD W\r\nEN\r\n");
    // A clock that goes back stands still.
    assert_eq!(say(0, "mg a\r\nmg c\r\n"), "EN\r\nHD\r\n");
}

#[test]
fn memory_is_bounded_and_the_least_recently_used_goes() {
    let options = Options { memory: 1 << 20, ..Options::default() };
    let mut server = Server::<Bytes, parking_lot::RawMutex>::new(options, UNIX, 7);
    let mut connection = Connection::new();
    let mut reply = Vec::new();
    let mut say = |line: String| {
        reply.clear();
        let _open = connection.receive(&mut server, Slice::new(Bytes::from(line.into_bytes())), &mut reply);
        (String::from_utf8_lossy(&reply).into_owned(), server.memory_used(), server.items())
    };
    say("set hot 0 0 3\r\nhot\r\n".to_owned());
    for number in 0..5000 {
        let (reply, used, _) =
            say(format!("set key{number} 0 0 1000\r\n{}\r\nget hot\r\n", "x".repeat(1000)));
        assert_eq!(reply, "STORED\r\nVALUE hot 0 3\r\nhot\r\nEND\r\n");
        assert!(used <= 1 << 20, "{used}");
    }
    let (reply, _, items) = say("mg key0\r\nmg key4999\r\nmg key4800\r\n".to_owned());
    assert_eq!(reply, "EN\r\nHD\r\nHD\r\n");
    assert!((300..1000).contains(&items), "{items}");
    let (reply, ..) = say(format!("set huge 0 0 524200\r\n{}\r\nmg hot\r\n", "x".repeat(524200)));
    assert_eq!(reply, "STORED\r\nHD\r\n");
}

/// A value that fills its buffer is kept there and sent from there; a small one does not pin it.
#[test]
fn large_values_are_not_copied() {
    use nom_port::buffer::Sink;
    #[derive(Default)]
    struct Shares(Vec<usize>);
    impl Sink<Bytes> for Shares {
        fn copy(&mut self, _: &[u8]) {}
        fn share(&mut self, slice: Slice<Bytes>) {
            self.0.push(slice.as_ptr().addr());
        }
    }
    let mut server = Server::<Bytes, parking_lot::RawMutex>::new(Options::default(), UNIX, 7);
    let mut connection = Connection::new();
    let value = "v".repeat(1000);
    let buffer =
        Bytes::from(format!("set large 0 0 1000\r\n{value}\r\nset small 0 0 5\r\nvalue\r\n").into_bytes());
    let mut shares = Shares::default();
    let _open = connection.receive(&mut server, Slice::new(buffer.clone()), &mut shares);
    let get = Bytes::from(&b"get small large\r\n"[..]);
    let _open = connection.receive(&mut server, Slice::new(get.clone()), &mut shares);
    assert_eq!(shares.0, [buffer[20..].as_ptr().addr()]);
    assert_eq!((std::sync::Arc::strong_count(&buffer), std::sync::Arc::strong_count(&get)), (2, 1));
}
