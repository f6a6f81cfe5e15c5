//! Threads that block, on top of the loop: each has a stack of its own, and OSv's scheduler chooses between
//! those of a core.
//!
//! One task of the loop, the dispatcher, resumes the thread that [`policy`] chooses; the thread runs until
//! it blocks, ends or reaches a [`Thread::checkpoint`] after its turn. To block is to wait for a future, so
//! threads wait for whatever tasks can wait for. Between two threads other events of the core have their
//! turn; where there are none, the next thread follows at once, and what is polled waits for at most
//! [`POLLERS_WAIT_NS`] and the rest of one thread's turn.

mod incoming;
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
use incoming::Incoming;
use policy::{Account, RunQueue, Settings};
use slotmap::SlotMap;

slotmap::new_key_type! {
    /// Names a thread of one core.
    pub struct ThreadId;
}

/// How long threads follow each other before the loop looks at its pollers again.
pub const POLLERS_WAIT_NS: u64 = 10_000;

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
            self.incoming.push(self.thread);
        }
    }
}

struct Entry<S: Stack> {
    /// Taken out while it runs. In a box, since it is taken out and put back at each switch.
    routine: Option<Box<Routine<S>>>,
    alarm: Arc<Alarm>,
    /// Here while the thread is blocked.
    account: Option<Account>,
    activity: Activity,
}

/// Whose turn it is.
struct Turns {
    run_queue: RefCell<RunQueue<ThreadId>>,
    /// When the running thread's turn is over, as far as it has asked since others became ready.
    over_ns: Cell<Option<u64>>,
    /// How long it runs if it is alone, until others of the core are asked whether they want something.
    alone_ns: u64,
}

impl Turns {
    /// Whether the running thread's turn is over.
    fn is_over(&self, now_ns: u64) -> bool {
        let over_ns = self.over_ns.get().unwrap_or_else(|| {
            let preempt_at_ns = self.run_queue.borrow_mut().preempt_at_ns(now_ns);
            let over_ns = preempt_at_ns.unwrap_or(now_ns.saturating_add(self.alone_ns));
            self.over_ns.set(Some(over_ns));
            over_ns
        });
        now_ns >= over_ns
    }

    /// Another thread became ready, or runs.
    fn change(&self) {
        self.over_ns.set(None);
    }
}

struct State<S: Stack> {
    handle: Handle,
    turns: Rc<Turns>,
    threads: RefCell<SlotMap<ThreadId, Entry<S>>>,
    incoming: OnceCell<Arc<Incoming>>,
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
            turns: Rc::new(Turns {
                run_queue: RefCell::new(RunQueue::new(settings)),
                over_ns: Cell::new(None),
                alone_ns: settings.hysteresis_ns,
            }),
            threads: RefCell::new(SlotMap::with_key()),
            incoming: OnceCell::new(),
            make_stack: RefCell::new(Box::new(make_stack)),
            stacks: RefCell::default(),
            switches: Cell::new(0),
        });
        let task = handle.spawn(dispatch(state.clone()));
        let dispatcher = handle.shared().tasks.borrow().waker_of(task.id()).expect("it has not run yet");
        let incoming = Arc::new(Incoming::new(dispatcher));
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
        let mut run_queue = self.state.turns.run_queue.borrow_mut();
        let account = run_queue.inherit(weight, now_ns);
        run_queue.wake(id, account, now_ns);
        self.state.turns.change();
        self.state.incoming().call();
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
    fn receive(&self, now_ns: u64) {
        while let Some(id) = self.incoming().pop() {
            let mut threads = self.threads.borrow_mut();
            let Some(entry) = threads.get_mut(id) else { continue };
            entry.alarm.is_incoming.store(false, Ordering::Release);
            if let Some(account) = entry.account.take() {
                self.turns.run_queue.borrow_mut().wake(id, account, now_ns);
            }
        }
    }

    /// Runs threads, one after the other, until something else of the core wants its turn. Returns whether
    /// there was one.
    fn run_some(&self) -> bool {
        let start_ns = self.handle.clock_ns();
        self.receive(start_ns);
        let mut next = self.turns.run_queue.borrow_mut().decide(start_ns);
        let has_run = next.is_some();
        while let Some(id) = next {
            let now_ns;
            (now_ns, next) = self.run(id);
            if now_ns.saturating_sub(start_ns) >= POLLERS_WAIT_NS || self.handle.has_events(now_ns) {
                break;
            }
        }
        has_run
    }

    /// Runs a thread until it pauses. Returns when that was, and who is next.
    fn run(&self, id: ThreadId) -> (u64, Option<ThreadId>) {
        self.switches.set(self.switches.get() + 1);
        self.turns.change();
        let (mut routine, activity) = self.take_routine(id);
        self.handle.charge(activity);
        let result = routine.resume(());
        let now_ns = self.handle.clock_ns();
        let next = match result {
            CoroutineResult::Yield(pause) => self.pause(id, routine, &pause, now_ns),
            CoroutineResult::Return(()) => self.end(id, *routine, now_ns),
        };
        (now_ns, next)
    }

    fn take_routine(&self, id: ThreadId) -> (Box<Routine<S>>, Activity) {
        let entry = &mut self.threads.borrow_mut()[id];
        (entry.routine.take().expect("only one thread runs"), entry.activity)
    }

    /// Returns who is next.
    fn pause(&self, id: ThreadId, routine: Box<Routine<S>>, pause: &Pause, now_ns: u64) -> Option<ThreadId> {
        let is_blocked = matches!(pause, Pause::Blocked);
        // It need not be asked whether it runs.
        let account = if is_blocked { self.turns.run_queue.borrow_mut().block(now_ns) } else { None };
        {
            let entry = &mut self.threads.borrow_mut()[id];
            entry.routine = Some(routine);
            entry.activity = self.handle.activity();
            entry.account = account.map(|(_, account)| account);
        }
        // Only now: who was woken before it blocked must not be lost.
        self.receive(now_ns);
        let mut run_queue = self.turns.run_queue.borrow_mut();
        if matches!(pause, Pause::GaveWay) { run_queue.give_way(now_ns) } else { run_queue.decide(now_ns) }
    }

    /// Returns who is next.
    fn end(&self, id: ThreadId, routine: Routine<S>, now_ns: u64) -> Option<ThreadId> {
        self.turns.run_queue.borrow_mut().block(now_ns);
        self.threads.borrow_mut().remove(id);
        self.stacks.borrow_mut().push(routine.into_stack());
        self.receive(now_ns);
        self.turns.run_queue.borrow_mut().decide(now_ns)
    }
}

impl<S: Stack + 'static> State<S> {
    fn insert(&self, stack: S, main: impl FnOnce(&Thread<'_>) + 'static) -> ThreadId {
        let (handle, turns) = (self.handle.clone(), self.turns.clone());
        self.threads.borrow_mut().insert_with_key(|thread| {
            let incoming = self.incoming().clone();
            let alarm = Arc::new(Alarm { thread, incoming, is_incoming: AtomicBool::new(false) });
            let waker = alarm.clone().into();
            let routine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Pause>, ()| {
                main(&Thread { yielder, handle, waker, turns });
            });
            let activity = self.handle.activity();
            Entry { routine: Some(Box::new(routine)), alarm, account: None, activity }
        })
    }
}

/// A thread that has begun cannot be dropped: its frames are left where they are.
impl<S: Stack> Drop for Entry<S> {
    fn drop(&mut self) {
        if let Some(routine) = self.routine.take().filter(|routine| routine.started()) {
            mem::forget(routine);
        }
    }
}

/// The task that runs the threads.
async fn dispatch<S: Stack>(state: Rc<State<S>>) {
    loop {
        if state.run_some() {
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
            let is_idle = self.turns.run_queue.borrow().load() == 0 && self.incoming().leave();
            if is_idle {
                return Poll::Pending;
            }
            self.incoming().watch();
            Poll::Ready(())
        })
    }
}

/// A thread, as the code that runs in it sees it.
pub struct Thread<'y> {
    yielder: &'y Yielder<(), Pause>,
    handle: Handle,
    waker: Waker,
    turns: Rc<Turns>,
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

    /// Lets others go on if this thread's turn is over. For loops that compute for long.
    pub fn checkpoint(&self) {
        if self.turns.is_over(self.handle.clock_ns()) {
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
