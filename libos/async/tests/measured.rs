//! A service of tasks and one of callbacks that do the same, behind the same clients: a governor is told the
//! same of both. And what tasks can do beside: answer later than the next request, and stop listening.

use nom_async::{AsyncService, ByteStream, StreamError};
use nom_net::{Application, Cidr, Config, FlowId, Instant, Slice, Stack};
use nom_port::buffer::Sink as _;
use nom_port::nic::Offloads;
use nom_port::world::{Clock, Doorbell, Idle, Wakeup};
use nom_rt::{EventLoop, Handle};
use nom_serve::{Ports, Server};
use nom_service::{Governor, Reply, Service, Setting, Stream, Window};
use nom_wire::{Device, Memory};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 7;
const STEP_NS: u64 = 100_000;

/// The time, as the test sets it.
#[derive(Clone, Default)]
struct Hands(Rc<Cell<u64>>);

impl Clock for Hands {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }
}

impl Idle for Hands {
    fn sleep(&mut self, _: Option<u64>) -> Wakeup {
        Wakeup::default()
    }
}

struct Deaf;

impl Doorbell for Deaf {
    fn ring(&self, _: usize) {}
}

/// Notes what it is told, and sets the batching delay that it was made with.
struct Watch {
    windows: Rc<RefCell<Vec<Window>>>,
    batching_delay: Duration,
}

impl Governor for Watch {
    fn observe(&mut self, window: &Window) -> Setting {
        self.windows.borrow_mut().push(*window);
        Setting { batching_delay: self.batching_delay, ..Setting::default() }
    }
}

/// Says something now and then, and counts what comes back.
struct Asker {
    flow: Option<FlowId>,
    heard: usize,
}

impl Application<Device> for Asker {
    fn connected(&mut self, _: &mut Stack<Device>, flow: FlowId) {
        self.flow = Some(flow);
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, bytes: Slice<Memory>) {
        self.heard += bytes.len();
    }
}

fn stack(device: &Device, number: u8) -> Stack<Device> {
    Stack::new(device.clone(), config(number))
}

fn config(number: u8) -> Config {
    let address = Cidr { address: [10, 0, 0, number].into(), prefix: 24 };
    let mut config = Config { addresses: vec![address], ..Config::new([u64::from(number); 4]) };
    config.tcp.fix_windows(20_000, 512 << 10);
    config
}

/// A server of what `make` makes, two clients, and what they did.
struct World {
    hands: Hands,
    devices: [Device; 3],
    event_loop: EventLoop<Hands, Hands>,
    askers: Vec<(Stack<Device>, Asker)>,
    windows: Rc<RefCell<Vec<Window>>>,
    said: usize,
}

impl World {
    fn new<S: Service<Memory> + 'static>(micros: u64, make: impl FnOnce(&Handle) -> S) -> World {
        let hands = Hands::default();
        hands.0.set(1_000_000_000);
        let devices = [1, 2, 3].map(|number| Device::new(number, Offloads::default()));
        let event_loop = EventLoop::new(0, hands.clone(), hands.clone(), Arc::new(Deaf));
        let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
        let handle = event_loop.handle();
        let mut server = Server::new(devices[0].clone(), hands.clone(), config(1), &ports, make(handle));
        let (windows, batching_delay) = (Rc::default(), Duration::from_micros(micros));
        server.govern(Box::new(Watch { windows: Rc::clone(&windows), batching_delay }), handle);
        handle.add_poller(nom_rt::INFRASTRUCTURE, server);
        let askers = [2, 3].map(|number| {
            let mut stack = stack(&devices[usize::from(number) - 1], number);
            stack.connect(([10, 0, 0, 1], PORT).into()).expect("a way");
            (stack, Asker { flow: None, heard: 0 })
        });
        World { hands, devices, event_loop, askers: askers.into(), windows, said: 0 }
    }

    /// Lets a tenth of a millisecond pass.
    fn step(&mut self) {
        let now_ns = self.hands.0.get() + STEP_NS;
        self.hands.0.set(now_ns);
        for (stack, asker) in &mut self.askers {
            stack.poll(Instant::from_nanos(now_ns), asker);
        }
        // What was left to do at this time is done in it.
        (0..4).for_each(|_| _ = self.event_loop.turn());
        for from in 0..3 {
            for frame in self.devices[from].take_sent() {
                let to = frame[5] as usize;
                let all = [0, 1, 2].into_iter().filter(|at| *at != from && (to == at + 1 || to == 0xff));
                all.for_each(|at| self.devices[at].deliver(now_ns, frame.clone()));
            }
        }
    }

    fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.step());
    }

    /// Has one of the clients say something.
    fn say(&mut self, who: usize, bytes: &[u8]) {
        let (stack, asker) = &mut self.askers[who];
        let slice = stack.buffer(bytes).expect("memory");
        stack.send(asker.flow.expect("it is connected"), slice).expect("it goes");
        self.said += bytes.len();
    }

    fn heard(&self) -> usize {
        self.askers.iter().map(|(_, asker)| asker.heard).sum()
    }

    /// Requests, bytes of answers, and the sum of latencies in the machine, as the governor heard.
    fn served(&self) -> (u64, u64, u64) {
        let windows = self.windows.borrow();
        windows.iter().fold((0, 0, 0), |(requests, bytes, sum), window| {
            let total = window.requests * window.service.mean_ns;
            (requests + window.requests, bytes + window.answered_bytes, sum + total)
        })
    }
}

/// The echo of callbacks.
struct Echo;

impl Service<Memory> for Echo {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Memory>) -> Option<()> {
        Some(())
    }

    fn received(&mut self, (): &mut (), bytes: Slice<Memory>, reply: &mut Reply<Memory>) -> Stream {
        reply.share(bytes);
        Stream::Open
    }
}

async fn echo(stream: ByteStream<Memory>) -> Result<(), StreamError> {
    while let Some(bytes) = stream.receive().await? {
        stream.share(bytes).await?;
    }
    Ok(())
}

/// What a governor that sets W hears of a service under two clients.
fn windows<S: Service<Memory> + 'static>(micros: u64, make: impl FnOnce(&Handle) -> S) -> Vec<Window> {
    let mut world = World::new(micros, make);
    world.steps(50);
    for turn in 0..400 {
        world.say(turn % 2, &vec![b'x'; 1 + turn * 7 % 1000]);
        world.steps(1 + turn % 5);
    }
    world.steps(1_000);
    assert_eq!(world.heard(), world.said);
    world.windows.take()
}

#[test]
fn a_governor_is_told_the_same_of_tasks_and_of_callbacks() {
    for micros in [0, 300] {
        let callbacks = windows(micros, |_| Echo);
        let tasks = windows(micros, |handle| AsyncService::new(handle, |stream, _| echo(stream)));
        assert_eq!(callbacks.iter().map(|window| window.requests).sum::<u64>(), 400);
        assert_eq!(callbacks, tasks, "W = {micros} us");
    }
}

#[test]
fn a_later_answer_counts_from_when_its_request_arrived() {
    const LATER_NS: u64 = 50_000_000;
    let mut world = World::new(0, |handle| {
        AsyncService::new(handle, |stream: ByteStream<Memory>, core| async move {
            while let Some(bytes) = stream.receive().await? {
                core.sleep(LATER_NS).await;
                stream.count(2);
                stream.send_all(&bytes).await?;
            }
            Ok::<(), StreamError>(())
        })
    });
    world.steps(50);
    for _ in 0..10 {
        world.say(0, b"one and two");
        world.steps(700);
    }
    world.steps(20_000);
    let (requests, bytes, sum_ns) = world.served();
    assert_eq!((requests, bytes, world.heard()), (20, 110, 110));
    let mean_ns = sum_ns / requests;
    assert!((LATER_NS..=LATER_NS + 2 * STEP_NS).contains(&mean_ns), "{mean_ns} ns");
}

#[test]
fn who_is_not_listened_to_is_stopped_and_heard_to_the_end_later() {
    const WAIT_NS: u64 = 500_000_000;
    let taken = Rc::new(Cell::new(0));
    let seen = taken.clone();
    let mut world = World::new(0, move |handle| {
        AsyncService::new(handle, move |stream: ByteStream<Memory>, core| {
            let seen = seen.clone();
            async move {
                core.sleep(WAIT_NS).await;
                while let Some(bytes) = stream.receive().await? {
                    seen.set(seen.get() + bytes.len());
                }
                Ok::<(), StreamError>(())
            }
        })
    });
    world.steps(50);
    let piece = [b'x'; 1000];
    for _ in 0..300 {
        world.say(0, &piece);
    }
    world.steps(4_000);
    let (stack, asker) = &world.askers[0];
    let left = stack.queued(asker.flow.expect("it is connected"));
    assert!(taken.get() == 0 && left > 250_000, "{left} bytes of 300,000 wait on the other side");
    world.steps(20_000);
    assert_eq!(taken.get(), 300_000, "all that came is there");
}
