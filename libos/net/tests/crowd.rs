//! Many peers, honest and not: the cost of a packet does not grow with them, and nobody locks the others out.

mod common;

use common::{Device, Machine, Memory, config, greeting, parse_frame, segment_frame};
use nom_net::tcp::segment::{Flags, Options, Segment, Timestamps};
use nom_net::tcp::sequence::Seq;
use nom_net::{Application, Config, FlowId, Instant, Slice, Stack};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Sends back what it gets.
#[derive(Default)]
struct Echo {
    open: usize,
    refused: usize,
}

impl Application<Device> for Echo {
    fn connected(&mut self, _: &mut Stack<Device>, _: FlowId) {
        self.open += 1;
    }

    fn refused(&mut self, _: &mut Stack<Device>, port: u16) {
        assert_eq!(port, OURS.port());
        self.refused += 1;
    }

    fn received(&mut self, stack: &mut Stack<Device>, flow: FlowId, bytes: Slice<Memory>) {
        stack.send(flow, bytes).expect("there is room");
    }
}

const OURS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
const NOW: Instant = Instant::from_micros(1_000_000);

fn server(change: impl FnOnce(&mut Config)) -> Machine<Echo> {
    let mut config = config(1, 1);
    config.gateway4 = Some(Ipv4Addr::new(10, 0, 0, 2));
    change(&mut config);
    let mut server = Machine::new(Device::new(1, <_>::default()), config, Echo::default());
    server.stack.listen(80);
    server.take(NOW, greeting());
    server.take_sent();
    server
}

/// The address of a peer far away, behind the router.
fn peer(number: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0xac10_0000 + number / 50_000), 1024 + (number % 50_000) as u16))
}

fn syn() -> Segment {
    Segment { seq: Seq(0), flags: Flags::SYN, window: 65_535, ..Segment::default() }
}

/// What the server sends in answer to a segment.
fn ask(server: &mut Machine<Echo>, from: SocketAddr, segment: &Segment, payload: &[u8]) -> Vec<Segment> {
    server.take(NOW, segment_frame(from, OURS, segment, payload));
    let answers = server.take_sent();
    let answers = answers.iter().filter_map(|frame| parse_frame(frame));
    answers
        .map(|(_, to, segment)| if to == from { segment } else { panic!("an answer to {to}, not {from}") })
        .collect()
}

/// Opens a connection; the next sequence numbers of both sides.
fn open(server: &mut Machine<Echo>, from: SocketAddr) -> (Seq, Seq) {
    let answers = ask(server, from, &syn(), &[]);
    let answer = answers.first().expect("SYN is answered");
    assert_eq!((answer.flags, answer.ack), (Flags::SYN | Flags::ACK, Seq(1)));
    let next = answer.seq + 1;
    let acknowledgement =
        Segment { seq: Seq(1), ack: next, flags: Flags::ACK, window: 65_535, ..Segment::default() };
    assert!(ask(server, from, &acknowledgement, &[]).is_empty());
    (Seq(1), next)
}

/// A request and its answer.
fn talk(server: &mut Machine<Echo>, from: SocketAddr, (seq, ack): (Seq, Seq)) {
    let request =
        Segment { seq, ack, flags: Flags::ACK | Flags::PSH, window: 65_535, len: 5, ..Segment::default() };
    let answers = ask(server, from, &request, b"hello");
    let [answer] = answers[..] else { panic!("{} segments in answer", answers.len()) };
    assert_eq!((answer.seq, answer.ack, answer.len), (ack, seq + 5, 5));
}

#[test]
fn a_hundred_thousand_open_connections_cost_a_packet_nothing() {
    const PEERS: u32 = 100_000;
    let mut server = server(|_| {});
    let next: Vec<(Seq, Seq)> = (0..PEERS).map(|number| open(&mut server, peer(number))).collect();
    assert_eq!((server.application.open, server.stack.flow_count()), (PEERS as usize, PEERS as usize));
    let probes_before = server.stack.probes();
    let asked = (0..PEERS).step_by(97);
    for number in asked.clone() {
        talk(&mut server, peer(number), next[number as usize]);
    }
    let probes = server.stack.probes() - probes_before;
    let each = probes as f64 / asked.count() as f64;
    assert!((1.0..1.1).contains(&each), "{each} flows looked at for one packet");
}

#[test]
fn a_flood_of_syn_locks_nobody_out() {
    let mut server = server(|config| config.half_open_max = 64);
    for number in 0..10_000 {
        let answers = ask(&mut server, peer(number), &syn(), &[]);
        assert_eq!(answers.len(), 1, "each is answered, by memory or by cookie");
    }
    assert_eq!(server.stack.flow_count(), 64, "the flood takes no more memory than it may");
    assert_eq!(server.stack.counters().cookies_sent, 10_000 - 64);
    let friend = peer(20_000);
    let next = open(&mut server, friend);
    talk(&mut server, friend, next);
    assert_eq!((server.application.open, server.stack.counters().cookies_accepted), (1, 1));
}

/// Who asks twice may be answered by a cookie first, and then, when there is room, by a handshake that is
/// remembered: whichever answer it takes, it is not reset.
#[test]
fn a_cookie_that_was_taken_goes_before_a_handshake() {
    for takes_cookie in [true, false] {
        let mut server = server(|config| config.half_open_max = 1);
        let other = ask(&mut server, peer(1), &syn(), &[]);
        let friend = peer(2);
        let cookie = ask(&mut server, friend, &syn(), &[]);
        assert_eq!(server.stack.counters().cookies_sent, 1);
        let ack = |answer: &Segment| Segment {
            seq: Seq(1),
            ack: answer.seq + 1,
            flags: Flags::ACK,
            window: 65_535,
            ..Segment::default()
        };
        ask(&mut server, peer(1), &ack(&other[0]), &[]);
        let handshake = ask(&mut server, friend, &syn(), &[]);
        assert_ne!(cookie[0].seq, handshake[0].seq);
        let taken = if takes_cookie { &cookie[0] } else { &handshake[0] };
        // What comes behind a first segment that was lost brings no cookie, and is not refused.
        let early = Segment { seq: Seq(11), ..ack(&cookie[0]) };
        let answers = ask(&mut server, friend, &early, b"second");
        assert!(answers.iter().all(|answer| !answer.flags.any(Flags::RST)), "{answers:?}");
        ask(&mut server, friend, &ack(taken), b"first");
        assert_eq!(server.application.open, 2, "by its cookie: {takes_cookie}");
        assert_eq!(server.stack.counters().cookies_accepted, u64::from(takes_cookie));
    }
}

#[test]
fn half_open_connections_go_away_and_make_room() {
    let mut server = server(|config| config.half_open_max = 64);
    for number in 0..64 {
        ask(&mut server, peer(number), &syn(), &[]);
    }
    let end = NOW + Duration::from_secs(120);
    while let Some(due) = server.due.filter(|due| *due < end) {
        server.poll(due);
    }
    assert_eq!(server.stack.flow_count(), 0);
    // By now the router, too, is forgotten, for it answered nothing.
    server.take(end, greeting());
    server.take_sent();
    server.take(end, segment_frame(peer(100), OURS, &syn(), &[]));
    assert_eq!((server.take_sent().len(), server.stack.counters().cookies_sent), (1, 0));
}

#[test]
fn a_full_table_refuses_and_then_forgets_time_wait() {
    let mut server = server(|config| config.flows_max = 2);
    let (seq, ack) = open(&mut server, peer(1));
    open(&mut server, peer(2));
    let answers = ask(&mut server, peer(3), &syn(), &[]);
    assert!(answers.len() == 1 && answers[0].flags.any(Flags::RST), "at once: {answers:?}");
    assert_eq!((server.application.refused, server.stack.counters().dropped_tcp_table_full), (1, 1));
    // The peer closes, the server does, and waits: the next SYN takes its place.
    let fin = Segment { seq, ack, flags: Flags::ACK | Flags::FIN, window: 65_535, ..Segment::default() };
    let answers = ask(&mut server, peer(1), &fin, &[]);
    assert!(answers.iter().any(|answer| answer.flags.any(Flags::FIN)));
    let last =
        Segment { seq: seq + 1, ack: ack + 1, flags: Flags::ACK, window: 65_535, ..Segment::default() };
    ask(&mut server, peer(1), &last, &[]);
    assert_eq!(ask(&mut server, peer(3), &syn(), &[]).len(), 1);
}

#[test]
fn the_tables_of_all_cores_are_no_larger_than_that_of_one() {
    let mut server = server(|config| {
        config.flows_max = 64;
        *config = config.clone().shared_by(4);
    });
    for number in 0..20 {
        let answers = ask(&mut server, SocketAddr::from(([10, 1, number, 1], 5000)), &syn(), &[]);
        assert_eq!(answers[0].flags.any(Flags::RST), number >= 16, "{number}: {answers:?}");
    }
    assert_eq!((server.stack.flow_count(), server.application.refused), (16, 4));
}

#[test]
fn one_address_cannot_take_the_table() {
    const PLACES: usize = 1000;
    // The friends' addresses must not share a place with the flood's, as one in a thousand does.
    let mut server = server(|config| (config.flows_max, config.secret) = (PLACES, [1, 2, 3, 4]));
    let friend = |number: u8| SocketAddr::from(([10, 1, number, 1], 5000));
    let old = open(&mut server, friend(0));
    for number in 0..2000 {
        let answers = ask(&mut server, peer(number), &syn(), &[]);
        let is_open = answers[0].flags == Flags::SYN | Flags::ACK;
        assert_eq!(is_open, number + 1 < PLACES as u32 / 2, "{number}: {answers:?}");
    }
    assert_eq!((server.stack.flow_count(), server.application.refused), (PLACES / 2, 1501));
    talk(&mut server, friend(0), old);
    for number in 1..=100 {
        let next = open(&mut server, friend(number));
        talk(&mut server, friend(number), next);
    }
    assert_eq!(server.stack.flow_count(), PLACES / 2 + 100);
}

/// Cookies take no places while they are about; those of an address take no more than its SYNs may.
#[test]
fn one_address_cannot_take_the_table_by_cookies() {
    const PLACES: usize = 1000;
    let mut server = server(|config| (config.flows_max, config.half_open_max) = (PLACES, 0));
    let cookies: Vec<Segment> =
        (0..800).map(|number| ask(&mut server, peer(number), &syn(), &[])[0]).collect();
    assert_eq!((server.stack.flow_count(), server.stack.counters().cookies_sent), (0, 800));
    for (number, cookie) in (0..).zip(cookies) {
        let flags = Flags::ACK;
        let ack = Segment { seq: Seq(1), ack: cookie.seq + 1, flags, window: 65_535, ..Segment::default() };
        ask(&mut server, peer(number), &ack, &[]);
    }
    assert_eq!((server.stack.flow_count(), server.application.open), (PLACES / 2, PLACES / 2));
}

/// What our timestamps say tells neither how long the machine is up nor which connections are of one machine.
#[test]
fn no_two_connections_show_the_same_clock() {
    let mut shown = std::collections::BTreeSet::from([NOW.millis_wrapping() & !63]);
    for secret in [[1, 2, 3, 4], [5, 6, 7, 8]] {
        for number in 0..20 {
            let mut server = server(|config| config.secret = secret);
            let timestamps = Some(Timestamps { value: 1, echo: 0 });
            let syn = Segment { options: Options { timestamps, ..Options::default() }, ..syn() };
            let answers = ask(&mut server, peer(number), &syn, &[]);
            let stamp = answers[0].options.timestamps.expect("both stamp").value;
            assert!(shown.insert(stamp & !63), "peer {number} is shown {stamp}, as another was");
        }
    }
}

#[test]
fn a_peer_that_reads_nothing_holds_no_more_than_the_queue() {
    let mut server = server(|_| {});
    let from = peer(1);
    let (seq, ack) = open(&mut server, from);
    let payload = [b'x'; 1000];
    let mut refused = false;
    for _ in 0..1000 {
        let flow = server.stack.flows().next().expect("one is open");
        let bytes = Slice::new(Memory::from(&payload[..]));
        refused |= server.stack.send(flow, bytes).is_err();
    }
    let flow = server.stack.flows().next().expect("one is open");
    let limit = server.stack.config().tcp.send_max;
    assert!(
        refused && server.stack.queued(flow) < limit + payload.len(),
        "{} bytes",
        server.stack.queued(flow)
    );
    let nothing = Segment { seq, ack, flags: Flags::ACK, options: Options::default(), ..Segment::default() };
    assert!(ask(&mut server, from, &nothing, &[]).iter().all(|segment| segment.len <= 1460));
}
