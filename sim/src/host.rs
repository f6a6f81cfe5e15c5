//! One simulated machine of one core: the runtime's event loop, over a stack, over a simulated device.

use crate::memory::{Bytes, Memory, Pool};
use crate::nic::{Device, Port, Shape};
use nom_net::{Application, Chain, Closed, Config, FlowId, Instant, Stack};
use nom_port::nic::{Nic as _, gather};
use nom_port::world::{Clock, Doorbell, Idle, Wakeup};
use nom_rt::event_loop::EventLoop;
use nom_rt::meter::INFRASTRUCTURE;
use nom_rt::poller::{Poller, Progress};
use nom_rt::rest::Thresholds;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// A stack over a simulated device.
pub type HostStack = Stack<Device>;

/// What runs on a host, over its stack.
pub trait Program {
    /// Does what is to be done at `now_ns` of the host's clock.
    fn at(&mut self, stack: &mut HostStack, now_ns: u64);
    /// When it wants to be called if nothing happens before.
    fn due_ns(&self) -> Option<u64>;
    /// A flow is open.
    fn connected(&mut self, stack: &mut HostStack, flow: FlowId);
    /// Bytes came.
    fn received(&mut self, stack: &mut HostStack, flow: FlowId, bytes: Bytes);
    /// A flow can take more.
    fn sendable(&mut self, stack: &mut HostStack, flow: FlowId);
    /// The peer will send no more.
    fn finished(&mut self, stack: &mut HostStack, flow: FlowId);
    /// A flow is over.
    fn closed(&mut self, stack: &mut HostStack, flow: FlowId, why: Closed);
    /// A datagram came.
    fn datagram(&mut self, stack: &mut HostStack, to: SocketAddr, from: SocketAddr, bytes: Bytes) {
        let _ = (stack, to, from, bytes);
    }
    /// Whether it has nothing left to do: always so for a server.
    fn is_over(&self) -> bool {
        true
    }
    /// Things achieved, such as answers that were right.
    fn achieved(&self) -> u64 {
        0
    }
}

/// A program, as the stack wants it.
struct Calls(Box<dyn Program>);

impl Application<Device> for Calls {
    fn connected(&mut self, stack: &mut HostStack, flow: FlowId) {
        self.0.connected(stack, flow);
    }

    fn received(&mut self, stack: &mut HostStack, flow: FlowId, bytes: Bytes) {
        self.0.received(stack, flow, bytes);
    }

    fn sendable(&mut self, stack: &mut HostStack, flow: FlowId) {
        self.0.sendable(stack, flow);
    }

    fn finished(&mut self, stack: &mut HostStack, flow: FlowId) {
        self.0.finished(stack, flow);
    }

    fn closed(&mut self, stack: &mut HostStack, flow: FlowId, why: Closed) {
        self.0.closed(stack, flow, why);
    }

    fn datagram(&mut self, stack: &mut HostStack, to: SocketAddr, from: SocketAddr, bytes: Chain<Memory>) {
        if let Some(bytes) = stack.buffer(&gather(&bytes)) {
            self.0.datagram(stack, to, from, bytes);
        }
    }
}

/// A host's clock: it starts somewhere, and runs fast or slow.
#[derive(Debug)]
struct Timepiece {
    start_ns: u64,
    /// Parts in a million by which it is fast.
    skew_ppm: i64,
    now_ns: Cell<u64>,
}

impl Timepiece {
    /// What it shows at `world_ns`.
    fn local(&self, world_ns: u64) -> u64 {
        let skew = world_ns as i128 * i128::from(self.skew_ppm) / 1_000_000;
        (i128::from(self.start_ns) + world_ns as i128 + skew) as u64
    }

    /// The first nanosecond at which it shows at least `local_ns`.
    fn world(&self, local_ns: u64) -> u64 {
        let passed = i128::from(local_ns) - i128::from(self.start_ns);
        let mut world_ns = (passed * 1_000_000 / i128::from(1_000_000 + self.skew_ppm)).max(0) as u64;
        // Rounding is wrong by a nanosecond or two at most.
        world_ns = world_ns.saturating_sub(2);
        while self.local(world_ns) < local_ns {
            world_ns += 1;
        }
        world_ns
    }
}

struct HostClock(Rc<Timepiece>);

impl Clock for HostClock {
    fn now_ns(&self) -> u64 {
        self.0.now_ns.get()
    }
}

/// How a host rests, as its loop said it.
#[derive(Debug, Default)]
struct Rest {
    /// Set by a sleep, with its deadline.
    slept: Cell<Option<Option<u64>>>,
    is_interruptible: Cell<bool>,
}

/// Ends every sleep at once, but notes that there was one: it is the world that lets time pass.
struct HostIdle {
    rest: Rc<Rest>,
    port: Rc<RefCell<Port>>,
}

impl Idle for HostIdle {
    fn sleep(&mut self, deadline_ns: Option<u64>) -> Wakeup {
        self.rest.slept.set(Some(deadline_ns));
        self.rest.is_interruptible.set(self.port.borrow().is_armed);
        Wakeup::default()
    }
}

/// Hosts have one core: there is nobody to ring.
struct Alone;

impl Doorbell for Alone {
    fn ring(&self, _: usize) {}
}

/// Stack and program, as the loop polls them.
struct Node {
    stack: HostStack,
    program: Option<Calls>,
    frames: u64,
    deadline_ns: Option<u64>,
}

impl Poller for Node {
    fn poll(&mut self, now_ns: u64) -> Progress {
        let Some(program) = &mut self.program else { return Progress::default() };
        program.0.at(&mut self.stack, now_ns);
        let stack_ns = self.stack.poll(Instant::from_nanos(now_ns), program).map(Instant::nanos);
        let program_ns = program.0.due_ns();
        let frames = self.stack.counters().frames_received;
        let worked = frames.wrapping_sub(std::mem::replace(&mut self.frames, frames)) as u32;
        self.deadline_ns = stack_ns.into_iter().chain(program_ns).min();
        Progress { worked, deadline_ns: self.deadline_ns }
    }

    fn arm(&mut self) -> bool {
        self.stack.nic().arm()
    }

    fn disarm(&mut self) {
        self.stack.nic().disarm();
    }
}

/// What a host is made of.
#[derive(Debug)]
pub struct Plan {
    /// For messages and traces.
    pub name: String,
    /// Its device.
    pub shape: Shape,
    /// Its stack.
    pub config: Config,
    /// TCP ports that it listens on.
    pub tcp: Vec<u16>,
    /// UDP ports that it binds.
    pub udp: Vec<u16>,
    /// Bytes of memory of its device.
    pub memory: usize,
    /// What its clock shows at the start.
    pub start_ns: u64,
    /// Parts in a million by which its clock is fast.
    pub skew_ppm: i64,
    /// Time from an interrupt to the first instruction.
    pub wake_ns: u64,
    /// How it chooses between polling and sleep.
    pub thresholds: Thresholds,
}

/// One turn of a loop that polls takes so long.
const POLL_NS: u64 = 2_000;

/// Turns at one point in time, after which the loop is taken for hung.
const TURNS_MAX: usize = 100_000;

/// A simulated machine.
pub struct Host {
    name: String,
    clock: Rc<Timepiece>,
    port: Rc<RefCell<Port>>,
    pool: Rc<Pool>,
    node: Rc<RefCell<Node>>,
    event_loop: EventLoop<HostClock, HostIdle>,
    rest: Rc<Rest>,
    wake_ns: u64,
    /// When it goes on, by the world's clock.
    pub due_ns: Option<u64>,
}

impl Host {
    /// A host on which `program`, which gets its stack first, runs from time 0 on.
    pub fn new<P: Program + 'static>(plan: Plan, program: impl FnOnce(&mut HostStack) -> P) -> Host {
        let clock = Rc::new(Timepiece {
            start_ns: plan.start_ns,
            skew_ppm: plan.skew_ppm,
            now_ns: Cell::new(plan.start_ns),
        });
        let pool = Pool::new(plan.memory);
        let port = Port::new(plan.shape, pool.clone());
        let mut stack = Stack::new(Device(port.clone()), plan.config);
        plan.tcp.iter().for_each(|port| stack.listen(*port));
        plan.udp.iter().for_each(|port| stack.bind(*port));
        let program = Calls(Box::new(program(&mut stack)));
        let node = Node { stack, program: Some(program), frames: 0, deadline_ns: None };
        let node = Rc::new(RefCell::new(node));
        let rest = Rc::<Rest>::default();
        let idle = HostIdle { rest: rest.clone(), port: port.clone() };
        let event_loop = EventLoop::new(0, HostClock(clock.clone()), idle, Arc::new(Alone));
        event_loop.handle().set_thresholds(plan.thresholds);
        event_loop.handle().add_poller(INFRASTRUCTURE, node.clone());
        let (name, wake_ns) = (plan.name, plan.wake_ns);
        Host { name, clock, port, pool, node, event_loop, rest, wake_ns, due_ns: Some(0) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs its loop at `world_ns` until that has nothing more to do at this time, and takes what it sent.
    ///
    /// # Panics
    /// If it does not come to rest.
    pub fn run(&mut self, world_ns: u64) -> Vec<Vec<u8>> {
        let now_ns = self.clock.local(world_ns);
        self.clock.now_ns.set(now_ns);
        self.port.borrow_mut().now_ns = now_ns;
        for _ in 0..TURNS_MAX {
            let worked = self.event_loop.turn();
            if let Some(deadline_ns) = self.rest.slept.take() {
                self.due_ns = deadline_ns.map(|deadline_ns| self.clock.world(deadline_ns));
                return self.port.borrow_mut().take_sent();
            }
            let deadline_ns = self.node.borrow().deadline_ns;
            let is_due = deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns);
            if !worked && !is_due && !self.port.borrow().has_received() {
                // It polls on.
                self.rest.is_interruptible.set(false);
                let next_ns = world_ns + POLL_NS;
                let due_ns = deadline_ns.map(|deadline_ns| self.clock.world(deadline_ns));
                self.due_ns = Some(due_ns.map_or(next_ns, |due_ns| due_ns.min(next_ns)));
                return self.port.borrow_mut().take_sent();
            }
        }
        panic!("{}: does not come to rest at {now_ns} ns of its clock", self.name);
    }

    /// A frame arrives at `world_ns`; `false` if it is lost for want of room.
    pub fn deliver(&mut self, world_ns: u64, frame: Vec<u8>) -> bool {
        let at_ns = self.clock.local(world_ns);
        let is_taken = self.port.borrow_mut().deliver(frame, at_ns);
        if self.rest.is_interruptible.get() {
            let woken_ns = world_ns + self.wake_ns;
            self.due_ns = Some(self.due_ns.map_or(woken_ns, |due_ns| due_ns.min(woken_ns)));
        }
        is_taken
    }

    /// Whether its program has nothing left to do.
    pub fn is_over(&self) -> bool {
        self.node.borrow().program.as_ref().is_none_or(|program| program.0.is_over())
    }

    /// What its program has achieved.
    pub fn achieved(&self) -> u64 {
        self.node.borrow().program.as_ref().map_or(0, |program| program.0.achieved())
    }

    /// Flows of its stack.
    pub fn flow_count(&self) -> usize {
        self.node.borrow().stack.flow_count()
    }

    /// A look at its stack.
    pub fn with_stack<T>(&self, look: impl FnOnce(&mut HostStack) -> T) -> T {
        look(&mut self.node.borrow_mut().stack)
    }

    /// What happened at its port.
    pub fn tally(&self) -> crate::nic::Tally {
        self.port.borrow().tally
    }

    /// Ends its program; what that held is free.
    pub fn end_program(&mut self) {
        let program = self.node.borrow_mut().program.take();
        drop(program);
    }

    /// Pieces of its device's memory that somebody holds.
    pub fn memory_live(&self) -> usize {
        self.pool.live()
    }

    /// The longest that a frame may lie in its ring.
    pub fn lay_limit_ns(&self) -> u64 {
        // A clock that is fast by a thousandth counts a little more.
        (self.wake_ns + POLL_NS) * 101 / 100 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_clock_reaches_a_deadline_at_the_first_nanosecond_that_it_can() {
        for skew_ppm in [-1000, -1, 0, 3, 999] {
            let clock = Timepiece { start_ns: 12_345, skew_ppm, now_ns: Cell::new(0) };
            for local_ns in [0, 12_345, 12_346, 1_000_000, 999_999_999_999] {
                let world_ns = clock.world(local_ns);
                assert!(clock.local(world_ns) >= local_ns);
                assert!(world_ns == 0 || clock.local(world_ns - 1) < local_ns, "{skew_ppm} {local_ns}");
            }
        }
    }
}
