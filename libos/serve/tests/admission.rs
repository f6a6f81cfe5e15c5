//! Who is one client too many is answered once more and then closed; who comes then is not let in.

mod common;

use common::{Deaf, Still, config};
use nom_net::{Application, Closed, Config, FlowId, Instant, Slice, Stack};
use nom_port::buffer::Sink;
use nom_port::nic::Offloads;
use nom_rt::EventLoop;
use nom_rt::poller::Poller as _;
use nom_serve::{Control, Ports, Server};
use nom_service::{Governor, Reply, Service, Setting, Stream, Window};
use nom_wire::{Device, Memory};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

const PORT: u16 = 7;
/// Of the control port.
const CONTROL: u16 = 9999;
const STEP_NS: u64 = 1_000_000;

/// Sends everything back, and lets so many in.
#[derive(Default)]
struct Echo {
    most: Option<u32>,
    refused: Rc<Cell<u32>>,
}

const FULL: &[u8] = b"full\r\n";

impl Service<Memory> for Echo {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, reply: &mut Reply<Memory>) -> Option<()> {
        match &mut self.most {
            Some(0) => {
                reply.copy(FULL);
                return None;
            }
            Some(most) => *most -= 1,
            None => {}
        }
        Some(())
    }

    fn refused(&mut self) {
        self.refused.set(self.refused.get() + 1);
    }

    fn received(&mut self, (): &mut (), bytes: Slice<Memory>, reply: &mut Reply<Memory>) -> Stream {
        reply.share(bytes);
        Stream::Open
    }
}

/// Sets the limit that a test says, and tells how many clients it heard of.
struct Limit {
    limit: Rc<Cell<Option<u32>>>,
    clients: Rc<Cell<u32>>,
    traffic: Rc<Cell<Bytes>>,
    overridden: Rc<RefCell<Vec<bool>>>,
}

/// What windows said of bytes, together.
#[derive(Clone, Copy, Default)]
struct Bytes {
    answered: u64,
    sent: u64,
}

impl Governor for Limit {
    fn observe(&mut self, window: &Window) -> Setting {
        self.clients.set(window.clients);
        self.overridden.borrow_mut().push(window.is_overridden);
        let Bytes { answered, sent } = self.traffic.get();
        let traffic = Bytes { answered: answered + window.answered_bytes, sent: sent + window.sent_bytes };
        self.traffic.set(traffic);
        Setting { clients_max: self.limit.get(), ..Setting::default() }
    }

    fn look(&mut self, _: u64) -> Option<Setting> {
        Some(Setting { clients_max: self.limit.get(), ..Setting::default() })
    }
}

/// What clients have heard, and how they ended.
#[derive(Default)]
struct Clients {
    heard: BTreeMap<usize, usize>,
    /// The server will say no more, politely.
    finished: Vec<usize>,
    closed: Vec<(usize, Closed)>,
}

impl Application<Device> for Clients {
    fn received(&mut self, _: &mut Stack<Device>, flow: FlowId, bytes: Slice<Memory>) {
        *self.heard.entry(flow.index()).or_default() += bytes.len();
    }

    fn finished(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        self.finished.push(flow.index());
        stack.close(flow);
    }

    fn closed(&mut self, _: &mut Stack<Device>, flow: FlowId, why: Closed) {
        self.closed.push((flow.index(), why));
    }
}

struct World {
    server: Server<Device, Still, Echo>,
    stack: Stack<Device>,
    devices: [Device; 2],
    clients: RefCell<Clients>,
    now_ns: u64,
    limit: Rc<Cell<Option<u32>>>,
    heard_of: Rc<Cell<u32>>,
    traffic: Rc<Cell<Bytes>>,
    /// Of each window, whether somebody else than the governor had a say in its setting.
    overridden: Rc<RefCell<Vec<bool>>>,
    /// How many of the server's next frames are lost.
    lost: usize,
}

impl World {
    fn new() -> World {
        World::of(Echo::default(), |_| {})
    }

    fn of(echo: Echo, change: impl FnOnce(&mut Config)) -> World {
        let devices = [1, 2].map(|number| Device::new(number, Offloads::default()));
        let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
        let mut its_config = config(2);
        change(&mut its_config);
        let mut server = Server::new(devices[1].clone(), Still, its_config, &ports, echo);
        let (limit, heard_of, traffic) = (Rc::default(), Rc::new(Cell::new(0)), Rc::<Cell<Bytes>>::default());
        let core = EventLoop::new(0, Still, Still, Arc::new(Deaf));
        let overridden = Rc::<RefCell<Vec<bool>>>::default();
        let governor = Limit {
            limit: Rc::clone(&limit),
            clients: heard_of.clone(),
            traffic: traffic.clone(),
            overridden: overridden.clone(),
        };
        server.govern(Box::new(governor), core.handle());
        server.control(Control::new(CONTROL, 1), 0, core.handle());
        let stack = Stack::new(devices[0].clone(), config(1));
        let clients = RefCell::default();
        let now_ns = 1_000_000_000;
        World { server, stack, devices, clients, now_ns, limit, heard_of, traffic, overridden, lost: 0 }
    }

    /// Lets a tenth of a second pass.
    fn pass(&mut self) {
        for _ in 0..100 {
            self.now_ns += STEP_NS;
            self.stack.poll(Instant::from_nanos(self.now_ns), &mut *self.clients.borrow_mut());
            self.server.poll(self.now_ns);
            for (from, to) in [(0, 1), (1, 0)] {
                for frame in self.devices[from].take_sent() {
                    if from == 1 && self.lost > 0 {
                        self.lost -= 1;
                        continue;
                    }
                    self.devices[to].deliver(self.now_ns, frame);
                }
            }
        }
    }

    fn connect(&mut self, count: usize) -> Vec<FlowId> {
        self.connect_to(PORT, count)
    }

    fn connect_to(&mut self, port: u16, count: usize) -> Vec<FlowId> {
        let to = SocketAddr::from(([10, 0, 0, 2], port));
        let flows = (0..count).map(|_| self.stack.connect(to).expect("a way")).collect();
        self.pass();
        flows
    }

    fn ask(&mut self, flows: &[FlowId]) {
        for flow in flows {
            let slice = self.stack.buffer(b"hello").expect("memory");
            // Who was closed is not heard.
            let _ = self.stack.send(*flow, slice);
        }
        self.pass();
    }
}

#[test]
fn who_is_one_too_many_is_answered_once_more_and_closed() {
    let mut world = World::new();
    let flows = world.connect(6);
    world.ask(&flows);
    assert_eq!(world.heard_of.get(), 6);
    world.limit.set(Some(2));
    world.pass();
    assert!(world.clients.borrow().finished.is_empty(), "nobody is closed in the middle of nothing");
    world.ask(&flows);
    world.pass();
    assert_eq!(world.heard_of.get(), 2);
    let clients = world.clients.borrow();
    assert!(flows.iter().all(|flow| clients.heard[&flow.index()] == 10), "all were answered");
    assert_eq!(clients.finished.len(), 4);
    assert!(clients.closed.iter().all(|(_, why)| *why == Closed::Finished), "politely: {:?}", clients.closed);
}

/// What an answer costs to send again, the provider is paid for; nobody pays twice to read it.
#[test]
fn users_pay_for_what_they_read_however_often_it_is_sent() {
    let mut world = World::new();
    let flows = world.connect(2);
    world.ask(&flows);
    world.pass();
    let before = world.traffic.get();
    assert_eq!(before.answered, 10, "two times five bytes");
    assert!(before.sent > before.answered + 2 * 54, "and headers");
    world.lost = 2;
    world.ask(&flows);
    (0..30).for_each(|_| world.pass());
    let again = world.traffic.get();
    let read: usize = world.clients.borrow().heard.values().sum();
    assert_eq!((again.answered, read), (20, 20));
    assert!(again.sent - before.sent > 4 * (54 + 5), "each was sent twice");
}

/// Has `word` put at `path` of the control port.
fn order(world: &mut World, path: &str, word: &str) {
    let control = world.connect_to(CONTROL, 1)[0];
    let length = word.len();
    let text = format!("PUT {path} HTTP/1.1\r\nHost: n\r\nContent-Length: {length}\r\n\r\n{word}");
    let slice = world.stack.buffer(text.as_bytes()).expect("memory");
    world.stack.send(control, slice).expect("a connection");
    world.pass();
}

#[test]
fn what_a_held_governor_wants_is_not_set() {
    let mut world = World::new();
    order(&mut world, "/governor", "off");
    world.limit.set(Some(1));
    let flows = world.connect(3);
    world.ask(&flows);
    assert_eq!(world.heard_of.get(), 3, "it watches, and that is all");
    order(&mut world, "/governor", "on");
    world.ask(&flows);
    world.pass();
    assert_eq!(world.heard_of.get(), 1);
}

/// What a governor did not choose must not teach it about what it chose.
#[test]
fn a_governor_is_told_in_which_windows_somebody_else_decided() {
    let mut world = World::new();
    let flows = world.connect(1);
    let windows = |world: &mut World| {
        (0..5).for_each(|_| world.ask(&flows));
        std::mem::take(&mut *world.overridden.borrow_mut())
    };
    assert!(windows(&mut world).iter().all(|is_overridden| !is_overridden));
    order(&mut world, "/governor", "off");
    windows(&mut world);
    let held = windows(&mut world);
    assert!(!held.is_empty() && held.iter().all(|is_overridden| *is_overridden), "{held:?}");
    order(&mut world, "/governor", "on");
    let let_go = windows(&mut world);
    let governs_since = let_go.iter().position(|is_overridden| !is_overridden).expect("it has been let go");
    assert!(governs_since > 0 && !let_go[governs_since..].contains(&true), "{let_go:?}");
    order(&mut world, "/batching-delay", "9");
    let ordered = windows(&mut world);
    assert_eq!(ordered.iter().filter(|is_overridden| **is_overridden).count(), 1, "{ordered:?}");
}

#[test]
fn who_comes_when_all_places_are_taken_is_not_let_in() {
    let mut world = World::new();
    world.limit.set(Some(1));
    let flows = world.connect(3);
    world.ask(&flows);
    assert_eq!(world.heard_of.get(), 1);
    assert_eq!(world.clients.borrow().heard.len(), 1);
    assert_eq!(world.clients.borrow().closed.len(), 2);
    world.limit.set(None);
    let more = world.connect(3);
    world.ask(&more);
    assert_eq!(world.heard_of.get(), 4, "all are let in again");
}

#[test]
fn whom_the_service_turns_away_is_told_why() {
    let mut world = World::of(Echo { most: Some(2), ..Echo::default() }, |_| {});
    let flows = world.connect(5);
    world.ask(&flows[..2]);
    let clients = world.clients.borrow();
    let heard: Vec<usize> = flows.iter().map(|flow| clients.heard[&flow.index()]).collect();
    assert_eq!(heard, [5, 5, FULL.len(), FULL.len(), FULL.len()]);
    assert_eq!(clients.finished.len(), 3, "and then closed: {:?}", clients.closed);
    assert_eq!(world.heard_of.get(), 2);
}

/// In a table of eight, one address may have four; who is refused without a place is told nothing.
#[test]
fn whom_the_stack_has_no_place_for_is_refused_and_counted() {
    let refused = Rc::new(Cell::new(0));
    let echo = Echo { most: Some(3), refused: refused.clone() };
    let mut world = World::of(echo, |config| config.flows_max = 8);
    let first = world.connect(3);
    let more = world.connect(5);
    world.ask(&first);
    let clients = world.clients.borrow();
    assert_eq!(first.iter().map(|flow| clients.heard[&flow.index()]).collect::<Vec<_>>(), [5, 5, 5]);
    let why =
        |flow: &FlowId| clients.closed.iter().find(|(index, _)| *index == flow.index()).map(|end| end.1);
    assert!(more.iter().all(|flow| why(flow).is_some()), "nobody waits: {:?}", clients.closed);
    assert!((1..5).contains(&refused.get()), "{}", refused.get());
}
