use super::*;
use crate::meter::Usage;
use crate::poller::{Poller, Progress};
use crate::queues::Parameters;
use crate::world::{FakeNic, PACKET_NS, READING_NS, Trace, World, event_loop};
use proptest::prelude::*;
use std::num::NonZeroU32;

const A: Activity = Activity(1);
const B: Activity = Activity(2);

fn total_ns(usage: &Usage) -> u64 {
    let active: u64 = usage.activities.iter().map(|(_, record)| record.ns).sum();
    active + usage.spinning_ns + usage.sleeping_ns
}

fn record_of(usage: &Usage, activity: Activity) -> Record {
    usage
        .activities
        .iter()
        .find(|(other, _)| *other == activity)
        .map(|(_, record)| *record)
        .unwrap_or_default()
}

/// Turns until the loop has slept so many times.
fn run_until_asleep(core: &mut crate::world::FakeLoop, times: u64) {
    let until = core.handle().statistics().sleeps + times;
    while core.handle().statistics().sleeps < until {
        core.turn();
    }
}

#[test]
fn events_run_to_completion_in_order_and_inherit_who_pays() {
    let (_, mut core) = event_loop();
    let trace = Trace::new();
    let (outer, inner) = (trace.clone(), trace.clone());
    core.handle().post_for(A, move |handle| {
        outer.add(("first", handle.activity()));
        let (late, timed) = (inner.clone(), inner.clone());
        handle.post(move |handle| late.add(("posted", handle.activity())));
        handle.after(5_000, move |handle| timed.add(("timed", handle.activity())));
        outer.add(("end of first", handle.activity()));
    });
    let second = trace.clone();
    core.handle().post(move |handle| second.add(("second", handle.activity())));
    core.handle().at(10_000, |handle| handle.stop(0));
    core.run();
    assert_eq!(
        trace.take(),
        [("first", A), ("end of first", A), ("posted", A), ("second", INFRASTRUCTURE), ("timed", A)]
    );
}

/// Stops its loop when it is polled after the first sleep, and has found no work.
struct Stopper(Handle);

impl Poller for Stopper {
    fn poll(&mut self, _: u64) -> Progress {
        if self.0.statistics().sleeps == 1 {
            self.0.stop(3);
        }
        Progress::default()
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

#[test]
fn a_poller_that_stops_an_idle_loop_keeps_it_from_sleeping_again() {
    let (world, mut core) = event_loop();
    let stopper = Stopper(core.handle().clone());
    core.handle().add_poller(INFRASTRUCTURE, stopper);
    let timer = core.handle().after(1_000_000, |_| ());
    run_until_asleep(&mut core, 1);
    core.handle().cancel(timer);
    assert_eq!((core.run(), world.slept_until.borrow().len()), (3, 1));
}

#[test]
fn stop_ends_the_loop_with_its_status() {
    let (_, mut core) = event_loop();
    core.handle().after(1_000_000, |handle| handle.stop(7));
    assert_eq!(core.run(), 7);
}

#[test]
fn a_turn_with_one_activity_reads_the_clock_three_times() {
    let (world, mut core) = event_loop();
    (0..EVENTS_PER_TURN).for_each(|_| core.handle().post(|_| ()));
    let before = world.now_ns.get();
    core.turn();
    assert_eq!(world.now_ns.get() - before, 3 * READING_NS);
}

const ARRIVALS: u64 = if cfg!(miri) { 60 } else { 1_000 };

#[test]
fn load_polls_without_interrupts_and_silence_sleeps_without_ticks() {
    let (world, mut core) = event_loop();
    core.handle().add_poller(A, FakeNic(world.clone()));
    world.arrivals_ns.borrow_mut().extend((1..=ARRIVALS).map(|n| n * 2_000));
    world.arrivals_ns.borrow_mut().push_back(50_000_000);
    while world.arrivals_ns.borrow().len() > 1 {
        core.turn();
    }
    let loaded = core.handle().statistics();
    assert_eq!((loaded.to_polling, loaded.to_interrupts, core.handle().mode()), (1, 0, Mode::Polling));
    assert!(loaded.sleeps < 30, "{loaded:?}");

    run_until_asleep(&mut core, 1);
    let silent = core.handle().statistics();
    assert_eq!((silent.to_interrupts, silent.sleeps), (1, loaded.sleeps + 1));
    assert_eq!(world.slept_until.borrow().last(), Some(&None), "no tick");
    assert!(world.now_ns.get() >= 50_000_000 && world.now_ns.get() < 50_000_000 + 10 * READING_NS);
    core.turn();
    let usage = core.handle().usage();
    assert_eq!(record_of(&usage, A).events, ARRIVALS + 1);
    assert!(record_of(&usage, A).ns >= ARRIVALS * PACKET_NS);
}

/// A packet arrives while it asks for interrupts.
struct Unlucky(Rc<World>);

impl Poller for Unlucky {
    fn poll(&mut self, _now_ns: u64) -> Progress {
        Progress::default()
    }

    fn arm(&mut self) -> bool {
        self.0.arrivals_ns.borrow_mut().push_back(self.0.now_ns.get());
        true
    }

    fn disarm(&mut self) {}
}

#[test]
fn what_arrives_while_interrupts_are_asked_for_is_not_slept_over() {
    let (world, mut core) = event_loop();
    core.handle().add_poller(B, Unlucky(world.clone()));
    core.handle().add_poller(A, FakeNic(world.clone()));
    assert_eq!([core.turn(), core.turn()], [false, true]);
    let statistics = core.handle().statistics();
    assert_eq!((statistics.sleeps, statistics.aborted_sleeps, statistics.polled), (0, 1, 1));
    assert!(!world.is_armed.get(), "no interrupts while it works");
}

#[test]
fn an_idle_core_sleeps_from_timer_to_timer() {
    let (world, mut core) = event_loop();
    let trace = Trace::new();
    for ms in [30, 10, 20] {
        let trace = trace.clone();
        core.handle().at(ms * 1_000_000, move |handle| trace.add((ms, handle.now_ns() / 1_000_000)));
    }
    let cancelled = core.handle().after(15_000_000, |_| panic!("it was cancelled"));
    assert!(core.handle().cancel(cancelled) && !core.handle().cancel(cancelled));
    run_until_asleep(&mut core, 3);
    core.turn();
    assert_eq!(trace.take(), [(10, 10), (20, 20), (30, 30)]);
    // The first reading of the clock after a sleep says that it ended late; the next ends earlier by that.
    let alarms = [10_000_000, 20_000_000 - READING_NS, 30_000_000 - READING_NS].map(Some);
    assert_eq!(*world.slept_until.borrow(), alarms);
}

/// Wants to be polled every 5 ms.
struct Periodic(Trace<u64>, u64);

impl Poller for Periodic {
    fn poll(&mut self, now_ns: u64) -> Progress {
        let is_due = now_ns >= self.1;
        if is_due {
            self.0.add(now_ns / 1_000_000);
            self.1 += 5_000_000;
        }
        Progress { worked: is_due.into(), deadline_ns: Some(self.1) }
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

#[test]
fn a_pollers_deadline_ends_the_sleep_until_it_is_removed() {
    let (_, mut core) = event_loop();
    let trace = Trace::new();
    let id = core.handle().add_poller(A, Periodic(trace.clone(), 5_000_000));
    run_until_asleep(&mut core, 3);
    core.turn();
    assert_eq!(trace.take(), [5, 10, 15]);
    core.handle().remove_poller(id);
    core.handle().at(100_000_000, |handle| handle.stop(0));
    core.run();
    assert_eq!(trace.take(), [0; 0]);
}

/// Its pieces of work belong to A and B in turn, and take 300 and 700 ns.
struct Mixed(Handle, Rc<World>, u32);

impl Poller for Mixed {
    fn poll(&mut self, _now_ns: u64) -> Progress {
        if self.2 == 0 {
            return Progress::default();
        }
        self.2 -= 1;
        self.0.charge(A);
        self.1.pass(300);
        self.0.charge(B);
        self.1.pass(700);
        let trace = self.0.activity();
        self.0.post(move |handle| assert_eq!(handle.activity(), trace));
        Progress { worked: 2, deadline_ns: None }
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

#[test]
fn a_poller_can_say_whose_work_each_piece_is() {
    let (world, mut core) = event_loop();
    core.handle().set_thresholds(Thresholds::POLLING);
    let pieces = if cfg!(miri) { 10 } else { 1_000 };
    core.handle().add_poller(INFRASTRUCTURE, Mixed(core.handle().clone(), world, pieces));
    (0..=pieces).for_each(|_| _ = core.turn());
    let pieces = u64::from(pieces);
    let usage = core.handle().usage();
    let (a, b) = (record_of(&usage, A), record_of(&usage, B));
    assert_eq!((a.events, b.events), (pieces, 2 * pieces));
    assert!(a.ns.abs_diff(300 * pieces) <= pieces * 2 * READING_NS, "{a:?}");
    assert!(b.ns.abs_diff(700 * pieces) <= pieces * 4 * READING_NS, "{b:?}");
    assert_eq!(record_of(&usage, INFRASTRUCTURE), Record::default());
}

/// Always has another event, which takes so long.
fn hog(handle: &Handle, world: Rc<World>, queue: QueueId, ns: u64) {
    world.pass(ns);
    let posted = handle.post_to(queue, move |handle| hog(handle, world, queue, ns));
    assert_eq!(posted, Ok(()));
}

#[test]
fn activities_get_their_shares_by_weight() {
    let (world, mut core) = event_loop();
    for (activity, weight, ns) in [(1, 50, 500), (2, 33, 1_000), (3, 17, 2_000)] {
        let (activity, weight) = (Activity(activity), NonZeroU32::new(weight).unwrap());
        core.handle().set_weight(activity, weight);
        let queue = core.handle().add_queue(activity, Parameters::default());
        let world = world.clone();
        core.handle().post_for(activity, move |handle| hog(handle, world, queue, ns));
    }
    let (turns, tolerance) = if cfg!(miri) { (400, 50.0) } else { (20_000, 1.0) };
    (0..turns).for_each(|_| _ = core.turn());
    let usage = core.handle().usage();
    let all: u64 = usage.activities.iter().map(|(_, record)| record.ns).sum();
    for (activity, percent) in [(1, 50.0), (2, 33.0), (3, 17.0)] {
        let share = record_of(&usage, Activity(activity)).ns as f64 * 100.0 / all as f64;
        assert!((share - percent).abs() < tolerance, "activity {activity}: {share}%");
    }
}

/// Who floods the core with events does not keep another activity waiting for longer than a turn.
#[test]
fn an_event_of_another_activity_waits_for_a_turn_at_most() {
    let (world, mut core) = event_loop();
    for n in 0..20 {
        let (clock, queue) = (world.clone(), core.handle().add_queue(A, Parameters::default()));
        core.handle().post_to(queue, move |handle| hog(handle, clock, queue, 1_000 + n)).unwrap();
    }
    core.handle().at(5_000_000, move |handle| handle.post_for(B, |handle| handle.stop(0)));
    core.run();
    let turn_ns = Settings::default().turn_ns;
    let late_ns = world.now_ns.get() - 5_000_000;
    assert!(late_ns < turn_ns + 100_000, "{late_ns} ns late");
}

#[test]
fn a_removed_queue_drops_its_events_and_keeps_its_tasks() {
    let (_, mut core) = event_loop();
    let queue = core.handle().add_queue(A, Parameters::default());
    let task = core.handle().spawn_on(queue, async { 5 }).unwrap();
    core.handle().post_to(queue, |_| panic!("it was dropped")).unwrap();
    assert_eq!(core.handle().remove_queue(queue), Ok(()));
    assert_eq!(core.handle().remove_queue(queue), Err(crate::handle::NoSuchQueue));
    assert!(core.handle().remove_queue(core.handle().default_queue()).is_err());
    assert!(core.handle().post_to(queue, |_| ()).is_err());
    assert!(core.handle().spawn_on(queue, async {}).is_err());
    core.turn();
    assert_eq!(task.take(), Some(5));
}

#[test]
fn nothing_outlives_the_loop() {
    let (_, core) = event_loop();
    let token = Rc::new(());
    let handle = core.handle().clone();
    let (event, timer, task, last) = (token.clone(), token.clone(), token.clone(), token.clone());
    let [held_by_event, held_by_timer, held_by_task] = [(); 3].map(|()| handle.clone());
    handle.post(move |_| drop((event, held_by_event)));
    handle.after(1_000, move |_| drop((timer, held_by_timer)));
    handle.spawn(async move {
        let posts_when_dropped = PostOnDrop(held_by_task, Some(last));
        std::future::pending::<()>().await;
        drop((task, posts_when_dropped));
    });
    let waits = handle.clone();
    handle.spawn(async move { waits.sleep(1_000_000).await });
    drop((core, handle));
    assert_eq!(Rc::strong_count(&token), 1);
}

struct PostOnDrop(Handle, Option<Rc<()>>);

impl Drop for PostOnDrop {
    fn drop(&mut self) {
        let (handle, token) = (self.0.clone(), self.1.take());
        self.0.post(move |_| drop((handle, token)));
    }
}

/// Everything in the property below is over after so many nanoseconds.
const END_NS: u64 = if cfg!(miri) { 150_000 } else { 3_000_000 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

    #[test]
    fn every_nanosecond_is_accounted_for(
        gaps in proptest::collection::vec(1u64..END_NS / 150, 1..100),
        events in proptest::collection::vec((0u32..4, 0u64..END_NS / 300, 0u64..END_NS / 6), 0..50),
        thresholds in prop_oneof![
            Just(Thresholds::ADAPTIVE), Just(Thresholds::POLLING), Just(Thresholds::INTERRUPTS)
        ],
    ) {
        let (world, mut core) = event_loop();
        let start_ns = world.now_ns.get();
        core.handle().set_thresholds(thresholds);
        core.handle().add_poller(A, FakeNic(world.clone()));
        let arrivals = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) });
        world.arrivals_ns.borrow_mut().extend(arrivals);
        for (activity, takes_ns, at_ns) in events {
            let world = world.clone();
            core.handle().at(at_ns, move |handle| {
                handle.charge(Activity(activity));
                world.pass(takes_ns);
            });
        }
        core.handle().at(END_NS, |handle| handle.stop(0));
        core.run();
        core.handle().at(2 * END_NS, |_| ());
        core.turn();
        let (usage, statistics) = (core.handle().usage(), core.handle().statistics());
        prop_assert_eq!(total_ns(&usage), core.handle().now_ns() - start_ns);
        prop_assert_eq!(statistics.polled, gaps.len() as u64);
        let switches = statistics.to_polling - statistics.to_interrupts;
        prop_assert_eq!(switches, u64::from(core.handle().mode() == Mode::Polling));
        match thresholds {
            Thresholds::POLLING => prop_assert_eq!((usage.sleeping_ns, statistics.sleeps), (0, 0)),
            Thresholds::INTERRUPTS => prop_assert!(usage.spinning_ns < usage.sleeping_ns),
            _ => prop_assert!(cfg!(miri) || statistics.sleeps > 0),
        }
    }
}
