//! Queues between the stages classify and input: whoever is served first, all is served once.

mod common;

use common::{
    Device, Faults, Lottery, Machine, Memory, Peer, Random, World, bytes, config, datagram_frame, greeting,
    server,
};
use nom_net::{Application, Arrival, Chain, FlowId, FourTuple, Instant, Queues, Slice, Stack};
use nom_port::nic::Label;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// Flows and datagrams are for whom our port says.
#[derive(Default)]
struct ByPort {
    heard: Vec<u16>,
    received: [Vec<u8>; 2],
    finished: usize,
}

impl Application<Device> for ByPort {
    fn filters_segments(&self) -> bool {
        false
    }

    fn classify(&mut self, tuple: &FourTuple) -> Label {
        Label(tuple.local.port().into())
    }

    fn received(&mut self, stack: &mut Stack<Device>, flow: FlowId, bytes: Slice<Memory>) {
        let port = stack.addresses(flow).expect("an open flow").local.port();
        self.received[usize::from(port - 80)].extend_from_slice(&bytes);
    }

    fn finished(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        self.finished += 1;
        stack.close(flow);
    }

    fn datagram(&mut self, _: &mut Stack<Device>, to: SocketAddr, _: SocketAddr, _: Chain<Memory>) {
        self.heard.push(to.port());
    }
}

/// Serves who has the higher label first, and no frame without a label ever waits.
#[derive(Default)]
struct Rank {
    waiting: VecDeque<Option<Arrival<Memory>>>,
    present: Option<Arrival<Memory>>,
    bytes: usize,
}

impl Queues<Memory> for Rank {
    fn goes_on(&mut self, label: Label) -> bool {
        label == Label::default()
    }

    fn push(&mut self, _: Label, bytes: usize) -> Option<&mut Option<Arrival<Memory>>> {
        self.bytes += bytes;
        self.waiting.push_back(None);
        self.waiting.back_mut()
    }

    fn next(&mut self) -> Option<&mut Arrival<Memory>> {
        let label = |index: &usize| self.waiting[*index].as_ref().map(|arrival| arrival.label().0);
        let best = (0..self.waiting.len()).rev().max_by_key(label)?;
        self.present = self.waiting.remove(best)?;
        self.present.as_mut()
    }

    fn due(&self) -> Option<Instant> {
        None
    }
}

#[test]
fn whose_turn_it_is_goes_on_before_whoever_came_first() {
    let mut machine = Machine::new(Device::new(1, <_>::default()), config(1, 5), ByPort::default());
    [700, 800].into_iter().for_each(|port| machine.stack.bind(port));
    machine.stack.set_delay(Duration::from_micros(10)).unwrap();
    let now = Instant::from_micros(5);
    machine.take(now, greeting());
    let from = SocketAddr::from(([10, 0, 0, 2], 4000));
    let mut queues = Rank::default();
    let ports = [700, 800, 700, 800, 800];
    let frames = ports.map(|port| datagram_frame(from, ([10, 0, 0, 1], port).into(), b"hello"));
    let len: usize = frames.iter().map(Vec::len).sum();
    let received = frames.into_iter().map(|frame| (now.nanos(), frame));
    machine.device.port.borrow_mut().received.extend(received);
    machine.stack.poll_through(now, &mut machine.application, &mut queues);
    assert_eq!(machine.application.heard, [800, 800, 800, 700, 700]);
    assert_eq!((queues.bytes, queues.waiting.len()), (len, 0));
}

/// Streams to two ports at once, over a bad link, with whoever is served first drawn at random, and how much
/// of a frame at a time.
#[test]
fn bytes_arrive_once_and_in_order_whoever_goes_on_first() {
    let mut cut = 0;
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let (left, right) = (bytes(&mut random, 60_000), bytes(&mut random, 60_000));
        // What the device has not looked at goes on whole.
        let is_sum_good = seed % 2 == 0;
        let corrupt = u64::from(!is_sum_good);
        let faults = Faults { loss: 2, reorder: 5, duplicate: 2, corrupt };
        let talker = Talkers([left.clone(), right.clone()].map(|bytes| (Peer::sending(bytes), None)));
        let client = Machine::new(Device::new(1, <_>::default()), config(1, seed), talker);
        let listener = Machine::new(Device::new(2, <_>::default()), config(2, seed), ByPort::default());
        let mut world = World::new(client, listener, seed, faults);
        world.right.queues = Some(Lottery::new(seed));
        world.right.device.port.borrow_mut().is_sum_good = is_sum_good;
        for (port, index) in [(80, 0), (81, 1)] {
            world.right.stack.listen(port);
            let flow = world.left.stack.connect(SocketAddr::new(server(2).ip(), port)).unwrap();
            world.left.application.0[index].1 = Some(flow);
        }
        let is_done = world.run(Duration::from_secs(600), |world| world.right.application.finished == 2);
        assert!(is_done, "seed {seed}: it came to a halt");
        assert!(world.right.application.received == [left, right], "seed {seed}: other bytes came");
        let queues = world.right.queues.as_ref().unwrap();
        assert!(queues.pushed > 20, "seed {seed}: nobody waited");
        cut += queues.cut;
    }
    assert!(cut > 300, "{cut} pieces went on by themselves");
}

/// A peer for each of two flows.
struct Talkers([(Peer, Option<FlowId>); 2]);

impl Talkers {
    fn of(&mut self, flow: FlowId) -> &mut Peer {
        let found = self.0.iter_mut().find(|(_, own)| *own == Some(flow));
        &mut found.expect("one of two flows").0
    }
}

impl Application<Device> for Talkers {
    fn connected(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        self.of(flow).connected(stack, flow);
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, _: Slice<Memory>) {}

    fn sendable(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        self.of(flow).sendable(stack, flow);
    }
}
