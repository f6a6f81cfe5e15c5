use super::*;
use crate::handle::Handle;
use crate::sleep::Elapsed;
use crate::world::{FakeLoop, Trace, event_loop};
use std::cell::Cell;
use std::future::poll_fn;

/// Turns until nothing is left to do but to sleep.
fn settle(core: &mut FakeLoop) {
    core.handle().set_thresholds(crate::rest::Thresholds::POLLING);
    while core.turn() {}
}

#[test]
fn a_task_yields_a_value_to_who_joins_it() {
    let (_, mut core) = event_loop();
    let handle = core.handle().clone();
    let sum = core.block_on(async move {
        let parts = [1, 2, 3].map(|n| handle.spawn(async move { n * 10 }));
        let mut sum = 0;
        for part in parts {
            sum += part.await.expect("nobody aborts it");
        }
        sum
    });
    assert_eq!(sum, Some(60));
    assert_eq!(core.handle().statistics().tasks, 0);
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let (world, mut core) = event_loop();
    let trace = Trace::new();
    for ms in [3, 1, 2] {
        let (handle, trace) = (core.handle().clone(), trace.clone());
        core.handle().spawn(async move {
            handle.sleep(ms * 1_000_000).await;
            trace.add((ms, handle.now_ns() / 1_000_000));
        });
    }
    let handle = core.handle().clone();
    core.block_on(async move { handle.sleep(5_000_000).await });
    assert_eq!(trace.take(), [(1, 1), (2, 2), (3, 3)]);
    assert_eq!(world.slept_until.borrow().len(), 4, "one sleep a deadline");
}

#[test]
fn a_future_that_is_late_is_dropped() {
    let (_, mut core) = event_loop();
    let handle = core.handle().clone();
    let outcomes = core.block_on(async move {
        let late = handle.timeout(1_000_000, handle.sleep(2_000_000)).await;
        let early = handle.timeout(2_000_000, handle.sleep(1_000_000)).await;
        (late, early)
    });
    assert_eq!(outcomes, Some((Err(Elapsed), Ok(()))));
    assert_eq!(core.handle().shared().wheel.borrow().len(), 0, "its timers are gone");
}

#[test]
fn tasks_that_yield_take_turns() {
    let (_, mut core) = event_loop();
    let trace = Trace::new();
    for name in ['a', 'b'] {
        let (handle, trace) = (core.handle().clone(), trace.clone());
        core.handle().spawn(async move {
            for step in 0..3 {
                trace.add((name, step));
                handle.yield_now().await;
            }
        });
    }
    settle(&mut core);
    assert_eq!(trace.take(), [('a', 0), ('b', 0), ('a', 1), ('b', 1), ('a', 2), ('b', 2)]);
}

/// A waker that a task left behind.
type Left = Rc<RefCell<Option<Waker>>>;

/// Counts how often it is polled; ready when told.
fn counted(polls: Rc<Cell<u32>>, left: Left, is_ready: Rc<Cell<bool>>) -> impl Future<Output = ()> {
    poll_fn(move |context| {
        polls.set(polls.get() + 1);
        *left.borrow_mut() = Some(context.waker().clone());
        if is_ready.get() { Poll::Ready(()) } else { Poll::Pending }
    })
}

#[test]
fn many_wake_ups_before_a_task_goes_on_are_one() {
    let (_, mut core) = event_loop();
    let (polls, left, is_ready) = (Rc::<Cell<u32>>::default(), Left::default(), Rc::<Cell<bool>>::default());
    core.handle().spawn(counted(polls.clone(), left.clone(), is_ready.clone()));
    settle(&mut core);
    assert_eq!(polls.get(), 1);
    let waker = left.borrow().clone().expect("it was polled");
    (0..5).for_each(|_| waker.wake_by_ref());
    settle(&mut core);
    assert_eq!((polls.get(), core.handle().statistics().messages), (2, 1));
    is_ready.set(true);
    waker.wake_by_ref();
    settle(&mut core);
    waker.wake();
    settle(&mut core);
    assert_eq!((polls.get(), core.handle().statistics().tasks), (3, 0), "who has ended is not polled");
}

#[test]
fn an_aborted_task_ends_where_it_waits_and_who_joins_it_hears_of_it() {
    let (_, mut core) = event_loop();
    let token = Rc::new(());
    let held = token.clone();
    let waiting = core.handle().spawn(async move {
        std::future::pending::<()>().await;
        drop(held);
    });
    settle(&mut core);
    let handle = core.handle().clone();
    let id = waiting.id();
    let joined = core.handle().spawn(waiting);
    assert!(handle.abort(id) && !handle.abort(id));
    settle(&mut core);
    assert_eq!((joined.take(), Rc::strong_count(&token)), (Some(Err(Aborted)), 1));
}

#[test]
fn a_task_can_abort_itself() {
    let (_, mut core) = event_loop();
    let handle = core.handle().clone();
    let own: Rc<Cell<Option<TaskId>>> = Rc::default();
    let known = own.clone();
    let task = core.handle().spawn(async move {
        assert!(handle.abort(known.get().expect("it was set before the first turn")));
        handle.yield_now().await;
        panic!("it was aborted");
    });
    own.set(Some(task.id()));
    settle(&mut core);
    assert!(task.is_finished() && task.take().is_none());
}

#[test]
fn what_a_task_starts_is_paid_for_by_the_same_activity() {
    let (_, mut core) = event_loop();
    let trace = Trace::new();
    let seen = trace.clone();
    core.handle().post_for(Activity(9), move |handle: &Handle| {
        let inner = handle.clone();
        handle.spawn(async move {
            seen.add(inner.activity());
            inner.sleep(1_000).await;
            seen.add(inner.activity());
            let innermost = inner.clone();
            inner.spawn(async move { seen.add(innermost.activity()) });
        });
    });
    core.handle().at(2_000_000, |handle| handle.stop(0));
    core.run();
    assert_eq!(trace.take(), [Activity(9); 3]);
}
