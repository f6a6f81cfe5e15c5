//! Threads that block: each has a stack of its own, and is a client of its core's scheduler beside the
//! request queues.
//!
//! The loop goes on with the thread that the [scheduler](crate::scheduler) chooses; it runs until it blocks,
//! ends or reaches a [`Thread::checkpoint`] after its turn. To block is to wait for a future, so threads wait
//! for whatever tasks can wait for. If the next one is a thread of the same activity, it follows at once,
//! without a turn of the loop: then what is polled, and other activities, wait for at most
//! [`POLLERS_WAIT_NS`] and the rest of one thread's turn.

mod coroutine;
mod preempt;

use crate::event_loop::{Client, Clients};
use crate::handle::{Handle, Shared};
use crate::inbox::{Inbox, Message};
use crate::meter::Activity;
use crate::scheduler::{Account, SeatId};
use crate::task::{self, JoinHandle};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell, RefMut};
use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroU32;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
pub use corosensei::stack::Stack;
pub(crate) use coroutine::Coroutine;
use preempt::Interruptions;
pub use preempt::Preemptible;

slotmap::new_key_type! {
    /// Names a thread of one core.
    pub struct ThreadId;
}

/// How long threads follow each other before the loop looks at its pollers again, at least.
pub const POLLERS_WAIT_NS: u64 = 10_000;

/// The same at most, and how many times as long as the loop's own turns in between take: where those are
/// slow, on a processor that is emulated, threads would have little of the core.
const POLLERS_WAIT_MAX_NS: u64 = 8 * POLLERS_WAIT_NS;
const POLLERS_SHARE: u64 = 8;

/// How often that doubles while nothing is found.
const VAIN_TURNS_MAX: u32 = 3;

/// How long threads follow each other before the loop looks at its pollers again, after a turn of its own
/// that took `turn_ns`, and so many in a row in which it found nothing.
pub fn pollers_wait_ns(turn_ns: u64, vain_turns: u32) -> u64 {
    let share = POLLERS_SHARE << vain_turns.min(VAIN_TURNS_MAX);
    turn_ns.saturating_mul(share).clamp(POLLERS_WAIT_NS, POLLERS_WAIT_MAX_NS)
}

/// How long a thread runs if nobody waits, until others of the core are asked whether they want something.
const ALONE_NS: u64 = 2_000_000;

/// Wakes a thread from anywhere. Until that is received, only the first wake-up sends a message.
struct Alarm {
    thread: ThreadId,
    inbox: Arc<Inbox>,
    is_sent: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_sent.swap(true, Ordering::AcqRel) {
            self.inbox.send(Message::WakeThread(self.thread));
        }
    }
}

/// A thread, as its core has it.
pub(crate) struct Entry {
    id: ThreadId,
    coroutine: Rc<Coroutine>,
    alarm: Arc<Alarm>,
    /// Here while the thread is blocked.
    account: Cell<Option<Account>>,
    /// Who pays for it, and who that is for the scheduler.
    activity: Cell<Activity>,
    seat: Cell<SeatId>,
    /// It computes, and was interrupted: when it goes on with the loop, it stands aside until that asks.
    was_interrupted: Cell<bool>,
    /// How long it had the core; while it runs, less the time at which its turn began.
    ran_ns: Cell<u64>,
    stacks: Rc<Stacks>,
}

impl Entry {
    /// It has the core from now on.
    #[inline(always)]
    fn resumes(&self, now_ns: u64) {
        self.ran_ns.set(self.ran_ns.get().wrapping_sub(now_ns));
    }

    /// It had the core until now.
    #[inline(always)]
    fn pauses(&self, now_ns: u64) {
        self.ran_ns.set(self.ran_ns.get().wrapping_add(now_ns));
    }
}

/// Stacks of one size.
struct Stacks {
    make: RefCell<Box<MakeStack>>,
    /// Of threads that have ended.
    spare: RefCell<Vec<Box<dyn Stack>>>,
}

/// Makes a stack, if there is memory.
type MakeStack = dyn FnMut() -> Option<Box<dyn Stack>>;

impl Stacks {
    fn take(&self) -> Option<Box<dyn Stack>> {
        let spare = self.spare.borrow_mut().pop();
        spare.or_else(|| (self.make.borrow_mut())())
    }
}

/// How the threads of one core follow each other.
pub(crate) struct Turns {
    /// The loop, which goes on when no thread does.
    home: Rc<Coroutine>,
    /// Who ended last, if the loop has not seen it yet.
    ended: Cell<Option<ThreadId>>,
    /// When the running thread's turn is over, as far as it has asked since others became ready.
    over_ns: Cell<Option<u64>>,
    /// When a thread asked first in its turn, and how many had theirs by then: if more had since, the running
    /// one has not asked.
    began: Cell<(u64, u64)>,
    /// When the loop had its turn last, after a thread.
    left_ns: Cell<u64>,
    /// In how many turns in a row it found nothing.
    vain_turns: Cell<u32>,
    switches: Cell<u64>,
    pub interruptions: Interruptions,
}

impl Turns {
    pub fn new() -> Turns {
        Turns {
            home: Coroutine::here(),
            ended: Cell::new(None),
            over_ns: Cell::new(None),
            began: Cell::new((0, 0)),
            left_ns: Cell::new(0),
            vain_turns: Cell::new(0),
            switches: Cell::new(0),
            interruptions: Interruptions::new(),
        }
    }

    /// Somebody became ready: the running thread's turn may be over earlier.
    #[inline]
    pub fn changed(&self) {
        self.over_ns.set(None);
    }

    /// A thread runs from now on.
    #[inline]
    fn switched(&self) {
        self.switches.set(self.switches.get() + 1);
        self.over_ns.set(None);
    }

    /// When the running thread asked first in its turn: now, if it has not asked before.
    fn began_ns(&self, now_ns: u64) -> u64 {
        let (began_ns, switches) = self.began.get();
        if switches == self.switches.get() {
            return began_ns;
        }
        self.began.set((now_ns, self.switches.get()));
        now_ns
    }

    /// The loop goes on, after threads.
    #[inline]
    pub fn left(&self, now_ns: u64) {
        self.left_ns.set(now_ns);
    }

    /// The loop has looked at timers, pollers and messages, and found something to do or not.
    #[inline]
    pub(crate) fn looked(&self, has_found: bool) {
        self.vain_turns.set(if has_found { 0 } else { self.vain_turns.get().saturating_add(1) });
    }

    /// How long threads follow each other from now on.
    fn pollers_wait_ns(&self, now_ns: u64) -> u64 {
        pollers_wait_ns(now_ns.saturating_sub(self.left_ns.get()), self.vain_turns.get())
    }
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

/// Starts threads of one core, on stacks of one size. Clones start the same kind.
#[derive(Clone)]
pub struct Threads {
    handle: Handle,
    stacks: Rc<Stacks>,
}

impl fmt::Debug for Threads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Threads({})", self.len())
    }
}

impl Threads {
    /// For threads on the loop of `handle`. `make_stack` makes a stack, each with a guard page; those of
    /// ended threads are used again.
    #[must_use]
    pub fn new<S: Stack + 'static>(
        handle: &Handle,
        mut make_stack: impl FnMut() -> Option<S> + 'static,
    ) -> Self {
        let make = move || make_stack().map(|stack| Box::new(stack) as Box<dyn Stack>);
        let stacks = Stacks { make: RefCell::new(Box::new(make)), spare: RefCell::default() };
        Self { handle: handle.clone(), stacks: Rc::new(stacks) }
    }

    /// Starts a thread; the present activity pays for it. Of what this activity gets, its share is its
    /// weight over those of all that are ready, a request queue's too. What it holds when its loop ends
    /// before it does is never dropped: nothing can unwind its stack.
    ///
    /// # Errors
    /// If there is no stack for it; `main` is dropped.
    pub fn spawn<T: 'static>(
        &self,
        weight: NonZeroU32,
        main: impl FnOnce(&Thread<'_>) -> T + 'static,
    ) -> Result<JoinHandle<T, ThreadId>, NoStack> {
        let stack = self.stacks.take().ok_or(NoStack)?;
        let (promise, joined) = task::promise();
        let (id, seat) = self.insert(stack, move |thread| promise.keep(main(thread)));
        let now_ns = self.handle.clock_ns();
        let scheduler = &mut self.handle.shared().clients.borrow_mut().scheduler;
        let account = scheduler.inherit(seat, weight, now_ns);
        scheduler.wake(seat, Client::Thread(id), account, now_ns);
        self.handle.shared().threads.changed();
        Ok(joined(id))
    }

    /// Threads of the core that have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.handle.shared().clients.borrow().threads.len()
    }

    /// Whether all threads of the core have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often a thread of the core took its turn after another one or after the loop.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.handle.shared().threads.switches.get()
    }

    fn insert(&self, stack: Box<dyn Stack>, main: impl FnOnce(&Thread<'_>) + 'static) -> (ThreadId, SeatId) {
        let (handle, shared) = (self.handle.clone(), self.handle.shared());
        let activity = shared.activity.get();
        let seat = shared.clients.borrow_mut().scheduler.seat_of(activity);
        let id = shared.clients.borrow_mut().threads.insert_with_key(|id| {
            let alarm =
                Arc::new(Alarm { thread: id, inbox: shared.inbox.clone(), is_sent: AtomicBool::new(false) });
            let coroutine = Coroutine::new(stack, shared.threads.home.clone(), move || {
                let entry = handle.shared().clients.borrow().threads[id].clone();
                let waker = entry.alarm.clone().into();
                let thread = Thread { handle, entry, waker, place: PhantomData };
                main(&thread);
                thread.handle.shared().end_thread(id);
            });
            Rc::new(Entry {
                id,
                coroutine,
                alarm,
                account: Cell::new(None),
                activity: Cell::new(activity),
                seat: Cell::new(seat),
                was_interrupted: Cell::new(false),
                ran_ns: Cell::new(0),
                stacks: self.stacks.clone(),
            })
        });
        (id, seat)
    }
}

/// On the loop's stack.
impl Shared {
    /// Whether a thread that was chosen computes, and made way because it was interrupted. It is asked once,
    /// and goes on only then.
    pub(crate) fn was_interrupted(&self, thread: ThreadId) -> bool {
        self.clients.borrow().threads[thread].coroutine.come_back()
    }

    /// Runs a thread that was chosen, and those that follow it, until something else of the core wants its
    /// turn. Returns how many had theirs.
    pub(crate) fn run_threads(&self, first: ThreadId, now_ns: u64) -> u64 {
        let activity = self.clients.borrow().threads[first].activity.get();
        self.begin(activity, &*self.clock);
        self.meter.borrow_mut().worked(activity, 1);
        let quiet_ns = self.wheel.borrow().quiet_until_ns();
        let wait_ns = self.threads.pollers_wait_ns(now_ns);
        self.wanted_ns.set(now_ns.saturating_add(wait_ns).min(quiet_ns));
        let before = self.threads.switches.get();
        let clients = self.clients.borrow();
        let resumption = clients.threads[first].coroutine.resumption();
        clients.threads[first].resumes(now_ns);
        drop(clients);
        self.threads.switched();
        self.threads.home.switch_to(resumption.expect("no thread runs while the loop does"));
        let switches = self.threads.switches.get() - before;
        self.meter.borrow_mut().worked(self.activity.get(), switches - 1);
        if let Some(ended) = self.threads.ended.take() {
            self.bury(ended);
        }
        switches
    }

    /// Takes an ended thread's stack.
    fn bury(&self, id: ThreadId) {
        let entry = self.clients.borrow_mut().threads.remove(id);
        let Some(Entry { coroutine, stacks, .. }) = entry.and_then(Rc::into_inner) else { return };
        let stack = Rc::into_inner(coroutine).and_then(Coroutine::into_stack);
        stacks.spare.borrow_mut().extend(stack);
    }

    /// Makes a thread ready that was woken. One that is not blocked looks for itself before it blocks.
    pub(crate) fn wake_thread(&self, id: ThreadId) {
        let Clients { scheduler, threads } = &mut *self.clients.borrow_mut();
        let Some(entry) = threads.get(id) else { return };
        entry.alarm.is_sent.store(false, Ordering::Release);
        if let Some(account) = entry.account.take() {
            scheduler.wake(entry.seat.get(), Client::Thread(id), account, self.now_ns.get());
            self.threads.changed();
        }
    }
}

/// On the stack of the running thread.
impl Shared {
    /// What was sent to the core, as the thread is about to make way.
    #[inline]
    fn look_into_inbox(&self) {
        if !self.inbox.is_empty() {
            self.receive();
        }
    }

    fn block(&self, running: &Entry) {
        let now_ns = self.clock.now_ns();
        self.now_ns.set(now_ns);
        // It need not be asked whether it runs.
        running.account.set(self.clients.borrow_mut().scheduler.block(now_ns));
        // Only now: who was woken before it blocked must not be lost.
        self.look_into_inbox();
        let mut clients = self.clients.borrow_mut();
        let next = clients.scheduler.succeed();
        self.make_way(running, clients, next, self.now_ns.get());
    }

    #[inline(always)]
    fn give_way(&self, running: &Entry) {
        let now_ns = self.clock.now_ns();
        self.now_ns.set(now_ns);
        let mut clients = self.clients.borrow_mut();
        let (next, now_ns) = clients.scheduler.give_way(now_ns);
        self.make_way(running, clients, next, now_ns);
    }

    /// Makes way for the loop if the turn of the running thread is over.
    fn look_up(&self, running: &Entry) {
        let now_ns = self.clock.now_ns();
        let mut clients = self.clients.borrow_mut();
        let over_ns = self.threads.over_ns.get().unwrap_or_else(|| {
            let preempt_at_ns = clients.scheduler.preempt_at_ns(now_ns);
            preempt_at_ns.unwrap_or(u64::MAX).min(now_ns.saturating_add(ALONE_NS))
        });
        self.threads.over_ns.set(Some(over_ns));
        if now_ns >= over_ns {
            self.now_ns.set(now_ns);
            self.go_home(running, clients);
        }
    }

    /// Goes on with `next`, or with the loop if that is not a thread, or wants its turn by now: by the time
    /// that was read last, which whoever calls still has at hand.
    #[inline(always)]
    fn make_way(&self, running: &Entry, clients: RefMut<'_, Clients>, next: Option<Client>, now_ns: u64) {
        let Some(Client::Thread(next)) = next else { return self.go_home(running, clients) };
        if now_ns >= self.wanted_ns.get() {
            return self.go_home(running, clients);
        }
        let entry = &clients.threads[next];
        let Some(resumption) = entry.coroutine.resumption() else { return self.stay(running, clients) };
        entry.resumes(now_ns);
        running.pauses(now_ns);
        drop(clients);
        self.threads.switched();
        running.coroutine.switch_to(resumption);
    }

    /// The next one cannot just go on. Of threads that are ready none but the one that asks runs; one that
    /// computes goes on by the loop, which knows whether the core would sleep otherwise.
    #[cold]
    #[inline(never)]
    fn stay(&self, running: &Entry, clients: RefMut<'_, Clients>) {
        let next = clients.scheduler.running().map(|(_, client)| client);
        if next != Some(Client::Thread(running.id)) {
            self.go_home(running, clients);
        }
    }

    /// Goes on with the loop. A thread that has changed who pays goes on among the clients of that activity.
    #[cold]
    #[inline(never)]
    fn go_home(&self, running: &Entry, mut clients: RefMut<'_, Clients>) {
        let (activity, now_ns) = (self.activity.get(), self.now_ns.get());
        if activity != running.activity.replace(activity) {
            let scheduler = &mut clients.scheduler;
            let client = Client::Thread(running.id);
            let ready = scheduler.withdraw(running.seat.get(), client, now_ns);
            running.seat.set(scheduler.seat_of(activity));
            if let Some(account) = ready {
                scheduler.wake(running.seat.get(), client, account, now_ns);
            }
        }
        drop(clients);
        running.pauses(now_ns);
        let resumption = self.threads.home.resumption().expect("the loop waits while threads run");
        if running.was_interrupted.take() {
            return running.coroutine.step_aside_for(resumption);
        }
        running.coroutine.switch_to(resumption);
    }

    /// The running thread is about to end.
    fn end_thread(&self, id: ThreadId) {
        let now_ns = self.clock.now_ns();
        self.now_ns.set(now_ns);
        self.clients.borrow_mut().scheduler.block(now_ns);
        self.threads.ended.set(Some(id));
    }
}

/// A thread, as the code that runs in it sees it.
pub struct Thread<'s> {
    handle: Handle,
    entry: Rc<Entry>,
    waker: Waker,
    /// It stays on its stack.
    place: PhantomData<&'s Coroutine>,
}

impl Thread<'_> {
    /// The loop that it runs on.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What wakes this thread from others of its core.
    #[must_use]
    pub fn core_waker(&self) -> CoreWaker {
        CoreWaker { handle: self.handle.clone(), thread: self.entry.id }
    }

    /// Blocks until `future` is ready, and returns what it yields. Others run meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                return value;
            }
            self.handle.shared().block(&self.entry);
        }
    }

    /// Blocks for `ns` nanoseconds.
    pub fn sleep(&self, ns: u64) {
        self.block_on(self.handle.sleep(ns));
    }

    /// Lets all others of its activity go first that are ready.
    pub fn yield_now(&self) {
        let shared = self.handle.shared();
        if !shared.inbox.is_empty() {
            self.receive();
        }
        shared.give_way(&self.entry);
    }

    /// By the thread, so that who has nothing to receive need not keep where the loop is.
    #[cold]
    #[inline(never)]
    fn receive(&self) {
        self.handle.shared().receive();
    }

    /// Whether another of its activity would go on if this thread waited.
    #[must_use]
    pub fn others_wait(&self) -> bool {
        self.handle.shared().clients.borrow().scheduler.has_waiting()
    }

    /// Lets others go on if this thread's turn is over. For loops that compute for long.
    pub fn checkpoint(&self) {
        self.handle.shared().look_up(&self.entry);
    }
}

/// Wakes a thread from others of its core, at once: without a message, as a [`Waker`] sends it from anywhere.
/// The thread looks again at what it waits for. One that does not wait is not told: between its look and the
/// wait no other runs.
#[derive(Clone)]
pub struct CoreWaker {
    handle: Handle,
    thread: ThreadId,
}

impl CoreWaker {
    /// Wakes the thread, if it waits.
    pub fn wake(&self) {
        self.handle.shared().wake_thread(self.thread);
    }

    /// How many nanoseconds the thread has had the core so far; nothing once it has ended.
    #[must_use]
    pub fn ran_ns(&self) -> Option<u64> {
        let shared = self.handle.shared();
        let clients = shared.clients.borrow();
        let entry = clients.threads.get(self.thread)?;
        let now_ns = if entry.coroutine.is_running() { self.handle.clock_ns() } else { 0 };
        Some(entry.ran_ns.get().wrapping_add(now_ns))
    }
}

impl fmt::Debug for CoreWaker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CoreWaker({:?})", self.thread)
    }
}

impl fmt::Debug for Thread<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Thread").field("id", &self.entry.id).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
