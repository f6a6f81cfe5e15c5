//! Packets that come in fragments, through the whole stack.

mod common;

use common::{Device, Faults, Machine, Peer, STRANGER, World, config, greeting};
use nom_net::checksum;
use nom_net::fragments::LIFETIME;
use nom_net::frame::{self, Path, protocol};
use nom_net::{DatagramError, Instant, Slice, packet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const NOW: Instant = Instant::from_micros(1_000_000);
/// Bytes of the extension header of IPv6 fragments.
const EXTENSION: usize = 8;

fn machine() -> Machine<Peer> {
    let mut machine = Machine::new(Device::new(1, <_>::default()), config(1, 1), Peer::default());
    machine.stack.bind(9);
    machine.take(NOW, greeting());
    machine.take_sent();
    machine
}

fn addresses(is_v4: bool) -> (IpAddr, IpAddr) {
    let v6 = |last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]);
    if is_v4 { ([10, 0, 0, 2].into(), [10, 0, 0, 1].into()) } else { (v6(2), v6(1)) }
}

/// A datagram to port 9 as frames of fragments of `step` bytes.
fn fragments(is_v4: bool, payload: &[u8], step: usize) -> Vec<Vec<u8>> {
    let (from, to) = addresses(is_v4);
    let path = Path { mac: STRANGER, hop: [2, 0, 0, 0, 0, 1], from, to };
    let ports = nom_net::tcp::segment::Ports { from: 1234, to: 9 };
    let chain = [Slice::new(common::Memory::from(payload))];
    let (head, _) = packet::udp(&path, ports, &chain, false);
    let start = frame::ETHERNET + if is_v4 { frame::IPV4 } else { frame::IPV6 };
    let datagram = [&head[start..], payload].concat();
    let pieces = datagram.chunks(step).enumerate();
    let fragment = |(index, bytes): (usize, &[u8])| {
        let offset = index * step;
        fragment(&path, protocol::UDP, bytes, offset, offset + bytes.len() == datagram.len())
    };
    pieces.map(fragment).collect()
}

/// A frame with the bytes of a packet of `protocol` from `offset` on.
fn fragment(path: &Path, protocol: u8, bytes: &[u8], offset: usize, is_last: bool) -> Vec<u8> {
    if path.from.is_ipv4() {
        let (head, _) = frame::ip(path, protocol, 0, bytes.len());
        let mut head = head.to_vec();
        let word = (offset / 8) as u16 | if is_last { 0 } else { 0x2000 };
        head[18..20].copy_from_slice(&77u16.to_be_bytes());
        head[20..22].copy_from_slice(&word.to_be_bytes());
        head[24..26].fill(0);
        let sum = !checksum::sum(&head[14..34]);
        head[24..26].copy_from_slice(&sum.to_be_bytes());
        return [&head, bytes].concat();
    }
    let (mut head, start) = frame::ip(path, protocol::FRAGMENT, EXTENSION, bytes.len());
    let word = offset as u16 | u16::from(!is_last);
    head[start] = protocol;
    head[start + 2..start + 4].copy_from_slice(&word.to_be_bytes());
    head[start + 7] = 77;
    [&head[..], bytes].concat()
}

fn counter(machine: &Machine<Peer>, name: &str) -> u64 {
    machine.stack.counters().iter().find(|(known, _)| *known == name).expect("there is such a counter").1
}

#[test]
fn a_datagram_in_fragments_is_received_as_a_whole() {
    let payload: Vec<u8> = (0..5000u32).map(|byte| byte as u8).collect();
    for is_v4 in [true, false] {
        for piece in [64, 2048] {
            let mut machine = machine();
            machine.device.piece = piece;
            let mut frames = fragments(is_v4, &payload, 1400);
            frames.reverse();
            assert_eq!(frames.len(), 4);
            for frame in frames {
                assert!(machine.application.datagrams.is_empty());
                machine.take(NOW, frame);
            }
            let (from, _) = addresses(is_v4);
            assert_eq!(machine.application.datagrams, [(SocketAddr::new(from, 1234), payload.clone())]);
            assert_eq!(counter(&machine, "packets_reassembled"), 1);
            assert_eq!(
                machine
                    .stack
                    .counters()
                    .iter()
                    .filter(|(name, _)| name.starts_with("dropped"))
                    .map(|(_, count)| count)
                    .sum::<u64>(),
                0
            );
        }
    }
}

/// Two machines, of which the left sends a datagram of so many bytes to the right one, whose address it has
/// to ask for first; its ring has `room`.
fn send(is_v4: bool, len: usize, room: usize) -> (World<Peer, Peer>, Result<(), DatagramError>, Vec<u8>) {
    let machine = |number| {
        let device = Device { room, ..Device::new(number, <_>::default()) };
        Machine::new(device, config(number, u64::from(number)), Peer::default())
    };
    let mut world = World::new(machine(2), machine(1), 1, Faults::default());
    world.right.stack.bind(9);
    world.run(Duration::from_secs(1), |_| false);
    let payload: Vec<u8> = (0..len as u32).map(|byte| (byte / 3) as u8).collect();
    let (from, to) = addresses(is_v4);
    let chain = payload.chunks(10_000).map(|part| Slice::new(common::Memory::from(part))).collect();
    let sent = world.left.stack.send_datagram(SocketAddr::new(from, 5), SocketAddr::new(to, 9), chain);
    world.left.due = Some(world.now);
    (world, sent, payload)
}

#[test]
fn a_datagram_longer_than_a_packet_goes_in_fragments() {
    // The longest of IPv4 has its headers in 65,535 bytes, that of IPv6 only that of UDP.
    for (is_v4, longest, overhead) in [(true, 65_507, 28), (false, 65_527, 48)] {
        for (len, fragments) in [(1500 - overhead, 0), (1501 - overhead, 1), (5000, 1), (longest, 1)] {
            let (mut world, sent, payload) = send(is_v4, len, 256);
            assert_eq!(sent, Ok(()), "{len} bytes");
            let mut longest = 0;
            let came = world.run(Duration::from_secs(1), |world| {
                let frames = world.flying.values().filter(|(is_to_right, _)| *is_to_right);
                longest = frames.map(|(_, frame)| frame.len()).max().unwrap_or(0).max(longest);
                !world.right.application.datagrams.is_empty()
            });
            assert!(came, "{len} bytes are lost");
            assert!(longest <= 1514 && (len < 5000 || longest > 1500), "{longest} bytes in a frame");
            let (from, _) = addresses(is_v4);
            assert!(world.right.application.datagrams == [(SocketAddr::new(from, 5), payload)], "{len}");
            assert_eq!(counter(&world.left, "packets_fragmented"), fragments, "{len} bytes");
            assert_eq!(counter(&world.right, "packets_reassembled"), fragments, "{len} bytes");
        }
        let (_, sent, _) = send(is_v4, longest + 1, 256);
        assert_eq!(sent, Err(DatagramError::TooLong));
    }
}

/// The message of an echo, with its checksum.
fn echo(is_v4: bool, is_answer: bool, len: usize) -> Vec<u8> {
    let (from, to) = addresses(is_v4);
    let kind = match (is_v4, is_answer) {
        (true, false) => 8,
        (true, true) => 0,
        (false, is_answer) => 128 + u8::from(is_answer),
    };
    let mut message = [kind, 0, 0, 0, 1, 2, 3, 4].to_vec();
    message.extend((0..len).map(|byte| (byte / 3) as u8));
    let pseudo = checksum::pseudo_header(from, to, protocol::ICMPV6, message.len());
    let sum = checksum::add(if is_v4 { 0 } else { pseudo }, checksum::sum(&message));
    message[2..4].copy_from_slice(&(!sum).to_be_bytes());
    message
}

/// RFC 1122 section 3.2.2.6: what was reassembled is answered as a whole, and so in fragments.
#[test]
fn an_echo_longer_than_a_packet_is_answered_in_fragments() {
    for (is_v4, protocol, longest) in [(true, protocol::ICMP, 65_507), (false, protocol::ICMPV6, 65_527)] {
        for len in [100, 1472, 1473, 2000, longest] {
            let machine = |number| {
                Machine::new(Device::new(number, <_>::default()), config(number, 1), Peer::default())
            };
            let mut world = World::new(machine(2), machine(1), 1, Faults::default());
            world.run(Duration::from_secs(1), |_| false);
            let (from, to) = addresses(is_v4);
            let path = Path { mac: [2, 0, 0, 0, 0, 2], hop: [2, 0, 0, 0, 0, 1], from, to };
            let question = echo(is_v4, false, len);
            for (index, bytes) in question.chunks(1400).enumerate() {
                let is_last = index == question.len().div_ceil(1400) - 1;
                let frame = fragment(&path, protocol, bytes, index * 1400, is_last);
                world.flying.insert((world.now, index as u64), (true, frame));
            }
            // The bytes of the answer, by their places; headers apart.
            let mut pieces = std::collections::BTreeMap::new();
            world.run(Duration::from_secs(1), |world| {
                for (is_to_right, frame) in world.flying.values() {
                    assert!(frame.len() <= 1514, "{} bytes in a frame, of {len}", frame.len());
                    let half = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
                    let (start, offset) = match half(12) {
                        0x0800 if frame[23] == protocol => (34, (half(20) & 0x1fff) * 8),
                        0x86dd if frame[20] == protocol::FRAGMENT => (62, half(56) & !7),
                        // Neighbours are asked for, too.
                        0x86dd if frame[20] == protocol && frame[54] < 130 => (54, 0),
                        _ => continue,
                    };
                    if !is_to_right {
                        pieces.insert(offset, frame[start..].to_vec());
                    }
                }
                false
            });
            let answer = pieces.into_values().collect::<Vec<_>>().concat();
            assert!(answer == echo(is_v4, true, len), "{len} bytes, {} came", answer.len());
            let is_long = frame::ETHERNET + answer.len() + if is_v4 { 20 } else { 40 } > 1514;
            assert_eq!(counter(&world.right, "packets_fragmented"), u64::from(is_long), "{len}");
            assert_eq!(counter(&world.left, "packets_reassembled"), u64::from(is_long), "{len}");
        }
    }
}

#[test]
fn a_ring_without_room_for_all_fragments_takes_none() {
    for room in 1..=5 {
        let (world, sent, _) = send(true, 5000, room);
        assert_eq!(sent, if room < 4 { Err(DatagramError::Full) } else { Ok(()) }, "{room} places");
        assert_eq!(counter(&world.left, "packets_fragmented"), u64::from(room >= 4));
    }
}

#[test]
fn a_wrong_checksum_is_found_when_the_datagram_is_whole() {
    let mut machine = machine();
    let mut frames = fragments(true, &[7; 3000], 1400);
    *frames[1].last_mut().unwrap() ^= 1;
    frames.into_iter().for_each(|frame| machine.take(NOW, frame));
    assert!(machine.application.datagrams.is_empty());
    assert_eq!(counter(&machine, "dropped_checksum"), 1);
}

/// RFC 792: time exceeded, code 1, with the first fragment.
#[test]
fn the_sender_is_told_what_was_not_whole_in_time() {
    let mut machine = machine();
    let frames = fragments(true, &[7; 3000], 1400);
    machine.take(NOW, frames[0].clone());
    assert_eq!(machine.due, Some(NOW + LIFETIME));
    machine.poll(NOW + LIFETIME);
    let sent = machine.take_sent();
    let told = sent.iter().find(|frame| frame[23] == protocol::ICMP && frame[34..36] == [11, 1]);
    let told = told.expect("an ICMP error");
    assert_eq!(told[42..42 + 100], frames[0][14..114], "it quotes what came");
    assert_eq!(counter(&machine, "dropped_fragment_expired"), 1);
    machine.take(NOW + LIFETIME, frames[1].clone());
    machine.take(NOW + LIFETIME, frames[2].clone());
    machine.take_sent();
    machine.poll(NOW + LIFETIME + LIFETIME);
    let sent = machine.take_sent();
    assert!(sent.iter().all(|frame| frame[12..14] == [8, 6]), "of a packet without a begin nobody is told");
    assert_eq!(counter(&machine, "dropped_fragment_expired"), 3);
}

/// RFC 6980: else anybody could claim an address from afar.
#[test]
fn neighbour_discovery_does_not_come_in_fragments() {
    let mut machine = machine();
    let (from, to) = addresses(false);
    let path = Path { mac: STRANGER, hop: [2, 0, 0, 0, 0, 1], from, to };
    let IpAddr::V6(target) = to else { unreachable!("as asked for") };
    let mut message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets(), &[1, 1], &STRANGER].concat();
    let sum = checksum::pseudo_header(from, to, protocol::ICMPV6, message.len());
    let sum = !checksum::add(sum, checksum::sum(&message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut whole = frame::ip(&path, protocol::ICMPV6, 0, message.len()).0.to_vec();
    whole.extend(&message);
    machine.take(NOW, whole);
    assert!(!machine.take_sent().is_empty(), "in one piece it is answered");
    for (offset, bytes) in [(0, &message[..16]), (16, &message[16..])] {
        let mut frame = fragment(&path, protocol::ICMPV6, bytes, offset, offset > 0);
        frame[21] = 255;
        machine.take(NOW, frame);
    }
    assert_eq!(counter(&machine, "packets_reassembled"), 1);
    assert!(machine.take_sent().is_empty(), "in fragments it is not");
}

#[test]
fn fragments_within_fragments_end_at_the_first() {
    let mut machine = machine();
    let (from, to) = addresses(false);
    let path = Path { mac: STRANGER, hop: [2, 0, 0, 0, 0, 1], from, to };
    // As many headers as an Ethernet frame has room for, each of a whole packet: "atomic" (RFC 6946).
    let headers = (1500 - frame::IPV6) / EXTENSION;
    let (head, start) = frame::ip(&path, protocol::FRAGMENT, EXTENSION, (headers - 1) * EXTENSION);
    let mut nested = head.to_vec();
    nested[start] = protocol::FRAGMENT;
    for _ in 1..headers {
        nested.extend_from_slice(&[protocol::FRAGMENT, 0, 0, 0, 0, 0, 0, 77]);
    }
    machine.take(NOW, nested);
    assert_eq!(counter(&machine, "dropped_malformed"), 1);
    assert_eq!(counter(&machine, "packets_reassembled"), 0);
    assert_eq!(machine.take_sent(), Vec::<Vec<u8>>::new());
}
