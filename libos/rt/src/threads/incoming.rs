//! Threads that were woken, perhaps from other cores, and are not yet in the run queue.
//!
//! Whoever adds one and the dispatcher that is about to rest each do one thing and then look whether the
//! other has done its own, with a sequentially consistent fence in between, so that at least one of them sees
//! the other: as with the [inbox](crate::inbox).

use super::ThreadId;
use core::sync::atomic::{AtomicBool, Ordering, fence};
use core::task::Waker;
use crossbeam_queue::SegQueue;

/// What is shared with all who wake threads of a core.
pub(super) struct Incoming {
    threads: SegQueue<ThreadId>,
    /// The dispatcher looks here before it rests: nobody need wake it.
    is_watched: AtomicBool,
    dispatcher: Waker,
}

impl Incoming {
    /// Of a dispatcher that is about to look.
    pub fn new(dispatcher: Waker) -> Incoming {
        Incoming { threads: SegQueue::new(), is_watched: AtomicBool::new(true), dispatcher }
    }

    /// Adds a thread.
    pub fn push(&self, thread: ThreadId) {
        self.threads.push(thread);
        fence(Ordering::SeqCst);
        self.call();
    }

    /// Has the dispatcher look, also if it rests.
    pub fn call(&self) {
        if !self.is_watched.load(Ordering::Relaxed) {
            self.dispatcher.wake_by_ref();
        }
    }

    /// Whether nobody waits: a cheaper question than [`Incoming::pop`], which takes a fence to find nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Takes the one that has waited longest.
    pub fn pop(&self) -> Option<ThreadId> {
        self.threads.pop()
    }

    /// The dispatcher looks here from now on.
    pub fn watch(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// The dispatcher is about to rest, and is to be woken. `false` if there is somebody already: it goes on.
    pub fn leave(&self) -> bool {
        self.is_watched.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_empty = self.threads.is_empty();
        if !is_empty {
            self.watch();
        }
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Wake;
    use std::thread;
    use std::time::Duration;

    const COUNT: usize = if cfg!(miri) { 50 } else { 20_000 };

    /// The dispatcher's bed.
    struct Bell(Sender<()>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.send(()).expect("the dispatcher is there");
        }
    }

    fn incoming() -> (Incoming, Receiver<()>) {
        let (bell, rings) = channel();
        (Incoming::new(Arc::new(Bell(bell)).into()), rings)
    }

    fn ids(count: usize) -> Vec<ThreadId> {
        let mut ids = SlotMap::<ThreadId, ()>::with_key();
        (0..count).map(|_| ids.insert(())).collect()
    }

    #[test]
    fn who_looks_is_not_woken_and_who_rests_is() {
        let (incoming, rings) = incoming();
        let ids = ids(3);
        incoming.push(ids[0]);
        assert!(rings.try_recv().is_err(), "it is about to look");
        assert!(!incoming.leave(), "there is somebody already");
        incoming.push(ids[1]);
        assert!(rings.try_recv().is_err(), "so it went on");
        assert_eq!([incoming.pop(), incoming.pop(), incoming.pop()], [Some(ids[0]), Some(ids[1]), None]);
        assert!(incoming.leave());
        incoming.push(ids[2]);
        assert!(rings.try_recv().is_ok());
    }

    /// Two others wake threads as fast as they can; the dispatcher rests whenever it may.
    #[test]
    fn nobody_is_forgotten() {
        let (incoming, rings) = incoming();
        let ids = ids(2 * COUNT);
        thread::scope(|scope| {
            for half in ids.chunks(COUNT) {
                let incoming = &incoming;
                scope.spawn(move || half.iter().for_each(|id| incoming.push(*id)));
            }
            let mut taken = 0;
            while taken < 2 * COUNT {
                incoming.watch();
                while incoming.pop().is_some() {
                    taken += 1;
                }
                if taken < 2 * COUNT && incoming.leave() {
                    rings.recv_timeout(Duration::from_secs(60)).expect("somebody rings");
                }
            }
        });
        assert_eq!(incoming.pop(), None);
    }
}
