//! Where a core is handed one piece of work after the other by the one core that has it back, without a lock.
//! What the work is, and how a core sleeps and is woken, is an argument.

use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crossbeam_queue::ArrayQueue;

/// It looks whether there is work.
const LOOKS: u32 = 0;
/// It sleeps, and is to be woken.
const SLEEPS: u32 = 1;
/// It has work, or is about to find it.
const WORKS: u32 = 2;
/// It has left.
const LEFT: u32 = 3;

/// How often it looks before it sleeps.
const ATTEMPTS: u32 = 2_000;

/// Between a core that works and the one whose work that is.
#[derive(Debug)]
pub(super) struct Place<J, R> {
    state: AtomicU32,
    job: ArrayQueue<J>,
    result: ArrayQueue<R>,
    is_recalled: AtomicBool,
}

/// What whoever offers work has to do then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing: the core sees it.
    Seen,
    /// Wake the core.
    Asleep,
}

impl<J, R> Place<J, R> {
    /// Of a core that is about to begin.
    pub fn new() -> Place<J, R> {
        Place {
            state: AtomicU32::new(LOOKS),
            job: ArrayQueue::new(1),
            result: ArrayQueue::new(1),
            is_recalled: AtomicBool::new(false),
        }
    }

    /// Gives the core work, which has none.
    ///
    /// # Errors
    /// The work, if the core has left.
    pub fn offer(&self, job: J) -> Result<Taken, J> {
        // What was to end the last one ends none that comes later.
        self.is_recalled.store(false, Relaxed);
        // Before the work is there: the core may be done with it before this looks again.
        let before = self.state.swap(WORKS, AcqRel);
        if before == LEFT {
            self.state.store(LEFT, Relaxed);
            return Err(job);
        }
        let pushed = self.job.push(job);
        debug_assert!(pushed.is_ok(), "it has no work");
        pushed.map(|()| if before == SLEEPS { Taken::Asleep } else { Taken::Seen })
    }

    /// What came of the work, once it is done.
    pub fn take_result(&self) -> Option<R> {
        self.result.pop()
    }

    /// Has the core end its work early. Whether it has any: then it may have to be woken from it.
    pub fn recall(&self) -> bool {
        self.is_recalled.store(true, Release);
        self.is_at_work()
    }

    /// Whether the core has work.
    pub fn is_at_work(&self) -> bool {
        self.state.load(Acquire) == WORKS
    }

    /// On the core: whether the present work is to end early.
    pub fn is_recalled(&self) -> bool {
        self.is_recalled.load(Acquire)
    }

    /// On the core: the next work. Without any it `sleep`s until it is woken, which says whether that took so
    /// long that it leaves; then there is none.
    pub fn next(&self, mut sleep: impl FnMut() -> bool) -> Option<J> {
        loop {
            for _ in 0..ATTEMPTS {
                if let Some(job) = self.job.pop() {
                    return Some(job);
                }
                core::hint::spin_loop();
            }
            if self.changes(LOOKS, SLEEPS) {
                let leaves = sleep();
                if self.changes(SLEEPS, if leaves { LEFT } else { LOOKS }) && leaves {
                    return None;
                }
            }
        }
    }

    fn changes(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }

    /// On the core: the work is done.
    pub fn finish(&self, result: R) {
        let pushed = self.result.push(result);
        debug_assert!(pushed.is_ok(), "who gave the work before has taken what came of it");
        self.state.store(LOOKS, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use std::thread;

    /// Sleeps that end at once, spuriously or not, as a core's may.
    fn doze() -> bool {
        thread::yield_now();
        false
    }

    #[test]
    fn each_piece_of_work_is_done_once_and_comes_back() {
        let place = Arc::new(Place::<u32, u32>::new());
        let core = {
            let place = place.clone();
            thread::spawn(move || {
                while let Some(job @ 1..) = place.next(doze) {
                    place.finish(2 * job);
                }
            })
        };
        for job in 1..if cfg!(miri) { 20 } else { 5_000 } {
            assert!(place.offer(job).is_ok());
            while place.is_at_work() {
                thread::yield_now();
            }
            assert_eq!((place.take_result(), place.take_result()), (Some(2 * job), None));
        }
        assert!(place.offer(0).is_ok());
        core.join().unwrap();
    }

    #[test]
    fn who_has_left_is_given_nothing() {
        let place = Place::<u32, ()>::new();
        let mut sleeps = 0;
        let next = place.next(|| {
            sleeps += 1;
            sleeps == 3
        });
        assert_eq!((next, sleeps, place.offer(7), place.is_at_work()), (None, 3, Err(7), false));
        assert_eq!(place.offer(8), Err(8));
    }

    #[test]
    fn who_sleeps_is_to_be_woken_and_stays_for_work_that_came_meanwhile() {
        let place = Place::<u32, ()>::new();
        let mut offered = None;
        let next = place.next(|| {
            offered = Some(place.offer(7));
            true
        });
        assert_eq!((next, offered), (Some(7), Some(Ok(Taken::Asleep))));
        place.finish(());
        assert_eq!((place.offer(8), place.take_result()), (Ok(Taken::Seen), Some(())));
    }

    #[test]
    fn only_present_work_is_recalled() {
        let place = Place::<u32, ()>::new();
        assert!(!place.recall(), "it has none");
        place.offer(1).unwrap();
        assert!(!place.is_recalled());
        assert!(place.recall() && place.is_recalled());
        assert_eq!(place.next(doze), Some(1));
        place.finish(());
        assert_eq!((place.recall(), place.take_result()), (false, Some(())));
        place.offer(2).unwrap();
        assert!(!place.is_recalled());
    }
}
