//! One simulated machine of one core: the runtime's event loop, over a stack, over a simulated device.

use crate::machine::{Machine, Watched};
use crate::memory::Pool;
use crate::nic::{Device, Port, Shape};
use nom_net::Config;
use nom_net::batch::Tallies;
use nom_port::world::{Clock, Doorbell, Idle, Wakeup};
use nom_rt::event_loop::EventLoop;
use nom_rt::handle::Handle;
use nom_rt::meter::INFRASTRUCTURE;
use nom_rt::rest::Thresholds;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

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

/// The clock of a host, as what runs on it reads it.
#[derive(Clone, Debug)]
pub struct HostClock(Rc<Timepiece>);

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

/// What work costs a core, in time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Nanoseconds that a packet takes, received or handed to the device.
    pub packet_ns: u64,
    /// Picoseconds that each of its bytes takes.
    pub byte_ps: u64,
}

impl Cost {
    /// Of so many packets of so many bytes altogether, in nanoseconds.
    fn of(self, packets: u64, bytes: u64) -> u64 {
        packets * self.packet_ns + bytes * self.byte_ps / 1000
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
    /// What its work costs.
    pub cost: Cost,
}

/// What a machine runs on.
pub struct Core {
    /// Its device.
    pub device: Device,
    /// How its stack is to be set up.
    pub config: Config,
    /// Its clock.
    pub clock: HostClock,
    /// Its event loop.
    pub handle: Handle,
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
    machine: Rc<RefCell<Watched>>,
    event_loop: EventLoop<HostClock, HostIdle>,
    rest: Rc<Rest>,
    wake_ns: u64,
    cost: Cost,
    /// When it has done what it was given, by the world's clock.
    busy_until_ns: u64,
    /// The longest that it had to do without a look at anything else.
    busiest_ns: u64,
    /// When it goes on, by the world's clock.
    pub due_ns: Option<u64>,
}

impl Host {
    /// A host on which the machine that `make` makes of its core runs from time 0 on.
    pub fn new<M: Machine + 'static>(plan: Plan, make: impl FnOnce(Core) -> M) -> Host {
        let clock = Rc::new(Timepiece {
            start_ns: plan.start_ns,
            skew_ppm: plan.skew_ppm,
            now_ns: Cell::new(plan.start_ns),
        });
        let pool = Pool::new(plan.memory);
        let port = Port::new(plan.shape, pool.clone());
        let rest = Rc::<Rest>::default();
        let idle = HostIdle { rest: rest.clone(), port: port.clone() };
        let event_loop = EventLoop::new(0, HostClock(clock.clone()), idle, Arc::new(Alone));
        event_loop.handle().set_thresholds(plan.thresholds);
        let machine = make(Core {
            device: Device(port.clone()),
            config: plan.config,
            clock: HostClock(clock.clone()),
            handle: event_loop.handle().clone(),
        });
        let machine = Rc::new(RefCell::new(Watched::new(Box::new(machine))));
        event_loop.handle().add_poller(INFRASTRUCTURE, machine.clone());
        let (name, wake_ns, cost) = (plan.name, plan.wake_ns, plan.cost);
        let (busy_until_ns, busiest_ns, due_ns) = (0, 0, Some(0));
        Host {
            name,
            clock,
            port,
            pool,
            machine,
            event_loop,
            rest,
            wake_ns,
            cost,
            busy_until_ns,
            busiest_ns,
            due_ns,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs its loop from `world_ns` on until that has nothing more to do, and takes what it sent, with the
    /// time at which its work is done.
    ///
    /// # Panics
    /// If it does not come to rest.
    pub fn run(&mut self, world_ns: u64) -> (u64, Vec<Vec<u8>>) {
        let sent = self.run_to_rest(world_ns);
        // Whatever it is to do next, it does when it has done this.
        self.due_ns = self.due_ns.map(|due_ns| due_ns.max(self.busy_until_ns));
        (self.busy_until_ns, sent)
    }

    fn run_to_rest(&mut self, world_ns: u64) -> Vec<Vec<u8>> {
        let mut world_ns = world_ns;
        self.busy_until_ns = world_ns;
        for _ in 0..TURNS_MAX {
            let now_ns = self.clock.local(world_ns);
            self.clock.now_ns.set(now_ns);
            self.port.borrow_mut().now_ns = now_ns;
            let worked = self.event_loop.turn();
            let (packets, bytes) = self.port.borrow_mut().take_work();
            let spent_ns = self.cost.of(packets, bytes);
            self.busiest_ns = self.busiest_ns.max(spent_ns);
            world_ns += spent_ns;
            self.busy_until_ns = world_ns;
            if let Some(deadline_ns) = self.rest.slept.take() {
                self.due_ns = deadline_ns.map(|deadline_ns| self.clock.world(deadline_ns));
                return self.port.borrow_mut().take_sent();
            }
            let deadline_ns = self.machine.borrow().deadline_ns;
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
        panic!("{}: does not come to rest at {world_ns} ns", self.name);
    }

    /// A frame arrives at `world_ns`; `false` if it is lost for want of room.
    pub fn deliver(&mut self, world_ns: u64, frame: Vec<u8>) -> bool {
        let at_ns = self.clock.local(world_ns);
        let is_taken = self.port.borrow_mut().deliver(frame, at_ns);
        if self.rest.is_interruptible.get() {
            let woken_ns = (world_ns + self.wake_ns).max(self.busy_until_ns);
            self.due_ns = Some(self.due_ns.map_or(woken_ns, |due_ns| due_ns.min(woken_ns)));
        }
        is_taken
    }

    /// It goes on at `world_ns`, or when it has done what it does.
    pub fn rouse(&mut self, world_ns: u64) {
        self.due_ns = Some(world_ns.max(self.busy_until_ns));
    }

    fn with<T>(&self, look: impl FnOnce(&mut (dyn Machine + 'static)) -> T) -> Option<T> {
        self.machine.borrow_mut().machine().map(look)
    }

    /// Whether its machine has nothing left to do.
    pub fn is_over(&self) -> bool {
        self.with(|machine| machine.is_over()).unwrap_or(true)
    }

    /// What its machine has achieved.
    pub fn achieved(&self) -> u64 {
        self.with(|machine| machine.achieved()).unwrap_or_default()
    }

    /// Flows of its stack.
    pub fn flow_count(&self) -> usize {
        self.with(|machine| machine.flow_count()).unwrap_or_default()
    }

    /// Sets the batching delay of its stack.
    pub fn set_delay(&self, delay: Duration) {
        self.with(|machine| machine.set_delay(delay));
    }

    /// Flushes of what its stack received, and of what it sent.
    pub fn tallies(&self) -> (Tallies, Tallies) {
        self.machine.borrow().tallies()
    }

    /// What happened at its port.
    pub fn tally(&self) -> crate::nic::Tally {
        self.port.borrow().tally
    }

    /// Ends its machine; what that held is free.
    pub fn end(&mut self) {
        self.machine.borrow_mut().end();
    }

    /// Pieces of its device's memory that somebody holds.
    pub fn memory_live(&self) -> usize {
        self.pool.live()
    }

    /// Its device breaks, and is reset: what lay in its rings is lost, and what comes before `until_ns`.
    pub fn break_device(&mut self, until_ns: u64) {
        let until_ns = self.clock.local(until_ns);
        self.port.borrow_mut().reset(until_ns);
    }

    /// The longest that it had to do without a look at anything else.
    pub fn busiest_ns(&self) -> u64 {
        self.busiest_ns * 101 / 100
    }

    /// The longest that a frame may lie in its ring: until the core wakes, and has done what lay before it.
    pub fn lay_limit_ns(&self) -> u64 {
        let before = self.cost.of(self.port.borrow().ring() as u64, 0) + self.busiest_ns;
        // A clock that is fast by a thousandth counts a little more.
        (self.wake_ns + POLL_NS + 2 * before) * 101 / 100 + 1
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
