//! Datagrams answered in the memory in which they came.

mod common;

use common::{Device, Machine, Memory, STRANGER, config};
use nom_net::frame::{self, Ethernet, Packet, Path, protocol};
use nom_net::{Application, FlowId, Instant, Slice, Stack, checksum};
use nom_port::nic::{Offloads, Received};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

const NOW: Instant = Instant::from_micros(1_000_000);
const PORT: u16 = 11;

/// Answers in capitals whatever is not empty, and asks for too much room if asked to.
#[derive(Debug, Default)]
struct Loud {
    questions: usize,
    passed: Vec<Vec<u8>>,
}

impl Application<Device> for Loud {
    fn filter(&mut self, stack: &mut Stack<Device>, frame: Received<Memory>) -> Option<Received<Memory>> {
        let questions = &mut self.questions;
        let frame = stack.answer_in_place(frame, PORT, |question, room| {
            *questions += 1;
            if question == b"everything" {
                room.fill(b'!');
                return Some(room.len());
            }
            let place = room.get_mut(..question.len()).filter(|place| !place.is_empty())?;
            place.copy_from_slice(question);
            place.make_ascii_uppercase();
            Some(question.len())
        })?;
        self.passed.push(nom_port::nic::gather(&frame.frame));
        Some(frame)
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, _: Slice<Memory>) {}
}

fn server(spare: usize, offloads: Offloads) -> Machine<Loud> {
    let device = Device { spare, ..Device::new(1, offloads) };
    Machine::new(device, config(1, 1), Loud::default())
}

fn ends(is_v6: bool) -> (SocketAddr, SocketAddr) {
    let address = |number: u16| match is_v6 {
        true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number]),
        false => IpAddr::from([10, 0, 0, number as u8]),
    };
    (SocketAddr::new(address(2), 4000), SocketAddr::new(address(1), PORT))
}

fn question(is_v6: bool, payload: &[u8]) -> Vec<u8> {
    let (from, to) = ends(is_v6);
    let path = Path { mac: STRANGER, hop: [2, 0, 0, 0, 0, 1], from: from.ip(), to: to.ip() };
    let (head, start) = frame::ip(&path, protocol::UDP, 8, payload.len());
    let mut bytes = head.to_vec();
    bytes[start..start + 2].copy_from_slice(&from.port().to_be_bytes());
    bytes[start + 2..start + 4].copy_from_slice(&to.port().to_be_bytes());
    bytes[start + 4..start + 6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    bytes.extend_from_slice(payload);
    let sum = checksum::pseudo_header(from.ip(), to.ip(), protocol::UDP, bytes.len() - start);
    let sum = !checksum::add(sum, checksum::sum(&bytes[start..]));
    bytes[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The payload of an answer, all of whose headers are what they must be.
fn check_answer(is_v6: bool, answer: &[u8]) -> Vec<u8> {
    let (client, us) = ends(is_v6);
    let ethernet = Ethernet::parse(answer).unwrap();
    assert_eq!((ethernet.from, ethernet.to), ([2, 0, 0, 0, 0, 1], STRANGER));
    let parse = if is_v6 { Packet::parse_v6 } else { Packet::parse_v4 };
    let packet = parse(answer).unwrap_or_else(|_| panic!("a bad header: {answer:02x?}"));
    assert_eq!((packet.from, packet.to, packet.protocol), (us.ip(), client.ip(), protocol::UDP));
    assert_eq!(packet.start + packet.len, answer.len());
    let udp = &answer[packet.start..];
    let sum = checksum::pseudo_header(packet.from, packet.to, protocol::UDP, packet.len);
    assert_eq!(checksum::add(sum, checksum::sum(udp)), 0xffff, "a bad checksum");
    let field = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    assert_eq!((field(0), field(2), usize::from(field(4))), (PORT, 4000, packet.len));
    udp[8..].to_vec()
}

#[test]
fn an_answer_is_what_a_stack_would_have_sent() {
    for (is_v6, checksum) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut server = server(2048, Offloads { checksum, ..Offloads::default() });
        server.take(NOW, question(is_v6, b"hear, hear"));
        let sent = server.take_sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(check_answer(is_v6, &sent[0]), b"HEAR, HEAR");
        let counters = server.stack.counters();
        assert_eq!((counters.packets_sent, server.application.questions), (1, 1));
        assert!(server.application.passed.is_empty());
    }
}

#[test]
fn no_answer_is_longer_than_the_link_or_the_memory_allows() {
    for (spare, len) in [(4096, 1472), (500, 500 - 15 - 42)] {
        let mut server = server(spare, Offloads::default());
        server.take(NOW, question(false, b"everything"));
        let len = check_answer(false, &server.take_sent()[0]).len().abs_diff(len);
        assert!(len < 16, "{len} bytes off: more than aligning takes");
    }
}

#[test]
fn without_room_the_stack_gets_the_frame_as_it_was() {
    for spare in [0, 10, 50] {
        let mut server = server(spare, Offloads::default());
        let frame = question(false, b"a longer question");
        server.take(NOW, frame.clone());
        assert_eq!(server.application.passed, [frame], "{spare} bytes to spare");
        assert_eq!(server.stack.counters().dropped_udp_port, 1);
    }
}

/// A change to a sound question, whether the IP header's checksum is made right again, and what it is.
type Change = (&'static str, bool, fn(&mut Vec<u8>));

const CHANGES: [Change; 12] = [
    ("to everybody on the link", false, |frame| frame[..6].fill(0xff)),
    ("to another machine", false, |frame| frame[5] = 9),
    ("to another address", true, |frame| frame[33] = 7),
    ("to the network's broadcast address", true, |frame| frame[33] = 255),
    ("from nobody", true, |frame| frame[26..30].fill(0)),
    ("a first fragment", true, |frame| frame[20] = 0x20),
    ("to another port", false, |frame| frame[37] = 12),
    ("from no port", false, |frame| frame[34..36].fill(0)),
    ("a wrong checksum", false, |frame| frame[40] ^= 1),
    ("longer than it is", false, |frame| frame[39] += 1),
    ("shorter than a header", false, |frame| frame[38..40].copy_from_slice(&[0, 7])),
    ("with options", true, |frame| {
        frame[14] = 0x46;
        frame[17] += 4;
        frame.splice(34..34, [1, 1, 1, 1]);
    }),
];

#[test]
fn whatever_is_unusual_goes_on_to_the_stack() {
    for (what, is_header_changed, change) in CHANGES {
        let mut server = server(2048, Offloads::default());
        let mut frame = question(false, b"heard?");
        change(&mut frame);
        if is_header_changed {
            let end = 14 + usize::from(frame[14] & 15) * 4;
            frame[24..26].fill(0);
            let sum = !checksum::sum(&frame[14..end]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        server.take(NOW, frame.clone());
        assert_eq!(server.application.passed, [frame], "{what}");
        assert_eq!(server.application.questions, 0, "{what}");
    }
}

#[test]
fn a_frame_in_pieces_goes_on_to_the_stack() {
    let mut server = server(2048, Offloads::default());
    let device = Device { piece: 128, ..server.device.clone() };
    server.stack.nic().piece = device.piece;
    let frame = question(false, &[b'x'; 300]);
    server.take(NOW, frame.clone());
    assert_eq!(server.application.passed, [frame]);
}

#[test]
fn answers_are_held_for_the_batching_delay_like_any_packet() {
    let mut server = server(2048, Offloads::default());
    server.stack.set_delay(std::time::Duration::from_micros(30)).unwrap();
    let arrived = NOW;
    server.take(arrived, question(false, b"held"));
    let kicks = |server: &Machine<Loud>| server.device.port.borrow().kicks;
    let before = kicks(&server);
    let due = server.due.expect("the held packet");
    assert!(due <= arrived + std::time::Duration::from_micros(30));
    assert!(server.take_sent().is_empty());
    server.poll(due);
    assert_eq!((kicks(&server), server.take_sent().len()), (before + 1, 1));
}

proptest! {
    #[test]
    fn any_frame_is_answered_soundly_or_left_alone(
        is_v6 in any::<bool>(),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        changes in proptest::collection::vec((0usize..80, any::<u8>()), 0..4),
    ) {
        let mut server = server(2048, Offloads::default());
        let mut frame = question(is_v6, &payload);
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        server.take(NOW, frame.clone());
        let sent = server.take_sent();
        match &server.application.passed[..] {
            [] => prop_assert_eq!(sent.len(), 1),
            passed => prop_assert_eq!(passed, &[frame][..]),
        }
    }
}
