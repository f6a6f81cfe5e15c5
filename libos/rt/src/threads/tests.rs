//! Not under Miri, which cannot exchange stacks.

use super::*;
use crate::task::Aborted;
use crate::wait_queue::WaitQueue;
use crate::world::{FakeLoop, Trace, World, event_loop};
use corosensei::stack::DefaultStack;
use std::future::poll_fn;

const ONE: NonZeroU32 = NonZeroU32::MIN;
const MS: u64 = 1_000_000;

fn threads() -> (Rc<World>, FakeLoop, Threads) {
    let (world, core) = event_loop();
    let make_stack = || DefaultStack::new(64 * 1024).ok();
    let threads = Threads::new(core.handle(), make_stack);
    (world, core, threads)
}

#[test]
fn threads_yield_values_and_their_stacks_are_used_again() {
    let (_, mut core) = event_loop();
    let made = Rc::new(Cell::new(0));
    let count = made.clone();
    let threads = Threads::new(core.handle(), move || {
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
fn a_thread_is_told_how_long_it_and_others_had_the_core() {
    let (world, mut core, threads) = threads();
    let other = Rc::new(core::cell::OnceCell::new());
    let (passing, told) = (world.clone(), other.clone());
    let first = threads.spawn(ONE, move |thread: &Thread<'_>| {
        told.set(thread.core_waker()).expect("once");
        passing.pass(3 * MS);
        thread.sleep(20 * MS);
        passing.pass(2 * MS);
        thread.core_waker().ran_ns().expect("it lives")
    });
    let second = threads.spawn(ONE, move |thread: &Thread<'_>| {
        world.pass(7 * MS);
        let own = thread.core_waker().ran_ns().expect("it lives");
        thread.sleep(MS);
        (own, other.get().expect("it came first").ran_ns().expect("it sleeps"))
    });
    let (own, others) = core.block_on(second.unwrap()).expect("it ends").expect("it ends");
    // Readings of the clock take time there, too.
    assert_eq!([own / MS, others / MS], [7, 3]);
    let whole = core.block_on(first.unwrap()).expect("it ends").expect("it ends");
    assert_eq!(whole / MS, 5, "what it slept is not counted");
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

#[test]
fn threads_and_tasks_wait_in_one_queue() {
    let (_, mut core, threads) = threads();
    let (queue, free, trace) = (Rc::new(WaitQueue::new()), Rc::new(Cell::new(0)), Trace::new());
    let take = |name: &'static str| {
        let (queue, free, trace) = (queue.clone(), free.clone(), trace.clone());
        async move {
            queue.until(|| u32::checked_sub(free.get(), 1).map(|left| free.set(left))).await;
            trace.add(name);
        }
    };
    let [first, second, third] = ["a thread", "a task", "another thread"].map(take);
    threads.spawn(ONE, |thread| thread.block_on(first)).unwrap();
    let task = core.handle().spawn(second);
    let last = threads.spawn(ONE, |thread| thread.block_on(third)).unwrap();
    let (gives, given) = (queue.clone(), free.clone());
    core.handle().after(MS, move |_| {
        assert_eq!(gives.len(), 3);
        for _ in 0..3 {
            given.update(|free| free + 1);
            gives.wake_one();
        }
    });
    assert_eq!((core.block_on(last), core.block_on(task)), (Some(Ok(())), Some(Ok(()))));
    let mut order = trace.take();
    order.sort_unstable();
    assert_eq!(order, ["a task", "a thread", "another thread"]);
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
        core.handle().set_weight(Activity(weight), NonZeroU32::new(weight).unwrap());
        let starts = threads.clone();
        let main = move |thread: &Thread<'_>| {
            loop {
                compute(thread, &world, MS);
                counts.set(counts.get() + 1);
            }
        };
        core.handle().post_for(Activity(weight), move |_| {
            starts.spawn(ONE, main).unwrap();
        });
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
    assert!(threads.switches() < 5_000 * 5 + 10, "no more than one switch a turn of 200 us");
}

/// Computes for ever, and counts the milliseconds.
fn count(threads: &Threads, weight: u32, world: &Rc<World>) -> Rc<Cell<u64>> {
    let (world, ran) = (world.clone(), Rc::new(Cell::new(0)));
    let counts = ran.clone();
    let main = move |thread: &Thread<'_>| {
        loop {
            compute(thread, &world, MS);
            counts.set(counts.get() + 1);
        }
    };
    threads.spawn(NonZeroU32::new(weight).unwrap(), main).unwrap();
    ran
}

/// An event that takes 50 us, and posts itself again.
fn flood(handle: &Handle, world: Rc<World>, ran: Rc<Cell<u64>>) {
    world.pass(50_000);
    ran.set(ran.get() + 50);
    handle.post(move |handle| flood(handle, world, ran));
}

/// One activity has a request queue and two threads, another one a thread: all are clients side by side.
#[test]
fn queues_and_threads_of_an_activity_share_what_it_gets() {
    let (world, mut core, threads) = threads();
    let (ours, theirs) = (Trace::new(), Trace::new());
    let (starts, clock, trace) = (threads.clone(), world.clone(), ours.clone());
    core.handle().post_for(Activity(1), move |handle| {
        let flooded = Rc::new(Cell::new(0));
        trace.add(flooded.clone());
        trace.add(count(&starts, 1, &clock));
        trace.add(count(&starts, 2, &clock));
        flood(handle, clock, flooded);
    });
    let (clock, trace) = (world.clone(), theirs.clone());
    core.handle().post_for(Activity(2), move |_| trace.add(count(&threads, 1, &clock)));
    core.handle().at(4_000 * MS, |handle| handle.stop(0));
    core.run();
    let [queue, one, two] = [0, 1, 2].map({
        let counts = ours.take();
        move |n: usize| counts[n].get()
    });
    assert!((480..520).contains(&(queue / 1_000)), "{queue} us of the queue");
    assert!((480..520).contains(&one) && (960..1_040).contains(&two), "{one} and {two} ms of its threads");
    let other = theirs.take()[0].get();
    assert!((1_980..2_020).contains(&other), "{other} ms of the other activity");
}

/// Whoever pays for it, among the clients of that activity it goes on.
#[test]
fn a_thread_that_changes_who_pays_shares_with_others_of_that_activity() {
    let (world, mut core, threads) = threads();
    let crowd = [(); 3].map(|()| count(&threads, 1, &world));
    let (clock, seen) = (world.clone(), Trace::new());
    let trace = seen.clone();
    let main = move |thread: &Thread<'_>| {
        thread.handle().charge(Activity(7));
        for _ in 0..2 {
            thread.yield_now();
            trace.add(thread.handle().activity());
            thread.sleep(MS);
        }
        compute(thread, &clock, 1_000 * MS);
        trace.add(thread.handle().activity());
        thread.handle().stop(0);
    };
    threads.spawn(ONE, main).unwrap();
    core.run();
    assert_eq!(seen.take(), [Activity(7); 3]);
    let ran: u64 = crowd.iter().map(|ran| ran.get()).sum();
    assert!((950..1_060).contains(&ran), "three threads of an activity of the same weight ran {ran} ms");
}

#[test]
fn threads_that_give_way_take_turns_with_each_other_and_with_events() {
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
    assert_eq!(trace.take(), ["a", "b", "event", "event", "a", "b", "event", "event"]);
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

/// Looking takes a ninth of the core at most, and less while there is nothing to see: but nothing waits for
/// longer than 80 us.
#[test]
fn the_loop_looks_less_often_while_it_finds_nothing() {
    let waits = |turn_ns, vain: [u32; 5]| vain.map(|vain| pollers_wait_ns(turn_ns, vain) / 1000);
    assert_eq!(waits(100, [0, 1, 2, 3, 9]), [10; 5]);
    assert_eq!(waits(2_000, [0, 1, 2, 3, 9]), [16, 32, 64, 80, 80]);
    assert_eq!(waits(1_500, [0, 1, 2, 3, u32::MAX]), [12, 24, 48, 80, 80]);
    assert_eq!(waits(u64::MAX, [0; 5]), [80; 5]);
    let turns = Turns::new();
    [false, false, true, false].into_iter().for_each(|found| turns.looked(found));
    assert_eq!(turns.vain_turns.get(), 1, "what was found counts");
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
fn others_wait_while_they_are_ready_and_no_longer() {
    let (_, mut core, threads) = threads();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let first = seen.clone();
    let alone = threads.spawn(ONE, move |thread| {
        first.borrow_mut().push(thread.others_wait());
        thread.yield_now();
        first.borrow_mut().push(thread.others_wait());
    });
    let second = seen.clone();
    threads.spawn(ONE, move |thread| second.borrow_mut().push(thread.others_wait())).unwrap();
    assert_eq!(core.block_on(alone.unwrap()), Some(Ok(())));
    assert_eq!(*seen.borrow(), [true, true, false]);
}

#[test]
fn without_memory_there_is_no_thread() {
    let (_, core) = event_loop();
    let threads = Threads::new(core.handle(), || None::<DefaultStack>);
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
