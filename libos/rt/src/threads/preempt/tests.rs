//! Interruptions at moments that the test chooses: a computation has a [`point`] wherever it could be
//! interrupted.

use super::*;
use crate::threads::Threads;
use crate::world::{FakeLoop, FakeNic, World, event_loop};
use crate::{Activity, WaitQueue};
use corosensei::stack::DefaultStack;
use nom_port::world::Preemption;
use proptest::prelude::*;
use std::cell::RefCell;
use std::mem;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const ONE: NonZeroU32 = NonZeroU32::MIN;
const MS: u64 = 1_000_000;

/// The core's world, as far as it interrupts.
#[derive(Default)]
struct Fake {
    world: RefCell<Rc<World>>,
    interrupted: Cell<Option<&'static dyn Fn()>>,
    has_missed: Cell<bool>,
    alarm_ns: Cell<Option<u64>>,
    /// Alarms that came, and how often one was set.
    alarms: Cell<u64>,
    alarms_set: Cell<u64>,
    /// Of so many points one interrupts for no reason; 0 for none.
    one_of: Cell<u64>,
    random: Cell<u64>,
}

thread_local! {
    static FAKE: Fake = Fake::default();
}

struct Interrupter;

impl Interrupter {
    fn allow(to: Option<&'static dyn Fn()>) {
        FAKE.with(|fake| fake.interrupted.set(to));
        if FAKE.with(|fake| to.is_some() && fake.has_missed.replace(false)) {
            interrupt();
        }
    }
}

impl Preemption for Interrupter {
    fn preemptible(&self, compute: &mut (dyn FnMut() + Send), interrupted: &dyn Fn()) {
        // SAFETY: it is taken away below, before it ends.
        let interrupted = unsafe { mem::transmute::<&dyn Fn(), &'static dyn Fn()>(interrupted) };
        let outer = FAKE.with(|fake| fake.interrupted.get());
        Self::allow(Some(interrupted));
        compute();
        Self::allow(outer);
    }

    fn undisturbed(&self, section: &mut dyn FnMut()) {
        let interrupted = FAKE.with(|fake| fake.interrupted.take());
        section();
        Self::allow(interrupted);
    }

    fn set_alarm(&self, deadline_ns: Option<u64>) {
        FAKE.with(|fake| {
            fake.alarm_ns.set(deadline_ns);
            fake.alarms_set.update(|set| set + 1);
        });
    }
}

/// What the upcall handler does.
fn interrupt() {
    match FAKE.with(|fake| fake.interrupted.take()) {
        None => FAKE.with(|fake| fake.has_missed.set(true)),
        Some(interrupted) => {
            interrupted();
            Interrupter::allow(Some(interrupted));
        }
    }
}

/// A moment of a computation, in which so much time passes.
fn point(ns: u64) {
    let is_due = FAKE.with(|fake| {
        let world = fake.world.borrow();
        world.pass(ns);
        let now_ns = world.now_ns.get();
        let is_alarm = fake.alarm_ns.get().is_some_and(|deadline_ns| deadline_ns <= now_ns);
        if is_alarm {
            fake.alarm_ns.set(None);
            fake.alarms.set(fake.alarms.get() + 1);
        }
        let random = fake.random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        fake.random.set(random);
        let is_chance = fake.one_of.get() > 0 && (random >> 33).is_multiple_of(fake.one_of.get());
        is_alarm || is_chance || world.is_armed.get() && world.has_arrived()
    });
    if is_due {
        interrupt();
    }
}

fn threads(one_of: u64, seed: u64) -> (Rc<World>, FakeLoop, Threads) {
    let (world, core) = event_loop();
    FAKE.with(|fake| {
        *fake.world.borrow_mut() = world.clone();
        fake.interrupted.set(None);
        fake.has_missed.set(false);
        fake.alarm_ns.set(None);
        fake.alarms.set(0);
        fake.alarms_set.set(0);
        fake.one_of.set(one_of);
        fake.random.set(seed);
    });
    core.handle().set_preemption(&Interrupter);
    let threads = Threads::new(core.handle(), || DefaultStack::new(64 * 1024).ok());
    (world, core, threads)
}

fn now_ns() -> u64 {
    FAKE.with(|fake| fake.world.borrow().now_ns.get())
}

/// Computes for so long, in steps of a microsecond.
fn compute(ns: u64) {
    (0..ns / 1000).for_each(|_| point(1000));
}

/// Two threads compute for ever, as `compute` does, which counts microseconds: both have half of the core,
/// and a third that sleeps is woken in time.
fn starves_nobody(compute: impl Fn(&Thread<'_>, &AtomicU64) + Copy + 'static) {
    let (world, mut core, threads) = threads(0, 0);
    let ran: Arc<[AtomicU64; 2]> = Arc::default();
    for index in 0..2 {
        let ran = ran.clone();
        threads.spawn(ONE, move |thread| compute(thread, &ran[index])).unwrap();
    }
    let late = Rc::new(Cell::new(0));
    let worst = late.clone();
    let main = move |thread: &Thread<'_>| {
        for _ in 0..20 {
            let wanted_ns = thread.handle().clock_ns() + MS;
            thread.sleep(MS);
            worst.set(worst.get().max(thread.handle().clock_ns() - wanted_ns));
        }
        thread.handle().stop(0);
    };
    threads.spawn(ONE, main).unwrap();
    core.handle().at(500 * MS, |handle| handle.stop(1));
    assert_eq!(core.run(), 0, "after {} ns", world.now_ns.get());
    assert!(late.get() < MS, "woken {} ns late", late.get());
    let [one, two] = [0, 1].map(|index| ran[index].load(Relaxed));
    assert!(one.abs_diff(two) < 4_100 && one + two > 15_000, "{one} and {two} us");
}

#[test]
fn who_computes_starves_nobody() {
    starves_nobody(|thread, ran| {
        thread.preemptible(|_| {
            loop {
                compute(1000);
                ran.fetch_add(1, Relaxed);
            }
        })
    });
}

/// Of two activities each gets its turns, though no computation of either looks up.
#[test]
fn activities_share_the_core_by_weight_though_they_compute() {
    let (_, mut core, threads) = threads(0, 0);
    let ran: Arc<[AtomicU64; 4]> = Arc::default();
    for weight in [1, 3] {
        core.handle().set_weight(Activity(weight), NonZeroU32::new(weight).unwrap());
        let (threads, ran) = (threads.clone(), ran.clone());
        core.handle().post_for(Activity(weight), move |_| {
            let main = move |thread: &Thread<'_>| {
                thread.preemptible(|_| {
                    loop {
                        compute(1000);
                        ran[weight as usize].fetch_add(1, Relaxed);
                    }
                })
            };
            threads.spawn(ONE, main).unwrap();
        });
    }
    core.handle().at(100 * MS, |handle| handle.stop(0));
    core.run();
    let [one, three] = [1, 3].map(|index: usize| ran[index].load(Relaxed));
    assert!((24_000..26_000).contains(&one) && (74_000..76_000).contains(&three), "{one} and {three} us");
}

/// It runs in place of the core's sleep: nothing interrupts it, but what it would sleep for does at once.
#[test]
fn who_computes_alone_is_left_alone_until_something_happens() {
    let (world, mut core, threads) = threads(0, 0);
    core.handle().add_poller(crate::INFRASTRUCTURE, FakeNic(world.clone()));
    let ran: Arc<AtomicU64> = Arc::default();
    let count = ran.clone();
    let main = move |thread: &Thread<'_>| {
        thread.preemptible(|_| {
            (0..50_000).for_each(|_| {
                point(1000);
                count.fetch_add(1, Relaxed);
            })
        });
        thread.handle().stop(0);
    };
    threads.spawn(ONE, main).unwrap();
    world.arrivals_ns.borrow_mut().extend([20 * MS, 30 * MS]);
    let fired = Rc::new(Cell::new(0));
    let at = fired.clone();
    core.handle().at(40 * MS, move |handle| at.set(handle.now_ns()));
    assert_eq!(core.run(), 0);
    let alarms = FAKE.with(|fake| fake.alarms.get());
    assert!(alarms <= 6, "{alarms} alarms in 50 ms");
    assert!(world.arrivals_ns.borrow().is_empty(), "what arrived was received");
    assert!((40 * MS..40 * MS + 10_000).contains(&fired.get()), "{} ns", fired.get());
    assert_eq!(ran.load(Relaxed), 50_000);
}

/// What happens while a thread is in a section of its own interrupts it behind that.
#[test]
fn a_section_is_not_interrupted_and_what_it_missed_is_not_lost() {
    let (world, mut core, threads) = threads(1, 0);
    let clock = world.clone();
    let other = Arc::new(AtomicU64::new(0));
    let seen = other.clone();
    threads
        .spawn(ONE, move |thread| {
            thread.preemptible(|_| {
                loop {
                    point(1000);
                    seen.fetch_add(1, Relaxed);
                }
            })
        })
        .unwrap();
    let main = move |thread: &Thread<'_>| {
        let before = thread.preemptible(|here| {
            here.enter(|_| {
                let before = other.load(Relaxed);
                (0..10_000).for_each(|_| point(1000));
                assert_eq!(other.load(Relaxed), before, "nobody ran meanwhile");
                before
            })
        });
        let after = thread.preemptible(|_| {
            (0..1000).for_each(|_| point(1000));
            other.load(Relaxed)
        });
        assert!(after > before, "the other one had its turn");
        thread.handle().stop(0);
    };
    threads.spawn(ONE, main).unwrap();
    core.handle().at(500 * MS, |handle| handle.stop(1));
    assert_eq!(core.run(), 0, "after {} ns", clock.now_ns.get());
}

/// What one thread of the property test does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Compute(u16),
    Yield,
    Sleep(u16),
    /// Takes one of the common things, computes, and gives it back.
    Share(u16),
    Spawn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..400_u16).prop_map(Step::Compute),
        Just(Step::Yield),
        (0..500_u16).prop_map(Step::Sleep),
        (1..300_u16).prop_map(Step::Share),
        Just(Step::Spawn),
    ]
}

thread_local! {
    /// As it would be of a service: things that only their core may touch.
    static COMMON: (WaitQueue, Cell<u32>) = const { (WaitQueue::new(), Cell::new(2)) };
}

/// Waits for one of the two common things, holds it for a while, and gives it back.
fn share(here: &Preemptible<'_>, micros: u16) {
    here.enter(|thread| {
        COMMON.with(|(queue, free)| {
            thread.block_on(queue.until(|| free.get().checked_sub(1).map(|left| free.set(left))));
        });
    });
    compute(u64::from(micros) * 1000);
    here.enter(|_| {
        COMMON.with(|(queue, free)| {
            free.set(free.get() + 1);
            assert!(free.get() <= 2, "there are two");
            queue.wake_one();
        });
    });
}

fn perform(here: &Preemptible<'_>, steps: &[Step], done: &Arc<AtomicU64>) {
    for step in steps {
        match *step {
            Step::Compute(micros) => compute(u64::from(micros) * 1000),
            Step::Yield => here.enter(|thread| thread.yield_now()),
            Step::Sleep(micros) => here.enter(|thread| thread.sleep(u64::from(micros) * 1000)),
            Step::Share(micros) => share(here, micros),
            Step::Spawn => {
                let done = done.clone();
                here.enter(move |thread| {
                    thread.handle().spawn(async move { _ = done.fetch_add(1000, Relaxed) });
                });
            }
        }
        done.fetch_add(1, Relaxed);
    }
}

proptest! {
    /// Wherever computations are interrupted: everything ends, in a time that is bounded by what there is to
    /// do, and nothing is found half changed, for whatever borrows it twice would panic.
    #[test]
    fn interruptions_anywhere_change_nothing(
        plans in prop::collection::vec(prop::collection::vec(step(), 1..12), 1..6),
        one_of in 1..200_u64,
        seed: u64,
    ) {
        let (world, mut core, threads) = threads(one_of, seed);
        let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let spawns = plans.iter().flatten().filter(|step| matches!(step, Step::Spawn)).count() as u64;
        let steps = plans.iter().flatten().count() as u64;
        let joined: Vec<_> = plans.into_iter().map(|plan| {
            let (done, over) = (done.clone(), over.clone());
            let main = move |thread: &Thread<'_>| {
                thread.preemptible(|here| perform(here, &plan, &done));
                over.lock().expect("nobody panicked").push(());
            };
            threads.spawn(ONE, main).unwrap()
        }).collect();
        for thread in joined {
            prop_assert_eq!(core.block_on(thread), Some(Ok(())));
        }
        core.block_on(async {});
        prop_assert_eq!(done.load(Relaxed), steps + 1000 * spawns);
        prop_assert!(threads.is_empty());
        prop_assert!(world.now_ns.get() < (steps + 1) * 3 * MS, "{} ns", world.now_ns.get());
    }
}

/// Steps of a microsecond of what the world interrupts by having it return. Whether it did.
fn run_program(steps: &mut u64, ran: &AtomicU64) -> bool {
    while *steps > 0 {
        if FAKE.with(|fake| fake.has_missed.take()) {
            return true;
        }
        point(1000);
        *steps -= 1;
        ran.fetch_add(1, Relaxed);
    }
    false
}

/// A thread whose program makes so many steps.
fn program(thread: &Thread<'_>, mut steps: u64, ran: &AtomicU64) {
    let mut was_interrupted = false;
    while steps > 0 {
        if was_interrupted {
            thread.take_turn_computing()
        } else {
            thread.take_turn()
        }
        was_interrupted = run_program(&mut steps, ran);
    }
}

#[test]
fn programs_that_compute_starve_nobody() {
    starves_nobody(|thread, ran| program(thread, u64::MAX, ran));
}

/// Also after another thread had its turn meanwhile.
#[test]
fn a_program_that_computes_alone_is_left_alone_until_something_happens() {
    let (world, mut core, threads) = threads(0, 0);
    core.handle().add_poller(crate::INFRASTRUCTURE, FakeNic(world.clone()));
    let ran: Arc<AtomicU64> = Arc::default();
    let main = move |thread: &Thread<'_>| {
        program(thread, 80_000, &ran);
        thread.handle().stop(0);
    };
    threads.spawn(ONE, main).unwrap();
    world.arrivals_ns.borrow_mut().extend([20 * MS, 30 * MS, 41 * MS]);
    let seen = Rc::new(Cell::new(0));
    let at = seen.clone();
    let other = move |thread: &Thread<'_>| {
        thread.sleep(40 * MS - thread.handle().clock_ns());
        // Until what it would be interrupted for has come.
        (0..1500).for_each(|_| point(1000));
        FAKE.with(|fake| fake.has_missed.set(true));
        thread.sleep(10 * MS);
        at.set(thread.handle().clock_ns());
    };
    threads.spawn(ONE, other).unwrap();
    assert_eq!(core.run(), 0);
    let alarms = FAKE.with(|fake| fake.alarms.get());
    assert!(alarms <= 8, "{alarms} alarms in 80 ms");
    assert!(world.arrivals_ns.borrow().is_empty(), "what arrived was received");
    assert!((51 * MS..52 * MS).contains(&seen.get()), "{} ns", seen.get());
}

/// A switch sets no alarm: the one that is set comes soon enough, or too early and finds nothing to do.
#[test]
fn threads_of_programs_that_wake_each_other_set_alarms_by_time_and_not_by_switches() {
    const SWITCHES: u64 = 2000;
    let (_, mut core, threads) = threads(0, 0);
    let (queue, turn) = (Rc::new(WaitQueue::new()), Rc::new(Cell::new(0)));
    let joined = [0, 1].map(|own| {
        let (queue, turn) = (queue.clone(), turn.clone());
        let main = move |thread: &Thread<'_>| {
            for _ in 0..SWITCHES / 2 {
                thread.block_on(queue.until(|| (turn.get() % 2 == own).then_some(())));
                program(thread, 3, &AtomicU64::new(0));
                turn.update(|turn| turn + 1);
                queue.wake_all();
                program(thread, 2, &AtomicU64::new(0));
            }
        };
        threads.spawn(ONE, main).unwrap()
    });
    for thread in joined {
        assert!(matches!(core.block_on(thread), Some(Ok(()))));
    }
    let (set, grains) = (FAKE.with(|fake| fake.alarms_set.get()), now_ns() / GRAIN_NS);
    assert!(grains >= 10 && set <= 2 * grains + 2, "{set} alarms set in {SWITCHES} switches, {grains} ms");
}

/// Who makes way by itself is not one that computes.
#[test]
fn who_is_not_interrupted_is_not_taken_for_interrupted() {
    let (_, mut core, threads) = threads(0, 0);
    let thread = threads.spawn(ONE, |thread| {
        thread.preemptible(|here| here.enter(|thread| thread.yield_now()));
        thread.entry.was_interrupted.get()
    });
    assert!(matches!(core.block_on(thread.unwrap()), Some(Ok(false))));
}
