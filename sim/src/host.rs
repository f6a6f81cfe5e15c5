//! One simulated core: the runtime's event loop, over a stack, over a simulated device. A machine is one of
//! them or several.

use crate::card::{Card, Tally};
use crate::machine::{Machine, Watched};
use crate::memory::Pool;
use crate::nic::{Device, Port, Shape};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use nom_net::Config;
use nom_net::batch::Tallies;
use nom_port::world::{Clock, Doorbell, Idle, Wakeup};
use nom_rt::event_loop::EventLoop;
use nom_rt::handle::Handle;
use nom_rt::inbox::Remote;
use nom_rt::meter::INFRASTRUCTURE;
use nom_rt::rest::Thresholds;
use nom_rt::threads::pollers_wait_ns;
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
    /// How long a look at it takes.
    tick_ns: u64,
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
        self.0.now_ns.set(self.0.now_ns.get() + self.0.tick_ns);
        self.0.now_ns.get()
    }
}

/// What a loop is told when it goes on.
enum Order {
    /// To go on; a sleep has ended by that.
    Go(Wakeup),
    /// To end.
    End,
}

/// Why a loop waits for the world.
enum Pause {
    /// It has looked at everything once; whether there was something to do.
    Turned { worked: bool },
    /// It sleeps, with its deadline.
    Slept(Option<u64>),
}

type Routine = Coroutine<Order, Pause, (), DefaultStack>;

/// Lets the world have its turn while a core sleeps.
struct HostIdle<'y> {
    yielder: &'y Yielder<Order, Pause>,
    is_ended: &'y Cell<bool>,
}

impl Idle for HostIdle<'_> {
    fn sleep(&mut self, deadline_ns: Option<u64>) -> Wakeup {
        match self.yielder.suspend(Pause::Slept(deadline_ns)) {
            Order::Go(wakeup) => wakeup,
            Order::End => {
                self.is_ended.set(true);
                Wakeup::default()
            }
        }
    }
}

/// The loop of a core, on a stack of its own: where it sleeps it stays until the world wakes it. With its
/// handle.
fn routine(remote: Remote, clock: HostClock) -> (Routine, Handle) {
    let made = Rc::new(Cell::new(None));
    let slot = made.clone();
    let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
    let mut routine = Coroutine::with_stack(stack, move |yielder: &Yielder<Order, Pause>, _| {
        let is_ended = Cell::new(false);
        let idle = HostIdle { yielder, is_ended: &is_ended };
        let mut event_loop = EventLoop::reached_by(&remote, clock, idle);
        slot.set(Some(event_loop.handle().clone()));
        let mut worked = false;
        while !is_ended.get() {
            match yielder.suspend(Pause::Turned { worked }) {
                Order::Go(_) => worked = event_loop.turn(),
                Order::End => return,
            }
        }
    });
    routine.resume(Order::Go(Wakeup::default()));
    (routine, made.take().expect("the loop has set it"))
}

/// What runs on a host has debug assertions and tables of clients, but no deep recursion.
const STACK_BYTES: usize = 1 << 20;

/// Hosts of one core: there is nobody to ring.
pub struct Alone;

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
#[derive(Clone, Debug)]
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
    /// Nanoseconds that each look at the clock takes, so that threads have their turns.
    pub tick_ns: u64,
}

/// What a machine runs on.
pub struct Core<N = Device> {
    /// Its device.
    pub device: N,
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

/// A simulated core with what runs on it.
pub struct Host {
    name: String,
    clock: Rc<Timepiece>,
    card: Rc<RefCell<dyn Card>>,
    machine: Rc<RefCell<Watched>>,
    routine: Routine,
    /// Whether its loop sleeps.
    is_asleep: bool,
    /// What has come for it since it last slept.
    pending: Wakeup,
    /// Whether other cores may have their turn after each turn of its loop.
    is_one_of_many: bool,
    /// Turns at the present point in time.
    turns: usize,
    wake_ns: u64,
    cost: Cost,
    /// When it has done what it was given, by the world's clock.
    busy_until_ns: u64,
    /// The longest that it had to do without a look at anything else.
    busiest_ns: u64,
    /// When its loop goes on, by the world's clock.
    due_ns: Option<u64>,
}

impl Host {
    /// A host of one core, on which the machine that `make` makes of it runs from time 0 on.
    pub fn new<M: Machine + 'static>(plan: Plan, make: impl FnOnce(Core) -> M) -> Host {
        let port = Port::new(plan.shape, Pool::new(plan.memory));
        let remote = Remote::new(0, Arc::new(Alone));
        Host::reached_by(plan, remote, (port.clone(), Device(port)), make)
    }

    /// The same on the core that `remote` leads to, with a device of any kind.
    pub fn reached_by<N, M: Machine + 'static>(
        plan: Plan,
        remote: Remote,
        (card, device): (Rc<RefCell<dyn Card>>, N),
        make: impl FnOnce(Core<N>) -> M,
    ) -> Host {
        let clock = Rc::new(Timepiece {
            start_ns: plan.start_ns,
            skew_ppm: plan.skew_ppm,
            now_ns: Cell::new(plan.start_ns),
            tick_ns: plan.tick_ns,
        });
        let (routine, handle) = routine(remote, HostClock(clock.clone()));
        handle.set_thresholds(plan.thresholds);
        let clock_of = HostClock(clock.clone());
        let core = Core { device, config: plan.config, clock: clock_of, handle: handle.clone() };
        let machine = Rc::new(RefCell::new(Watched::new(Box::new(make(core)))));
        handle.add_poller(INFRASTRUCTURE, machine.clone());
        let (name, wake_ns, cost) = (plan.name, plan.wake_ns, plan.cost);
        let (busy_until_ns, busiest_ns, due_ns) = (0, 0, Some(0));
        let (is_asleep, pending, is_one_of_many, turns) = (false, Wakeup::default(), false, 0);
        Host {
            name,
            clock,
            card,
            machine,
            routine,
            is_asleep,
            pending,
            is_one_of_many,
            turns,
            wake_ns,
            cost,
            busy_until_ns,
            busiest_ns,
            due_ns,
        }
    }

    /// One of several cores of a machine: what they do to each other is seen in the order of time.
    pub fn among_others(mut self) -> Host {
        self.is_one_of_many = true;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs its loop from `world_ns` on until that has nothing more to do, or for one turn if there are other
    /// cores, and takes what it sent, with the time at which its work is done.
    ///
    /// # Panics
    /// If it does not come to rest.
    pub fn run(&mut self, world_ns: u64) -> (u64, Vec<Vec<u8>>) {
        if self.due_ns.is_none_or(|due_ns| due_ns > world_ns) {
            return (world_ns, self.work(world_ns));
        }
        if world_ns > self.busy_until_ns {
            self.turns = 0;
        }
        self.busy_until_ns = world_ns;
        while !self.turn() {
            self.turns += 1;
            assert!(self.turns < TURNS_MAX, "{}: does not come to rest at {world_ns} ns", self.name);
        }
        // Whatever it is to do next, it does when it has done this.
        self.due_ns = self.due_ns.map(|due_ns| due_ns.max(self.busy_until_ns));
        (self.busy_until_ns, self.card.borrow_mut().take_sent())
    }

    /// The device does what it does by itself, and maybe interrupts; what goes out.
    fn work(&mut self, world_ns: u64) -> Vec<Vec<u8>> {
        let mut card = self.card.borrow_mut();
        card.set_time(self.clock.local(world_ns));
        card.work();
        let sent = card.take_sent();
        drop(card);
        self.hear(world_ns);
        sent
    }

    /// When its loop or its device goes on, by the world's clock.
    pub fn next_ns(&self) -> Option<u64> {
        let device_ns = self.card.borrow().due_ns().map(|due_ns| self.clock.world(due_ns));
        self.due_ns.into_iter().chain(device_ns).min()
    }

    /// One turn of the loop. Returns whether the world has to have its turn; if so, it is known when this
    /// core goes on.
    fn turn(&mut self) -> bool {
        let now_ns = self.clock.local(self.busy_until_ns);
        self.clock.now_ns.set(now_ns);
        self.card.borrow_mut().set_time(now_ns);
        let wakeup = std::mem::take(&mut self.pending);
        let pause = self.resume(Order::Go(wakeup));
        let card = &mut *self.card.borrow_mut();
        card.work();
        let (packets, bytes) = card.take_work();
        // A clock that is slow by a thousandth shows less.
        let shown_ns = (self.clock.now_ns.get() - now_ns) * 1002 / 1000;
        let spent_ns = self.cost.of(packets, bytes) + shown_ns;
        self.busiest_ns = self.busiest_ns.max(spent_ns);
        self.busy_until_ns += spent_ns;
        let world = |deadline_ns| self.clock.world(deadline_ns);
        let deadline_ns = match pause {
            Some(Pause::Slept(deadline_ns)) => {
                self.is_asleep = true;
                self.due_ns = deadline_ns.map(world);
                // What the device did meanwhile may have woken it already.
                let is_woken = card.take_interrupt() || self.pending.messages;
                if is_woken {
                    self.due_ns = Some(self.busy_until_ns);
                }
                return !is_woken || self.is_one_of_many;
            }
            // It has slept until now.
            Some(Pause::Turned { .. }) if std::mem::take(&mut self.is_asleep) => {
                self.due_ns = Some(self.busy_until_ns);
                return self.is_one_of_many;
            }
            Some(Pause::Turned { worked: true }) | None => Some(now_ns),
            Some(Pause::Turned { worked: false }) => self.machine.borrow().deadline_ns,
        };
        let is_busy = deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns) || card.has_received();
        // It polls on.
        let next_ns = self.busy_until_ns + if is_busy { 0 } else { POLL_NS };
        let due_ns = deadline_ns.map(world);
        self.due_ns = Some(due_ns.map_or(next_ns, |due_ns| due_ns.clamp(self.busy_until_ns, next_ns)));
        !is_busy || self.is_one_of_many
    }

    /// Lets the loop go on; why it waits again, unless it has ended.
    fn resume(&mut self, order: Order) -> Option<Pause> {
        match self.routine.resume(order) {
            CoroutineResult::Yield(pause) => Some(pause),
            CoroutineResult::Return(()) => None,
        }
    }

    /// A frame arrives at `world_ns`; `false` if it is lost for want of room.
    pub fn deliver(&mut self, world_ns: u64, frame: Vec<u8>) -> bool {
        let at_ns = self.clock.local(world_ns);
        let is_taken = self.card.borrow_mut().deliver(frame, at_ns);
        self.hear(world_ns);
        is_taken
    }

    /// Its device may have interrupted it by `world_ns`.
    pub fn hear(&mut self, world_ns: u64) {
        if self.card.borrow_mut().take_interrupt() {
            self.pending.interrupts = 1;
            self.wake(world_ns);
        }
    }

    /// Another core has rung for it, at `world_ns`.
    pub fn ring(&mut self, world_ns: u64) {
        self.pending.messages = true;
        self.wake(world_ns);
    }

    /// It is there again, at `world_ns`, after it was given back.
    pub fn come_back(&mut self, world_ns: u64) {
        let mut card = self.card.borrow_mut();
        card.set_time(self.clock.local(world_ns));
        card.come_back();
        drop(card);
        self.pending.messages = true;
        self.rouse(world_ns);
    }

    /// Ends its sleep, if it sleeps, as soon as an interrupt does.
    fn wake(&mut self, world_ns: u64) {
        if self.is_asleep {
            let woken_ns = (world_ns + self.wake_ns).max(self.busy_until_ns);
            self.due_ns = Some(self.due_ns.map_or(woken_ns, |due_ns| due_ns.min(woken_ns)));
        }
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

    /// Whether it sleeps, and no doorbell has ended that.
    pub fn is_untold(&self) -> bool {
        self.is_asleep && !self.pending.messages
    }

    /// Whether other cores have done something that it is to act on and has not seen.
    pub fn is_behind(&self) -> bool {
        self.with(|machine| machine.is_behind()).unwrap_or(false)
    }

    /// Whether it is a core that is to leave, and can as soon as the first one tells it to look.
    pub fn can_leave(&self) -> bool {
        self.with(|machine| machine.can_leave()).unwrap_or(false)
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

    /// What happened at its device.
    pub fn tally(&self) -> Tally {
        self.card.borrow().tally()
    }

    /// Ends its machine; what that held is free.
    pub fn end(&mut self) {
        self.machine.borrow_mut().end();
    }

    /// Pieces of its device's memory that somebody holds.
    pub fn memory_live(&self) -> usize {
        self.card.borrow().memory_live()
    }

    /// Its device breaks, and is reset: what lay in its rings is lost, and what comes before `until_ns`.
    pub fn break_device(&mut self, world_ns: u64, until_ns: u64) {
        let until_ns = self.clock.local(until_ns);
        let is_to_find_out = self.card.borrow_mut().break_down(until_ns);
        if is_to_find_out {
            self.hear(world_ns);
        } else {
            // Whoever resets it finds out what is left to do.
            self.rouse(world_ns);
        }
    }

    /// The longest that it had to do without a look at anything else.
    pub fn busiest_ns(&self) -> u64 {
        // Who is under way while time passes says nothing of its deadline, and may look a poll later.
        let late_ns = if self.clock.tick_ns > 0 { POLL_NS } else { 0 };
        self.busiest_ns * 101 / 100 + late_ns
    }

    /// The longest that a frame may lie in its ring: until the core wakes, has done what lay before it, and
    /// threads have had their turns, if there are any.
    pub fn lay_limit_ns(&self) -> u64 {
        let work_ns = self.cost.of(self.card.borrow().ring() as u64, 0) + self.busiest_ns;
        let threads_ns = if self.clock.tick_ns > 0 { pollers_wait_ns(work_ns, u32::MAX) } else { 0 };
        let before = work_ns + threads_ns;
        // A clock that is fast by a thousandth counts a little more.
        (self.wake_ns + POLL_NS + 2 * before) * 101 / 100 + 1
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.routine.started() && !self.routine.done() {
            self.resume(Order::End);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_clock_reaches_a_deadline_at_the_first_nanosecond_that_it_can() {
        for skew_ppm in [-1000, -1, 0, 3, 999] {
            let clock = Timepiece { start_ns: 12_345, skew_ppm, now_ns: Cell::new(0), tick_ns: 0 };
            for local_ns in [0, 12_345, 12_346, 1_000_000, 999_999_999_999] {
                let world_ns = clock.world(local_ns);
                assert!(clock.local(world_ns) >= local_ns);
                assert!(world_ns == 0 || clock.local(world_ns - 1) < local_ns, "{skew_ppm} {local_ns}");
            }
        }
    }
}
