use super::*;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Waits for one of `free` to take.
struct Waiter {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Count>,
}

impl Waiter {
    fn new(queue: &Rc<WaitQueue>, free: &Rc<Cell<u32>>) -> Waiter {
        let (queue, free) = (queue.clone(), free.clone());
        let future = Box::pin(async move {
            queue.until(|| free.get().checked_sub(1).map(|left| free.set(left))).await;
        });
        Waiter { future, woken: Arc::default() }
    }

    fn poll(&mut self) -> Poll<()> {
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn woken(&self) -> u32 {
        self.woken.0.load(Relaxed)
    }
}

fn world() -> (Rc<WaitQueue>, Rc<Cell<u32>>) {
    (Rc::default(), Rc::default())
}

fn waiters<const N: usize>(queue: &Rc<WaitQueue>, free: &Rc<Cell<u32>>) -> [Waiter; N] {
    let mut waiters = core::array::from_fn(|_| Waiter::new(queue, free));
    assert!(waiters.iter_mut().all(|waiter| waiter.poll().is_pending()));
    waiters
}

fn woken(waiters: &[Waiter]) -> Vec<u32> {
    waiters.iter().map(Waiter::woken).collect()
}

#[test]
fn who_need_not_wait_does_not() {
    let (queue, free) = world();
    free.set(1);
    assert!(Waiter::new(&queue, &free).poll().is_ready());
    assert!(queue.is_empty());
}

#[test]
fn who_came_first_is_woken_first_though_it_looked_in_vain() {
    let (queue, free) = world();
    let mut waiters = waiters::<3>(&queue, &free);
    queue.wake_one();
    assert_eq!(woken(&waiters), [1, 0, 0]);
    assert!(waiters[0].poll().is_pending(), "it was woken in vain");
    free.set(2);
    queue.wake_one();
    assert_eq!(woken(&waiters), [2, 0, 0]);
    queue.wake_one();
    assert_eq!(woken(&waiters), [2, 1, 0]);
    assert!(waiters[0].poll().is_ready() && waiters[1].poll().is_ready());
    assert_eq!(queue.len(), 1);
    queue.wake_all();
    assert_eq!(woken(&waiters), [2, 1, 1]);
}

#[test]
fn all_are_woken_once() {
    let (queue, free) = world();
    let waiters = waiters::<3>(&queue, &free);
    queue.wake_all();
    queue.wake_all();
    assert_eq!(woken(&waiters), [1, 1, 1]);
}

#[test]
fn a_wake_up_of_who_has_gone_is_the_next_ones() {
    let (queue, free) = world();
    let [first, second, third] = waiters::<3>(&queue, &free);
    queue.wake_one();
    drop(first);
    assert_eq!(second.woken(), 1, "nobody else would ever wake it");
    drop(third);
    assert_eq!(second.woken(), 1, "that one was not woken");
    drop(second);
    assert!(queue.is_empty());
}

#[test]
fn a_waker_that_changes_is_the_one_that_is_woken() {
    let (queue, free) = world();
    let [mut waiter] = waiters(&queue, &free);
    let before = core::mem::take(&mut waiter.woken);
    assert!(waiter.poll().is_pending());
    queue.wake_all();
    assert_eq!((before.0.load(Relaxed), waiter.woken()), (0, 1));
}
