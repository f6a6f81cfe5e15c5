//! A server of a service, two clients of it, and the time, as the test lets it pass.
#![allow(dead_code, reason = "each test uses a part")]

use corosensei::stack::DefaultStack;
use nom_net::{Application, Cidr, Closed, Config, FlowId, Instant, Slice, Stack};
use nom_port::nic::Offloads;
use nom_port::world::{Clock, Containment, Doorbell, Idle, Wakeup};
use nom_rt::{EventLoop, Handle};
use nom_serve::{Control, Ports, Server};
use nom_service::{Governor, Service, Setting, Window};
use nom_wire::{Device, Memory};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 7;
const CONTROL_PORT: u16 = 9999;
/// A step of time.
pub const STEP_NS: u64 = 100_000;

/// The time, as the test sets it.
#[derive(Clone, Default)]
pub struct Hands(pub Rc<Cell<u64>>);

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

pub struct Deaf;

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
#[derive(Default)]
pub struct Asker {
    pub flow: Option<FlowId>,
    pub heard: usize,
    pub end: Option<Closed>,
    /// What the control port said.
    pub told: Vec<u8>,
}

impl Application<Device> for Asker {
    fn connected(&mut self, _: &mut Stack<Device>, flow: FlowId) {
        self.flow.get_or_insert(flow);
    }

    fn received(&mut self, _: &mut Stack<Device>, flow: FlowId, bytes: Slice<Memory>) {
        if self.flow == Some(flow) {
            self.heard += bytes.len();
        } else {
            self.told.extend_from_slice(&bytes);
        }
    }

    fn closed(&mut self, _: &mut Stack<Device>, _: FlowId, why: Closed) {
        self.end = Some(why);
    }
}

fn stack(device: &Device, number: u8) -> Stack<Device> {
    Stack::new(device.clone(), config(number))
}

pub fn config(number: u8) -> Config {
    let address = Cidr { address: [10, 0, 0, number].into(), prefix: 24 };
    let mut config = Config { addresses: vec![address], ..Config::new([u64::from(number); 4]) };
    config.tcp.fix_windows(20_000, 512 << 10);
    config
}

/// A server of what `make` makes, two clients, and what they did.
pub struct World {
    hands: Hands,
    /// The server's, and the clients'.
    pub devices: [Device; 3],
    event_loop: EventLoop<Hands, Hands>,
    pub askers: Vec<(Stack<Device>, Asker)>,
    /// What the governor was told.
    pub windows: Rc<RefCell<Vec<Window>>>,
    /// Bytes that the clients said.
    pub said: usize,
}

impl World {
    /// Where a governor sets W to so many microseconds.
    pub fn new<S: Service<Memory> + 'static>(micros: u64, make: impl FnOnce(&Handle) -> S) -> World {
        let hands = Hands::default();
        hands.0.set(1_000_000_000);
        let devices = [1, 2, 3].map(|number| Device::new(number, Offloads::default()));
        let event_loop = EventLoop::new(0, hands.clone(), hands.clone(), Arc::new(Deaf));
        let ports = Ports { tcp: vec![PORT], udp: Vec::new() };
        let handle = event_loop.handle();
        let mut server = Server::new(devices[0].clone(), hands.clone(), config(1), &ports, make(handle));
        let (windows, batching_delay) = (Rc::default(), Duration::from_micros(micros));
        server.govern(Box::new(Watch { windows: Rc::clone(&windows), batching_delay }), handle);
        server.control(Control::new(CONTROL_PORT, 1), 0, handle);
        handle.add_poller(nom_rt::INFRASTRUCTURE, server);
        let askers = [2, 3].map(|number| {
            let mut stack = stack(&devices[usize::from(number) - 1], number);
            stack.connect(([10, 0, 0, 1], PORT).into()).expect("a way");
            (stack, Asker::default())
        });
        World { hands, devices, event_loop, askers: askers.into(), windows, said: 0 }
    }

    /// Lets a tenth of a millisecond pass.
    pub fn step(&mut self) {
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

    pub fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.step());
    }

    /// Has one of the clients say something.
    pub fn say(&mut self, who: usize, bytes: &[u8]) {
        let (stack, asker) = &mut self.askers[who];
        let slice = stack.buffer(bytes).expect("memory");
        stack.send(asker.flow.expect("it is connected"), slice).expect("it goes");
        self.said += bytes.len();
    }

    pub fn heard(&self) -> usize {
        self.askers.iter().map(|(_, asker)| asker.heard).sum()
    }

    /// Requests, bytes of answers, and the sum of latencies in the machine, as the governor heard.
    pub fn served(&self) -> (u64, u64, u64) {
        let windows = self.windows.borrow();
        windows.iter().fold((0, 0, 0), |(requests, bytes, sum), window| {
            let total = window.requests * window.service.mean_ns;
            (requests + window.requests, bytes + window.answered_bytes, sum + total)
        })
    }

    /// Has one of the clients break its connection.
    pub fn reset(&mut self, who: usize) {
        let (stack, asker) = &mut self.askers[who];
        stack.abort(asker.flow.expect("it is connected"));
    }

    /// What the control port says to a question of the first client's machine.
    pub fn ask_control(&mut self, path: &str) -> String {
        let (stack, _) = &mut self.askers[0];
        let flow = stack.connect(([10, 0, 0, 1], CONTROL_PORT).into()).expect("a way");
        let question = format!("GET {path} HTTP/1.1\r\nHost: nom\r\n\r\n");
        let question = stack.buffer(question.as_bytes()).expect("memory");
        stack.send(flow, question).expect("it goes when the connection is open");
        self.steps(100);
        String::from_utf8(self.askers[0].1.told.clone()).expect("a text")
    }

    /// How the clients' connections have ended.
    pub fn ends(&self) -> [Option<Closed>; 2] {
        [0, 1].map(|who: usize| self.askers[who].1.end)
    }
}

/// Panics unwind to where they are kept from going further.
struct Unwinding;

impl Containment for Unwinding {
    fn contained(&self, work: &mut dyn FnMut(), escape: &dyn Fn()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            escape();
        }
    }
}

/// Keeps panics of a loop's tasks within them.
pub fn contained(handle: &Handle) {
    handle.contain(&Unwinding, || DefaultStack::new(256 << 10).ok());
}
