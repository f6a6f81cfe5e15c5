//! Who is served before whom, when all want more than there is: activities by their weights, whatever the
//! others do. Each activity is a machine of clients; the server's core alone takes time.

mod common;

use common::Deaf;
use nom_grid::GridPlan;
use nom_net::batch::Unheld;
use nom_net::{Application, Cidr, Config, FlowId, Instant, Slice, Stack};
use nom_port::buffer::Buffers;
use nom_port::buffer::Sink as _;
use nom_port::nic::{Nic, Offloads, Outgoing, Properties, Received, RingFull};
use nom_port::world::{Clock, Idle, Wakeup};
use nom_rt::EventLoop;
use nom_rt::poller::{Poller, Progress};
use nom_serve::{Ports, Server};
use nom_service::{INFRASTRUCTURE, Reply, Rules, Service, Stream};
use nom_wire::{Device, Memory, Random};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

const PORT: u16 = 7;
const REQUEST: &[u8] = b"request!";
/// The first of the activities that rules name.
const FIRST: usize = 3;

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
    fn sleep(&mut self, deadline_ns: Option<u64>) -> Wakeup {
        // The clients have more to say soon.
        self.0.set(deadline_ns.unwrap_or(u64::MAX).min(self.0.get() + 100_000));
        Wakeup::default()
    }
}

/// Answers each request after some time, which is not always the same.
struct Slow {
    clock: Told,
    random: Random,
}

impl Service<Memory> for Slow {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Memory>) -> Option<()> {
        Some(())
    }

    fn received(&mut self, (): &mut (), bytes: Slice<Memory>, reply: &mut Reply<Memory>) -> Stream {
        for request in bytes.chunks(REQUEST.len()) {
            // Ten times what messages cost in the omni-kernel's paper, so that there are fewer.
            self.clock.pass(60_000 + self.random.below(50_000));
            reply.copy(request);
            reply.count(1);
        }
        Stream::Open
    }

    fn datagram(&mut self, _: Slice<Memory>, _: &mut Reply<Memory>) {
        self.clock.pass(50_000);
    }
}

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Ask again as soon as they are answered.
    Ask,
    /// Ask, and read no answer.
    NeverRead,
    /// Ask as much as a stream takes, whether they were answered or not.
    Flood,
}

struct Clients {
    habit: Habit,
    answered: u64,
}

impl Application<Device> for Clients {
    fn connected(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        let asks = if self.habit == Habit::NeverRead { 200 } else { 1 };
        if self.habit == Habit::NeverRead {
            stack.window(flow, 0);
        }
        (0..asks).for_each(|_| ask(stack, flow));
        self.sendable(stack, flow);
    }

    fn sendable(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        let many = REQUEST.repeat(200);
        while self.habit == Habit::Flood
            && let Some(requests) = stack.buffer(&many)
            && stack.send(flow, requests).is_ok()
        {}
    }

    fn received(&mut self, stack: &mut Stack<Device>, flow: FlowId, bytes: Slice<Memory>) {
        self.answered += (bytes.len() / REQUEST.len()) as u64;
        if self.habit == Habit::Ask {
            ask(stack, flow);
        }
    }
}

fn ask(stack: &mut Stack<Device>, flow: FlowId) {
    let request = stack.buffer(REQUEST).expect("memory");
    // Whoever never reads cannot say all that it would.
    let _ = stack.send(flow, request);
}

/// Frames that left, each with when that was.
type Frames = Vec<(u64, Vec<u8>)>;

/// The server's device, which knows when a frame left.
struct Stamped {
    device: Device,
    clock: Told,
    left: Rc<RefCell<Frames>>,
}

impl Buffers for Stamped {
    type Buffer = Memory;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Memory>> {
        self.device.buffer(bytes)
    }
}

impl Nic for Stamped {
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
        self.device.transmit(frame)
    }

    fn kick(&mut self) {
        self.device.kick();
        let now_ns = self.clock.now_ns();
        self.left.borrow_mut().extend(self.device.take_sent().into_iter().map(|frame| (now_ns, frame)));
    }

    fn now_ns(&self, _: u64) -> u64 {
        self.clock.now_ns()
    }

    fn arm(&mut self) -> bool {
        self.device.arm()
    }

    fn disarm(&mut self) {}
}

type Served = Rc<RefCell<Server<Stamped, Told, Slow>>>;

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

/// A server, and a machine of clients for each activity.
struct World {
    clock: Told,
    core: EventLoop<Told, Told>,
    server: Served,
    device: Device,
    left: Rc<RefCell<Frames>>,
    machines: Vec<(Stack<Device>, Device, Clients)>,
    /// Frames to machines, each with when it arrives there, and how long that takes.
    on_way: VecDeque<(u64, usize, Vec<u8>)>,
    way_ns: u64,
    /// Who sends so many datagrams whenever the server has done something.
    flood: Option<(usize, usize)>,
}

fn config(number: u8) -> Config {
    let address = Cidr { address: [10, 0, 0, number].into(), prefix: 24 };
    Config {
        addresses: vec![address],
        flows_max: 20_000,
        flows_share: 20_000,
        // As machines are told.
        unheld: Unheld::Together,
        ..Config::new([number.into(); 4])
    }
}

/// The server's number, and those of its clients.
const SERVER: u8 = 9;
const ACTIVITIES: u8 = 3;

impl World {
    fn new(plan: &str) -> World {
        let clock = Told::default();
        let core = EventLoop::new(0, clock.clone(), clock.clone(), Arc::new(Deaf));
        let device = Device::new(SERVER, Offloads::default());
        device.port.borrow_mut().is_sum_good = true;
        let ports = Ports { tcp: vec![PORT], udp: vec![PORT] };
        let left = Rc::<RefCell<_>>::default();
        let nic = Stamped { device: device.clone(), clock: clock.clone(), left: left.clone() };
        let service = Slow { clock: clock.clone(), random: Random::new(1) };
        let mut server = Server::new(nic, clock.clone(), config(SERVER), &ports, service);
        let rules = "gold clients=10.0.0.1; silver clients=10.0.0.2; bronze clients=10.0.0.3";
        server.charge(Arc::new(rules.parse::<Rules>().unwrap()), core.handle());
        server.share(&plan.parse::<GridPlan>().unwrap(), core.handle());
        let server = Rc::new(RefCell::new(server));
        core.handle().add_poller(INFRASTRUCTURE, Polled(server.clone()));
        let machine = |number| {
            let device = Device::new(number, Offloads::default());
            device.port.borrow_mut().is_sum_good = true;
            let clients = Clients { habit: Habit::Ask, answered: 0 };
            (Stack::new(device.clone(), config(number)), device, clients)
        };
        let machines = (1..=ACTIVITIES).map(machine).collect();
        World { clock, core, server, device, left, machines, on_way: VecDeque::new(), way_ns: 0, flood: None }
    }

    fn connect(&mut self, machine: usize, count: usize) {
        for _ in 0..count {
            self.machines[machine].0.connect(SocketAddr::from(([10, 0, 0, SERVER], PORT))).expect("a way");
        }
    }

    /// One turn of the server's core, and what the clients make of it.
    fn turn(&mut self) {
        if !self.core.turn() {
            // A core that looks again at once takes its time for that.
            self.clock.pass(1_000);
        }
        let now_ns = self.clock.0.get();
        for (left_ns, frame) in self.left.take() {
            let to = match frame[0] & 1 {
                1 => 0..self.machines.len(),
                _ => usize::from(frame[5]) - 1..usize::from(frame[5]),
            };
            to.for_each(|machine| self.on_way.push_back((left_ns + self.way_ns, machine, frame.clone())));
        }
        while let Some((_, machine, frame)) = self.on_way.pop_front_if(|(due_ns, ..)| *due_ns <= now_ns) {
            self.machines[machine].1.deliver(now_ns, frame);
        }
        for (number, (stack, device, clients)) in self.machines.iter_mut().enumerate() {
            let flood = self.flood.filter(|(machine, _)| *machine == number).map_or(0, |(_, count)| count);
            for _ in 0..flood {
                let from = SocketAddr::from(([10, 0, 0, number as u8 + 1], 5000));
                let bytes = stack.buffer(&[0; 1000]).into_iter().collect();
                let _ = stack.send_datagram(from, SocketAddr::from(([10, 0, 0, SERVER], PORT)), bytes);
            }
            stack.poll(Instant::from_nanos(now_ns), clients);
            device.take_sent().into_iter().for_each(|frame| self.device.deliver(now_ns, frame));
        }
    }

    fn run(&mut self, ns: u64) {
        let until_ns = self.clock.0.get() + ns;
        while self.clock.0.get() < until_ns {
            self.turn();
        }
    }

    /// What each activity was charged of the core's time so far, and was answered.
    fn told(&self) -> [(u64, u64); ACTIVITIES as usize] {
        let handle = self.core.handle();
        std::array::from_fn(|index| {
            let activity = nom_service::Activity((FIRST + index) as u32);
            (handle.record(activity).ns, self.machines[index].2.answered)
        })
    }

    /// What they were charged and answered in a time.
    fn measure(&mut self, ns: u64) -> [(u64, u64); ACTIVITIES as usize] {
        let before = self.told();
        self.run(ns);
        let now = self.told();
        std::array::from_fn(|index| (now[index].0 - before[index].0, now[index].1 - before[index].1))
    }
}

const PLAN: &str = "at input fair; for gold weight=50; for silver weight=33; for bronze weight=17";
const SECOND: u64 = 1_000_000_000;
/// Until a SYN that came before its sender's address was known has come again.
const WARM_UP: u64 = 2 * SECOND;

/// What an answer takes to a client and his next request back: less than half of that on one computer, but
/// its clients want to run as well.
const WAY_NS: u64 = 500_000;

/// Whether each share is its weight, by a hundredth of it.
fn assert_shares(got: [(u64, u64); 3]) {
    let sum: u64 = got.iter().map(|(ns, _)| ns).sum();
    for ((ns, _), weight) in got.iter().zip([50, 33, 17]) {
        let share = *ns as f64 / sum as f64;
        assert!((share * 100.0 / f64::from(weight) - 1.0).abs() < 0.01, "{share} of {weight}: {got:?}");
    }
}

#[test]
fn shares_are_the_weights_however_many_clients_each_has() {
    for clients in [[40, 40, 40], [30, 40, 200]] {
        let mut world = World::new(PLAN);
        (0..3).for_each(|machine| world.connect(machine, clients[machine]));
        world.run(WARM_UP);
        assert_shares(world.measure(5 * SECOND));
    }
}

#[test]
fn shares_are_the_weights_though_answers_take_their_time_to_clients_of_few_connections() {
    let mut world = World::new(PLAN);
    world.way_ns = WAY_NS;
    (0..3).for_each(|machine| world.connect(machine, 24));
    world.run(WARM_UP);
    assert_shares(world.measure(5 * SECOND));
}

#[test]
fn without_a_grid_whoever_has_more_clients_gets_more() {
    let mut world = World::new("");
    [30, 40, 200].into_iter().enumerate().for_each(|(machine, count)| world.connect(machine, count));
    world.run(WARM_UP);
    let [gold, _, bronze] = world.measure(SECOND);
    assert!(bronze.0 > 4 * gold.0, "{gold:?} and {bronze:?}");
}

/// What gold and silver are answered beside a bronze tenant who does what `hostile` says, against beside one
/// who asks like them.
fn beside(hostile: impl Fn(&mut World)) {
    let answered = |bronze: &dyn Fn(&mut World)| {
        let mut world = World::new(PLAN);
        world.way_ns = WAY_NS;
        (0..2).for_each(|machine| world.connect(machine, 24));
        bronze(&mut world);
        world.run(WARM_UP);
        let [gold, silver, _] = world.measure(3 * SECOND);
        [gold.1, silver.1]
    };
    let (calm, beset) = (answered(&|world| world.connect(2, 24)), answered(&hostile));
    for (calm, beset) in calm.into_iter().zip(beset) {
        // Who wants less than its share leaves more to the others.
        assert!(beset as f64 >= 0.99 * calm as f64, "{beset} answers, {calm} in peace");
    }
}

#[test]
fn a_flood_takes_nothing_from_others() {
    beside(|world| {
        world.connect(2, 40);
        world.flood = Some((2, 40));
    });
}

#[test]
fn streams_full_of_requests_take_nothing_from_others() {
    beside(|world| {
        world.machines[2].2.habit = Habit::Flood;
        world.connect(2, 8);
    });
}

#[test]
fn whoever_never_reads_takes_nothing_from_others() {
    beside(|world| {
        world.machines[2].2.habit = Habit::NeverRead;
        world.connect(2, 100);
    });
}

#[test]
fn thousands_of_connections_take_nothing_from_others() {
    beside(|world| world.connect(2, 2_000));
}

/// Though there is always one of its frames to come, and there were others' once.
#[test]
fn who_is_alone_again_waits_in_no_queue() {
    let mut world = World::new(PLAN);
    (0..2).for_each(|machine| world.connect(machine, 60));
    world.run(WARM_UP);
    let queued = |world: &World| world.server.borrow_mut().consumption()[FIRST].queued_ns;
    let beside = queued(&world);
    assert!(beside > SECOND, "{beside} ns");
    let silver = &mut world.machines[1].0;
    silver.flows().collect::<Vec<_>>().into_iter().for_each(|flow| silver.abort(flow));
    world.run(SECOND / 5);
    let alone = queued(&world);
    let answered = world.measure(SECOND / 2)[0].1;
    assert_eq!((queued(&world) - alone, answered > 1_000), (0, true), "{answered} answers");
}

#[test]
fn who_has_all_the_connections_that_it_may_gets_no_more() {
    let mut world = World::new("for bronze connections=3");
    (0..3).for_each(|machine| world.connect(machine, 8));
    world.run(WARM_UP);
    let connections = world.server.borrow_mut().consumption();
    let connections: Vec<u64> = connections.iter().map(|record| record.connections).collect();
    assert_eq!(connections[FIRST..], [8, 8, 3]);
}

#[test]
fn who_has_used_up_his_memory_is_refused_and_nobody_else() {
    const MOST: u64 = 64 << 10;
    let mut world = World::new(&format!("for gold memory=16384; for bronze memory={MOST}"));
    world.machines[2].2.habit = Habit::NeverRead;
    (0..3).for_each(|machine| world.connect(machine, [8, 8, 100][machine]));
    world.run(WARM_UP);
    let answered = world.measure(SECOND).map(|(_, answers)| answers);
    let [gold, silver, bronze] = world.server.borrow_mut().consumption()[FIRST..] else { panic!("three") };
    assert!(answered[0] > 100 && answered[1] > 100, "{answered:?}");
    assert_eq!((gold.refused, gold.connections, silver.refused), (0, 8, 0), "{gold:?}");
    assert!(gold.memory_bytes <= 16 << 10, "they read what they asked for: {gold:?}");
    // Of what was refused last, an answer may be there.
    assert!(bronze.refused > 0 && bronze.connections < 100, "{bronze:?}");
    assert!(bronze.memory_bytes > MOST / 2 && bronze.memory_bytes < MOST + 2048, "{bronze:?}");
    for (stack, ..) in &mut world.machines {
        stack.flows().collect::<Vec<_>>().into_iter().for_each(|flow| stack.abort(flow));
    }
    world.run(WARM_UP);
    let left = world.server.borrow_mut().consumption();
    assert!(left.iter().all(|record| record.memory_bytes == 0), "{left:?}");
}
