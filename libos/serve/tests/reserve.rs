//! Memory is kept free for whoever needs some next: buffers that nobody uses go back first, then what the
//! service has least use for, and when nobody has anything to give, whoever comes is refused.

mod common;

use common::{Still, config};
use nom_net::{Application, Closed, FlowId, Instant, Slice, Stack};
use nom_port::nic::Offloads;
use nom_rt::poller::Poller as _;
use nom_serve::{Free, Ports, Server};
use nom_service::{Reply, Service, Stream};
use nom_wire::{Device, Memory};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

const PORT: u16 = 7;
const WANTED: u64 = 1000;

thread_local! {
    /// What the world has free.
    static FREE: Cell<u64> = const { Cell::new(u64::MAX) };
    /// What is free within the program's heap.
    static IDLE: Cell<u64> = const { Cell::new(0) };
}

/// Keeps something that it could do without.
struct Cache {
    kept: Rc<Cell<u64>>,
    /// Whether what it lets go of can be used by anybody else.
    gives_back: bool,
    asked: Rc<Cell<u32>>,
}

impl Service<Memory> for Cache {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Memory>) -> Option<()> {
        Some(())
    }

    fn received(&mut self, (): &mut (), _: Slice<Memory>, _: &mut Reply<Memory>) -> Stream {
        Stream::Open
    }

    fn shrink(&mut self, bytes: u64) -> u64 {
        self.asked.update(|asked| asked + 1);
        let gone = bytes.min(self.kept.get());
        self.kept.update(|kept| kept - gone);
        let to = if self.gives_back { &FREE } else { &IDLE };
        to.set(to.get() + gone);
        gone
    }
}

#[derive(Default)]
struct Clients {
    open: usize,
    closed: usize,
}

impl Application<Device> for Clients {
    fn connected(&mut self, _: &mut Stack<Device>, _: FlowId) {
        self.open += 1;
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, _: Slice<Memory>) {}

    fn closed(&mut self, _: &mut Stack<Device>, _: FlowId, _: Closed) {
        self.closed += 1;
    }
}

struct World {
    server: Server<Device, Still, Cache>,
    stack: Stack<Device>,
    devices: [Device; 2],
    clients: Clients,
    now_ns: u64,
    kept: Rc<Cell<u64>>,
    asked: Rc<Cell<u32>>,
}

impl World {
    /// The service keeps so many bytes.
    fn new(kept: u64, gives_back: bool) -> World {
        FREE.set(u64::MAX);
        IDLE.set(0);
        let devices = [1, 2].map(|number| Device::new(number, Offloads::default()));
        let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
        let (kept, asked) = (Rc::new(Cell::new(kept)), Rc::default());
        let cache = Cache { kept: Rc::clone(&kept), gives_back, asked: Rc::clone(&asked) };
        let mut server = Server::new(devices[1].clone(), Still, config(2), &ports, cache);
        server.keep_free(WANTED, Free { obtainable: || FREE.get(), idle: || IDLE.get() });
        let stack = Stack::new(devices[0].clone(), config(1));
        World { server, stack, devices, clients: Clients::default(), now_ns: 1_000_000_000, kept, asked }
    }

    fn pass(&mut self) {
        for _ in 0..20 {
            self.now_ns += 1_000_000;
            self.stack.poll(Instant::from_nanos(self.now_ns), &mut self.clients);
            self.server.poll(self.now_ns);
            for (from, to) in [(0, 1), (1, 0)] {
                for frame in self.devices[from].take_sent() {
                    self.devices[to].deliver(self.now_ns, frame);
                }
            }
        }
    }

    fn connect(&mut self) {
        self.stack.connect(SocketAddr::from(([10, 0, 0, 2], PORT))).expect("a way");
        self.pass();
    }
}

#[test]
fn what_is_missing_is_given_back_and_no_more() {
    let mut world = World::new(5000, true);
    world.connect();
    assert_eq!((world.asked.get(), world.kept.get()), (0, 5000), "there is enough");
    for missing in [1, 400, 1000] {
        let before = world.kept.get();
        FREE.set(WANTED - missing);
        world.connect();
        assert_eq!((before - world.kept.get(), FREE.get()), (missing, WANTED));
    }
    assert_eq!((world.clients.open, world.clients.closed), (4, 0), "nobody was refused");
}

/// What lies in a heap is of use to nobody else: to ask for more of it would only empty it.
#[test]
fn who_gives_back_in_vain_is_not_asked_for_ever() {
    let mut world = World::new(1_000_000, false);
    FREE.set(WANTED / 2);
    (0..5).for_each(|_| world.connect());
    assert_eq!((world.asked.get(), world.kept.get()), (8, 1_000_000 - 4 * WANTED));
    FREE.set(WANTED / 2 - 1);
    world.connect();
    assert_eq!(world.asked.get(), 9, "somebody has taken more");
}

/// A heap that has taken everything, and of which much is free again: there is room for whoever connects.
#[test]
fn who_can_use_again_what_was_given_back_lets_in_whoever_comes() {
    let mut world = World::new(1_000_000, false);
    FREE.set(0);
    (0..5).for_each(|_| world.connect());
    assert_eq!((world.clients.open, world.clients.closed), (5, 0), "nobody was refused");
    assert_eq!(world.asked.get(), 4);
    IDLE.set(WANTED / 2);
    world.connect();
    assert_eq!((world.asked.get(), IDLE.get()), (5, WANTED / 2 + WANTED), "it was used, and is asked for");
}

#[test]
fn when_nobody_has_anything_to_give_whoever_comes_is_refused() {
    let mut world = World::new(100, true);
    world.connect();
    FREE.set(0);
    world.pass();
    assert_eq!((world.kept.get(), FREE.get()), (0, 100));
    world.connect();
    assert_eq!((world.clients.open, world.clients.closed), (2, 1), "who was there stays");
    FREE.set(WANTED);
    world.pass();
    world.connect();
    assert_eq!((world.clients.open, world.clients.closed), (3, 1), "there is some again");
}
