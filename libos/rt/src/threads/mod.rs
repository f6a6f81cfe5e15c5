//! Threads that block, on top of the loop: each has a stack of its own, and OSv's scheduler chooses between
//! those of a core.
//!
//! One task of the loop, the dispatcher, resumes the thread that [`policy`] chooses; the thread runs until
//! it blocks, ends or reaches a [`Thread::checkpoint`] after its turn. To block is to wait for a future, so
//! threads wait for whatever tasks can wait for. Between two threads other events of the core have their
//! turn.

pub mod policy;

use crate::handle::Handle;
use crate::meter::Activity;
use crate::task::{self, JoinHandle};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::fmt;
use core::future::poll_fn;
use core::mem;
use core::num::NonZeroU32;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
pub use corosensei::stack::Stack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use crossbeam_queue::SegQueue;
use policy::{Account, RunQueue, Settings};
use slotmap::SlotMap;

slotmap::new_key_type! {
    /// Names a thread of one core.
    pub struct ThreadId;
}

/// Why a thread gives the core back.
enum Pause {
    /// Until its waker is called.
    Blocked,
    /// Its turn is over; it could run on.
    Preempted,
    /// It wants all others to go first.
    GaveWay,
}

type Routine<S> = Coroutine<(), Pause, (), S>;

/// Threads that were woken, perhaps from other cores, and are not yet in the run queue.
struct Incoming {
    threads: SegQueue<ThreadId>,
    dispatcher: Waker,
}

struct Alarm {
    thread: ThreadId,
    incoming: Arc<Incoming>,
    /// It stands in `incoming`.
    is_incoming: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_incoming.swap(true, Ordering::AcqRel) {
            self.incoming.threads.push(self.thread);
            self.incoming.dispatcher.wake_by_ref();
        }
    }
}

struct Entry<S: Stack> {
    /// Taken out while it runs.
    routine: Option<Routine<S>>,
    alarm: Arc<Alarm>,
    /// Here while the thread is blocked.
    account: Option<Account>,
    activity: Activity,
}

struct State<S: Stack> {
    handle: Handle,
    run_queue: RefCell<RunQueue<ThreadId>>,
    threads: RefCell<SlotMap<ThreadId, Entry<S>>>,
    incoming: OnceCell<Arc<Incoming>>,
    /// When the turn of the running thread is over.
    preempt_at_ns: Rc<Cell<Option<u64>>>,
    make_stack: RefCell<Box<dyn FnMut() -> Option<S>>>,
    /// Of threads that have ended.
    stacks: RefCell<Vec<S>>,
    switches: Cell<u64>,
}

/// There is no memory for another stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoStack;

impl fmt::Display for NoStack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("there is no memory for the stack of another thread")
    }
}

impl core::error::Error for NoStack {}

/// The threads of one core, on stacks of type `S`. Clones are the same threads.
pub struct Threads<S: Stack> {
    state: Rc<State<S>>,
}

impl<S: Stack> Clone for Threads<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone() }
    }
}

impl<S: Stack> fmt::Debug for Threads<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Threads({})", self.len())
    }
}

impl<S: Stack + 'static> Threads<S> {
    /// No threads yet, on the loop of `handle`. `make_stack` makes a stack, each with a guard page; those
    /// of ended threads are used again.
    #[must_use]
    pub fn new(handle: &Handle, settings: Settings, make_stack: impl FnMut() -> Option<S> + 'static) -> Self {
        let state = Rc::new(State {
            handle: handle.clone(),
            run_queue: RefCell::new(RunQueue::new(settings)),
            threads: RefCell::new(SlotMap::with_key()),
            incoming: OnceCell::new(),
            preempt_at_ns: Rc::default(),
            make_stack: RefCell::new(Box::new(make_stack)),
            stacks: RefCell::default(),
            switches: Cell::new(0),
        });
        let task = handle.spawn(dispatch(state.clone()));
        let dispatcher = handle.shared().tasks.borrow().waker_of(task.id()).expect("it has not run yet");
        let incoming = Arc::new(Incoming { threads: SegQueue::new(), dispatcher });
        state.incoming.set(incoming).ok().expect("it is set nowhere else");
        Self { state }
    }

    /// Starts a thread; the present activity pays for it. What it holds when its loop ends before it does
    /// is never dropped: nothing can unwind its stack.
    ///
    /// # Errors
    /// If there is no stack for it; `main` is dropped.
    pub fn spawn<T: 'static>(
        &self,
        weight: NonZeroU32,
        main: impl FnOnce(&Thread<'_>) -> T + 'static,
    ) -> Result<JoinHandle<T, ThreadId>, NoStack> {
        let stack = self.state.take_stack().ok_or(NoStack)?;
        let (promise, joined) = task::promise();
        let id = self.state.insert(stack, move |thread| promise.keep(main(thread)));
        let now_ns = self.state.handle.clock_ns();
        let mut run_queue = self.state.run_queue.borrow_mut();
        let account = run_queue.inherit(weight, now_ns);
        run_queue.wake(id, account, now_ns);
        self.state.incoming().dispatcher.wake_by_ref();
        Ok(joined(id))
    }
}

impl<S: Stack> Threads<S> {
    /// Threads that have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.threads.borrow().len()
    }

    /// Whether all threads have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often a thread was resumed.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.state.switches.get()
    }
}

impl<S: Stack> State<S> {
    fn incoming(&self) -> &Arc<Incoming> {
        self.incoming.get().expect("it was set before the first turn")
    }

    fn take_stack(&self) -> Option<S> {
        let spare = self.stacks.borrow_mut().pop();
        spare.or_else(|| (self.make_stack.borrow_mut())())
    }

    /// Wakes what was woken. A thread that is not blocked looks for itself before it blocks.
    fn receive(&self) {
        while let Some(id) = self.incoming().threads.pop() {
            let mut threads = self.threads.borrow_mut();
            let Some(entry) = threads.get_mut(id) else { continue };
            entry.alarm.is_incoming.store(false, Ordering::Release);
            if let Some(account) = entry.account.take() {
                self.run_queue.borrow_mut().wake(id, account, self.handle.clock_ns());
            }
        }
    }

    /// Runs the thread whose turn it is until it pauses. Returns whether there was one.
    fn run_next(&self) -> bool {
        let decision = self.run_queue.borrow_mut().decide(self.handle.clock_ns());
        let Some(id) = decision.thread else { return false };
        self.preempt_at_ns.set(decision.preempt_at_ns);
        self.switches.set(self.switches.get() + 1);
        let (mut routine, activity) = self.take_routine(id);
        self.handle.charge(activity);
        let result = routine.resume(());
        let now_ns = self.handle.clock_ns();
        match result {
            CoroutineResult::Yield(pause) => self.pause(id, routine, &pause, now_ns),
            CoroutineResult::Return(()) => self.end(id, routine, now_ns),
        }
        true
    }

    fn take_routine(&self, id: ThreadId) -> (Routine<S>, Activity) {
        let entry = &mut self.threads.borrow_mut()[id];
        (entry.routine.take().expect("only one thread runs"), entry.activity)
    }

    fn pause(&self, id: ThreadId, routine: Routine<S>, pause: &Pause, now_ns: u64) {
        let (mut threads, mut run_queue) = (self.threads.borrow_mut(), self.run_queue.borrow_mut());
        let entry = &mut threads[id];
        entry.routine = Some(routine);
        entry.activity = self.handle.activity();
        match pause {
            Pause::Blocked => entry.account = run_queue.block(now_ns).map(|(_, account)| account),
            Pause::GaveWay => run_queue.give_way(now_ns),
            Pause::Preempted => (),
        }
    }

    fn end(&self, id: ThreadId, routine: Routine<S>, now_ns: u64) {
        self.run_queue.borrow_mut().block(now_ns);
        self.threads.borrow_mut().remove(id);
        self.stacks.borrow_mut().push(routine.into_stack());
    }
}

impl<S: Stack + 'static> State<S> {
    fn insert(&self, stack: S, main: impl FnOnce(&Thread<'_>) + 'static) -> ThreadId {
        let (handle, preempt_at_ns) = (self.handle.clone(), self.preempt_at_ns.clone());
        self.threads.borrow_mut().insert_with_key(|thread| {
            let incoming = self.incoming().clone();
            let alarm = Arc::new(Alarm { thread, incoming, is_incoming: AtomicBool::new(false) });
            let waker = alarm.clone().into();
            let routine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Pause>, ()| {
                main(&Thread { yielder, handle, waker, preempt_at_ns });
            });
            let activity = self.handle.activity();
            Entry { routine: Some(routine), alarm, account: None, activity }
        })
    }
}

/// A thread that has begun cannot be dropped: its frames are left where they are.
impl<S: Stack> Drop for Entry<S> {
    fn drop(&mut self) {
        if let Some(routine) = self.routine.take().filter(Routine::started) {
            mem::forget(routine);
        }
    }
}

/// The task that runs the threads.
async fn dispatch<S: Stack>(state: Rc<State<S>>) {
    loop {
        state.receive();
        if state.run_next() {
            state.handle.yield_now().await;
        } else {
            state.woken().await;
        }
    }
}

impl<S: Stack> State<S> {
    /// Ready when a thread was started or woken.
    fn woken(&self) -> impl Future<Output = ()> {
        poll_fn(|_| {
            let is_idle = self.incoming().threads.is_empty() && self.run_queue.borrow().load() == 0;
            if is_idle { Poll::Pending } else { Poll::Ready(()) }
        })
    }
}

/// A thread, as the code that runs in it sees it.
pub struct Thread<'y> {
    yielder: &'y Yielder<(), Pause>,
    handle: Handle,
    waker: Waker,
    preempt_at_ns: Rc<Cell<Option<u64>>>,
}

impl Thread<'_> {
    /// The loop that it runs on.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Blocks until `future` is ready, and returns what it yields. Others run meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                return value;
            }
            self.yielder.suspend(Pause::Blocked);
        }
    }

    /// Blocks for `ns` nanoseconds.
    pub fn sleep(&self, ns: u64) {
        self.block_on(self.handle.sleep(ns));
    }

    /// Lets all threads go first that are ready.
    pub fn yield_now(&self) {
        self.yielder.suspend(Pause::GaveWay);
    }

    /// Lets another thread go on if this one's turn is over. For loops that compute for long.
    pub fn checkpoint(&self) {
        if self.preempt_at_ns.get().is_some_and(|at_ns| self.handle.clock_ns() >= at_ns) {
            self.yielder.suspend(Pause::Preempted);
        }
    }
}

impl fmt::Debug for Thread<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Thread").field("handle", &self.handle).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
