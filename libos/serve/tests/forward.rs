//! One server on two cores, whose device does not send all of a flow's packets to the same one.

mod common;

use common::{Deaf, Still};
use nom_elastic::ElasticCore;
use nom_net::{Application, Cidr, Config, Instant, Slice, Stack};
use nom_port::buffer::Buffers;
use nom_port::nic::{Checksum, Nic, Outgoing, Properties, Received, RingFull};
use nom_rt::EventLoop;
use nom_rt::inbox::Remote;
use nom_rt::poller::Poller as _;
use nom_serve::{Closing, Migration, Ports, Server};
use nom_service::{Reply, Service, Stream};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

type Bytes = Arc<[u8]>;
type Wire = Rc<RefCell<VecDeque<Bytes>>>;
/// Where a frame goes.
type Steer = Rc<dyn Fn(&[u8]) -> Wire>;

/// One end of a cable that loses nothing.
struct Card {
    mac: [u8; 6],
    receives: Wire,
    steer: Steer,
}

impl Buffers for Card {
    type Buffer = Bytes;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Bytes>> {
        Some(Slice::new(bytes.into()))
    }
}

impl Nic for Card {
    fn properties(&self) -> Properties {
        Properties { mac: self.mac, mtu: 1500, ..Properties::default() }
    }

    fn receive(&mut self) -> Option<Received<Bytes>> {
        let frame = self.receives.borrow_mut().pop_front()?;
        Some(Received {
            frame: [Slice::new(frame)].into_iter().collect(),
            checksum: Checksum::Unknown,
            at_ns: 0,
        })
    }

    fn room(&mut self) -> usize {
        64
    }

    fn transmit(&mut self, frame: &mut Outgoing<Bytes>) -> Result<(), RingFull> {
        let bytes: Vec<u8> =
            frame.head.iter().chain(frame.payload.iter().flat_map(|slice| slice.iter())).copied().collect();
        (self.steer)(&bytes).borrow_mut().push_back(bytes.into());
        Ok(())
    }

    fn kick(&mut self) {}

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

/// Sends back what it is sent.
struct Echo;

impl Service<Bytes> for Echo {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Bytes>) -> Option<()> {
        Some(())
    }

    fn received(&mut self, (): &mut (), bytes: Slice<Bytes>, reply: &mut Reply<Bytes>) -> Stream {
        nom_port::buffer::Sink::share(reply, bytes);
        Stream::Open
    }
}

#[derive(Default)]
struct Client {
    heard: Vec<u8>,
    is_closed: bool,
}

impl Application<Card> for Client {
    fn received(&mut self, _: &mut Stack<Card>, _: nom_net::FlowId, bytes: Slice<Bytes>) {
        self.heard.extend_from_slice(&bytes);
    }

    fn closed(&mut self, _: &mut Stack<Card>, _: nom_net::FlowId, _: nom_net::Closed) {
        self.is_closed = true;
    }
}

fn config(address: [u8; 4]) -> Config {
    let address = Cidr { address: IpAddr::from(address), prefix: 24 };
    Config { addresses: vec![address], ..Config::new([1, 2, 3, 4]) }
}

fn card(last: u8, receives: Wire, steer: Steer) -> Card {
    Card { mac: [2, 0, 0, 0, 0, last], receives, steer }
}

fn remotes() -> Vec<Remote> {
    (0..2).map(|core| Remote::new(core, Arc::new(Deaf))).collect()
}

/// A core among the others.
type Own = ElasticCore<Bytes, Migration<Bytes, ()>>;

/// The server on cores that receive from `wires`.
fn cores(wires: &[Wire; 2], back: &Steer, half_open_max: [usize; 2]) -> Vec<Server<Card, Still, Echo>> {
    let ports = Ports { tcp: vec![7], udp: Vec::new() };
    let core = |((elastic, wire), half_open_max): ((Own, &Wire), usize)| {
        let card = card(2, wire.clone(), back.clone());
        let config = Config { half_open_max, ..config([10, 0, 0, 2]) };
        let mut server = Server::new(card, Still, config, &ports, Echo);
        server.set_core(elastic);
        server
    };
    ElasticCore::group(remotes()).into_iter().zip(wires).zip(half_open_max).map(core).collect()
}

struct World {
    client: Stack<Card>,
    /// To the cores, and from them.
    wires: [Wire; 2],
    near: Wire,
    back: Steer,
    heard: Client,
    cores: Vec<Server<Card, Still, Echo>>,
    now_ns: u64,
}

impl World {
    /// `core` says to which core the device sends a frame of the client's.
    fn new(core: impl Fn(&[u8]) -> usize + 'static) -> World {
        World::remembering([1024; 2], core)
    }

    /// Cores that remember so many handshakes, and answer more of them by cookies.
    fn remembering(half_open_max: [usize; 2], core: impl Fn(&[u8]) -> usize + 'static) -> World {
        let near = Wire::default();
        let wires: [Wire; 2] = Default::default();
        let (far, to_client) = (wires.clone(), near.clone());
        let client = card(1, near.clone(), Rc::new(move |frame| far[core(frame)].clone()));
        let back: Steer = Rc::new(move |_| to_client.clone());
        let client = Stack::new(client, config([10, 0, 0, 1]));
        let cores = cores(&wires, &back, half_open_max);
        World { client, heard: Client::default(), cores, wires, near, back, now_ns: 0 }
    }

    fn pass(&mut self) {
        for _ in 0..200 {
            self.now_ns += 1_000_000;
            self.client.poll(Instant::from_nanos(self.now_ns), &mut self.heard);
            for core in &mut self.cores {
                core.poll(self.now_ns);
            }
        }
    }

    fn talk(&mut self) {
        let flow = self.client.connect("10.0.0.2:7".parse().expect("an address")).expect("a route");
        self.pass();
        for word in ["one ", "two ", "three"] {
            self.client.send(flow, Slice::new(word.as_bytes().into())).expect("room");
            self.pass();
        }
        assert_eq!(String::from_utf8_lossy(&self.heard.heard), "one two three");
        self.client.close(flow);
        self.pass();
        assert!(self.heard.is_closed);
    }

    /// Has the cores end together when [`ASKED`] says so; the first one's loop is to be stopped.
    fn closing(&mut self) -> EventLoop<Still, Still> {
        let (first, second) = (EventLoop::new(0, Still, Still, Arc::new(Deaf)), Arc::new(Deaf));
        let second = EventLoop::new(1, Still, Still, second);
        let closing = Closing::new(2, || ASKED.get());
        for (index, (core, event_loop)) in self.cores.iter_mut().zip([&first, &second]).enumerate() {
            core.close_with(closing.clone(), index, event_loop.handle());
        }
        first
    }

    fn flows(&self) -> [usize; 2] {
        [0, 1].map(|core: usize| self.cores[core].stack().flow_count())
    }
}

const SYN_AT: usize = 14 + 20 + 13;

fn is_syn(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0] && frame.get(SYN_AT).is_some_and(|flags| flags & 2 != 0)
}

fn is_segment(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0]
}

#[test]
fn a_flow_lives_where_it_began_whatever_the_device_does() {
    let mut world = World::new(|frame| usize::from(is_segment(frame) && !is_syn(frame)));
    world.talk();
    assert!(world.cores[1].forwards().forwarded >= 4, "{:?}", world.cores[1].forwards());
    assert_eq!(world.cores[0].forwards().taken, world.cores[1].forwards().forwarded);
    assert_eq!(world.cores[0].forwards().forwarded + world.cores[0].forwards().lost, 0);
    assert_eq!(world.flows()[1], 0);
}

/// The core that asked for the client's Ethernet address is not the one that hears the answer.
#[test]
fn answers_to_neighbours_reach_the_core_that_asked() {
    let mut world = World::new(|frame| usize::from(is_segment(frame)));
    world.talk();
    assert!(world.cores[0].forwards().copied >= 1, "{:?}", world.cores[0].forwards());
    assert_eq!(world.cores[1].forwards().taken, world.cores[0].forwards().copied);
    assert_eq!(world.cores[1].forwards().forwarded, 0, "the flow is its own");
}

#[test]
fn a_segment_that_is_nobodys_is_refused_where_it_comes_in() {
    let mut world = World::new(|frame| usize::from(is_segment(frame)));
    let flow = world.client.connect("10.0.0.2:7".parse().expect("an address")).expect("a route");
    world.pass();
    // The server starts again, and knows nothing.
    world.cores = cores(&world.wires, &world.back, [1024; 2]);
    world.client.send(flow, Slice::new(b"anybody?"[..].into())).expect("room");
    world.pass();
    assert_eq!(world.cores[1].forwards().forwarded, 0, "no other core has to look at it");
    assert_eq!(world.cores[1].stack().counters().dropped_tcp_port, 1);
    assert!(world.heard.is_closed, "the reset reached the client");
}

/// An acknowledgement of ours for which there is no flow.
fn stray(number: u16) -> Bytes {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([number.to_be_bytes(), [0, 7]].concat());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 4, 0, 0, 0, 0, 0]);
    let sum = |bytes: &[u8], start: u32| {
        let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum = words.fold(start, |sum, word| sum + word);
        (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
    };
    let (header, segment) = (sum(&frame[14..34], 0), sum(&frame[26..], 6 + 20));
    frame[24..26].copy_from_slice(&header);
    frame[50..52].copy_from_slice(&segment);
    frame.into()
}

#[test]
fn a_flood_of_strays_costs_one_core() {
    const STRAYS: u16 = 1000;
    let mut world = World::new(|frame| usize::from(is_segment(frame)));
    world.talk();
    let passed = world.cores[1].forwards().forwarded;
    (0..STRAYS).for_each(|number| world.wires[1].borrow_mut().push_back(stray(20_000 + number)));
    world.pass();
    assert_eq!(world.cores[1].stack().counters().dropped_tcp_port, u64::from(STRAYS));
    assert_eq!((world.cores[1].forwards().forwarded - passed, world.cores[0].forwards().taken), (0, 0));
}

#[test]
fn a_cookie_that_comes_back_to_its_core_opens_the_flow_there() {
    let mut world = World::remembering([0; 2], |frame| usize::from(is_segment(frame)));
    world.talk();
    assert_eq!(world.cores[1].stack().counters().cookies_accepted, 1);
    assert_eq!(world.cores[1].forwards().forwarded, 0);
}

#[test]
fn a_cookie_that_comes_back_to_another_core_is_taken_there() {
    let mut world = World::remembering([0; 2], |frame| usize::from(is_segment(frame) && !is_syn(frame)));
    world.talk();
    assert_eq!(world.cores[0].stack().counters().cookies_sent, 1);
    assert_eq!(world.cores[1].stack().counters().cookies_accepted, 1);
    assert_eq!(world.cores[1].forwards().forwarded, 0);
}

/// The peer's SYN comes twice, to a core that remembers it and to one that would give out a cookie: the first
/// answers again, and there is one handshake.
#[test]
fn a_syn_that_comes_again_finds_its_handshake_on_another_core() {
    let syns = Cell::new(0);
    let mut world = World::remembering([1024, 0], move |frame| {
        syns.set(syns.get() + usize::from(is_syn(frame)));
        usize::from(syns.get() > 1)
    });
    let flow = world.client.connect("10.0.0.2:7".parse().expect("an address")).expect("a route");
    // The answer to the first SYN is lost.
    while !world.near.borrow().iter().any(|frame| is_segment(frame)) {
        world.client.poll(Instant::from_nanos(world.now_ns), &mut world.heard);
        world.cores.iter_mut().for_each(|core| _ = core.poll(world.now_ns));
    }
    world.near.borrow_mut().retain(|frame| !is_segment(frame));
    // The second comes before the first core answers the first again.
    world.now_ns += 1_100_000_000;
    for _ in 0..4 {
        world.client.poll(Instant::from_nanos(world.now_ns), &mut world.heard);
        world.cores[1].poll(world.now_ns);
    }
    world.pass();
    world.client.send(flow, Slice::new(b"hello"[..].into())).expect("room");
    world.pass();
    let counts = |core: usize| *world.cores[core].stack().counters();
    assert_eq!((counts(0).cookies_sent, counts(1).cookies_sent), (0, 0));
    assert_eq!(String::from_utf8_lossy(&world.heard.heard), "hello");
}

std::thread_local! {
    /// Whether the world of this thread wants its server to end.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a loop was stopped: it begins nothing any more.
fn is_stopped(event_loop: &mut EventLoop<Still, Still>) -> bool {
    event_loop.block_on(async {}).is_none()
}

#[test]
fn a_server_that_is_to_end_answers_what_was_asked_and_waits_for_whoever_has_to_take_it() {
    let mut world = World::new(|frame| usize::from(is_segment(frame)));
    let mut first = world.closing();
    let flow = world.client.connect("10.0.0.2:7".parse().expect("an address")).expect("a route");
    world.pass();
    world.client.send(flow, Slice::new(b"asked in time"[..].into())).expect("room");
    world.client.poll(Instant::from_nanos(world.now_ns), &mut world.heard);
    ASKED.set(true);
    for _ in 0..50 {
        world.cores.iter_mut().for_each(|core| _ = core.poll(world.now_ns));
    }
    assert!(!is_stopped(&mut first), "the client of core 1 has not taken its answer");
    world.pass();
    assert_eq!(String::from_utf8_lossy(&world.heard.heard), "asked in time");
    assert!(world.heard.is_closed && is_stopped(&mut first), "both have said all");
    assert_eq!(first.run(), 0);
}

#[test]
fn a_server_that_is_to_end_accepts_nobody_and_does_not_wait_for_the_idle() {
    let mut world = World::new(|_| 0);
    let mut first = world.closing();
    let stays = world.client.connect("10.0.0.2:7".parse().expect("an address")).expect("a route");
    world.pass();
    assert!(!is_stopped(&mut first), "nobody has asked");
    ASKED.set(true);
    world.pass();
    assert!(is_stopped(&mut first));
    world.heard.is_closed = false;
    let late = world.client.connect("10.0.0.2:7".parse().expect("an address")).expect("a route");
    world.pass();
    assert!(world.heard.is_closed && late != stays, "refused");
}
