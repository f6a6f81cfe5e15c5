//! The small protocols: ping, UDP and DNS as a stack speaks them, and the packet API.

mod common;

use common::{
    Device, Faults, Machine, Memory, Peer, STRANGER, World, config, datagram_frame, datagrams, greeting,
    parse_frame, segment_frame,
};
use nom_net::buffer::Chain;
use nom_net::frame::{self, Path, protocol};
use nom_net::packet::Datagram;
use nom_net::tcp::segment::{Flags, Options, Segment, Timestamps};
use nom_net::tcp::sequence::Seq;
use nom_net::{
    Application, Config, Family, FlowId, Instant, QueryId, ResolveError, Slice, Stack, checksum, dns,
};
use nom_port::nic::{Offloads, Received, gather};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const NOW: Instant = Instant::from_micros(1_000_000);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Notes what it is told.
#[derive(Debug, Default)]
struct Notes {
    resolved: Vec<(QueryId, Result<Vec<IpAddr>, ResolveError>)>,
    filtered: usize,
    datagrams: Vec<(SocketAddr, Vec<u8>)>,
}

impl Application<Device> for Notes {
    /// Takes what is for UDP port 9 and sends it back from where it came, without the stack.
    fn filter(&mut self, stack: &mut Stack<Device>, frame: Received<Memory>) -> Option<Received<Memory>> {
        let Some(datagram) = Datagram::parse(&frame).filter(|datagram| datagram.to.port() == 9) else {
            return Some(frame);
        };
        self.filtered += 1;
        let payload = datagram.payload(frame);
        stack.transmit_answer(&datagram, payload);
        None
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, _: Slice<Memory>) {}

    fn datagram(&mut self, _: &mut Stack<Device>, _: SocketAddr, from: SocketAddr, bytes: Chain<Memory>) {
        self.datagrams.push((from, gather(&bytes)));
    }

    fn resolved(
        &mut self,
        _: &mut Stack<Device>,
        query: QueryId,
        addresses: Result<Vec<IpAddr>, ResolveError>,
    ) {
        self.resolved.push((query, addresses));
    }
}

fn machine(change: impl FnOnce(&mut Config)) -> Machine<Notes> {
    let mut config = config(1, 1);
    change(&mut config);
    let mut machine = Machine::new(Device::new(1, <_>::default()), config, Notes::default());
    machine.take(NOW, greeting());
    machine.take_sent();
    machine
}

#[test]
fn names_are_resolved_by_whoever_was_asked_and_nobody_else() {
    let mut machine = machine(|config| config.nameservers = vec![ROUTER.into()]);
    let query = machine.stack.resolve("example.org", Family::V4).unwrap();
    machine.poll(NOW);
    let sent = datagrams(&machine.take_sent());
    let [(from, to, asked)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(*to, SocketAddr::from((ROUTER, 53)));
    let mut answer = asked.clone();
    answer[2] |= 0x80;
    answer[7] = 1;
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1]);
    machine.take(NOW, datagram_frame(([10, 0, 0, 3], 53).into(), *from, &answer));
    assert!(machine.application.resolved.is_empty(), "not whom we asked");
    machine.take(NOW, datagram_frame(*to, *from, &answer));
    assert_eq!(machine.application.resolved, [(query, Ok(vec![[192, 0, 2, 1].into()]))]);
    machine.take(NOW, datagram_frame(*to, *from, &answer));
    assert_eq!(machine.application.resolved.len(), 1, "said once");
}

#[test]
fn each_server_is_asked_in_turn_and_then_none() {
    let servers = [[10, 0, 0, 2], [10, 0, 0, 2]].map(IpAddr::from);
    let mut machine = machine(|config| config.nameservers = servers.to_vec());
    assert_eq!(machine.stack.resolve("a..b", Family::V6), Err(ResolveError::BadName));
    let query = machine.stack.resolve("example.org", Family::V6).unwrap();
    machine.poll(NOW);
    let mut asked = datagrams(&machine.take_sent()).len();
    while machine.application.resolved.is_empty() {
        let due = machine.due.expect("the question is open").max(NOW);
        machine.poll(due);
        asked += datagrams(&machine.take_sent()).len();
    }
    assert_eq!((asked, &machine.application.resolved[..]), (4, &[(query, Err(ResolveError::TimedOut))][..]));
    let none = Machine::new(Device::new(1, <_>::default()), config(1, 1), Notes::default())
        .stack
        .resolve("a", Family::V4);
    assert_eq!(none, Err(ResolveError::NoServer));
    assert_eq!(dns::SERVER_PORT, 53);
}

#[test]
fn questions_do_not_take_what_is_sent_to_bound_ports() {
    const FREE: u16 = 60_000;
    let mut machine = machine(|config| config.nameservers = vec![ROUTER.into()]);
    (49_152..65_535).filter(|port| *port != FREE).for_each(|port| machine.stack.bind(port));
    let query = machine.stack.resolve("example.org", Family::V4).unwrap();
    assert_eq!(machine.stack.resolve("example.com", Family::V4), Err(ResolveError::Full), "no port is free");
    machine.poll(NOW);
    let sent = datagrams(&machine.take_sent());
    let [(from, to, asked)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(from.port(), FREE);
    // Who takes the port meanwhile gets all but the answer.
    machine.stack.bind(FREE);
    let other = SocketAddr::from((ROUTER, 5000));
    machine.take(NOW, datagram_frame(other, *from, b"hello"));
    assert_eq!(machine.application.datagrams, [(other, b"hello".to_vec())]);
    let mut answer = asked.clone();
    answer[2] |= 0x80;
    answer[7] = 1;
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1]);
    machine.take(NOW, datagram_frame(*to, *from, &answer));
    assert_eq!(machine.application.resolved, [(query, Ok(vec![[192, 0, 2, 1].into()]))]);
    assert_eq!(machine.application.datagrams.len(), 1);
}

#[test]
fn the_filter_answers_in_place() {
    let mut machine = machine(|_| {});
    let (from, to) = (SocketAddr::from((ROUTER, 5000)), SocketAddr::from(([10, 0, 0, 1], 9)));
    machine.take(NOW, datagram_frame(from, to, b"fast"));
    assert_eq!(datagrams(&machine.take_sent()), [(to, from, b"fast".to_vec())]);
    assert_eq!((machine.application.filtered, machine.stack.counters().dropped_udp_port), (1, 0));
    let mut broken = datagram_frame(from, to, b"fast");
    broken[43] ^= 1;
    machine.take(NOW, broken);
    assert_eq!((machine.application.filtered, machine.stack.counters().dropped_checksum), (1, 1));
    machine.take(NOW, datagram_frame(from, ([10, 0, 0, 1], 10).into(), b"slow"));
    let sent = machine.take_sent();
    assert_eq!((machine.stack.counters().dropped_udp_port, sent[0][23], sent[0][34]), (1, protocol::ICMP, 3));
    assert_eq!(sent[0][42 + 28..], *b"slow", "the error quotes what it is about");
}

#[test]
fn datagrams_go_both_ways_in_both_families() {
    for address in ["10.0.0.2", "fd00::2"] {
        let machine =
            |number| Machine::new(Device::new(number, <_>::default()), config(number, 3), Peer::default());
        let mut world = World::new(machine(1), machine(2), 1, Faults::default());
        let to = SocketAddr::new(address.parse().unwrap(), 7);
        let from = SocketAddr::new(world.left.stack.config().source_for(to.ip()).unwrap(), 4000);
        world.right.stack.bind(7);
        world.left.stack.bind(4000);
        let bytes = world.left.stack.buffer(b"hello").unwrap();
        world.left.stack.send_datagram(from, to, Chain::from_iter([bytes])).unwrap();
        let is_back = world.run(Duration::from_secs(1), |world| !world.left.application.datagrams.is_empty());
        assert!(is_back, "{address}: {:?} {:?}", world.left.stack.counters(), world.right.stack.counters());
        assert_eq!(world.left.application.datagrams, [(to, b"hello".to_vec())]);
    }
}

/// Whether its way is known yet or not, and whoever computes checksums.
#[test]
fn what_is_put_in_front_of_an_answer_comes_in_front_of_it() {
    for (address, checksum) in
        [("10.0.0.2", true), ("10.0.0.2", false), ("fd00::2", true), ("fd00::2", false)]
    {
        let offloads = Offloads { checksum, ..Offloads::default() };
        let machine =
            |number| Machine::new(Device::new(number, offloads), config(number, 3), Peer::default());
        let mut world = World::new(machine(1), machine(2), 1, Faults::default());
        let to = SocketAddr::new(address.parse().unwrap(), 9);
        let from = SocketAddr::new(world.left.stack.config().source_for(to.ip()).unwrap(), 4000);
        world.right.stack.bind(9);
        for (front, rest) in [(8, 100), (0, 3), (8, 0), (64, 1), (65, 1), (300, 1000)] {
            let bytes: Vec<u8> = (0..front + rest).map(|at| at as u8).collect();
            let payload = Chain::from_iter(world.left.stack.buffer(&bytes[front..]));
            world.left.stack.answer_datagram(from, to, &bytes[..front], payload).unwrap();
            world.left.due = Some(world.now);
            let has_come = |world: &mut World<Peer, Peer>| !world.right.application.datagrams.is_empty();
            assert!(world.run(Duration::from_secs(1), has_come), "{address}, {front}: lost");
            assert_eq!(std::mem::take(&mut world.right.application.datagrams), [(from, bytes)], "{front}");
        }
    }
}

#[test]
fn a_datagram_that_cannot_go_is_refused() {
    use nom_net::DatagramError::{NoRoute, TooLong};
    let mut machine = machine(|_| {});
    let from = SocketAddr::from(([10, 0, 0, 1], 1));
    let mut send = |to: &str, len| {
        let bytes = machine.stack.buffer(&vec![0; len]).unwrap();
        machine.stack.send_datagram(from, to.parse().unwrap(), Chain::from_iter([bytes]))
    };
    assert_eq!(send("10.0.0.2:1", 65_507), Ok(()));
    assert_eq!(send("10.0.0.2:1", 65_508), Err(TooLong));
    assert_eq!(send("10.9.0.2:1", 1), Err(NoRoute));
    assert_eq!(send("[fd00::2]:1", 1), Err(NoRoute), "from another family");
}

#[test]
fn a_ping_comes_back() {
    let mut machine = machine(|_| {});
    let path = Path { mac: STRANGER, hop: [2, 0, 0, 0, 0, 1], from: ROUTER.into(), to: [10, 0, 0, 1].into() };
    let (head, start) = frame::ip(&path, protocol::ICMP, 8, 3);
    let mut ping = [&head[..], b"abc"].concat();
    ping[start] = 8;
    let sum = !checksum::sum(&ping[start..]);
    ping[start + 2..start + 4].copy_from_slice(&sum.to_be_bytes());
    machine.take(NOW, ping.clone());
    let sent = machine.take_sent();
    assert_eq!((sent[0][start], &sent[0][start + 8..]), (0, &b"abc"[..]));
    assert_eq!(checksum::sum(&sent[0][start..]), 0xffff);
    ping[start + 9] ^= 1;
    machine.take(NOW, ping);
    assert_eq!((machine.take_sent().len(), machine.stack.counters().dropped_checksum), (0, 1));
}

/// What a router says about `frame`, which machine 1 sent: type, code, and two words.
fn complaint(frame: &[u8], kind: [u8; 2], rest: [u8; 4]) -> Vec<u8> {
    let path = Path { mac: STRANGER, hop: [2, 0, 0, 0, 0, 1], from: ROUTER.into(), to: [10, 0, 0, 1].into() };
    let quote = &frame[14..42];
    let (head, start) = frame::ip(&path, protocol::ICMP, 8, quote.len());
    let mut bytes = [&head[..], quote].concat();
    bytes[start..start + 2].copy_from_slice(&kind);
    bytes[start + 4..start + 8].copy_from_slice(&rest);
    let sum = !checksum::sum(&bytes[start..]);
    bytes[start + 2..start + 4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn a_router_ends_an_attempt_only_if_it_knows_the_segment() {
    let machine = || Machine::new(Device::new(1, <_>::default()), config(1, 1), Peer::default());
    let mut machine = machine();
    machine.take(NOW, greeting());
    machine.take_sent();
    machine.stack.connect((ROUTER, 80).into()).unwrap();
    machine.poll(NOW);
    let syn = machine.take_sent().remove(0);
    let mut forged = syn.clone();
    forged[38] ^= 1;
    machine.take(NOW, complaint(&forged, [3, 1], [0; 4]));
    assert_eq!(machine.application.closed, None, "the sequence number is wrong");
    machine.take(NOW, complaint(&syn, [3, 1], [0; 4]));
    assert_eq!(machine.application.closed, Some(nom_net::Closed::Unreachable));
    assert_eq!(machine.stack.flow_count(), 0);
    machine.take(NOW, complaint(&syn, [3, 1], [0; 4]));
    assert_eq!(machine.stack.counters().dropped_icmp, 1, "nobody it is about");
}

#[test]
fn who_probes_for_our_address_is_told_that_it_is_taken() {
    let mut machine = machine(|_| {});
    let mut probe = greeting();
    probe[28..32].fill(0); // the sender's address: RFC 5227 section 2.1.1
    machine.take(NOW, probe);
    let sent = machine.take_sent();
    let [answer] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((&answer[..6], &answer[20..22]), (&STRANGER[..], &[0, 2][..]), "a reply, to who asked");
    assert_eq!((&answer[28..32], &answer[38..42]), (&[10, 0, 0, 1][..], &[0; 4][..]));
}

#[test]
fn a_broadcast_question_is_answered_from_an_address_of_our_own() {
    let mut machine = Machine::new(Device::new(1, <_>::default()), config(1, 1), Peer::default());
    machine.stack.bind(7);
    machine.take(NOW, greeting());
    machine.take_sent();
    for to in [[10, 0, 0, 255], [255; 4]] {
        machine.take(NOW, datagram_frame(([10, 0, 0, 2], 99).into(), (to, 7).into(), b"who?"));
        let sent = datagrams(&machine.take_sent());
        let expected = (([10, 0, 0, 1], 7).into(), ([10, 0, 0, 2], 99).into(), b"who?".to_vec());
        assert_eq!(sent, [expected], "{to:?}");
    }
}

#[test]
fn timestamps_tell_neither_uptime_nor_that_two_connections_are_of_one_machine() {
    let mut machine = Machine::new(Device::new(1, <_>::default()), config(1, 1), Peer::default());
    machine.stack.listen(80);
    machine.take(NOW, greeting());
    machine.take_sent();
    let timestamps = Some(Timestamps { value: 5, echo: 0 });
    let options = Options { mss: Some(1460), timestamps, ..Options::default() };
    let syn = Segment { seq: Seq(7), flags: Flags::SYN, window: 1000, options, ..Segment::default() };
    let mut offset = |port| {
        let (from, to) = (([10, 0, 0, 2], port).into(), ([10, 0, 0, 1], 80).into());
        machine.take(NOW, segment_frame(from, to, &syn, &[]));
        let sent = machine.take_sent();
        let (_, _, answer) = parse_frame(&sent[0]).expect("a segment");
        answer.options.timestamps.expect("a timestamp").value.wrapping_sub(NOW.micros() as u32 / 1000)
    };
    let offsets = [offset(1), offset(2), offset(3)];
    assert!(offsets[0] != offsets[1] && offsets[1] != offsets[2] && !offsets.contains(&0), "{offsets:?}");
}
