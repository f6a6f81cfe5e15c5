//! Cores beside the first, which run programs between two calls, and nothing else.
//!
//! Everything of the library is the first core's, home: calls, faults, signals, files and sockets, and it
//! alone changes what processes have in memory. A thread that computes while others wait for that core is
//! lent to another one, a runner, with its registers, and comes back when it wants something: so what
//! programs compute goes on side by side, nothing of the library is shared but a [`Place`] for each runner,
//! and a server whose threads make one call after the other pays nothing for cores that it does not need. A
//! runner is acquired when somebody has use for it, and released when nobody had for a while.

mod place;

use crate::task::Task;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::task::{Poll, Waker};
use nom_app::port::world::Preemption as _;
use nom_app::sockets::Thread;
use nom_sys::abi::upcall::Registers;
use nom_sys::cores::{self, Core};
use nom_sys::port::Interrupter;
use nom_sys::program::{DetachedContext, ProgramContext, ProgramSpace, Trap};
use nom_sys::{events, program, time};
use place::{Place, Taken};

/// A core for which nobody had use for so long is released.
const IDLE_NS: u64 = 500_000_000;
/// Where none was to be had, none is asked for again for so long.
const AGAIN_NS: u64 = 100_000_000;
/// A thread that computes makes way for another one that does after this time, if there is one.
const TURN_NS: u64 = 4_000_000;
/// Who runs for less before a call does not compute: to go to another core and back would take as long.
const COMPUTES_NS: u64 = 200_000;
/// The processor that home is.
pub(crate) const HOME: u32 = 0;

/// A thread, as it is lent.
#[derive(Debug)]
struct Job {
    context: DetachedContext,
    space: ProgramSpace,
    waker: Waker,
}

/// The same as it comes back.
#[derive(Debug)]
struct Back {
    context: DetachedContext,
    trap: Trap,
    ran_ns: u64,
}

/// What a runner and home share.
#[derive(Debug)]
struct Shared {
    place: Place<Job, Back>,
    /// More threads compute than there are cores.
    are_wanted: Arc<AtomicBool>,
}

/// One of the cores, as home knows it.
pub(crate) struct Runner {
    shared: Arc<Shared>,
    core: Core,
    /// Which processor it is to programs; home is the first.
    pub processor: u32,
    /// What stands for the thread that it has, at home.
    stand_in: RefCell<Option<Box<ProgramContext>>>,
    /// Where that thread's memory is.
    space: RefCell<Option<ProgramSpace>>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Runner({:?})", self.core)
    }
}

/// All runners.
#[derive(Debug, Default)]
pub(crate) struct Runners {
    all: RefCell<Vec<Rc<Runner>>>,
    are_wanted: Arc<AtomicBool>,
    /// When one may be asked for again.
    again_ns: Cell<u64>,
}

/// How many cores programs may run on: those that the machine has, as far as the manifest lets them be had.
pub(crate) fn processors() -> u32 {
    let own = nom_sys::start::info().cores_max;
    own.min(nom_sys::start::board().machine.cores.load(Relaxed)).clamp(1, u64::BITS)
}

impl Runners {
    /// One that nobody uses, if there is any among those that may be.
    fn free(&self, allowed: Affinity) -> Option<Rc<Runner>> {
        let mut all = self.all.borrow_mut();
        all.retain(|runner| !runner.core.is_finished());
        let is_free = |runner: &&Rc<Runner>| allowed.has(runner.processor) && runner.space.borrow().is_none();
        if let Some(runner) = all.iter().find(is_free) {
            return Some(runner.clone());
        }
        let is_new = |number: &u32| !all.iter().any(|runner| runner.processor == *number);
        let processor = (1..processors()).find(|number| allowed.has(*number) && is_new(number))?;
        let now_ns = time::now_ns();
        if now_ns < self.again_ns.get() {
            return None;
        }
        let Some(runner) = Runner::acquire(processor, &self.are_wanted) else {
            self.again_ns.set(now_ns + AGAIN_NS);
            return None;
        };
        let runner = Rc::new(runner);
        all.push(runner.clone());
        Some(runner)
    }

    /// Has all threads come back that are in one of those spaces, and waits until they have.
    pub fn recall(&self, is_meant: impl Fn(&ProgramSpace) -> bool) {
        for runner in self.all.borrow().iter() {
            if runner.space.borrow().as_ref().is_some_and(&is_meant) {
                runner.recall();
                while runner.shared.place.is_at_work() {
                    core::hint::spin_loop();
                }
            }
        }
    }
}

impl Runner {
    /// One more, if there is a core.
    fn acquire(processor: u32, are_wanted: &Arc<AtomicBool>) -> Option<Runner> {
        let shared = Arc::new(Shared { place: Place::new(), are_wanted: are_wanted.clone() });
        let its = shared.clone();
        let core = cores::acquire(move || work(&its)).ok()?;
        let (stand_in, space) = Default::default();
        Some(Runner { shared, core, processor, stand_in, space })
    }

    /// Gives it a thread.
    ///
    /// # Errors
    /// The same, as if it came back at once, if the core has just left.
    fn offer(&self, job: Job) -> Result<(), Back> {
        match self.shared.place.offer(job) {
            Ok(Taken::Seen) => Ok(()),
            Ok(Taken::Asleep) => {
                self.ring();
                Ok(())
            }
            Err(Job { context, .. }) => Err(Back { context, trap: Trap::Interrupted, ran_ns: 0 }),
        }
    }

    /// Has the thread come back that it has.
    fn recall(&self) {
        if self.shared.place.recall() {
            self.ring();
        }
    }

    fn ring(&self) {
        // Who has left meanwhile has nothing that it would have to be woken for.
        let _ = cores::notify(self.core.number());
    }
}

/// Processors that a thread may compute on, a bit each (sched_setaffinity(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affinity(pub u64);

impl Affinity {
    /// All there are.
    pub fn all() -> Affinity {
        Affinity(u64::MAX >> (u64::BITS - processors()))
    }

    /// Whether a processor is among them.
    pub fn has(self, processor: u32) -> bool {
        self.0 >> processor & 1 != 0
    }
}

/// How long a thread was lent, beside what the runtime knows of it.
#[derive(Debug, Default)]
pub(crate) struct TimeElsewhere {
    ran_ns: Cell<u64>,
    since_ns: Cell<Option<u64>>,
    /// Whether it made a call soon the last time.
    was_short: Cell<bool>,
    /// What was told: while it is away nobody knows whether it still runs, and a clock does not go back.
    told_ns: Cell<u64>,
}

impl TimeElsewhere {
    /// In all, the present time included.
    pub fn ns(&self) -> u64 {
        let present = self.since_ns.get().map_or(0, |since_ns| time::now_ns().saturating_sub(since_ns));
        self.told_ns.set(self.told_ns.get().max(self.ran_ns.get() + present));
        self.told_ns.get()
    }

    fn begin(&self) {
        self.since_ns.set(Some(time::now_ns()));
    }

    fn end(&self, ran_ns: u64) {
        self.since_ns.set(None);
        self.ran_ns.update(|before| before + ran_ns);
    }
}

impl Task {
    /// Goes on with the program on another core, if it computes while others wait for this one, or may not
    /// compute here; see [`Task::run_on`].
    #[cold]
    #[inline(never)]
    pub(crate) fn run_elsewhere(&self, thread: &Thread<'_>) -> Option<Trap> {
        let Some(runner) = self.other_core(thread) else {
            // Until it is interrupted again.
            self.computes.set(false);
            self.processor.set(HOME);
            return None;
        };
        let trap = self.run_on(&runner, thread);
        // What it wants it wanted of what is there no more, if its process has another program.
        Some(if self.ends() { Trap::Interrupted } else { trap })
    }

    fn other_core(&self, thread: &Thread<'_>) -> Option<Rc<Runner>> {
        let affinity = self.affinity.get();
        let stays = affinity.has(HOME) && !thread.others_wait();
        if self.elsewhere.was_short.take() || stays {
            return None;
        }
        let runners = &self.process.family.runners;
        let free = runners.free(affinity);
        if free.is_none() {
            runners.are_wanted.store(true, Relaxed);
        }
        free
    }

    /// Goes on with the program on another core, until it wants something or is wanted here. If that core has
    /// just left it does not, as if it was interrupted.
    fn run_on(&self, runner: &Runner, thread: &Thread<'_>) -> Trap {
        let Some(space) = self.process.memory().space() else { return Trap::Interrupted };
        let stand_in = runner.stand_in.take();
        let stand_in = stand_in.unwrap_or_else(|| ProgramContext::new(Registers::default()));
        let mut lent = Some((self.context.replace(stand_in), space.clone()));
        *runner.space.borrow_mut() = Some(space);
        self.elsewhere.begin();
        self.processor.set(runner.processor);
        let back = thread.block_on(poll_fn(|polled| {
            if let Some((context, space)) = lent.take() {
                let job = Job { context: context.detach(), space, waker: polled.waker().clone() };
                if let Err(refused) = runner.offer(job) {
                    return Poll::Ready(refused);
                }
            }
            if let Some(back) = runner.shared.place.take_result() {
                return Poll::Ready(back);
            }
            if self.is_wanted_here() {
                runner.recall();
            }
            Poll::Pending
        }));
        let stand_in = self.context.replace(back.context.attach());
        *runner.stand_in.borrow_mut() = Some(stand_in);
        *runner.space.borrow_mut() = None;
        self.elsewhere.end(back.ran_ns);
        self.elsewhere.was_short.set(back.trap == Trap::Syscall && back.ran_ns < COMPUTES_NS);
        back.trap
    }

    /// Whether it is to come back from wherever it computes.
    fn is_wanted_here(&self) -> bool {
        self.is_interrupted() || self.process.stops.is_stopped()
    }
}

/// What a runner does.
fn work(shared: &Shared) {
    // Without memory for that it gives back what it was lent before it could say so.
    let can_run = program::start().is_ok();
    let mut present: Option<ProgramSpace> = None;
    let sleep = |present: &mut Option<ProgramSpace>| {
        // Its process may end meanwhile.
        if present.take().is_some() {
            ProgramSpace::leave();
            Interrupter.set_alarm(None);
        }
        let until_ns = time::now_ns() + if can_run { IDLE_NS } else { 0 };
        events::wait(Some(until_ns));
        time::now_ns() >= until_ns
    };
    while let Some(Job { context, space, waker }) = shared.place.next(|| sleep(&mut present)) {
        space.enter();
        present = Some(space);
        let began_ns = time::now_ns();
        let mut context = context.attach();
        let trap = if can_run { run(&mut context, shared) } else { Trap::Interrupted };
        let ran_ns = time::now_ns() - began_ns;
        shared.place.finish(Back { context: context.detach(), trap, ran_ns });
        waker.wake();
    }
    ProgramSpace::leave();
}

/// Runs a program until it wants something, or is wanted.
fn run(context: &mut ProgramContext, shared: &Shared) -> Trap {
    while !shared.place.is_recalled() {
        let over_ns = time::now_ns() + TURN_NS;
        Interrupter.set_alarm(Some(over_ns));
        let trap = context.run();
        if trap != Trap::Interrupted {
            return trap;
        }
        if time::now_ns() >= over_ns && shared.are_wanted.swap(false, Relaxed) {
            break;
        }
    }
    Trap::Interrupted
}
