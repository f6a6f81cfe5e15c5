//! A world for tests: time passes only as they say.

use crate::event_loop::EventLoop;
use crate::poller::{Poller, Progress};
use nom_port::world::{Clock, Doorbell, Idle, Wakeup};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Each reading of the clock takes so long, so that everything takes some time; more of it under Miri, so
/// that less happens in the same time.
pub const READING_NS: u64 = if cfg!(miri) { 200 } else { 10 };

/// One core, its clock, and a network interface that receives at times known before.
#[derive(Default)]
pub struct World {
    pub now_ns: Cell<u64>,
    pub arrivals_ns: RefCell<VecDeque<u64>>,
    pub is_armed: Cell<bool>,
    /// Deadlines that the core slept until.
    pub slept_until: RefCell<Vec<Option<u64>>>,
}

impl World {
    pub fn pass(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
    }

    pub fn has_arrived(&self) -> bool {
        self.arrivals_ns.borrow().front().is_some_and(|&at| at <= self.now_ns.get())
    }
}

pub struct FakeClock(pub Rc<World>);

impl Clock for FakeClock {
    fn now_ns(&self) -> u64 {
        self.0.pass(READING_NS);
        self.0.now_ns.get()
    }
}

pub struct FakeIdle {
    world: Rc<World>,
    bell: Arc<Bell>,
    heard: usize,
}

impl Idle for FakeIdle {
    fn sleep(&mut self, deadline_ns: Option<u64>) -> Wakeup {
        let world = &self.world;
        world.slept_until.borrow_mut().push(deadline_ns);
        let messages = self.bell.0.load(Ordering::Relaxed) > self.heard;
        self.heard = self.bell.0.load(Ordering::Relaxed);
        if messages {
            return Wakeup { interrupts: 0, messages };
        }
        let arrival = world.arrivals_ns.borrow().front().copied().filter(|_| world.is_armed.get());
        let next = arrival.into_iter().chain(deadline_ns).min().expect("somebody ends the sleep");
        world.now_ns.set(world.now_ns.get().max(next));
        Wakeup { interrupts: u64::from(world.is_armed.get() && world.has_arrived()), messages }
    }
}

/// Counts how often it was rung.
#[derive(Default)]
pub struct Bell(pub AtomicUsize);

impl Doorbell for Bell {
    fn ring(&self, _core: usize) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Receives what has arrived; each packet takes 100 ns.
pub struct FakeNic(pub Rc<World>);

pub const PACKET_NS: u64 = 100;

impl Poller for FakeNic {
    fn poll(&mut self, _now_ns: u64) -> Progress {
        let mut worked = 0;
        while self.0.has_arrived() && worked < 4 {
            self.0.arrivals_ns.borrow_mut().pop_front();
            self.0.pass(PACKET_NS);
            worked += 1;
        }
        Progress { worked, deadline_ns: None }
    }

    fn arm(&mut self) -> bool {
        self.0.is_armed.set(true);
        !self.0.has_arrived()
    }

    fn disarm(&mut self) {
        self.0.is_armed.set(false);
    }
}

pub type FakeLoop = EventLoop<FakeClock, FakeIdle>;

/// A loop at time 0.
pub fn event_loop() -> (Rc<World>, FakeLoop) {
    let (world, bell) = (Rc::<World>::default(), Arc::<Bell>::default());
    let idle = FakeIdle { world: world.clone(), bell: bell.clone(), heard: 0 };
    (world.clone(), EventLoop::new(0, FakeClock(world), idle, bell))
}

/// What happened, in order.
#[derive(Clone, Default)]
pub struct Trace<T>(Rc<RefCell<Vec<T>>>);

impl<T> Trace<T> {
    pub fn new() -> Self {
        Self(Rc::default())
    }

    pub fn add(&self, what: T) {
        self.0.borrow_mut().push(what);
    }

    pub fn take(&self) -> Vec<T> {
        self.0.take()
    }
}
