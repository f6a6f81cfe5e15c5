//! A server of three activities, of which each is a machine of clients; the server's core alone takes time.
//! Not every test uses everything.
#![allow(dead_code)]

use super::common::Deaf;
use nom_grid::GridPlan;
use nom_net::batch::Unheld;
use nom_net::{Application, Config, FlowId, Instant, Slice, Stack};
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
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

const PORT: u16 = 7;
const REQUEST: &[u8] = b"request!";
/// The first of the activities that rules name.
pub const FIRST: usize = 3;

/// A clock that goes on only when told.
#[derive(Clone, Default)]
pub struct Told(pub Rc<Cell<u64>>);

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

/// Answers each request after some time, which is not always the same, by saying it so many times.
pub struct Slow {
    clock: Told,
    random: Random,
    times: [usize; ACTIVITIES as usize],
}

impl Service<Memory> for Slow {
    /// Whose it is.
    type Connection = usize;

    fn connected(&mut self, from: SocketAddr, _: &mut Reply<Memory>) -> Option<usize> {
        match from {
            SocketAddr::V4(from) => Some(usize::from(from.ip().octets()[3]) - 1),
            SocketAddr::V6(_) => None,
        }
    }

    fn received(&mut self, whose: &mut usize, bytes: Slice<Memory>, reply: &mut Reply<Memory>) -> Stream {
        for request in bytes.chunks(REQUEST.len()) {
            // Ten times what messages cost in the omni-kernel's paper, so that there are fewer.
            self.clock.pass(60_000 + self.random.below(50_000));
            (0..self.times[*whose]).for_each(|_| reply.copy(request));
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
pub enum Habit {
    /// Ask again as soon as they are answered.
    Ask,
    /// Ask, and read no answer.
    NeverRead,
    /// Ask as much as a stream takes, whether they were answered or not.
    Flood,
}

pub struct Clients {
    pub habit: Habit,
    pub answered: u64,
    /// Bytes of an answer, and of those that have begun to come, by flow.
    answer_bytes: usize,
    come: BTreeMap<usize, usize>,
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
        let come = self.come.entry(flow.index()).or_default();
        *come += bytes.len();
        let whole = *come / self.answer_bytes;
        *come %= self.answer_bytes;
        self.answered += whole as u64;
        if self.habit == Habit::Ask && whole > 0 {
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
pub struct Stamped {
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

pub type Served = Rc<RefCell<Server<Stamped, Told, Slow>>>;

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
pub struct World {
    clock: Told,
    pub core: EventLoop<Told, Told>,
    pub server: Served,
    device: Device,
    left: Rc<RefCell<Frames>>,
    pub machines: Vec<(Stack<Device>, Device, Clients)>,
    /// Frames to machines, each with when it arrives there, and how long that takes.
    on_way: VecDeque<(u64, usize, Vec<u8>)>,
    pub way_ns: u64,
    /// Who sends so many datagrams whenever the server has done something.
    pub flood: Option<(usize, usize)>,
}

fn config(number: u8) -> Config {
    Config {
        flows_max: 20_000,
        flows_share: 20_000,
        // As machines are told.
        unheld: Unheld::Together,
        ..super::common::config(number)
    }
}

/// The server's number, and those of its clients.
const SERVER: u8 = 9;
const ACTIVITIES: u8 = 3;

impl World {
    pub fn new(plan: &str) -> World {
        World::that_says(plan, [1; ACTIVITIES as usize])
    }

    /// The same, whose server says what each is asked so many times.
    pub fn that_says(plan: &str, times: [usize; ACTIVITIES as usize]) -> World {
        let clock = Told::default();
        let core = EventLoop::new(0, clock.clone(), clock.clone(), Arc::new(Deaf));
        let device = Device::new(SERVER, Offloads::default());
        device.port.borrow_mut().is_sum_good = true;
        let ports = Ports { tcp: vec![PORT], udp: vec![PORT] };
        let left = Rc::<RefCell<_>>::default();
        let nic = Stamped { device: device.clone(), clock: clock.clone(), left: left.clone() };
        let service = Slow { clock: clock.clone(), random: Random::new(1), times };
        let mut server = Server::new(nic, clock.clone(), config(SERVER), &ports, service);
        let rules = "gold clients=10.0.0.1; silver clients=10.0.0.2; bronze clients=10.0.0.3";
        server.charge(Arc::new(rules.parse::<Rules>().unwrap()), core.handle());
        server.share(&plan.parse::<GridPlan>().unwrap(), core.handle());
        let server = Rc::new(RefCell::new(server));
        core.handle().add_poller(INFRASTRUCTURE, Polled(server.clone()));
        let machine = |number| {
            let device = Device::new(number, Offloads::default());
            device.port.borrow_mut().is_sum_good = true;
            let answer_bytes = REQUEST.len() * times[usize::from(number) - 1];
            let clients = Clients { habit: Habit::Ask, answered: 0, answer_bytes, come: BTreeMap::new() };
            (Stack::new(device.clone(), config(number)), device, clients)
        };
        let machines = (1..=ACTIVITIES).map(machine).collect();
        World { clock, core, server, device, left, machines, on_way: VecDeque::new(), way_ns: 0, flood: None }
    }

    pub fn connect(&mut self, machine: usize, count: usize) {
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

    pub fn run(&mut self, ns: u64) {
        let until_ns = self.clock.0.get() + ns;
        while self.clock.0.get() < until_ns {
            self.turn();
        }
    }

    /// What each activity was charged of the core's time so far, and was answered.
    pub fn told(&self) -> [(u64, u64); ACTIVITIES as usize] {
        let handle = self.core.handle();
        std::array::from_fn(|index| {
            let activity = nom_service::Activity((FIRST + index) as u32);
            (handle.record(activity).ns, self.machines[index].2.answered)
        })
    }

    /// What they were charged and answered in a time.
    pub fn measure(&mut self, ns: u64) -> [(u64, u64); ACTIVITIES as usize] {
        let before = self.told();
        self.run(ns);
        let now = self.told();
        std::array::from_fn(|index| (now[index].0 - before[index].0, now[index].1 - before[index].1))
    }
}

/// Nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// Until a SYN that came before its sender's address was known has come again.
pub const WARM_UP: u64 = 2 * SECOND;
