//! What somebody holds of memory counts wherever it is: what the service keeps of requests that came in part,
//! and what the stack keeps behind a hole.

mod common;

use common::{Deaf, Still};
use nom_grid::GridPlan;
use nom_net::{Application, Cidr, Config, FlowId, Instant, Slice, Stack};
use nom_port::buffer::Sink as _;
use nom_port::nic::Offloads;
use nom_rt::EventLoop;
use nom_rt::poller::Poller as _;
use nom_serve::{Consumption, Ports, Server};
use nom_service::{Reply, Rules, Service, Stream};
use nom_wire::{Device, Memory};
use std::net::SocketAddr;
use std::sync::Arc;

const PORT: u16 = 7;
const SERVER: u8 = 9;
/// What gold's connections may hold, and silver's.
const MOST: u64 = 128 << 10;
/// By how much a piece may go beyond: what came last is there.
const PIECE: u64 = 4 << 10;
/// The number of gold's activity, and silver's.
const GOLD: usize = 3;
const SILVER: usize = 4;
/// Frames with these bytes never arrive.
const LOST: &[u8] = b"LOST";

/// Answers lines, and keeps what has not come whole.
struct Lines;

impl Service<Memory> for Lines {
    type Connection = Vec<u8>;

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Memory>) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    fn received(&mut self, kept: &mut Vec<u8>, bytes: Slice<Memory>, reply: &mut Reply<Memory>) -> Stream {
        kept.reserve_exact(bytes.len());
        kept.extend_from_slice(&bytes);
        if kept.ends_with(b"\n") {
            reply.copy(b"ok\n");
            reply.count(1);
            *kept = Vec::new();
        }
        Stream::Open
    }

    fn held(&self, kept: &Vec<u8>) -> usize {
        kept.capacity()
    }
}

#[derive(Default)]
struct Clients {
    answered: usize,
}

impl Application<Device> for Clients {
    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, bytes: Slice<Memory>) {
        self.answered += bytes.len() / 3;
    }
}

/// A server, and a machine for each of two activities.
struct World {
    server: Server<Device, Still, Lines>,
    machines: Vec<(Stack<Device>, Device, Clients)>,
    device: Device,
    now_ns: u64,
    /// The most that gold held so far.
    most: u64,
}

impl World {
    fn new() -> World {
        let device = |number| {
            let device = Device::new(number, Offloads::default());
            device.port.borrow_mut().is_sum_good = true;
            device
        };
        let config = |number: u8| {
            let address = Cidr { address: [10, 0, 0, number].into(), prefix: 24 };
            Config { addresses: vec![address], ..Config::new([u64::from(number); 4]) }
        };
        let machine = |number| {
            let device = device(number);
            (Stack::new(device.clone(), config(number)), device, Clients::default())
        };
        let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
        let its = device(SERVER);
        let mut server = Server::new(its.clone(), Still, config(SERVER), &ports, Lines);
        let core = EventLoop::new(0, Still, Still, Arc::new(Deaf));
        let rules = "gold clients=10.0.0.1; silver clients=10.0.0.2";
        server.charge(Arc::new(rules.parse::<Rules>().unwrap()), core.handle());
        let plan = format!("for gold memory={MOST}; for silver memory={MOST}");
        server.share(&plan.parse::<GridPlan>().unwrap(), core.handle());
        let machines = vec![machine(1), machine(2)];
        World { server, machines, device: its, now_ns: 1_000_000_000, most: 0 }
    }

    fn records(&mut self) -> [Consumption; 2] {
        let records = self.server.consumption();
        [records[GOLD], records[SILVER]]
    }

    /// Lets some milliseconds pass.
    fn pass(&mut self, millis: usize) {
        for _ in 0..millis {
            self.now_ns += 1_000_000;
            for (stack, device, clients) in &mut self.machines {
                stack.poll(Instant::from_nanos(self.now_ns), clients);
                let sent = device.take_sent().into_iter();
                let arriving = sent.filter(|frame| !frame.windows(LOST.len()).any(|bytes| bytes == LOST));
                arriving.for_each(|frame| self.device.deliver(self.now_ns, frame));
            }
            self.server.poll(self.now_ns);
            self.most = self.most.max(self.records()[0].memory_bytes);
            for frame in self.device.take_sent() {
                for (_, device, _) in &self.machines {
                    device.deliver(self.now_ns, frame.clone());
                }
            }
        }
    }

    fn connect(&mut self, machine: usize, count: usize) -> Vec<FlowId> {
        let to = SocketAddr::from(([10, 0, 0, SERVER], PORT));
        let flows = (0..count).map(|_| self.machines[machine].0.connect(to).expect("a way")).collect();
        self.pass(20);
        flows
    }

    fn say(&mut self, machine: usize, flows: &[FlowId], bytes: &[u8]) {
        for flow in flows {
            let slice = self.machines[machine].0.buffer(bytes).expect("memory");
            // Who was turned out is not heard.
            let _ = self.machines[machine].0.send(*flow, slice);
        }
        self.pass(5);
    }
}

/// Gold has said what he has to say: silver is served as ever, and gold held what he may, and nothing is
/// left when he has gone.
fn check(mut world: World, gold: &[FlowId]) {
    let flows = world.connect(1, 8);
    world.say(1, &flows, b"hello\n");
    assert_eq!(world.machines[1].2.answered, 8);
    let [of_gold, of_silver] = world.records();
    assert!(of_gold.refused > 0 && of_silver.refused == 0, "{of_gold:?} {of_silver:?}");
    assert!(world.most > MOST / 2 && world.most <= MOST + PIECE, "{} of {MOST}", world.most);
    gold.iter().for_each(|flow| world.machines[0].0.abort(*flow));
    world.pass(20);
    assert_eq!(world.records()[0].memory_bytes, 0);
}

#[test]
fn who_sends_half_requests_holds_no_more_than_his_budget() {
    let mut world = World::new();
    let flows = world.connect(0, 40);
    (0..16).for_each(|_| world.say(0, &flows, &[b'x'; 1000]));
    assert_eq!(world.machines[0].2.answered, 0);
    check(world, &flows);
}

#[test]
fn who_leaves_holes_holds_no_more_than_his_budget() {
    let mut world = World::new();
    let flows = world.connect(0, 40);
    world.say(0, &flows, LOST);
    (0..8).for_each(|_| world.say(0, &flows, &[b'x'; 1000]));
    check(world, &flows);
}

/// A request that came in parts, and whole by now, holds nothing.
#[test]
fn what_came_whole_after_all_is_not_held() {
    let mut world = World::new();
    let flows = world.connect(0, 4);
    world.say(0, &flows, &[b'x'; 1000]);
    let half = world.records()[0].memory_bytes;
    assert!(half >= 4 * (1024 + 1000), "{half}");
    world.say(0, &flows, b"\n");
    world.pass(100);
    world.say(0, &flows[..1], b"\n");
    assert_eq!((world.machines[0].2.answered, world.records()[0].refused), (5, 0));
    let whole = world.records()[0].memory_bytes;
    assert!(whole < 4 * (1024 + 8), "{whole}");
}
