use super::*;
use crate::event_loop::EventLoop;
use crate::meter::INFRASTRUCTURE;
use crate::rest::Thresholds;
use crate::world::{Bell, Trace, event_loop};
use nom_port::world::{Clock, Idle, Wakeup};
use std::sync::mpsc;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const A: Activity = Activity(1);

#[test]
fn the_doorbell_rings_once_a_sleep_and_never_for_who_is_awake() {
    let bell = Arc::<Bell>::default();
    let inbox = Inbox::new(3, bell.clone());
    let rings = || bell.0.load(Ordering::Relaxed);
    let call = || Message::Call(A, Box::new(|_: &Handle| ()));
    inbox.send(call());
    assert_eq!(rings(), 0);
    assert!(!inbox.fall_asleep(), "there is a message");
    inbox.send(call());
    assert_eq!(rings(), 0, "it did not fall asleep");
    while inbox.receive().is_some() {}
    assert!(inbox.fall_asleep());
    (0..5).for_each(|_| inbox.send(call()));
    assert_eq!((rings(), inbox.rings()), (1, 1));
    inbox.wake_up();
    inbox.send(call());
    assert_eq!(rings(), 1);
}

#[test]
fn calls_arrive_in_order_and_are_charged_to_their_activity() {
    let (_, mut core) = event_loop();
    let (sender, receiver) = mpsc::channel();
    let remote = core.handle().remote();
    for n in 0..20 {
        let sender = sender.clone();
        remote.post(A, move |handle| sender.send((n, handle.activity())).unwrap());
    }
    while core.handle().statistics().scheduled < 3 {
        core.turn();
    }
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), (0..20).map(|n| (n, A)).collect::<Vec<_>>());
    assert_eq!(remote.core(), 0);
}

#[test]
fn more_than_a_turn_receives_is_received_though_nothing_else_is_sent() {
    let (_, mut core) = event_loop();
    let (remote, received) = (core.handle().remote(), Arc::<AtomicU64>::default());
    for _ in 0..600 {
        let received = received.clone();
        remote.post(A, move |_| _ = received.fetch_add(1, Ordering::Relaxed));
    }
    (0..200).for_each(|_| _ = core.turn());
    assert_eq!(received.load(Ordering::Relaxed), 600);
}

#[test]
fn a_message_that_comes_while_pollers_are_armed_is_not_slept_over() {
    let (world, mut core) = event_loop();
    core.handle().set_thresholds(Thresholds::INTERRUPTS);
    let trace = Trace::new();
    struct Sender(Remote);
    impl crate::poller::Poller for Sender {
        fn poll(&mut self, _now_ns: u64) -> crate::poller::Progress {
            crate::poller::Progress::default()
        }
        fn arm(&mut self) -> bool {
            self.0.post(A, |handle| handle.stop(3));
            true
        }
        fn disarm(&mut self) {
            // Nothing was armed.
        }
    }
    let sender = Sender(core.handle().remote());
    core.handle().add_poller(A, sender);
    trace.add(core.run());
    assert_eq!((trace.take(), world.slept_until.borrow().len()), (vec![3], 0));
}

/// A core that is a thread of the host.
#[derive(Default)]
struct Bells(Vec<(Mutex<bool>, Condvar)>);

impl Doorbell for Bells {
    fn ring(&self, core: usize) {
        *self.0[core].0.lock().unwrap() = true;
        self.0[core].1.notify_one();
    }
}

struct HostIdle(Arc<Bells>, usize);

impl Idle for HostIdle {
    fn sleep(&mut self, _deadline_ns: Option<u64>) -> Wakeup {
        let (lock, bell) = &self.0.0[self.1];
        let rung = lock.lock().unwrap();
        let (mut rung, timeout) =
            bell.wait_timeout_while(rung, Duration::from_secs(20), |rung| !*rung).unwrap();
        assert!(!timeout.timed_out(), "a wake-up was lost");
        *rung = false;
        Wakeup { interrupts: 0, messages: true }
    }
}

struct HostClock(Instant);

impl Clock for HostClock {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

fn host_loop(core: usize, bells: Arc<Bells>) -> EventLoop<HostClock, HostIdle> {
    let core = EventLoop::new(core, HostClock(Instant::now()), HostIdle(bells.clone(), core), bells);
    core.handle().set_thresholds(Thresholds::INTERRUPTS);
    core
}

/// Sends itself to the other core and back until it has done so `left` times.
fn bounce(handle: &Handle, here: Remote, there: Remote, left: u32) {
    if left == 0 {
        there.post(INFRASTRUCTURE, |handle| handle.stop(0));
        return handle.stop(0);
    }
    let next = here.clone();
    there.clone().post(INFRASTRUCTURE, move |handle| bounce(handle, there, next, left - 1));
}

#[test]
fn no_wake_up_is_lost_between_two_cores() {
    let bells = Arc::new(Bells((0..2).map(|_| (Mutex::new(false), Condvar::new())).collect()));
    let (sender, receiver) = mpsc::channel();
    let other_bells = bells.clone();
    let other = thread::spawn(move || {
        let mut core = host_loop(1, other_bells);
        sender.send(core.handle().remote()).unwrap();
        core.run()
    });
    let there = receiver.recv().unwrap();
    let mut core = host_loop(0, bells);
    let here = core.handle().remote();
    let left = if cfg!(miri) { 10 } else { 2_001 };
    let begin = here.clone();
    here.post(INFRASTRUCTURE, move |handle| bounce(handle, begin, there, left));
    assert_eq!((core.run(), other.join().unwrap()), (0, 0));
}

#[test]
fn a_task_is_woken_from_another_thread() {
    let bells = Arc::new(Bells(vec![(Mutex::new(false), Condvar::new())]));
    let mut core = host_loop(0, bells);
    let is_done = Arc::<AtomicBool>::default();
    let mut started = false;
    let future = std::future::poll_fn(move |context| {
        if is_done.load(Ordering::Acquire) {
            return core::task::Poll::Ready(7);
        }
        if !std::mem::replace(&mut started, true) {
            let (sets, waker) = (is_done.clone(), context.waker().clone());
            thread::spawn(move || {
                sets.store(true, Ordering::Release);
                waker.wake();
            });
        }
        core::task::Poll::Pending
    });
    assert_eq!(core.block_on(future), Some(7));
}
