//! Whatever is asked, on whichever connections, in whatever pieces: each nanosecond, frame and byte is
//! charged once, to whom it was for. Here nothing takes time but what says so.

mod common;

use common::{Deaf, config};
use nom_grid::GridPlan;
use nom_net::{Application, FlowId, Instant, Slice, Stack};
use nom_port::buffer::{Asked, Buffers, Sink as _, Trimmed};
use nom_port::nic::{Label, Nic, Offloads, Outgoing, Properties, Received, RingFull};
use nom_port::world::{Clock, Idle, Wakeup};
use nom_rt::EventLoop;
use nom_rt::meter::Usage;
use nom_rt::poller::{Poller, Progress};
use nom_serve::{Consumption, Ports, Server, Traffic};
use nom_service::{
    Activity, CostRates, Earned, Governor, INFRASTRUCTURE, Reply, Rules, Service, Setting, Stream, Window,
};
use nom_wire::{Device, Memory};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

const PORT: u16 = 7;
/// What a frame costs that comes, and one that leaves.
const RECEIVE_NS: u64 = 100;
const SEND_NS: u64 = 50;
/// What it costs to look after things when all is answered, which nobody asked for.
const TEND_NS: u64 = 7;
/// What requests cost, by their first letter.
const REQUESTS: [(u8, u64); 3] = [(b'g', 1000), (b's', 3000), (b'x', 10)];
const REQUEST_BYTES: usize = 8;
/// Behind the letter of a request that wants no answer.
const QUIET: u8 = b'!';

/// A clock that goes on only when told.
#[derive(Clone, Default)]
struct Told(Rc<Cell<u64>>);

impl Told {
    fn pass(&self, ns: u64) {
        self.0.set(self.0.get() + ns);
    }
}

impl Clock for Told {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }
}

impl Idle for Told {
    fn sleep(&mut self, _: Option<u64>) -> Wakeup {
        Wakeup::default()
    }
}

/// A queue pair whose frames cost time.
struct Costly {
    device: Device,
    clock: Told,
}

impl Buffers for Costly {
    type Buffer = Memory;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Memory>> {
        self.device.buffer(bytes)
    }

    fn keep(&mut self, bytes: &[u8]) -> Option<Slice<Memory>> {
        self.device.keep(bytes)
    }

    fn trim(&mut self, keep_bytes: usize) -> Trimmed {
        self.device.trim(keep_bytes)
    }
}

impl Nic for Costly {
    fn properties(&self) -> Properties {
        self.device.properties()
    }

    fn receive(&mut self) -> Option<Received<Memory>> {
        self.device.receive()
    }

    fn room(&mut self) -> usize {
        self.device.room()
    }

    fn transmit(&mut self, frame: &mut Outgoing<Memory>) -> Result<(), RingFull> {
        self.device.transmit(frame)?;
        self.clock.pass(SEND_NS);
        Ok(())
    }

    fn kick(&mut self) {
        self.device.kick();
    }

    fn attribute(&mut self, _: Label) {}

    fn arm(&mut self) -> bool {
        self.device.arm()
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }
}

/// Sends requests back, each of which says its key.
struct Keys(Told);

impl Service<Memory> for Keys {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Memory>) -> Option<()> {
        Some(())
    }

    fn received(&mut self, (): &mut (), bytes: Slice<Memory>, reply: &mut Reply<Memory>) -> Stream {
        // What it takes to look at a frame is for whom it came.
        self.0.pass(RECEIVE_NS);
        for request in bytes.chunks(REQUEST_BYTES) {
            reply.asked(Asked::Key(request));
            self.0.pass(cost(request[0]));
            if request[1] != QUIET {
                reply.copy(request);
                reply.count(1);
            }
        }
        Stream::Open
    }

    fn tend<M: Buffers<Buffer = Memory>>(&mut self, _: u64, _: &mut M) -> Option<u64> {
        self.0.pass(TEND_NS);
        None
    }
}

fn cost(letter: u8) -> u64 {
    REQUESTS.iter().find(|(of, _)| *of == letter).expect("a request").1
}

/// What clients were answered.
#[derive(Default)]
struct Clients(BTreeMap<usize, Vec<u8>>);

impl Application<Device> for Clients {
    fn received(&mut self, _: &mut Stack<Device>, flow: FlowId, bytes: Slice<Memory>) {
        self.0.entry(flow.index()).or_default().extend_from_slice(&bytes);
    }
}

type Served = Rc<RefCell<Server<Costly, Told, Keys>>>;

/// The server, as its loop polls it.
struct Polled(Served);

impl Poller for Polled {
    fn poll(&mut self, now_ns: u64) -> Progress {
        self.0.borrow_mut().poll(now_ns)
    }

    fn arm(&mut self) -> bool {
        self.0.borrow_mut().arm()
    }

    fn disarm(&mut self) {
        self.0.borrow_mut().disarm();
    }
}

struct World {
    clock: Told,
    core: EventLoop<Told, Told>,
    server: Served,
    stack: Stack<Device>,
    clients: Clients,
    devices: [Device; 2],
    /// Frames from either device, and their bytes, in all and by the client's port.
    passed: [Frames; 2],
    of_ports: BTreeMap<u16, [Frames; 2]>,
}

/// Frames, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Frames(u64, u64);

impl Frames {
    fn add(&mut self, bytes: usize) {
        *self = Frames(self.0 + 1, self.1 + bytes as u64);
    }
}

/// Frames that came for an activity, and that left.
fn frames(record: &Consumption) -> [Frames; 2] {
    let received = Frames(record.traffic.received_frames, record.traffic.received_bytes);
    [received, Frames(record.traffic.sent_frames, record.traffic.sent_bytes)]
}

impl World {
    fn new(rules: &str) -> World {
        let clock = Told::default();
        let devices = [1, 2].map(|number| Device::new(number, Offloads::default()));
        // Most segments go the short way.
        devices[1].port.borrow_mut().is_sum_good = true;
        let core = EventLoop::new(0, clock.clone(), clock.clone(), Arc::new(Deaf));
        let card = Costly { device: devices[1].clone(), clock: clock.clone() };
        let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
        let mut server = Server::new(card, clock.clone(), config(2), &ports, Keys(clock.clone()));
        let rules: Rules = rules.parse().expect("good rules");
        server.charge(Arc::new(rules), core.handle());
        let server = Rc::new(RefCell::new(server));
        core.handle().add_poller(INFRASTRUCTURE, Polled(server.clone()));
        let stack = Stack::new(devices[0].clone(), config(1));
        let (clients, of_ports) = (Clients::default(), BTreeMap::new());
        World { clock, core, server, stack, clients, devices, passed: Default::default(), of_ports }
    }

    /// Lets what is under way arrive, while a little time passes.
    fn pass(&mut self) {
        for _ in 0..4 {
            self.stack.poll(Instant::from_nanos(self.clock.0.get()), &mut self.clients);
            while self.core.turn() {}
            self.clock.pass(1_000_000);
            for (from, to) in [(0, 1), (1, 0)] {
                for frame in self.devices[from].take_sent() {
                    self.passed[from].add(frame.len());
                    // The client's port in a TCP segment behind an IPv4 header without options.
                    if frame.get(23) == Some(&6) {
                        let port = u16::from_be_bytes([frame[34 + 2 * from], frame[35 + 2 * from]]);
                        self.of_ports.entry(port).or_default()[from].add(frame.len());
                    }
                    self.devices[to].deliver(self.clock.0.get(), frame);
                }
            }
        }
        while self.core.turn() {}
    }

    fn connect(&mut self) -> FlowId {
        let flow = self.stack.connect(SocketAddr::from(([10, 0, 0, 2], PORT))).expect("a way");
        self.pass();
        flow
    }

    fn ask(&mut self, flow: FlowId, letters: &[u8]) {
        self.send(flow, letters, b':');
    }

    fn send(&mut self, flow: FlowId, letters: &[u8], mark: u8) {
        let requests = requests(letters, mark);
        let slice = self.stack.buffer(&requests).expect("memory");
        self.stack.send(flow, slice).expect("room");
    }

    fn told(&self) -> (Usage, Vec<Consumption>) {
        (self.core.handle().usage(), self.server.borrow_mut().consumption())
    }
}

/// Requests of these letters.
fn requests(letters: &[u8], mark: u8) -> Vec<u8> {
    let request = |letter: &u8| [*letter, mark, b'0', b'1', b'2', b'3', b'4', b'5'];
    letters.iter().flat_map(request).collect()
}

/// Time of an activity, by its number.
fn time_of(usage: &Usage, number: usize) -> u64 {
    let found = usage.activities.iter().find(|(activity, _)| activity.0 as usize == number);
    found.map_or(0, |(_, record)| record.ns)
}

const OTHERS: usize = 2;
const GOLD: usize = 3;
const SILVER: usize = 4;

#[test]
fn whoever_is_told_apart_by_his_address_pays_from_the_handshake_on() {
    let mut world = World::new("near clients=10.0.0.0/24");
    let flow = world.connect();
    world.ask(flow, b"gs");
    world.pass();
    let (usage, records) = world.told();
    assert_eq!(
        (records[GOLD].requests, records[GOLD].connections, records[GOLD].traffic.answered_bytes),
        (2, 1, 16)
    );
    // The first SYN, and what the two find out about each other's addresses, is for nobody yet.
    assert!(
        records[0].traffic.received_frames <= 3 && records[OTHERS] == Consumption::default(),
        "{records:?}"
    );
    assert_eq!(time_of(&usage, GOLD), RECEIVE_NS + 4000 + SEND_NS * records[GOLD].traffic.sent_frames);
}

/// Knows what things cost, and sets nothing.
struct Prices(Rc<Cell<CostRates>>);

impl Governor for Prices {
    fn governs(&self) -> bool {
        false
    }

    fn observe(&mut self, _: &Window) -> Setting {
        Setting::default()
    }

    fn rates(&self) -> CostRates {
        self.0.get()
    }
}

/// A window of each activity, and that of all.
type Divided = (Vec<Window>, Window);

/// Hears what was served for whom.
struct Divides(Rc<RefCell<Vec<Divided>>>);

impl Governor for Divides {
    fn governs(&self) -> bool {
        false
    }

    fn wants_shares(&self) -> bool {
        true
    }

    fn divide(&mut self, shares: &[Window]) {
        self.0.borrow_mut().push((shares.to_vec(), Window::default()));
    }

    fn observe(&mut self, window: &Window) -> Setting {
        self.0.borrow_mut().last_mut().expect("shares come first").1 = *window;
        Setting::default()
    }

    fn earned(&mut self, tell: &mut dyn FnMut(Activity, i64)) -> Option<Earned> {
        tell(Activity(SILVER as u32), -5);
        Some(Earned::default())
    }
}

#[test]
fn what_was_served_for_each_is_what_was_served() {
    let mut world = World::new("gold key=g; silver key=s");
    let heard = Rc::new(RefCell::new(Vec::new()));
    world.server.borrow_mut().govern(Box::new(Divides(heard.clone())), world.core.handle());
    let flows = [world.connect(), world.connect(), world.connect()];
    for (flow, letters) in flows.into_iter().zip([b"g".repeat(3), b"s".repeat(2), b"x".to_vec()]) {
        world.ask(flow, &letters);
    }
    for _ in 0..40 {
        world.pass();
    }
    let mut sums = [(0, 0, 0); 5];
    for (shares, whole) in heard.borrow().iter() {
        let sum = |of: fn(&Window) -> u64| shares.iter().map(of).sum::<u64>();
        assert_eq!(sum(|share| share.requests), whole.requests);
        assert_eq!(sum(|share| share.answered_bytes), whole.answered_bytes);
        assert_eq!(sum(|share| share.sent_bytes), whole.sent_bytes);
        let latency = sum(|share| share.requests * share.latency.mean_ns);
        let of_whole = whole.requests * whole.latency.mean_ns;
        assert!(latency.abs_diff(of_whole) <= whole.requests, "{latency} and {of_whole}");
        for (sum, share) in sums.iter_mut().zip(shares) {
            sum.0 += share.requests;
            sum.1 += share.answered_bytes;
            sum.2 += share.requests * share.latency.mean_ns;
        }
    }
    assert_eq!(
        [GOLD, SILVER, OTHERS].map(|place| (sums[place].0, sums[place].1)),
        [(3, 24), (2, 16), (1, 8)]
    );
    // Each has waited for what was asked before.
    assert!(sums[GOLD].2 / 3 < sums[SILVER].2 / 2, "{sums:?}");
    assert_eq!(world.told().1[SILVER].revenue_nanodollars, -5);
}

#[test]
fn each_is_billed_at_the_prices_of_its_time() {
    let mut world = World::new("gold key=g; silver key=s");
    let rates = Rc::new(Cell::new(CostRates::default()));
    world.server.borrow_mut().govern(Box::new(Prices(rates.clone())), world.core.handle());
    let flows = [world.connect(), world.connect()];
    let mut expected = [0.0; 2];
    let mut before: Vec<[u64; 3]> = vec![[0; 3]; 5];
    for core_second in [0.0, 2.0, 0.5] {
        rates.set(CostRates { core_second, sent_byte: 1e-6 * core_second, received_byte: 1e-7 });
        for flow in flows {
            world.ask(flow, if flow == flows[0] { b"g" } else { b"sss" });
        }
        // Until windows have ended, and nothing is under way.
        for _ in 0..40 {
            world.pass();
        }
        let (usage, records) = world.told();
        for (index, place) in [GOLD, SILVER].into_iter().enumerate() {
            let record = records[place];
            let now = [time_of(&usage, place), record.traffic.sent_bytes, record.traffic.received_bytes];
            let since = [0, 1, 2].map(|at| (now[at] - before[place][at]) as f64);
            let CostRates { core_second, sent_byte, received_byte } = rates.get();
            expected[index] +=
                since[0] * core_second + 1e9 * (since[1] * sent_byte + since[2] * received_byte);
            before[place] = now;
            let told = record.cost_nanodollars as f64;
            assert!((told - expected[index]).abs() <= 1.0, "{told}, expected {expected:?}");
        }
    }
    assert!(expected[1] > expected[0] && expected[0] > 0.0);
}

/// Who asks always for the same pays for every frame of his connection behind the first request: those with
/// requests, those with answers, those that only acknowledge, and those that end it.
#[test]
fn every_frame_of_a_connection_is_charged_to_whom_it_is_for() {
    let mut world = World::new("gold key=g; silver key=s");
    let (gold, silver) = (world.connect(), world.connect());
    let port = |world: &World, flow| world.stack.addresses(flow).expect("it is open").local.port();
    let ports = [port(&world, gold), port(&world, silver)];
    let (_, before) = world.told();
    let of_ports = world.of_ports.clone();
    for round in 0..20 {
        world.ask(gold, b"g");
        world.ask(silver, if round % 3 == 0 { b"ss" } else { b"s" });
        // Frames of both lie side by side; answers and acknowledgements go together, or alone.
        for _ in 0..round % 4 {
            world.pass();
        }
        for flow in [gold, silver] {
            world.send(flow, if flow == gold { b"g" } else { b"s" }, QUIET);
        }
        // Until both sides have acknowledged what they had nothing to say to, and somebody asks something
        // else.
        for _ in 0..30 {
            world.pass();
            let stranger = [&[0xff; 6][..], &[2; 6], &[0x88, 0xcc], &[0; 46]].concat();
            world.devices[1].deliver(world.clock.0.get(), stranger);
        }
    }
    world.stack.close(gold);
    world.pass();
    let (_, records) = world.told();
    for (place, port) in [GOLD, SILVER].into_iter().zip(ports) {
        let (now, then) = (world.of_ports[&port], of_ports[&port]);
        let since = [0, 1].map(|from| Frames(now[from].0 - then[from].0, now[from].1 - then[from].1));
        assert_eq!(frames(&records[place]), since, "{records:?}");
        assert!(since[1].0 > 10);
    }
    assert_eq!(records[0].traffic.received_frames - before[0].traffic.received_frames, 20 * 30);
    assert_eq!((before[OTHERS].connections, records[OTHERS].connections), (2, 1));
}

/// Requests of one segment.
fn kinds() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0usize..3, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whether frames wait for their turns or not.
    #[test]
    fn everything_is_charged_once_and_to_whom_it_was_for(
        plan in prop_oneof![
            Just(""), Just("at input fair; for silver weight=3"), Just("at input round-robin"),
            Just("at input deadline batching=1; for gold deadline=1000"),
            Just("at input rate metric=messages; for gold rate=2000"),
            Just("at input profit metric=bytes; for silver earns=5"),
        ],
        asked in proptest::collection::vec((0usize..3, kinds(), any::<bool>()), 1..20)
    ) {
        let mut world = World::new("gold key=g; silver key=s");
        let plan: GridPlan = plan.parse().unwrap();
        world.server.borrow_mut().share(&plan, world.core.handle());
        let flows = [world.connect(), world.connect(), world.connect()];
        let (mut requests, mut costs, mut pieces) = ([0; 3], [0; 3], [0; 3]);
        let mut answers = BTreeMap::<usize, Vec<u8>>::new();
        for (flow, kinds, at_once) in &asked {
            let letters: Vec<u8> = kinds.iter().map(|kind| REQUESTS[*kind].0).collect();
            answers.entry(flows[*flow].index()).or_default().extend(self::requests(&letters, b':'));
            world.ask(flows[*flow], &letters);
            for kind in kinds {
                requests[*kind] += 1;
                costs[*kind] += REQUESTS[*kind].1;
            }
            if !at_once {
                world.pass();
            }
        }
        world.pass();
        world.pass();
        let (usage, records) = world.told();
        let places = [GOLD, SILVER, OTHERS];
        // Whatever order they were served in, each hears what he asked, and nothing else.
        prop_assert_eq!(&world.clients.0, &answers);
        prop_assert_eq!(places.map(|place| records[place].requests), requests);
        let answered = places.map(|place| records[place].traffic.answered_bytes);
        prop_assert_eq!(answered, requests.map(|count| 8 * count));
        // A piece is for whom its first request is for; that many there were, nobody else can know.
        for (place, cost) in places.into_iter().zip(costs) {
            let rest = time_of(&usage, place) - cost - SEND_NS * records[place].traffic.sent_frames;
            prop_assert_eq!(rest % RECEIVE_NS, 0);
            pieces[if place == OTHERS { 2 } else { place - GOLD }] = rest / RECEIVE_NS;
            // The first piece of a connection that is for another than all before it was received as theirs.
            prop_assert!(rest / RECEIVE_NS <= records[place].traffic.received_frames + flows.len() as u64);
        }
        prop_assert!(pieces.iter().sum::<u64>() <= asked.len() as u64);
        prop_assert_eq!((time_of(&usage, 0) - SEND_NS * records[0].traffic.sent_frames) % TEND_NS, 0);
        let sum = |of: fn(&Traffic) -> u64| records.iter().map(|record| of(&record.traffic)).sum::<u64>();
        let received = Frames(sum(|traffic| traffic.received_frames), sum(|traffic| traffic.received_bytes));
        let sent = Frames(sum(|traffic| traffic.sent_frames), sum(|traffic| traffic.sent_bytes));
        prop_assert_eq!([received, sent], world.passed);
        let charged: u64 = usage.activities.iter().map(|(_, record)| record.ns).sum();
        prop_assert_eq!(charged + usage.spinning_ns + usage.sleeping_ns, usage.elapsed_ns);
        prop_assert_eq!(records[OTHERS].connections, 3);
    }
}
