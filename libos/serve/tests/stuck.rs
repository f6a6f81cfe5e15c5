//! Clients who are to be closed once they have taken what they asked for, and take nothing of it.

mod common;

use common::{Deaf, Still, config};
use nom_net::{Application, FlowId, Instant, Slice, Stack};
use nom_port::buffer::Sink;
use nom_port::nic::Offloads;
use nom_rt::EventLoop;
use nom_rt::poller::Poller as _;
use nom_serve::{Closing, Ports, Server};
use nom_service::{Course, Happening, Reaction, Reply, Service, Stream};
use nom_wire::{Device, Memory};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

const PORT: u16 = 7;
const STEP_NS: u64 = 10_000_000;
const SECOND: usize = 100;
/// A part of it, at least, finds room neither in the stack nor at the client.
const ANSWER: &[u8] = &[b'a'; 4 << 20];

/// When a client is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Behind the answer.
    AtOnce,
    /// When it has been idle for some time.
    Later,
    /// When the server is to end.
    AtEnd,
}

std::thread_local! {
    /// Whether the server of this thread is to end.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Answers at length; as an active service, if it is one.
struct Novelist<const IS_ACTIVE: bool> {
    when: When,
    now_ns: u64,
    gone: Rc<Cell<u32>>,
}

impl<const IS_ACTIVE: bool> Service<Memory> for Novelist<IS_ACTIVE> {
    const IS_ACTIVE: bool = IS_ACTIVE;
    /// When it took something last.
    type Connection = u64;

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Memory>) -> Option<u64> {
        Some(self.now_ns)
    }

    fn received(&mut self, _: &mut u64, _: Slice<Memory>, reply: &mut Reply<Memory>) -> Stream {
        reply.copy(ANSWER);
        if self.when == When::AtOnce { Stream::Close } else { Stream::Open }
    }

    fn happened(
        &mut self,
        since_ns: &mut u64,
        what: Happening<Memory>,
        reply: &mut Reply<Memory>,
    ) -> Reaction {
        let Happening::Came(_, bytes) = what else {
            return Reaction { course: Course::Open, unread: 0, asked_ns: None };
        };
        let is_over = self.received(since_ns, bytes, reply) == Stream::Close;
        let course = if is_over { Course::Close } else { Course::Open };
        Reaction { course, unread: 0, asked_ns: None }
    }

    fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    fn look_every_ns(&self) -> Option<u64> {
        (self.when == When::Later).then_some(1_000_000_000)
    }

    fn progressed(&mut self, since_ns: &mut u64) {
        *since_ns = self.now_ns;
    }

    fn check(&mut self, since_ns: &mut u64, _: &mut Reply<Memory>) -> Stream {
        if self.now_ns - *since_ns > 20_000_000_000 { Stream::Close } else { Stream::Open }
    }

    fn disconnected(&mut self, _: u64) {
        self.gone.set(self.gone.get() + 1);
    }
}

/// Asks, and counts what comes.
#[derive(Default)]
struct Reader {
    heard: usize,
}

impl Application<Device> for Reader {
    fn connected(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        stack.send(flow, Slice::new(b"?"[..].into())).expect("room");
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, bytes: Slice<Memory>) {
        self.heard += bytes.len();
    }
}

/// A server and a client.
struct World<const IS_ACTIVE: bool> {
    devices: [Device; 2],
    server: Server<Device, Still, Novelist<IS_ACTIVE>>,
    /// That of the server.
    _event_loop: EventLoop<Still, Still>,
    stack: Stack<Device>,
    reader: Reader,
    flow: FlowId,
    /// Clients that the server has no more.
    gone: Rc<Cell<u32>>,
    now_ns: u64,
}

impl<const IS_ACTIVE: bool> World<IS_ACTIVE> {
    /// The client has asked, and lets nothing more come.
    fn new(when: When) -> World<IS_ACTIVE> {
        IS_ENDING.set(false);
        let devices = [1, 2].map(|number| Device::new(number, Offloads::default()));
        let gone = Rc::new(Cell::new(0));
        let service = Novelist { when, now_ns: 0, gone: gone.clone() };
        let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
        let mut server = Server::new(devices[1].clone(), Still, config(2), &ports, service);
        let event_loop = EventLoop::new(0, Still, Still, Arc::new(Deaf));
        server.close_with(Closing::new(1, || IS_ENDING.get()), 0, event_loop.handle());
        let mut stack = Stack::new(devices[0].clone(), config(1));
        let flow = stack.connect(([10, 0, 0, 2], PORT).into()).expect("a way");
        let (_event_loop, reader, now_ns) = (event_loop, Reader::default(), 1_000_000_000);
        let mut world = World { devices, server, _event_loop, stack, reader, flow, gone, now_ns };
        world.pass(SECOND / 10);
        // The stack has room for one answer, however long it is.
        world.stack.send(flow, Slice::new(b"?"[..].into())).expect("room");
        world.stack.window(flow, 0);
        world.pass(SECOND);
        let heard = world.reader.heard;
        assert!(heard > 0 && heard < ANSWER.len() / 2, "{heard} bytes came");
        world
    }

    fn pass(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now_ns += STEP_NS;
            self.stack.poll(Instant::from_nanos(self.now_ns), &mut self.reader);
            self.server.poll(self.now_ns);
            for (from, to) in [(0, 1), (1, 0)] {
                let sent = self.devices[from].take_sent();
                sent.into_iter().for_each(|frame| self.devices[to].deliver(self.now_ns, frame));
            }
        }
    }
}

fn check<const IS_ACTIVE: bool>(when: When) {
    let mut world = World::<IS_ACTIVE>::new(when);
    IS_ENDING.set(when == When::AtEnd);
    world.pass(50 * SECOND);
    assert_eq!(world.gone.get(), 0, "{when:?}: it has a minute");
    world.pass(80 * SECOND);
    assert_eq!(world.gone.get(), 1, "{when:?}, active: {IS_ACTIVE}");
    assert_eq!(world.stack.flow_count(), 0, "{when:?}: it was told");
}

#[test]
fn who_takes_nothing_for_a_minute_is_not_waited_for() {
    for when in [When::AtOnce, When::Later, When::AtEnd] {
        check::<false>(when);
    }
    check::<true>(When::AtOnce);
}

#[test]
fn who_takes_a_little_now_and_then_is_waited_for() {
    let mut world = World::<false>::new(When::AtOnce);
    for _ in 0..8 {
        let before = world.reader.heard;
        world.stack.window(world.flow, 20_000);
        world.pass(SECOND / 20);
        world.stack.window(world.flow, 0);
        world.pass(50 * SECOND);
        assert!((1..100_000).contains(&(world.reader.heard - before)), "{}", world.reader.heard - before);
    }
    assert_eq!(world.gone.get(), 0);
    world.stack.window(world.flow, u32::MAX);
    world.pass(20 * SECOND);
    assert_eq!((world.reader.heard, world.gone.get()), (ANSWER.len(), 1));
}
