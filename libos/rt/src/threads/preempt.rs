//! Threads that are interrupted while they compute.
//!
//! The core interrupts nothing but what a thread says is a computation of its own: a closure that is
//! `Send`, so that nothing of it is shared with whatever the core does meanwhile, but as among cores. All
//! else, the runtime's own sections among it, is never interrupted, so nobody sees the state of the loop,
//! of a queue or of a thread half changed.
//!
//! A computation is interrupted when its turn is over and others wait, when a timer of the loop is due, or
//! when somebody has something to say to the core. If nobody else is ready it runs in place of the core's
//! sleep: what is polled asks for interrupts, and until one comes, or the next timer is due, nothing
//! interrupts it.
//!
//! A thread that runs what is none of Rust's code, an unmodified program, has a way of its own to be
//! interrupted, and takes its turns by [`Thread::take_turn`], to the same rules.
#![allow(unsafe_code)]

use super::{ALONE_NS, Entry, Thread};
use crate::handle::Shared;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use nom_port::world::Preemption;

/// How long a computation runs, if nobody waits, until the loop looks whether there is something to do, and
/// then asks for interrupts.
pub(super) const LOOK_NS: u64 = 200_000;

/// How long a thread that takes turns has the core before one that it woke itself has it. Mostly it waits
/// soon: with a lock, say, that the other would find taken. Linux has the same
/// (`sched_wakeup_granularity_ns`).
const GRAIN_NS: u64 = 1_000_000;

/// A turn that is over sooner than an alarm could come is over.
const SOON_NS: u64 = 1_000;

/// When the running computation is interrupted.
pub(crate) struct Interruptions {
    /// How, where something can.
    world: Cell<Option<&'static dyn Preemption>>,
    /// For when the world's alarm was set last.
    alarm_ns: Cell<u64>,
    /// While a computation runs in place of the core's sleep: when that would end.
    pub rest_until_ns: Cell<Option<u64>>,
}

impl Interruptions {
    pub fn new() -> Interruptions {
        Interruptions {
            world: Cell::new(None),
            alarm_ns: Cell::new(u64::MAX),
            rest_until_ns: Cell::new(None),
        }
    }

    pub fn set_world(&self, world: &'static dyn Preemption) {
        self.world.set(Some(world));
    }
}

impl Shared {
    /// When the present computation is interrupted even if nothing happens; sets the alarm for it. If nobody
    /// waits the loop looks after `alone_ns`; if somebody does, it has at least `grain_ns` of its turn.
    fn set_alarm(&self, now_ns: u64, alone_ns: u64, grain_ns: u64) -> u64 {
        let interruptions = &self.threads.interruptions;
        let over_ns = self.threads.over_ns.get().unwrap_or_else(|| {
            let preempt_at_ns = self.preempt_at_ns(now_ns, grain_ns);
            let rest_ns = interruptions.rest_until_ns.get();
            let timer_ns = self.wheel.borrow().quiet_until_ns();
            let look_ns = rest_ns.unwrap_or(now_ns.saturating_add(alone_ns));
            preempt_at_ns.unwrap_or(u64::MAX).min(look_ns).min(timer_ns)
        });
        self.threads.over_ns.set(Some(over_ns));
        let alarm_ns = interruptions.alarm_ns.get();
        // One that comes too early finds that there is nothing to do: cheaper than to move it.
        if over_ns < alarm_ns || alarm_ns <= now_ns && over_ns != u64::MAX {
            interruptions.alarm_ns.set(over_ns);
            if let Some(world) = interruptions.world.get() {
                world.set_alarm(Some(over_ns));
            }
        }
        over_ns
    }

    /// When others that wait have their turn; never if nobody does.
    fn preempt_at_ns(&self, now_ns: u64, grain_ns: u64) -> Option<u64> {
        let began_ns = self.threads.began_ns(now_ns);
        let scheduler = &mut self.clients.borrow_mut().scheduler;
        let least_ns = began_ns.saturating_add(grain_ns);
        match scheduler.has_waiting() {
            false => None,
            // Who knows whether it comes to that: nearly always it waits before.
            true if now_ns < least_ns => Some(least_ns),
            true => scheduler.preempt_at_ns(now_ns),
        }
    }

    /// The running thread's computation was interrupted: makes way for the loop, if there is reason to.
    fn interrupted(&self, running: &Entry) {
        let now_ns = self.clock.now_ns();
        let interruptions = &self.threads.interruptions;
        // Who asks again later moves it.
        interruptions.alarm_ns.set(u64::MAX);
        let was_resting = interruptions.rest_until_ns.get().is_some();
        if was_resting || !self.inbox.is_empty() || now_ns >= self.set_alarm(now_ns, LOOK_NS, 0) {
            running.was_interrupted.set(true);
            let clients = self.clients.borrow_mut();
            self.now_ns.set(now_ns);
            self.go_home(running, clients);
            self.set_alarm(self.clock.now_ns(), LOOK_NS, 0);
        }
    }

    /// Whether the alarm will come before the running thread's turn is over, and nothing has happened since
    /// it was set: then the clock need not be asked.
    #[inline]
    fn is_alarm_enough(&self) -> bool {
        let interruptions = &self.threads.interruptions;
        let over_ns = self.threads.over_ns.get().unwrap_or_else(|| self.least_over_ns());
        interruptions.alarm_ns.get() <= over_ns
            && interruptions.world.get().is_some()
            && interruptions.rest_until_ns.get().is_none()
            && self.inbox.is_empty()
    }

    /// When the running thread's turn is over at the earliest, if it has not asked since others became ready,
    /// and no alarm has come: it has its grain, from when the clock was read as it went on.
    fn least_over_ns(&self) -> u64 {
        let began_ns = self.threads.began_ns(self.now_ns.get());
        began_ns.saturating_add(GRAIN_NS).min(self.wheel.borrow().quiet_until_ns())
    }

    /// See [`Thread::take_turn`].
    #[inline]
    fn take_turn(&self, running: &Entry) {
        if !self.is_alarm_enough() {
            self.look_around(running);
        }
    }

    /// Not part of whoever asks: he would save registers for it each time.
    #[inline(never)]
    fn look_around(&self, running: &Entry) {
        self.look_into_inbox();
        let now_ns = self.clock.now_ns();
        let was_resting = self.threads.interruptions.rest_until_ns.get().is_some();
        if was_resting || now_ns + SOON_NS >= self.set_alarm(now_ns, ALONE_NS, GRAIN_NS) {
            let clients = self.clients.borrow_mut();
            self.now_ns.set(now_ns);
            self.go_home(running, clients);
            self.set_alarm(self.clock.now_ns(), ALONE_NS, GRAIN_NS);
        }
    }
}

/// What is used by one side at a time.
struct Confined<T>(T);

// SAFETY: what it leads to is used in `Preemptible::enter` alone, while nothing interrupts, on the core
// that made it (condition 6).
unsafe impl<T> Send for Confined<T> {}

impl<T> Confined<T> {
    fn into_inner(self) -> T {
        self.0
    }
}

/// A thread within a computation of its own, which is interrupted so that others have the core.
pub struct Preemptible<'t> {
    thread: &'t Thread<'t>,
    /// A reference to it is not `Send`, so sections do not nest.
    place: PhantomData<Cell<()>>,
}

impl Preemptible<'_> {
    /// Does something with the thread and its core: a section that nothing interrupts.
    pub fn enter<R: Send>(&self, section: impl FnOnce(&Thread<'_>) -> R + Send) -> R {
        let shared = self.thread.handle.shared();
        let Some(world) = shared.threads.interruptions.world.get() else { return section(self.thread) };
        let (mut section, mut result) = (Some(section), None);
        world.undisturbed(&mut || {
            result = section.take().map(|section| section(self.thread));
            shared.set_alarm(shared.clock.now_ns(), LOOK_NS, 0);
        });
        result.expect("the section ran")
    }
}

impl fmt::Debug for Preemptible<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Preemptible").finish_non_exhaustive()
    }
}

impl Thread<'_> {
    /// Computes, and is interrupted meanwhile so that others have the core: when this thread's turn is
    /// over, or somebody has something to say to the core. Where the world interrupts nothing
    /// ([`Handle::set_preemption`](crate::Handle::set_preemption)), it runs until it
    /// [enters](Preemptible::enter) a section that blocks, as any code of a thread.
    pub fn preemptible<R: Send>(&self, compute: impl FnOnce(&Preemptible<'_>) -> R + Send) -> R {
        let shared = self.handle.shared();
        let here = Preemptible { thread: self, place: PhantomData };
        let Some(world) = shared.threads.interruptions.world.get() else { return compute(&here) };
        shared.set_alarm(shared.clock.now_ns(), LOOK_NS, 0);
        let (mut task, mut result) = (Some((compute, Confined(&here))), None);
        let mut whole = || {
            result = task.take().map(|(compute, here)| compute(here.into_inner()));
        };
        world.preemptible(&mut whole, &|| shared.interrupted(&self.entry));
        result.expect("the computation ran")
    }

    /// For who runs something on this thread that the world itself interrupts, as [`Preemption::set_alarm`]
    /// says, by having it return: before each time that it runs. If this thread's turn is over others have
    /// theirs first; then the alarm is set for when this one is.
    pub fn take_turn(&self) {
        let shared = self.handle.shared();
        // It does more than compute.
        self.entry.was_interrupted.set(false);
        shared.take_turn(&self.entry);
    }

    /// The same, if it returned because it was interrupted, and for no other reason: it computes, and may do
    /// so in place of the core's sleep.
    pub fn take_turn_computing(&self) {
        let shared = self.handle.shared();
        // By that alarm, or by something after which it was moved.
        shared.threads.interruptions.alarm_ns.set(u64::MAX);
        self.entry.was_interrupted.set(true);
        shared.take_turn(&self.entry);
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
