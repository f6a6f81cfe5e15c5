//! Clients who are told what they did not ask for: who does not read is told no more.

mod common;

use common::{Still, config};
use nom_net::{Application, FlowId, Instant, Slice, Stack};
use nom_port::buffer::Sink;
use nom_port::nic::Offloads;
use nom_rt::poller::Poller as _;
use nom_serve::{Ports, Server};
use nom_service::{Reply, Service, Stream};
use nom_wire::{Device, Memory};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

const PORT: u16 = 7;
const STEP_NS: u64 = 1_000_000;
const NEWS: &[u8] = &[b'n'; 50_000];

/// Tells everybody something ten times a second, if it is to.
struct Herald {
    news: &'static [u8],
    is_on: Rc<Cell<bool>>,
    told: Rc<Cell<u64>>,
}

impl Service<Memory> for Herald {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Memory>) -> Option<()> {
        Some(())
    }

    fn received(&mut self, (): &mut (), _: Slice<Memory>, _: &mut Reply<Memory>) -> Stream {
        Stream::Open
    }

    fn look_every_ns(&self) -> Option<u64> {
        self.is_on.get().then_some(100_000_000)
    }

    fn news(&mut self, (): &mut (), reply: &mut Reply<Memory>) {
        self.told.set(self.told.get() + self.news.len() as u64);
        reply.copy(self.news);
    }
}

/// Counts what comes, and reads on or does not.
#[derive(Default)]
struct Reader {
    heard: u64,
    flow: Option<FlowId>,
}

impl Application<Device> for Reader {
    fn connected(&mut self, _: &mut Stack<Device>, flow: FlowId) {
        self.flow = Some(flow);
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, bytes: Slice<Memory>) {
        self.heard += bytes.len() as u64;
    }
}

#[test]
fn who_does_not_read_is_told_no_more() {
    const QUEUE_MOST: u64 = 4 << 20;
    let devices = [1, 2].map(|number| Device::new(number, Offloads::default()));
    let (is_on, told) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let herald = Herald { news: NEWS, is_on: is_on.clone(), told: told.clone() };
    let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
    let mut server = Server::new(devices[1].clone(), Still, config(2), &ports, herald);
    let (mut stack, mut reader) = (Stack::new(devices[0].clone(), config(1)), Reader::default());
    stack.connect(([10, 0, 0, 2], PORT).into()).expect("a way");
    let mut now_ns = 1_000_000_000;
    let mut pass = |stack: &mut Stack<Device>, reader: &mut Reader, steps: usize| {
        for _ in 0..steps {
            now_ns += STEP_NS;
            stack.poll(Instant::from_nanos(now_ns), reader);
            server.poll(now_ns);
            for (from, to) in [(0, 1), (1, 0)] {
                devices[from].take_sent().into_iter().for_each(|frame| devices[to].deliver(now_ns, frame));
            }
        }
    };
    pass(&mut stack, &mut reader, 1000);
    assert_eq!(reader.heard, 0, "nobody is looked at");
    is_on.set(true);
    pass(&mut stack, &mut reader, 1050);
    assert!(reader.heard == told.get() && told.get() >= 10 * NEWS.len() as u64, "{}", reader.heard);
    let flow = reader.flow.expect("it is connected");
    stack.window(flow, 0);
    pass(&mut stack, &mut reader, 60_000);
    let left = told.get() - reader.heard;
    assert!(left < QUEUE_MOST, "{left} bytes wait for who reads nothing");
    stack.window(flow, u32::MAX);
    pass(&mut stack, &mut reader, 60_000);
    assert!(reader.heard > 60_000 / 100 * NEWS.len() as u64 / 2, "it is told again: {}", reader.heard);
}

/// A crowd is not looked at in one go, which would keep everybody else waiting, and yet as often as a few.
#[test]
fn a_crowd_is_told_in_parts() {
    const CROWD: u64 = 1000;
    const PART_MOST: u64 = 256;
    let devices = [1, 2].map(|number| Device::new(number, Offloads::default()));
    let (is_on, told) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let herald = Herald { news: b"n", is_on: is_on.clone(), told: told.clone() };
    let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
    let mut server = Server::new(devices[1].clone(), Still, config(2), &ports, herald);
    let (mut stack, mut reader) = (Stack::new(devices[0].clone(), config(1)), Reader::default());
    (0..CROWD).for_each(|_| _ = stack.connect(([10, 0, 0, 2], PORT).into()).expect("a way"));
    let mut now_ns = 1_000_000_000;
    let mut pass = |steps: u64, most: u64| {
        for _ in 0..steps {
            now_ns += STEP_NS;
            let before = told.get();
            stack.poll(Instant::from_nanos(now_ns), &mut reader);
            server.poll(now_ns);
            assert!(told.get() - before <= most, "{} are told at once", told.get() - before);
            for (from, to) in [(0, 1), (1, 0)] {
                devices[from].take_sent().into_iter().for_each(|frame| devices[to].deliver(now_ns, frame));
            }
        }
    };
    pass(1000, 0);
    is_on.set(true);
    pass(1010, PART_MOST);
    let rounds = told.get() / CROWD;
    assert!((9..=10).contains(&rounds), "{} are told in a second, a tenth of it for all", told.get());
}
