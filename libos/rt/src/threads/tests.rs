//! Not under Miri, which cannot exchange stacks.

use super::*;
use crate::task::Aborted;
use crate::world::{FakeLoop, Trace, World, event_loop};
use corosensei::stack::DefaultStack;

const ONE: NonZeroU32 = NonZeroU32::MIN;
const MS: u64 = 1_000_000;

fn threads() -> (Rc<World>, FakeLoop, Threads) {
    let (world, core) = event_loop();
    let make_stack = || DefaultStack::new(64 * 1024).ok();
    let threads = Threads::new(core.handle(), Settings::default(), make_stack);
    (world, core, threads)
}

#[test]
fn threads_yield_values_and_their_stacks_are_used_again() {
    let (_, mut core) = event_loop();
    let made = Rc::new(Cell::new(0));
    let count = made.clone();
    let threads = Threads::new(core.handle(), Settings::default(), move || {
        count.set(count.get() + 1);
        DefaultStack::new(64 * 1024).ok()
    });
    for n in 0..10 {
        let thread = threads.spawn(ONE, move |_| n * 2).unwrap();
        assert_eq!(core.block_on(thread), Some(Ok(n * 2)));
    }
    assert_eq!((threads.len(), threads.is_empty(), made.get()), (0, true, 1));
}

#[test]
fn a_blocked_thread_lets_others_run_and_the_core_sleep() {
    let (world, mut core, threads) = threads();
    let trace = Trace::new();
    let joined = [3, 1, 2].map(|n| {
        let trace = trace.clone();
        let main = move |thread: &Thread<'_>| {
            let local = [n; 100];
            thread.sleep(n * MS);
            trace.add((n, thread.handle().now_ns() / MS));
            assert_eq!(local, [n; 100], "its stack is as it was");
        };
        threads.spawn(ONE, main).unwrap()
    });
    for thread in joined {
        assert_eq!(core.block_on(thread), Some(Ok(())));
    }
    assert_eq!(trace.take(), [(1, 1), (2, 2), (3, 3)]);
    assert_eq!(world.slept_until.borrow().len(), 3);
}

#[test]
fn threads_join_threads_and_tasks() {
    let (_, mut core, threads) = threads();
    let inner = threads.clone();
    let outer = threads.spawn(ONE, move |thread| {
        let child = inner.spawn(ONE, |thread| thread.block_on(async { 4 })).expect("there are stacks");
        let task = thread.handle().spawn(async { 5 });
        thread.block_on(child).unwrap() + thread.block_on(task).unwrap()
    });
    assert_eq!(core.block_on(outer.unwrap()), Some(Ok(9)));
}

/// Computes for so long, and looks up every 100 us.
fn compute(thread: &Thread<'_>, world: &World, ns: u64) {
    for _ in 0..ns / 100_000 {
        world.pass(100_000);
        thread.checkpoint();
    }
}

#[test]
fn busy_threads_share_the_core_by_weight() {
    let (world, mut core, threads) = threads();
    let ran = [50, 33, 17].map(|weight| {
        let (world, ran) = (world.clone(), Rc::new(Cell::new(0)));
        let counts = ran.clone();
        let queue = core.handle().default_queue();
        let starts = threads.clone();
        let main = move |thread: &Thread<'_>| {
            loop {
                compute(thread, &world, MS);
                counts.set(counts.get() + 1);
            }
        };
        let posted = core.handle().post_for(Activity(weight), queue, move |_| {
            starts.spawn(NonZeroU32::new(weight).unwrap(), main).unwrap();
        });
        assert_eq!(posted, Ok(()));
        ran
    });
    core.handle().at(5_000 * MS, |handle| handle.stop(0));
    core.run();
    let all: u32 = ran.iter().map(|ran| ran.get()).sum();
    for (percent, ran) in [50.0, 33.0, 17.0].iter().zip(&ran) {
        assert!((f64::from(ran.get()) * 100.0 / f64::from(all) - percent).abs() < 1.0, "{ran:?} of {all}");
    }
    let usage = core.handle().usage();
    let charged = |activity| {
        let found = usage.activities.iter().find(|(other, _)| *other == Activity(activity));
        found.map_or(0, |(_, record)| record.ns) / MS
    };
    assert!(charged(50).abs_diff(2_500) < 50 && charged(17).abs_diff(850) < 50, "{usage:?}");
    assert!(threads.switches() < 5_000 / 2 + 10, "no more than 500 switches a second");
}

#[test]
fn threads_that_give_way_take_turns_with_events_between_them() {
    let (_, mut core, threads) = threads();
    let trace = Trace::new();
    for name in ["a", "b"] {
        let trace = trace.clone();
        let main = move |thread: &Thread<'_>| {
            for _ in 0..2 {
                trace.add(name);
                let event = trace.clone();
                thread.handle().post(move |_| event.add("event"));
                thread.yield_now();
            }
        };
        threads.spawn(ONE, main).unwrap();
    }
    core.handle().at(MS, |handle| handle.stop(0));
    core.run();
    assert_eq!(trace.take(), ["a", "event", "b", "event", "a", "event", "b", "event"]);
}

/// Alone on its core, it has nobody to make way for; but its loop has timers and messages.
#[test]
fn a_thread_that_computes_alone_keeps_no_event_waiting() {
    let (world, mut core, threads) = threads();
    let clock = world.clone();
    threads.spawn(ONE, move |thread| compute(thread, &clock, 1000 * MS)).unwrap();
    core.handle().at(10 * MS, |handle| handle.stop(3));
    assert_eq!(core.run(), 3);
    assert!(world.now_ns.get() < 13 * MS, "{} ns", world.now_ns.get());
}

/// Whom a thread starts while it is alone takes its turn, too.
#[test]
fn who_is_started_by_a_thread_that_computes_has_its_turn() {
    let (world, mut core, all) = threads();
    let (clock, starts) = (world.clone(), all.clone());
    let main = move |thread: &Thread<'_>| {
        compute(thread, &clock, MS);
        let handle = thread.handle().clone();
        starts.spawn(ONE, move |_| handle.stop(4)).unwrap();
        compute(thread, &clock, 1000 * MS);
    };
    all.spawn(ONE, main).unwrap();
    assert_eq!(core.run(), 4);
    assert!(world.now_ns.get() < 8 * MS, "{} ns", world.now_ns.get());
}

/// Threads that hand the core to each other do not keep it from what is polled.
#[test]
fn threads_that_follow_each_other_leave_pollers_their_time() {
    let (world, mut core, threads) = threads();
    world.arrivals_ns.borrow_mut().extend((1..=100).map(|n| n * 1000));
    core.handle().add_poller(crate::INFRASTRUCTURE, crate::world::FakeNic(world.clone()));
    for _ in 0..2 {
        threads
            .spawn(ONE, |thread| {
                loop {
                    thread.yield_now()
                }
            })
            .unwrap();
    }
    core.handle().at(MS, |handle| handle.stop(0));
    core.run();
    assert!(world.arrivals_ns.borrow().is_empty(), "all was received");
    let turns = core.handle().statistics().turns;
    let expected = MS / POLLERS_WAIT_NS;
    assert!((expected / 2..2 * expected).contains(&turns), "{turns} turns in 1 ms");
}

#[test]
fn a_wake_up_while_the_thread_runs_is_not_lost() {
    let (_, mut core, threads) = threads();
    let thread = threads.spawn(ONE, |thread| {
        let mut polls = 0;
        thread.block_on(poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls == 3 { Poll::Ready(polls) } else { Poll::Pending }
        }))
    });
    assert_eq!(core.block_on(thread.unwrap()), Some(Ok(3)));
}

#[test]
fn without_memory_there_is_no_thread() {
    let (_, core) = event_loop();
    let threads = Threads::new(core.handle(), Settings::default(), || None::<DefaultStack>);
    assert!(matches!(threads.spawn(ONE, |_| ()), Err(NoStack)));
}

#[test]
fn threads_that_never_ended_end_with_the_loop() {
    let (_, mut core, threads) = threads();
    let token = Rc::new(());
    let (begun, fresh) = (token.clone(), token.clone());
    let waiting = threads.spawn(ONE, move |thread| {
        thread.block_on(core::future::pending::<()>());
        drop(begun);
    });
    core.handle().at(MS, |handle| handle.stop(0));
    core.run();
    let never_begun = threads.spawn(ONE, move |_| drop(fresh)).unwrap();
    drop((core, threads));
    assert_eq!(Rc::strong_count(&token), 2, "only what a stack holds is left");
    assert!(never_begun.is_finished() && !waiting.unwrap().is_finished());
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(pin!(never_begun).poll(&mut context), Poll::Ready(Err(Aborted)));
}
