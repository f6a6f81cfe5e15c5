//! What one connection learned of its path, the next one knows.

mod common;

use common::{Device, Machine, Memory, STRANGER, config, greeting, parse_frame, segment_frame};
use nom_net::checksum;
use nom_net::frame::{self, Path, protocol};
use nom_net::tcp::segment::{Flags, Options, Segment};
use nom_net::tcp::sequence::Seq;
use nom_net::{Application, FlowId, Instant, Slice, Stack};
use std::net::SocketAddr;

/// Sends 3,000 bytes to whoever comes.
#[derive(Default)]
struct Talker {
    /// Where nobody takes datagrams.
    refused: Vec<(SocketAddr, SocketAddr)>,
}

impl Application<Device> for Talker {
    fn connected(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        stack.send(flow, Slice::new(Memory::from(vec![b'x'; 3000]))).expect("there is room");
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, _: Slice<Memory>) {}

    fn nobody_there(&mut self, _: &mut Stack<Device>, own: SocketAddr, remote: SocketAddr) {
        self.refused.push((own, remote));
    }
}

const NOW: Instant = Instant::from_micros(1_000_000);

/// A server that knows the peer's Ethernet address.
fn serving() -> Machine<Talker> {
    let mut server = Machine::new(Device::new(1, <_>::default()), config(1, 1), Talker::default());
    server.stack.listen(80);
    server.take(NOW, greeting());
    server.take_sent();
    server
}

/// Opens a connection from `port` and returns the frames with data that come.
fn open(server: &mut Machine<Talker>, port: u16) -> Vec<Vec<u8>> {
    let (ours, from) = (SocketAddr::from(([10, 0, 0, 1], 80)), SocketAddr::from(([10, 0, 0, 2], port)));
    let options = Options { mss: Some(1460), ..Options::default() };
    let syn = Segment { flags: Flags::SYN, window: 65_535, options, ..Segment::default() };
    server.take(NOW, segment_frame(from, ours, &syn, &[]));
    let answers = server.take_sent();
    let (.., answer) = parse_frame(&answers[0]).expect("SYN is answered");
    let next = answer.seq + 1;
    let last = Segment { seq: Seq(1), ack: next, flags: Flags::ACK, window: 65_535, ..Segment::default() };
    server.take(NOW, segment_frame(from, ours, &last, &[]));
    server.take_sent()
}

fn longest(frames: &[Vec<u8>]) -> u32 {
    frames.iter().filter_map(|frame| parse_frame(frame)).map(|(_, _, segment)| segment.len).max().unwrap_or(0)
}

/// A router says that packets beyond `mtu` bytes do not pass: the one in `frame`, for example (RFC 1191).
fn too_big(frame: &[u8], mtu: u16) -> Vec<u8> {
    unreachable(frame, 4, mtu)
}

/// Somebody says what became of the packet in `frame`, by a code (RFC 792).
fn unreachable(frame: &[u8], code: u8, mtu: u16) -> Vec<u8> {
    let quote = &frame[14..42];
    let [from, to] = [[10, 0, 0, 2], [10, 0, 0, 1]].map(std::net::IpAddr::from);
    let path = Path { mac: STRANGER, hop: [2, 0, 0, 0, 0, 1], from, to };
    let (head, start) = frame::ip(&path, protocol::ICMP, 8, quote.len());
    let mut bytes = head.to_vec();
    bytes[start..start + 2].copy_from_slice(&[3, code]);
    bytes[start + 6..start + 8].copy_from_slice(&mtu.to_be_bytes());
    bytes.extend_from_slice(quote);
    let sum = !checksum::sum(&bytes[start..]);
    bytes[start + 2..start + 4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn a_narrow_path_is_known_to_the_next_connection() {
    let mut server = serving();
    let sent = open(&mut server, 4000);
    assert_eq!(longest(&sent), 1460);
    server.take(NOW, too_big(&sent[0], 1000));
    assert_eq!((longest(&server.take_sent()), server.stack.counters().segments_shortened), (960, 1));
    assert_eq!(longest(&open(&mut server, 4001)), 960, "without another complaint");
    // And so do datagrams: what is longer goes in fragments that are not.
    for (bytes, packets) in [(972, vec![1000]), (973, vec![996, 25]), (1472, vec![996, 524])] {
        assert_eq!(packets_of(&send(&mut server, bytes)), packets, "{bytes} bytes");
    }
}

/// Sends a datagram of so many bytes from port 9; the frames that go.
fn send(server: &mut Machine<Talker>, bytes: usize) -> Vec<Vec<u8>> {
    let payload = [Slice::new(Memory::from(vec![b'x'; bytes]))].into_iter().collect();
    let peer = SocketAddr::from(([10, 0, 0, 2], 9));
    server.stack.send_datagram(([10, 0, 0, 1], 9).into(), peer, payload).expect("it is sent");
    server.poll(NOW);
    server.take_sent()
}

/// Bytes of the packets in frames.
fn packets_of(frames: &[Vec<u8>]) -> Vec<usize> {
    frames.iter().map(|frame| frame.len() - 14).collect()
}

#[test]
fn who_sends_datagrams_hears_that_nobody_takes_them_and_of_nothing_else() {
    let mut server = serving();
    let sent = send(&mut server, 100);
    server.take(NOW, unreachable(&sent[0], 3, 0));
    assert_eq!(server.application.refused, [], "nobody has that port");
    server.stack.bind(9);
    // No network, host, protocol; prohibited.
    [0, 1, 2, 13].into_iter().for_each(|code| server.take(NOW, unreachable(&sent[0], code, 0)));
    assert_eq!(server.application.refused, []);
    server.take(NOW, unreachable(&sent[0], 3, 0));
    assert_eq!(server.application.refused, [(([10, 0, 0, 1], 9).into(), ([10, 0, 0, 2], 9).into())]);
    let mut foreign = sent[0].clone();
    // From another host's address.
    foreign[14 + 15] = 77;
    server.take(NOW, unreachable(&foreign, 3, 0));
    assert_eq!(server.application.refused.len(), 1);
}

#[test]
fn datagrams_heed_what_a_router_says_of_one_and_connections_do_not() {
    let mut server = serving();
    let sent = send(&mut server, 1472);
    // Nobody has that port: it may be anybody's word.
    server.take(NOW, too_big(&sent[0], 1000));
    assert_eq!(packets_of(&send(&mut server, 1472)), [1500]);
    server.stack.bind(9);
    server.take(NOW, too_big(&sent[0], 1000));
    assert_eq!(packets_of(&send(&mut server, 1472)), [996, 524]);
    // A path becomes no wider by that, and not as narrow as anybody says.
    server.take(NOW, too_big(&sent[0], 1400));
    assert_eq!(packets_of(&send(&mut server, 1472)), [996, 524]);
    server.take(NOW, too_big(&sent[0], 68));
    assert_eq!(packets_of(&send(&mut server, 1472)), [548, 548, 444]);
    assert_eq!(longest(&open(&mut server, 4001)), 1460);
}
