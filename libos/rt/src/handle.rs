//! What events and tasks can ask of the loop that runs them.

use crate::event_loop::Clients;
use crate::event_loop::{Statistics, Timer};
use crate::inbox::{Inbox, Remote};
use crate::meter::{Activity, Meter, Record, Usage};
use crate::poller::{Change, Poller, PollerId, Registered};
use crate::queues::{Parameters, QueueId, Queues, Work};
use crate::rest::{Mode, Policy, Thresholds};
use crate::sleep::{self, Elapsed, Sleep};
use crate::task::{self, JoinHandle, Joined, LocalFuture, TaskId, Tasks};
use crate::threads::{Stack, Turns};
use crate::ward::Ward;
use crate::wheel::{TimerId, Wheel};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::fmt;
use core::num::NonZeroU32;
use core::pin::Pin;
use core::task::Waker;
use nom_port::world::{Clock, Containment, Preemption};

/// Hears of a task that panicked.
type OnFailure = Rc<dyn Fn(TaskId)>;

/// What a loop shares with its handles. No borrow is held while an event, a task or a destructor of the
/// application runs.
pub(crate) struct Shared {
    /// In a box, since a pointer to a count and a clock costs more to follow.
    pub clock: Box<dyn Clock>,
    /// As the clock read at the last boundary between events.
    pub now_ns: Cell<u64>,
    /// Who pays for what runs now.
    pub activity: Cell<Activity>,
    /// What runs now has said by itself who pays.
    pub has_charged: Cell<bool>,
    pub meter: RefCell<Meter>,
    /// Who chooses, and who of those that it chooses from are threads.
    pub clients: RefCell<Clients>,
    pub queues: RefCell<Queues>,
    pub threads: Turns,
    pub wheel: RefCell<Wheel<Timer>>,
    pub tasks: RefCell<Tasks>,
    pub inbox: Arc<Inbox>,
    pub changes: RefCell<Vec<Change>>,
    pub next_poller: Cell<u64>,
    pub policy: RefCell<Policy>,
    pub statistics: RefCell<Statistics>,
    pub status: Cell<Option<i32>>,
    /// While threads follow each other: from when on the loop wants its turn.
    pub wanted_ns: Cell<u64>,
    /// The task that runs, with what its own waker is known by.
    pub running: Cell<Option<(TaskId, *const ())>>,
    /// Where tasks run, if not on the loop's stack, and who wants to hear of those that panicked.
    pub ward: OnceCell<Rc<Ward>>,
    pub on_failure: RefCell<Vec<OnFailure>>,
}

impl Shared {
    /// Queues work; gives it back if there is no such queue.
    pub fn enqueue(&self, queue: QueueId, work: Work) -> Result<(), Work> {
        self.threads.changed();
        let scheduler = &mut self.clients.borrow_mut().scheduler;
        self.queues.borrow_mut().push(queue, work, scheduler, self.now_ns.get())
    }

    /// Queues work that names no queue.
    pub fn enqueue_for(&self, activity: Activity, work: Work) {
        let enqueued = self.enqueue(self.default_queue(activity), work);
        enqueued.ok().expect("a default queue is never removed");
    }

    /// Where work of `activity` goes that names no queue.
    pub fn default_queue(&self, activity: Activity) -> QueueId {
        self.queues.borrow_mut().default_of(activity, &mut self.clients.borrow_mut().scheduler)
    }

    /// Starts a timer.
    pub fn start_timer(&self, deadline_ns: u64, timer: Timer) -> TimerId {
        self.wanted_ns.set(self.wanted_ns.get().min(deadline_ns));
        self.threads.changed();
        self.wheel.borrow_mut().insert(deadline_ns, timer)
    }
}

/// There is no such queue (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchQueue;

impl fmt::Display for NoSuchQueue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("there is no such request queue on this core")
    }
}

impl core::error::Error for NoSuchQueue {}

/// A core's event loop, as the events that it runs reach it. Clones are the same loop.
#[derive(Clone)]
pub struct Handle {
    shared: Rc<Shared>,
}

/// Time and who pays.
impl Handle {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Rc::new(shared) }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The time at the last boundary between events, in nanoseconds: no reading of the clock.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.now_ns.get()
    }

    /// Reads the clock, in nanoseconds.
    #[must_use]
    pub fn clock_ns(&self) -> u64 {
        self.shared.clock.now_ns()
    }

    /// Who pays for what runs now, and for what it starts.
    #[inline]
    #[must_use]
    pub fn activity(&self) -> Activity {
        self.shared.activity.get()
    }

    /// A piece of work begins that `activity` pays for, and for what it starts: from here to the next call
    /// or the end of the present event. For a poller whose pieces of work belong to different activities;
    /// each call counts as an event.
    pub fn charge(&self, activity: Activity) {
        let mut meter = self.shared.meter.borrow_mut();
        meter.separate(activity, || {
            // A thread goes on among the clients of who pays.
            self.shared.wanted_ns.set(0);
            self.shared.clock.now_ns()
        });
        meter.worked(activity, 1);
        self.shared.activity.set(activity);
        self.shared.has_charged.set(true);
    }

    /// A piece of work begins whose payer is not known yet: whoever is charged next pays for it from here.
    #[inline]
    pub fn part(&self) {
        self.shared.meter.borrow_mut().part(|| self.shared.clock.now_ns());
    }

    /// The same when it is `now_ns`, as somebody has just asked.
    #[inline]
    pub fn part_at(&self, now_ns: u64) {
        self.shared.meter.borrow_mut().part(|| now_ns);
    }

    /// It is `now_ns`: what was done since the last boundary was done for several, who pay for it by what
    /// each counts.
    pub fn divide(&self, now_ns: u64, counts: impl Iterator<Item = (Activity, u64)> + Clone) {
        self.shared.meter.borrow_mut().divide(now_ns, counts);
        self.shared.has_charged.set(true);
    }

    /// There will be activities of the numbers below `count`: none of them is searched for.
    pub fn expect_activities(&self, count: u32) {
        self.shared.meter.borrow_mut().expect(count);
    }

    /// What an activity was charged, until the last boundary between events.
    #[must_use]
    pub fn record(&self, activity: Activity) -> Record {
        self.shared.meter.borrow().record(activity)
    }

    /// Where this core's time went, until the last boundary between events.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.shared.meter.borrow().usage()
    }

    /// What the loop has done so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let policy = self.shared.policy.borrow();
        Statistics {
            to_polling: policy.to_polling,
            to_interrupts: policy.to_interrupts,
            rings: self.shared.inbox.rings(),
            tasks: self.shared.tasks.borrow().len(),
            ..*self.shared.statistics.borrow()
        }
    }
}

/// Events and their queues.
impl Handle {
    /// Runs `call` as an event after those that wait already. The present activity pays.
    pub fn post(&self, call: impl FnOnce(&Handle) + 'static) {
        self.post_for(self.activity(), call);
    }

    /// Runs `call` as an event of a queue, whose activity pays.
    ///
    /// # Errors
    /// If there is no such queue; `call` is dropped.
    pub fn post_to(&self, queue: QueueId, call: impl FnOnce(&Handle) + 'static) -> Result<(), NoSuchQueue> {
        self.shared.enqueue(queue, Work::Call(Box::new(call))).map_err(|_dropped| NoSuchQueue)
    }

    /// Runs `call` as an event after those of `activity` that wait already; `activity` pays.
    pub fn post_for(&self, activity: Activity, call: impl FnOnce(&Handle) + 'static) {
        self.shared.enqueue_for(activity, Work::Call(Box::new(call)));
    }

    /// The share of the core that `activity` gets while others have something to do, too: its weight over
    /// those of all that do. It is 1 until it is set.
    pub fn set_weight(&self, activity: Activity, weight: NonZeroU32) {
        self.shared.clients.borrow_mut().scheduler.set_weight(activity, weight, self.now_ns());
    }

    /// The queue of the present activity's events that name none.
    #[must_use]
    pub fn default_queue(&self) -> QueueId {
        self.shared.default_queue(self.activity())
    }

    /// A new request queue, for all of which `activity` pays.
    #[must_use]
    pub fn add_queue(&self, activity: Activity, parameters: Parameters) -> QueueId {
        self.shared.queues.borrow_mut().add(
            activity,
            parameters,
            &mut self.shared.clients.borrow_mut().scheduler,
        )
    }

    /// Tells the scheduler something else about a queue.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn update_queue(&self, queue: QueueId, parameters: Parameters) -> Result<(), NoSuchQueue> {
        let scheduler = &mut self.shared.clients.borrow_mut().scheduler;
        let mut queues = self.shared.queues.borrow_mut();
        queues.update(queue, parameters, scheduler, self.now_ns()).ok_or(NoSuchQueue)
    }

    /// Removes a queue. Events that wait in it are dropped; its tasks go on in their activity's default
    /// queue.
    ///
    /// # Errors
    /// If there is no such queue, or it is a default queue.
    pub fn remove_queue(&self, queue: QueueId) -> Result<(), NoSuchQueue> {
        let removed = {
            let scheduler = &mut self.shared.clients.borrow_mut().scheduler;
            self.shared.queues.borrow_mut().remove(queue, scheduler, self.now_ns())
        };
        for work in removed.ok_or(NoSuchQueue)? {
            match work {
                Work::Task(task) => self.shared.schedule(task),
                Work::Call(call) => drop(call),
            }
        }
        Ok(())
    }

    /// Serves a queue no more, until it is resumed. What it is sent waits.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn suspend_queue(&self, queue: QueueId) -> Result<(), NoSuchQueue> {
        let scheduler = &mut self.shared.clients.borrow_mut().scheduler;
        let mut queues = self.shared.queues.borrow_mut();
        queues.suspend(queue, scheduler, self.now_ns()).ok_or(NoSuchQueue)
    }

    /// Serves a queue again.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn resume_queue(&self, queue: QueueId) -> Result<(), NoSuchQueue> {
        let scheduler = &mut self.shared.clients.borrow_mut().scheduler;
        let mut queues = self.shared.queues.borrow_mut();
        queues.resume(queue, scheduler, self.now_ns()).ok_or(NoSuchQueue)
    }

    /// What was served from a queue; nothing if there is no such queue.
    #[must_use]
    pub fn queue_record(&self, queue: QueueId) -> Option<Record> {
        self.shared.queues.borrow().record(queue)
    }
}

/// Timers.
impl Handle {
    /// Runs `call` as an event when the clock reads `deadline_ns`: never earlier. The present activity pays.
    pub fn at(&self, deadline_ns: u64, call: impl FnOnce(&Handle) + 'static) -> TimerId {
        self.shared.start_timer(deadline_ns, Timer::Call(self.activity(), Box::new(call)))
    }

    /// Runs `call` as an event after `ns` nanoseconds. The present activity pays.
    pub fn after(&self, ns: u64, call: impl FnOnce(&Handle) + 'static) -> TimerId {
        self.at(self.clock_ns().saturating_add(ns), call)
    }

    /// Stops a timer. `false` if it has fired or was cancelled.
    pub fn cancel(&self, timer: TimerId) -> bool {
        let cancelled = self.shared.wheel.borrow_mut().cancel(timer);
        cancelled.is_some()
    }
}

/// Tasks.
impl Handle {
    /// Starts a task. The present activity pays for it.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let spawned = self.spawn_on(self.default_queue(), future);
        spawned.expect("a default queue is never removed")
    }

    /// Starts a task that goes on as events of `queue`, whose activity pays for it.
    ///
    /// # Errors
    /// If there is no such queue; the future is dropped.
    pub fn spawn_on<T: 'static>(
        &self,
        queue: QueueId,
        future: impl Future<Output = T> + 'static,
    ) -> Result<JoinHandle<T>, NoSuchQueue> {
        let activity = self.shared.queues.borrow().activity_of(queue).ok_or(NoSuchQueue)?;
        let (promise, joined) = task::promise();
        let joiner = promise.joiner();
        let whole = Box::pin(async move { promise.keep(future.await) });
        Ok(joined(self.start((activity, queue), whole, Some(joiner))))
    }

    /// Starts a task that nobody joins, on behalf of the present activity: it takes no more memory than its
    /// future and its name.
    pub fn detach(&self, future: Pin<Box<dyn Future<Output = ()>>>) -> TaskId {
        self.start((self.activity(), self.default_queue()), future, None)
    }

    fn start(
        &self,
        (activity, queue): (Activity, QueueId),
        future: LocalFuture,
        joiner: Option<Rc<dyn Joined>>,
    ) -> TaskId {
        let id = self.shared.tasks.borrow_mut().insert((activity, queue), future, joiner);
        self.shared.enqueue(queue, Work::Task(id)).ok().expect("it was there just now");
        id
    }

    /// Ends a task where it waits; who joins it is told. `false` if it has ended.
    pub fn abort(&self, task: TaskId) -> bool {
        let is_alive = self.shared.tasks.borrow().place_of(task).is_some();
        let future = self.shared.tasks.borrow_mut().remove(task);
        drop(future);
        is_alive
    }

    /// The task that runs now, if `waker` is that task's own: then [`Handle::go_on`] does for it what the
    /// waker does. A future within a task may have been given another one.
    #[must_use]
    pub fn task_of(&self, waker: &Waker) -> Option<TaskId> {
        let (task, data) = self.shared.running.get()?;
        core::ptr::eq(waker.data(), data).then_some(task)
    }

    /// Lets a task go on at once, as a part of the present event, which pays for it: what it has waited for
    /// is there. Nothing, if it has ended, or runs already.
    pub fn go_on(&self, task: TaskId) {
        self.shared.continue_task(task);
    }

    /// The task that runs now, if one does.
    #[must_use]
    pub fn task(&self) -> Option<TaskId> {
        self.shared.running.get().map(|(task, _)| task)
    }

    /// From now on tasks run on stacks that `make_stack` makes, each with a guard page, and one that panics
    /// is all that ends, as far as `world` can have it so: who joins it is told, what it has borrowed stays
    /// borrowed, and what it holds is never dropped. Said once, before the first task runs.
    pub fn contain<S: Stack + 'static>(
        &self,
        world: &'static dyn Containment,
        make_stack: impl Fn() -> Option<S> + 'static,
    ) {
        let make = move || make_stack().map(|stack| Box::new(stack) as Box<dyn Stack>);
        self.shared.ward.get_or_init(|| Ward::new(world, Box::new(make)));
    }

    /// Has `call` hear of each task that panicked, after it was told why.
    pub fn on_failure(&self, call: impl Fn(TaskId) + 'static) {
        self.shared.on_failure.borrow_mut().push(Rc::new(call));
    }

    /// Waits `ns` nanoseconds.
    #[must_use]
    pub fn sleep(&self, ns: u64) -> Sleep {
        self.sleep_until(self.clock_ns().saturating_add(ns))
    }

    /// Waits until the clock reads `deadline_ns`.
    #[must_use]
    pub fn sleep_until(&self, deadline_ns: u64) -> Sleep {
        Sleep::new(self.clone(), deadline_ns)
    }

    /// What `future` yields within `ns` nanoseconds.
    ///
    /// # Errors
    /// If it takes longer; it is dropped.
    pub fn timeout<F: Future>(
        &self,
        ns: u64,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
        sleep::timeout(self.sleep(ns), future)
    }

    /// Lets other events go first, once.
    pub fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        sleep::yield_now()
    }
}

/// The loop itself.
impl Handle {
    /// This loop, for other cores.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote::to(self.shared.inbox.clone())
    }

    /// Polls a source from the next turn on. Its work is paid for by `activity`.
    pub fn add_poller(&self, activity: Activity, poller: impl Poller + 'static) -> PollerId {
        let id = PollerId(self.shared.next_poller.replace(self.shared.next_poller.get() + 1));
        let added = Registered { id, activity, poller: Box::new(poller), deadline_ns: None };
        self.shared.changes.borrow_mut().push(Change::Add(added));
        id
    }

    /// Polls a source no more, from the next turn on.
    pub fn remove_poller(&self, id: PollerId) {
        self.shared.changes.borrow_mut().push(Change::Remove(id));
    }

    /// When to poll and when to sleep, from now on.
    pub fn set_thresholds(&self, thresholds: Thresholds) {
        self.shared.policy.borrow_mut().set(thresholds);
    }

    /// Whether the loop polls or waits for interrupts at present.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.shared.policy.borrow().mode()
    }

    /// From now on the world interrupts what threads compute
    /// ([`Thread::preemptible`](crate::threads::Thread::preemptible)), so that others have the core.
    pub fn set_preemption(&self, world: &'static dyn Preemption) {
        self.shared.threads.interruptions.set_world(world);
    }

    /// The time since the loop last read the clock was sleep: somebody gave the core back for a while.
    pub fn slept(&self) {
        self.shared.meter.borrow_mut().slept(self.shared.clock.now_ns());
    }

    /// Ends the loop after this turn. What waits is dropped with it.
    pub fn stop(&self, status: i32) {
        self.shared.status.set(Some(status));
        self.shared.wanted_ns.set(0);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Handle(core {})", self.remote().core())
    }
}
