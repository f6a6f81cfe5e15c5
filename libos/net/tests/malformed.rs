//! Frames that no sane peer sends: never a panic, never a stall, and the counter that names the reason goes
//! up.

mod common;

use common::{Device, Machine, Peer, bytes, config, greeting, parse_frame, segment_frame};
use nom_net::Instant;
use nom_net::tcp::segment::{Flags, Options, Segment};
use nom_net::tcp::sequence::Seq;
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::SocketAddr;
use std::path::Path;

const NOW: Instant = Instant::from_micros(1_000_000);

fn server() -> Machine<Peer> {
    let mut server = Machine::new(Device::new(1, <_>::default()), config(1, 1), Peer::default());
    server.stack.listen(80);
    server.stack.bind(7);
    server.take(NOW, greeting());
    server.take_sent();
    server
}

fn ours() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 80))
}

fn theirs(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], port))
}

fn dropped(server: &Machine<Peer>) -> u64 {
    server
        .stack
        .counters()
        .iter()
        .filter(|(name, _)| name.starts_with("dropped"))
        .map(|(_, count)| count)
        .sum()
}

/// Opens a connection as anybody would, and has it answer a close: proof that the server serves on.
fn check_alive(server: &mut Machine<Peer>) {
    // Whoever does not answer ARP is forgotten after a while.
    server.take(NOW, greeting());
    server.take_sent();
    let syn = Segment { flags: Flags::SYN, window: 1000, ..Segment::default() };
    server.take(NOW, segment_frame(theirs(60_000), ours(), &syn, &[]));
    let sent = server.take_sent();
    let answer = sent.iter().filter_map(|frame| parse_frame(frame)).find(|(ports, ..)| ports.to == 60_000);
    assert!(
        answer.is_some_and(|(.., segment)| segment.flags == Flags::SYN | Flags::ACK),
        "the server is dead"
    );
}

/// Frames of every protocol that the stack speaks, as they should be.
fn sound_frames() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).expect("the corpus is there").map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| parse_hex(&std::fs::read_to_string(path).expect("readable"))).collect()
}

fn parse_hex(text: &str) -> Vec<u8> {
    let digits: String = text.lines().map(|line| line.split('#').next().unwrap_or("")).collect();
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

#[test]
fn every_sound_frame_is_understood() {
    let frames = sound_frames();
    assert!(frames.len() >= 10, "{} frames", frames.len());
    for frame in frames {
        let mut server = server();
        server.take(NOW, frame.clone());
        assert_eq!(dropped(&server), 0, "{frame:02x?}: {:?}", server.stack.counters());
        assert!(!server.take_sent().is_empty(), "{frame:02x?} is not answered");
    }
}

#[test]
fn every_frame_cut_short_is_dropped_by_one_counter() {
    for frame in sound_frames() {
        for len in 0..frame.len() {
            let mut server = server();
            server.take(NOW, frame[..len].to_vec());
            assert_eq!(dropped(&server), 1, "{len} bytes of {frame:02x?}: {:?}", server.stack.counters());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn noise_is_survived(frames in vec(vec(any::<u8>(), 0..200), 1..20)) {
        let mut server = server();
        for mut frame in frames {
            // Random bytes are rarely for us: say so.
            if frame.len() > 14 {
                frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
                let kinds = [[8, 0], [8, 6], [0x86, 0xdd], [1, 2]];
                let kind = kinds[usize::from(frame[13] & 3)];
                frame[12..14].copy_from_slice(&kind);
            }
            server.take(NOW, frame);
        }
        check_alive(&mut server);
    }

    #[test]
    fn sound_frames_with_wrong_bytes_are_survived(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        is_sum_looked_at: bool,
    ) {
        let frames = sound_frames();
        let mut frame = which.get(&frames).clone();
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        let mut server = server();
        server.device.port.borrow_mut().is_sum_good = !is_sum_looked_at;
        server.take(NOW, frame);
        check_alive(&mut server);
    }

    #[test]
    fn any_segments_at_any_time_are_survived(
        seed: u64,
        steps in vec((any::<u32>(), 0u32..8, 0u8..32, 0usize..3000, 0u64..2_000_000), 1..40),
    ) {
        let mut server = server();
        let mut random = common::Random::new(seed);
        let (mut now, mut seq, mut ack) = (NOW, Seq(0), Seq(0));
        for (noise, kind, flags, len, wait) in steps {
            now = now + std::time::Duration::from_micros(wait);
            while let Some(due) = server.due.filter(|due| *due < now) {
                server.poll(due);
            }
            // Mostly near the truth, where the states are.
            let near = |number: Seq| if kind == 0 { Seq(noise) } else { number + noise % 3 };
            let flags = [Flags::SYN, Flags::ACK, Flags::FIN, Flags::RST, Flags::PSH]
                .into_iter().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1)
                .fold(Flags::default(), |all, (_, flag)| all | flag);
            let (window, options) = (noise as u16, Options::default());
            let mut segment = Segment { seq: near(seq), ack: near(ack), flags, window, options, len: 0 };
            segment.options.sack[0] = (kind == 1).then(|| (near(ack), near(ack) + noise % 5000));
            server.take(now, segment_frame(theirs(4000), ours(), &segment, &bytes(&mut random, len)));
            for (_, _, sent) in server.take_sent().iter().filter_map(|frame| parse_frame(frame)) {
                (seq, ack) = (sent.ack, sent.end());
            }
        }
        check_alive(&mut server);
    }
}
