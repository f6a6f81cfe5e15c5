//! What somebody holds of memory counts wherever it is: what the service keeps of requests that came in part,
//! what the stack keeps behind a hole, and what is on its way to one who is slow to read it; of a file, which
//! is there in any case, no more than that.

mod common;

use common::{Deaf, Still};
use nom_grid::GridPlan;
use nom_net::{Application, FlowId, Instant, Slice, Stack};
use nom_nhttpd_core as nhttpd;
use nom_port::buffer::{Buffers as _, Sink as _};
use nom_port::nic::Offloads;
use nom_rt::EventLoop;
use nom_rt::poller::Poller as _;
use nom_serve::{Consumption, Ports, Server};
use nom_service::{Reply, Rules, Service, Stream};
use nom_wire::{Device, Memory};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

const PORT: u16 = 7;
const SERVER: u8 = 9;
/// Bytes that gold's machine takes of what nobody has read.
const WINDOW: u32 = 64 << 10;
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

/// Serves one file.
struct Files(nhttpd::Server<Memory>);

/// Bytes of the file.
const FILE: usize = 3 << 20;

impl Files {
    fn new(device: &mut Device) -> Files {
        let mut site = nhttpd::Site::new();
        site.insert("/file", "text/plain", 0, device.buffer(&vec![b'f'; FILE]).expect("memory"));
        Files(nhttpd::Server::new(site, 1_800_000_000, 1))
    }
}

impl Service<Memory> for Files {
    type Connection = nhttpd::Connection;

    fn connected(&mut self, _: SocketAddr, reply: &mut Reply<Memory>) -> Option<nhttpd::Connection> {
        self.0.connected(reply)
    }

    fn received(
        &mut self,
        client: &mut nhttpd::Connection,
        bytes: Slice<Memory>,
        reply: &mut Reply<Memory>,
    ) -> Stream {
        client.receive(&mut self.0, bytes, reply)
    }

    fn held(&self, client: &nhttpd::Connection) -> usize {
        client.held()
    }
}

#[derive(Default)]
struct Clients {
    heard: usize,
    /// Whether nobody reads what comes, but as a test says.
    is_slow: bool,
    unread: BTreeMap<usize, u32>,
}

impl Clients {
    fn answered(&self) -> usize {
        self.heard / 3
    }
}

impl Application<Device> for Clients {
    fn received(&mut self, stack: &mut Stack<Device>, flow: FlowId, bytes: Slice<Memory>) {
        self.heard += bytes.len();
        if self.is_slow {
            let unread = self.unread.entry(flow.index()).or_default();
            *unread += bytes.len() as u32;
            stack.hold(flow, *unread);
        }
    }
}

/// A server, and a machine for each of two activities.
struct World<S: Service<Memory>> {
    server: Server<Device, Still, S>,
    machines: Vec<(Stack<Device>, Device, Clients)>,
    device: Device,
    now_ns: u64,
    /// The most that gold held so far.
    most: u64,
}

impl<S: Service<Memory>> World<S> {
    fn new(most: u64, service: impl FnOnce(&mut Device) -> S) -> World<S> {
        let device = |number| {
            let device = Device::new(number, Offloads::default());
            device.port.borrow_mut().is_sum_good = true;
            device
        };
        let config = |number: u8| {
            let mut config = common::config(number);
            if number == 1 {
                (config.tcp.receive_window, config.tcp.receive_window_max) = (WINDOW, WINDOW);
            }
            config
        };
        let machine = |number| {
            let device = device(number);
            (Stack::new(device.clone(), config(number)), device, Clients::default())
        };
        let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
        let mut its = device(SERVER);
        let service = service(&mut its);
        let mut server = Server::new(its.clone(), Still, config(SERVER), &ports, service);
        let core = EventLoop::new(0, Still, Still, Arc::new(Deaf));
        let rules = "gold clients=10.0.0.1; silver clients=10.0.0.2";
        server.charge(Arc::new(rules.parse::<Rules>().unwrap()), core.handle());
        let plan = format!("for gold memory={most}; for silver memory={most}");
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
fn check(mut world: World<Lines>, gold: &[FlowId]) {
    let flows = world.connect(1, 8);
    world.say(1, &flows, b"hello\n");
    assert_eq!(world.machines[1].2.answered(), 8);
    let [of_gold, of_silver] = world.records();
    assert!(of_gold.refused > 0 && of_silver.refused == 0, "{of_gold:?} {of_silver:?}");
    assert!(world.most > MOST / 2 && world.most <= MOST + PIECE, "{} of {MOST}", world.most);
    gold.iter().for_each(|flow| world.machines[0].0.abort(*flow));
    world.pass(20);
    assert_eq!(world.records()[0].memory_bytes, 0);
}

#[test]
fn who_sends_half_requests_holds_no_more_than_his_budget() {
    let mut world = World::new(MOST, |_| Lines);
    let flows = world.connect(0, 40);
    (0..16).for_each(|_| world.say(0, &flows, &[b'x'; 1000]));
    assert_eq!(world.machines[0].2.answered(), 0);
    check(world, &flows);
}

#[test]
fn who_leaves_holes_holds_no_more_than_his_budget() {
    let mut world = World::new(MOST, |_| Lines);
    let flows = world.connect(0, 40);
    world.say(0, &flows, LOST);
    (0..8).for_each(|_| world.say(0, &flows, &[b'x'; 1000]));
    check(world, &flows);
}

/// A request that came in parts, and whole by now, holds nothing.
#[test]
fn what_came_whole_after_all_is_not_held() {
    let mut world = World::new(MOST, |_| Lines);
    let flows = world.connect(0, 4);
    world.say(0, &flows, &[b'x'; 1000]);
    let half = world.records()[0].memory_bytes;
    assert!(half >= 4 * (1024 + 1000), "{half}");
    world.say(0, &flows, b"\n");
    world.pass(100);
    world.say(0, &flows[..1], b"\n");
    assert_eq!((world.machines[0].2.answered(), world.records()[0].refused), (5, 0));
    let whole = world.records()[0].memory_bytes;
    assert!(whole < 4 * (1024 + 8), "{whole}");
}

/// Bytes of a file that are on their way to somebody.
const QUEUE: u64 = 256 << 10;

/// Gold reads a byte a second of a file that is longer than all that he may hold: nobody has to wait for
/// him, he holds what is on its way, and he is not refused.
#[test]
fn who_reads_slowly_holds_what_is_on_its_way_to_him() {
    let mut world = World::new(2 << 20, Files::new);
    world.machines[0].2.is_slow = true;
    let slow = world.connect(0, 4);
    let flows = world.connect(1, 2);
    world.say(0, &slow, b"GET /file HTTP/1.1\r\nHost: n\r\n\r\n");
    world.say(1, &flows, b"GET /file HTTP/1.1\r\nHost: n\r\n\r\n");
    let mut held = Vec::new();
    for second in 1..=20 {
        let (stack, _, clients) = &mut world.machines[0];
        for flow in &slow {
            let unread = clients.unread.get_mut(&flow.index()).expect("it has heard something");
            *unread -= 1;
            stack.hold(*flow, *unread);
        }
        world.pass(1000);
        let [gold, silver] = world.records();
        assert_eq!((gold.refused, silver.refused), (0, 0), "second {second}");
        held.push(gold.memory_bytes);
    }
    let heard = world.machines[1].2.heard;
    assert!(heard > 2 * FILE && world.machines[0].2.heard < 4 * FILE, "{heard}");
    // Counted when they had asked, to the byte.
    let head = heard / 2 - FILE;
    assert_eq!(held, [4 * (1024 + head as u64 + QUEUE); 20]);
}
