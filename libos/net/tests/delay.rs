//! The batching delay W: no packet is held longer, nothing is held if it is zero, and a lone client waits for
//! it once.

mod common;

use common::{Device, Faults, Machine, Memory, World, config, datagram_frame, greeting, server};
use nom_net::batch::Unheld;
use nom_net::{Application, Chain, Config, FlowId, Instant, Nic, Slice, Stack};
use std::net::SocketAddr;
use std::time::Duration;

const REQUEST: usize = 40;

/// Answers every request of [`REQUEST`] bytes by as many.
#[derive(Default)]
struct Server;

impl<N: Nic> Application<N> for Server {
    fn received(&mut self, stack: &mut Stack<N>, flow: FlowId, bytes: Slice<N::Buffer>) {
        stack.send(flow, bytes).expect("a window's worth fits");
    }
}

/// As [`Server`], but that each request keeps it busy for [`BUSY_NS`].
struct Busy(Device);

const BUSY_NS: u64 = 10_000;

impl Application<Device> for Busy {
    fn received(&mut self, stack: &mut Stack<Device>, flow: FlowId, bytes: Slice<Memory>) {
        self.0.port.borrow_mut().now_ns += BUSY_NS;
        stack.send(flow, bytes).expect("a window's worth fits");
    }
}

/// Sends a request on each flow, and the next as soon as the answer is there.
#[derive(Default)]
struct Clients {
    answers: usize,
    /// When the last request was sent, and all times from there to the answer. For one flow only.
    sent_at: Instant,
    latencies: Vec<Duration>,
}

impl Clients {
    fn ask(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        self.sent_at = stack.now();
        let request = stack.buffer(&[b'q'; REQUEST]).unwrap();
        stack.send(flow, request).unwrap();
    }
}

impl Application<Device> for Clients {
    fn connected(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        self.ask(stack, flow);
    }

    fn received(&mut self, stack: &mut Stack<Device>, flow: FlowId, _: Slice<Memory>) {
        self.answers += 1;
        self.latencies.push(stack.now() - self.sent_at);
        self.ask(stack, flow);
    }
}

/// Lets `clients` talk to a server with W = `micros` until it has answered 2000 requests.
fn talk(clients: usize, micros: u64) -> World<Clients, Server> {
    talk_to(Server, Device::new(2, <_>::default()), clients, micros)
}

fn talk_to<S: Application<Device>>(
    server_application: S,
    device: Device,
    clients: usize,
    micros: u64,
) -> World<Clients, S> {
    let left = Machine::new(Device::new(1, <_>::default()), config(1, 5), Clients::default());
    let right = Machine::new(device, config(2, 5), server_application);
    let mut world = World::new(left, right, 9, Faults { reorder: 10, ..Faults::default() });
    if clients == 1 {
        world.faults = Faults::default();
    }
    world.right.stack.listen(80);
    world.right.stack.set_delay(Duration::from_micros(micros)).unwrap();
    for _ in 0..clients {
        world.left.stack.connect(server(2)).unwrap();
    }
    assert!(
        world.run(Duration::from_secs(100), |world| world.left.application.answers >= 2000),
        "it came to a halt"
    );
    world
}

fn mean(world: &World<Clients, Server>) -> f64 {
    let latencies = &world.left.application.latencies[10..];
    latencies.iter().map(Duration::as_secs_f64).sum::<f64>() / latencies.len() as f64
}

#[test]
fn no_packet_is_held_longer_than_w() {
    for micros in [0, 1, 7, 50, 400, 10_000] {
        let world = talk(30, micros);
        let held = world.right.device.port.borrow().held_max_ns;
        assert!(held <= micros * 1000, "{held} ns with W = {micros} us");
        assert!(micros == 0 || held > 0, "W = {micros} us held nothing");
    }
}

/// What the machine does meanwhile does not count as waiting for more, though it handles a batch in one go.
#[test]
fn a_busy_machine_holds_no_packet_longer_than_w_either() {
    for micros in [0, 5, 25, 80] {
        let device = Device::new(2, <_>::default());
        let world = talk_to(Busy(device.clone()), device, 30, micros);
        let held = world.right.device.port.borrow().held_max_ns;
        // It notices between two requests.
        assert!(held <= micros * 1000 + BUSY_NS, "{held} ns with W = {micros} us");
    }
}

#[test]
fn without_w_every_packet_goes_by_itself() {
    let world = talk(30, 0);
    let (received, sent) = world.right.stack.tallies();
    assert_eq!(received.unheld.flushes, world.right.stack.counters().frames_received);
    assert_eq!(received.unheld.packets, received.unheld.flushes);
    assert_eq!(sent.unheld.packets, world.right.stack.counters().packets_sent);
    assert_eq!((sent.time.flushes, sent.ring.flushes, received.nothing_more.flushes), (0, 0, 0));
}

/// A machine that handles together what is there at the same time, and answers on port 7.
fn machine_of_batches() -> (Machine<Echo>, SocketAddr) {
    let mut machine = Machine::new(
        Device::new(1, <_>::default()),
        Config { unheld: Unheld::Together, ..config(1, 5) },
        Echo,
    );
    machine.stack.bind(7);
    machine.take(Instant::from_micros(5), greeting());
    machine.take_sent();
    (machine, SocketAddr::from(([10, 0, 0, 2], 4000)))
}

/// Of frames that come at the same time, the device is told of four answers by one kick, so that it gets on
/// with them; none is held, and none is left behind.
#[test]
fn without_w_what_is_there_anyway_may_go_together() {
    let (mut machine, from) = machine_of_batches();
    let now = Instant::from_micros(5);
    let before = machine.device.port.borrow().kicks;
    let frames: Vec<_> = (0..70).map(|_| datagram_frame(from, ([10, 0, 0, 1], 7).into(), b"ping")).collect();
    machine.device.port.borrow_mut().received.extend(frames.into_iter().map(|frame| (now.nanos(), frame)));
    machine.poll(now);
    assert_eq!(machine.take_sent().len(), 70);
    assert_eq!(machine.device.port.borrow().kicks - before, 8 + 8 + 2, "batches of 32, 32 and 6");
    let (received, sent) = machine.stack.tallies();
    assert_eq!((received.unheld.packets, sent.unheld.packets), (71, 71));
}

/// What a program sends between polls goes at once if it is the first, and with three more if not: the device
/// gets on with it while the program does other things. What is left goes with the next poll.
#[test]
fn without_w_who_sends_between_polls_waits_for_three_more_at_most() {
    let (mut machine, peer) = machine_of_batches();
    let own = SocketAddr::from(([10, 0, 0, 1], 7));
    let mut left = Vec::new();
    for _ in 0..6 {
        let bytes = machine.stack.buffer(b"news").unwrap();
        machine.stack.send_datagram(own, peer, Chain::from_iter([bytes])).unwrap();
        machine.stack.let_go();
        left.push(machine.take_sent().len());
    }
    assert_eq!(left, [1, 0, 0, 0, 4, 0]);
    machine.poll(Instant::from_micros(6));
    assert_eq!(machine.take_sent().len(), 1);
}

#[test]
fn with_w_what_is_sent_between_polls_waits_until_w_is_over() {
    let (mut machine, peer) = machine_of_batches();
    machine.stack.set_delay(Duration::from_micros(20)).unwrap();
    let own = SocketAddr::from(([10, 0, 0, 1], 7));
    for micros in [10, 20, 26] {
        let bytes = machine.stack.buffer(b"news").unwrap();
        machine.stack.send_datagram(own, peer, Chain::from_iter([bytes])).unwrap();
        machine.device.port.borrow_mut().now_ns = micros * 1000;
        machine.stack.let_go();
        assert_eq!(machine.take_sent().len(), if micros < 25 { 0 } else { 3 }, "after {micros} us");
    }
}

/// Sends datagrams back.
struct Echo;

impl Application<Device> for Echo {
    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, _: Slice<Memory>) {}

    fn datagram(
        &mut self,
        stack: &mut Stack<Device>,
        to: SocketAddr,
        from: SocketAddr,
        bytes: Chain<Memory>,
    ) {
        stack.send_datagram(to, from, bytes).expect("the peer is known");
    }
}

#[test]
fn a_longer_w_makes_larger_batches() {
    let per_kick = |micros| {
        let world = talk(30, micros);
        let kicks = world.right.device.port.borrow().kicks;
        world.right.stack.counters().packets_sent as f64 / kicks as f64
    };
    let (none, short, long) = (per_kick(0), per_kick(20), per_kick(500));
    assert!(none < 1.1 && none < short && short < long && long > 5.0, "{none} {short} {long} packets a kick");
}

#[test]
fn a_lone_client_waits_longer_by_w() {
    let without = mean(&talk(1, 0));
    for micros in [10, 40, 100, 1000] {
        let w = micros as f64 / 1e6;
        let with = mean(&talk(1, micros));
        assert!((with - without - w).abs() < 0.05 * w, "W = {w}: {without} became {with}");
    }
}

#[test]
fn w_can_change_while_packets_are_held() {
    let mut world = talk(1, 10_000);
    world.run(Duration::from_secs(1), |world| !world.right.device.port.borrow().queued.is_empty());
    assert!(!world.right.device.port.borrow().queued.is_empty(), "something is held");
    world.right.stack.set_delay(Duration::ZERO).unwrap();
    world.right.poll(world.now);
    assert!(world.right.device.port.borrow().queued.is_empty(), "it went at once");
    assert_eq!(
        world.right.stack.set_delay(Duration::from_micros(10_001)).unwrap_err().0,
        Duration::from_micros(10_001)
    );
    assert_eq!(world.right.stack.delay(), Duration::ZERO);
}
