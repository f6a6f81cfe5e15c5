//! Threads that block, on top of the loop: each has a stack of its own, and OSv's scheduler chooses between
//! those of a core.
//!
//! One task of the loop, the dispatcher, goes on with the thread that [`policy`] chooses; the thread runs
//! until it blocks, ends or reaches a [`Thread::checkpoint`] after its turn. To block is to wait for a
//! future, so threads wait for whatever tasks can wait for. Between two threads other events of the core
//! have their turn; where there are none, the next thread follows at once, without a turn of the loop, and
//! what is polled waits for at most [`POLLERS_WAIT_NS`] and the rest of one thread's turn.

mod coroutine;
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
use core::marker::PhantomData;
use core::num::NonZeroU32;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
pub use corosensei::stack::Stack;
use coroutine::{Coroutine, Resumption};
use incoming::Incoming;
use policy::{Account, RunQueue, Settings};
use slotmap::SlotMap;

slotmap::new_key_type! {
    /// Names a thread of one core.
    pub struct ThreadId;
}

/// How long threads follow each other before the loop looks at its pollers again.
pub const POLLERS_WAIT_NS: u64 = 10_000;

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

/// Makes a stack, if there is memory.
type MakeStack = dyn FnMut() -> Option<Box<dyn Stack>>;

/// A thread, as the scheduler sees it.
struct Entry {
    id: ThreadId,
    coroutine: Rc<Coroutine>,
    alarm: Arc<Alarm>,
    /// Here while the thread is blocked.
    account: Cell<Option<Account>>,
    /// Who paid when it ran last.
    activity: Cell<Activity>,
}

struct State {
    handle: Handle,
    run_queue: RefCell<RunQueue<ThreadId>>,
    /// When the running thread's turn is over, as far as it has asked since others became ready.
    over_ns: Cell<Option<u64>>,
    /// How long it runs if it is alone, until others of the core are asked whether they want something.
    alone_ns: u64,
    threads: RefCell<SlotMap<ThreadId, Rc<Entry>>>,
    /// The loop, which goes on when no thread does.
    home: Rc<Coroutine>,
    /// Who ended last, if the loop has not seen it yet.
    ended: Cell<Option<ThreadId>>,
    incoming: OnceCell<Arc<Incoming>>,
    make_stack: RefCell<Box<MakeStack>>,
    /// Of threads that have ended.
    stacks: RefCell<Vec<Box<dyn Stack>>>,
    switches: Cell<u64>,
    /// How many of them were charged to somebody.
    charged: Cell<u64>,
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

/// The threads of one core. Clones are the same threads.
#[derive(Clone)]
pub struct Threads {
    state: Rc<State>,
}

impl fmt::Debug for Threads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Threads({})", self.len())
    }
}

impl Threads {
    /// No threads yet, on the loop of `handle`. `make_stack` makes a stack, each with a guard page; those
    /// of ended threads are used again.
    #[must_use]
    pub fn new<S: Stack + 'static>(
        handle: &Handle,
        settings: Settings,
        mut make_stack: impl FnMut() -> Option<S> + 'static,
    ) -> Self {
        let make_stack = move || make_stack().map(|stack| Box::new(stack) as Box<dyn Stack>);
        let state = Rc::new(State {
            handle: handle.clone(),
            run_queue: RefCell::new(RunQueue::new(settings)),
            over_ns: Cell::new(None),
            alone_ns: settings.hysteresis_ns,
            threads: RefCell::new(SlotMap::with_key()),
            home: Coroutine::here(),
            ended: Cell::new(None),
            incoming: OnceCell::new(),
            make_stack: RefCell::new(Box::new(make_stack)),
            stacks: RefCell::default(),
            switches: Cell::new(0),
            charged: Cell::new(0),
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
        let mut run_queue = self.state.run_queue.borrow_mut();
        let account = run_queue.inherit(weight, now_ns);
        run_queue.wake(id, account, now_ns);
        self.state.over_ns.set(None);
        self.state.incoming().call();
        Ok(joined(id))
    }

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

    /// How often a thread took its turn after another one or after the loop.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.state.switches.get()
    }
}

/// On the loop's stack.
impl State {
    fn incoming(&self) -> &Arc<Incoming> {
        self.incoming.get().expect("it was set before the first turn")
    }

    fn take_stack(&self) -> Option<Box<dyn Stack>> {
        let spare = self.stacks.borrow_mut().pop();
        spare.or_else(|| (self.make_stack.borrow_mut())())
    }

    fn insert(self: &Rc<Self>, stack: Box<dyn Stack>, main: impl FnOnce(&Thread<'_>) + 'static) -> ThreadId {
        let state = self.clone();
        self.threads.borrow_mut().insert_with_key(|id| {
            let incoming = self.incoming().clone();
            let alarm = Arc::new(Alarm { thread: id, incoming, is_incoming: AtomicBool::new(false) });
            let coroutine = Coroutine::new(stack, self.home.clone(), move || {
                let entry = state.threads.borrow()[id].clone();
                let waker = entry.alarm.clone().into();
                main(&Thread { state: state.clone(), entry, waker, place: PhantomData });
                state.end(id);
            });
            let activity = Cell::new(self.handle.activity());
            Rc::new(Entry { id, coroutine, alarm, account: Cell::new(None), activity })
        })
    }

    /// Runs threads, one after the other, until something else of the core wants its turn. Returns whether
    /// there was one.
    fn run_some(&self) -> bool {
        let start_ns = self.handle.clock_ns();
        self.receive(start_ns);
        let mut next = self.run_queue.borrow_mut().decide(start_ns);
        let has_run = next.is_some();
        self.handle.shared().defer_until(start_ns.saturating_add(POLLERS_WAIT_NS));
        while let Some(id) = next {
            let resumption = self.leave_for(id);
            self.home.switch_to(resumption);
            self.charge();
            next = self.ended.take().and_then(|ended| self.bury(ended));
        }
        has_run
    }

    /// Takes an ended thread's stack. Returns who is next, if the loop does not want its turn.
    fn bury(&self, id: ThreadId) -> Option<ThreadId> {
        let entry = self.threads.borrow_mut().remove(id);
        let coroutine = entry.and_then(Rc::into_inner).map(|entry| entry.coroutine);
        let stack = coroutine.and_then(Rc::into_inner).and_then(Coroutine::into_stack);
        self.stacks.borrow_mut().extend(stack);
        let now_ns = self.handle.clock_ns();
        self.receive(now_ns);
        let next = self.run_queue.borrow_mut().decide(now_ns);
        next.filter(|_| !self.handle.shared().is_wanted(now_ns))
    }
}

/// On the stack of the running thread.
impl State {
    /// Wakes what was woken. A thread that is not blocked looks for itself before it blocks.
    #[inline]
    fn receive(&self, now_ns: u64) {
        if !self.incoming().is_empty() {
            self.receive_all(now_ns);
        }
    }

    fn receive_all(&self, now_ns: u64) {
        while let Some(id) = self.incoming().pop() {
            let threads = self.threads.borrow();
            let Some(entry) = threads.get(id) else { continue };
            entry.alarm.is_incoming.store(false, Ordering::Release);
            if let Some(account) = entry.account.take() {
                self.run_queue.borrow_mut().wake(id, account, now_ns);
            }
        }
    }

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

    fn block(&self, running: &Entry) {
        let now_ns = self.handle.clock_ns();
        // It need not be asked whether it runs.
        let account = self.run_queue.borrow_mut().block(now_ns).map(|(_, account)| account);
        running.account.set(account);
        // Only now: who was woken before it blocked must not be lost.
        self.receive(now_ns);
        let next = self.run_queue.borrow_mut().decide(now_ns);
        self.make_way(running, next, now_ns);
    }

    fn give_way(&self, running: &Entry) {
        let now_ns = self.handle.clock_ns();
        self.receive(now_ns);
        let next = self.run_queue.borrow_mut().give_way(now_ns);
        self.make_way(running, next, now_ns);
    }

    fn look_up(&self, running: &Entry) {
        let now_ns = self.handle.clock_ns();
        if self.is_over(now_ns) {
            self.receive(now_ns);
            let next = self.run_queue.borrow_mut().decide(now_ns);
            self.make_way(running, next, now_ns);
        }
    }

    /// The running thread is about to end.
    fn end(&self, id: ThreadId) {
        self.run_queue.borrow_mut().block(self.handle.clock_ns());
        self.ended.set(Some(id));
    }

    /// Goes on with `next`, or with the loop if that wants its turn.
    #[inline]
    fn make_way(&self, running: &Entry, next: Option<ThreadId>, now_ns: u64) {
        running.activity.set(self.handle.activity());
        let resumption = match next {
            Some(next) if !self.handle.shared().is_wanted(now_ns) => {
                if next == running.id {
                    return self.over_ns.set(None);
                }
                self.leave_for(next)
            }
            _ => self.home.resumption(),
        };
        running.coroutine.switch_to(resumption);
    }

    /// Where a thread goes on, which runs from now on.
    #[inline]
    fn leave_for(&self, id: ThreadId) -> Resumption {
        self.switches.set(self.switches.get() + 1);
        self.over_ns.set(None);
        let threads = self.threads.borrow();
        let entry = &threads[id];
        let activity = entry.activity.get();
        if activity != self.handle.activity() {
            self.charge();
            self.handle.charge(activity);
        }
        entry.coroutine.resumption()
    }

    /// Charges the switches since the last time to who pays at present.
    fn charge(&self) {
        let switches = self.switches.get() - self.charged.replace(self.switches.get());
        self.handle.shared().meter.borrow_mut().worked(self.handle.activity(), switches);
    }
}

/// The task that runs the threads.
async fn dispatch(state: Rc<State>) {
    let loops = Loops(state);
    let state = &loops.0;
    loop {
        if state.run_some() {
            state.handle.yield_now().await;
        } else {
            state.woken().await;
        }
    }
}

/// While it is there, somebody runs the threads.
struct Loops(Rc<State>);

/// Nobody goes on with the threads any more, which hold what they belong to.
impl Drop for Loops {
    fn drop(&mut self) {
        let threads = self.0.threads.take();
        drop(threads);
    }
}

impl State {
    /// Ready when a thread was started or woken.
    fn woken(&self) -> impl Future<Output = ()> {
        poll_fn(|_| {
            let is_idle = self.run_queue.borrow().load() == 0 && self.incoming().leave();
            if is_idle {
                return Poll::Pending;
            }
            self.incoming().watch();
            Poll::Ready(())
        })
    }
}

/// A thread, as the code that runs in it sees it.
pub struct Thread<'s> {
    state: Rc<State>,
    entry: Rc<Entry>,
    waker: Waker,
    /// It stays on its stack.
    place: PhantomData<&'s Coroutine>,
}

impl Thread<'_> {
    /// The loop that it runs on.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.state.handle
    }

    /// Blocks until `future` is ready, and returns what it yields. Others run meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                return value;
            }
            self.state.block(&self.entry);
        }
    }

    /// Blocks for `ns` nanoseconds.
    pub fn sleep(&self, ns: u64) {
        self.block_on(self.handle().sleep(ns));
    }

    /// Lets all threads go first that are ready.
    pub fn yield_now(&self) {
        self.state.give_way(&self.entry);
    }

    /// Lets others go on if this thread's turn is over. For loops that compute for long.
    pub fn checkpoint(&self) {
        self.state.look_up(&self.entry);
    }
}

impl fmt::Debug for Thread<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Thread").field("id", &self.entry.id).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
