//! One core's event loop. Everything that happens on the core is an event of it, and runs to completion.

use crate::handle::{Handle, Shared};
use crate::inbox::{Message, Remote};
use crate::meter::{Activity, INFRASTRUCTURE, Meter, Record};
use crate::poller::{Change, Registered};
use crate::queues::{QueueId, Work};
use crate::rest::{Mode, Policy, Thresholds};
use crate::scheduler::{Scheduler, Settings};
use crate::task::{Task, TaskId, Tasks};
use crate::threads::{Entry, ThreadId, Turns};
use crate::ward::{self, Left};
use crate::wheel::Wheel;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::hint;
use core::mem;
use core::task::Waker;
use nom_port::world::{Clock, Doorbell, Idle};
use slotmap::SlotMap;

/// Most events that a queue is served before the loop looks at everything else again; the omni-kernel's
/// batching factor (section V-C).
const EVENTS_PER_TURN: u64 = 8;

/// Most messages that are taken out of the inbox before the loop looks at everything else again.
const MESSAGES_PER_TURN: u32 = 256;

/// Who is to go on, for the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Queue(QueueId),
    Thread(ThreadId),
}

/// What the loop chooses from.
pub(crate) struct Clients {
    pub scheduler: Scheduler<Client>,
    pub threads: SlotMap<ThreadId, Rc<Entry>>,
}

pub(crate) enum Timer {
    /// Run it, charged to the activity.
    Call(Activity, Box<dyn FnOnce(&Handle)>),
    Wake(Waker),
}

/// What a loop has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Turns of the loop.
    pub turns: u64,
    /// Turns that found no work.
    pub vain_turns: u64,
    /// Pieces of work that pollers found.
    pub polled: u64,
    /// Timers that fired.
    pub timers: u64,
    /// Messages from other cores, and wake-ups of tasks.
    pub messages: u64,
    /// Turns of queues and threads.
    pub scheduled: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Sleeps that were not begun because work came while interrupts were being asked for.
    pub aborted_sleeps: u64,
    /// Interrupt sources that ended a sleep.
    pub interrupts: u64,
    /// Changes from interrupts to polling.
    pub to_polling: u64,
    /// Changes from polling to interrupts.
    pub to_interrupts: u64,
    /// Doorbells that others rang for this core.
    pub rings: u64,
    /// Tasks that have not ended, at present.
    pub tasks: usize,
}

/// The event loop of one core.
pub struct EventLoop<C, I> {
    clock: Rc<C>,
    idle: I,
    handle: Handle,
    pollers: Vec<Registered>,
    /// Kept for its memory.
    due: Vec<Timer>,
}

/// A clock that somebody else reads, too.
struct Same<C>(Rc<C>);

impl<C: Clock> Clock for Same<C> {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

impl<C: Clock + 'static, I: Idle> EventLoop<C, I> {
    /// The loop of core number `core`, which others wake by `doorbell`. It
    /// adapts between polling and interrupts, and all is paid for by [`INFRASTRUCTURE`], until told
    /// otherwise.
    #[must_use]
    pub fn new(core: usize, clock: C, idle: I, doorbell: Arc<dyn Doorbell>) -> Self {
        Self::reached_by(&Remote::new(core, doorbell), clock, idle)
    }

    /// The loop that `remote` leads to, so that others can have their way to it before it is there. It is
    /// made once.
    #[must_use]
    pub fn reached_by(remote: &Remote, clock: C, idle: I) -> Self {
        let clock = Rc::new(clock);
        let now_ns = clock.now_ns();
        let inbox = remote.inbox().clone();
        let handle = Handle::new(Shared {
            clock: Box::new(Same(clock.clone())),
            now_ns: Cell::new(now_ns),
            activity: Cell::new(INFRASTRUCTURE),
            has_charged: Cell::new(false),
            meter: RefCell::new(Meter::new(now_ns)),
            clients: RefCell::new(Clients {
                scheduler: Scheduler::new(Settings::default()),
                threads: SlotMap::with_key(),
            }),
            queues: RefCell::default(),
            threads: Turns::new(),
            wheel: RefCell::new(Wheel::new(now_ns)),
            tasks: RefCell::new(Tasks::new(inbox.clone())),
            inbox,
            changes: RefCell::default(),
            next_poller: Cell::new(0),
            policy: RefCell::new(Policy::new(Thresholds::ADAPTIVE)),
            statistics: RefCell::default(),
            status: Cell::new(None),
            wanted_ns: Cell::new(0),
            running: Cell::new(None),
            ward: OnceCell::new(),
            on_failure: RefCell::default(),
        });
        Self { clock, idle, handle, pollers: Vec::new(), due: Vec::new() }
    }

    /// What events get, to set things up before the first.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs until an event calls [`Handle::stop`], and returns what that says.
    pub fn run(&mut self) -> i32 {
        loop {
            if let Some(status) = self.shared().status.take() {
                return status;
            }
            self.turn();
        }
    }

    /// Runs until `future` is ready, and returns what it yields; nothing if the loop was stopped before.
    pub fn block_on<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> Option<T> {
        let task = self.handle.spawn(future);
        while !task.is_finished() && self.shared().status.get().is_none() {
            self.turn();
        }
        task.take()
    }

    /// Looks once at everything that there may be to do, does some of it, and rests if there was nothing.
    /// Returns whether there was.
    pub fn turn(&mut self) -> bool {
        let now_ns = self.read_clock();
        self.shared().meter.borrow_mut().close(now_ns);
        self.change_pollers();
        let mut worked = self.fire_timers(now_ns);
        worked |= self.poll(now_ns);
        worked |= self.shared().receive();
        self.shared().threads.looked(worked);
        if self.shared().clients.borrow().scheduler.has_ready() {
            self.serve();
            worked = true;
        }
        self.shared().statistics.borrow_mut().turns += 1;
        if worked {
            self.shared().policy.borrow_mut().worked(now_ns);
        } else {
            self.rest(now_ns);
        }
        worked
    }

    fn shared(&self) -> &Shared {
        self.handle.shared()
    }

    fn read_clock(&self) -> u64 {
        let now_ns = self.clock.now_ns();
        self.shared().now_ns.set(now_ns);
        now_ns
    }

    fn change_pollers(&mut self) {
        if self.shared().changes.borrow().is_empty() {
            return;
        }
        for change in self.handle.shared().changes.take() {
            match change {
                Change::Add(poller) => self.pollers.push(poller),
                Change::Remove(id) => self.pollers.retain(|poller| poller.id != id),
            }
        }
    }

    fn fire_timers(&mut self, now_ns: u64) -> bool {
        if !self.shared().wheel.borrow().is_due(now_ns) {
            return false;
        }
        let mut due = mem::take(&mut self.due);
        self.shared().wheel.borrow_mut().expire(now_ns, &mut due);
        self.shared().statistics.borrow_mut().timers += due.len() as u64;
        let fired = !due.is_empty();
        for timer in due.drain(..) {
            match timer {
                Timer::Wake(waker) => waker.wake(),
                Timer::Call(activity, call) => self.shared().enqueue_for(activity, Work::Call(call)),
            }
        }
        self.due = due;
        fired
    }

    fn poll(&mut self, now_ns: u64) -> bool {
        let (mut polled, shared) = (0, self.handle.shared());
        for registered in &mut self.pollers {
            shared.begin(registered.activity, &*self.clock);
            let progress = registered.poller.poll(now_ns);
            registered.deadline_ns = progress.deadline_ns;
            polled += u64::from(progress.worked);
            if progress.worked > 0 && !shared.has_charged.get() {
                shared.meter.borrow_mut().worked(registered.activity, progress.worked.into());
            }
        }
        shared.statistics.borrow_mut().polled += polled;
        polled > 0
    }

    /// Serves who is to go on next, for its turn.
    fn serve(&mut self) {
        let start_ns = self.read_clock();
        let next = self.shared().clients.borrow_mut().scheduler.decide(start_ns);
        let end_ns = match next {
            Some(Client::Queue(queue)) => self.serve_queue(queue, start_ns),
            Some(Client::Thread(thread)) => {
                if self.shared().was_interrupted(thread) {
                    self.go_on_computing(thread, start_ns);
                } else {
                    self.shared().run_threads(thread, start_ns);
                }
                // As the last one read it when it made way.
                let end_ns = self.shared().now_ns.get();
                self.shared().threads.left(end_ns);
                end_ns
            }
            None => return,
        };
        let shared = self.shared();
        shared.clients.borrow_mut().scheduler.leave(end_ns);
        shared.statistics.borrow_mut().scheduled += 1;
    }

    /// Lets a thread go on that was interrupted while it computed: if nobody else is ready, in place of the
    /// core's sleep.
    fn go_on_computing(&mut self, thread: ThreadId, now_ns: u64) {
        let is_alone = self.shared().clients.borrow_mut().scheduler.preempt_at_ns(now_ns).is_none();
        if !is_alone || self.shared().status.get().is_some() {
            self.shared().run_threads(thread, now_ns);
            return;
        }
        let rests = self.pollers.iter_mut().all(|registered| registered.poller.arm())
            && self.shared().inbox.fall_asleep();
        let until_ns = rests.then(|| self.next_deadline_ns().unwrap_or(u64::MAX));
        let shared = self.handle.shared();
        shared.threads.interruptions.rest_until_ns.set(until_ns);
        shared.run_threads(thread, now_ns);
        shared.threads.interruptions.rest_until_ns.set(None);
        shared.inbox.wake_up();
        self.pollers.iter_mut().for_each(|registered| registered.poller.disarm());
    }

    /// Serves a queue for its turn. Returns when that was over.
    fn serve_queue(&self, queue: QueueId, start_ns: u64) -> u64 {
        let mut events = 0;
        while events < EVENTS_PER_TURN {
            let next = self.shared().queues.borrow_mut().pop(queue);
            let Some((activity, work)) = next else { break };
            self.run_event(activity, work);
            events += 1;
        }
        let end_ns = self.read_clock();
        let record = Record { events, ns: end_ns.saturating_sub(start_ns) };
        let scheduler = &mut self.shared().clients.borrow_mut().scheduler;
        self.shared().queues.borrow_mut().served(queue, record, scheduler, end_ns);
        end_ns
    }

    fn run_event(&self, activity: Activity, work: Work) {
        let shared = self.shared();
        shared.begin(activity, &*self.clock);
        shared.meter.borrow_mut().worked(activity, 1);
        match work {
            Work::Call(call) => call(&self.handle),
            Work::Task(task) => shared.continue_task(task),
        }
    }

    /// There was nothing to do: polls on, or sleeps until something happens; not if a poller stopped the
    /// loop.
    fn rest(&mut self, now_ns: u64) {
        if self.shared().status.get().is_some() {
            return;
        }
        self.shared().statistics.borrow_mut().vain_turns += 1;
        let mode = self.shared().policy.borrow_mut().idle(now_ns);
        if mode == Mode::Polling {
            return hint::spin_loop();
        }
        let deadline_ns = self.next_deadline_ns();
        if !self.shared().policy.borrow().is_worth_sleeping(now_ns, deadline_ns) {
            return hint::spin_loop();
        }
        if self.pollers.iter_mut().all(|registered| registered.poller.arm())
            && self.shared().inbox.fall_asleep()
        {
            self.sleep(deadline_ns);
        } else {
            self.shared().statistics.borrow_mut().aborted_sleeps += 1;
        }
        self.pollers.iter_mut().for_each(|registered| registered.poller.disarm());
    }

    fn sleep(&mut self, deadline_ns: Option<u64>) {
        let asleep_ns = self.read_clock();
        self.shared().meter.borrow_mut().close(asleep_ns);
        let alarm_ns = deadline_ns.map(|deadline_ns| self.shared().policy.borrow().alarm_ns(deadline_ns));
        let wakeup = self.idle.sleep(alarm_ns);
        self.shared().inbox.wake_up();
        let awake_ns = self.read_clock();
        if let Some(late_ns) = alarm_ns.and_then(|alarm_ns| awake_ns.checked_sub(alarm_ns))
            && wakeup.interrupts == 0
        {
            self.shared().policy.borrow_mut().overslept(late_ns);
        }
        self.shared().meter.borrow_mut().slept(awake_ns);
        let mut statistics = self.shared().statistics.borrow_mut();
        statistics.sleeps += 1;
        statistics.interrupts += u64::from(wakeup.interrupts.count_ones());
    }

    /// When there will be something to do even if nothing happens.
    fn next_deadline_ns(&self) -> Option<u64> {
        let timer = self.shared().wheel.borrow().next_deadline_ns();
        let polls = self.pollers.iter().filter_map(|registered| registered.deadline_ns);
        polls.chain(timer).min()
    }
}

impl Shared {
    /// Something begins that `activity` pays for, unless it says otherwise.
    #[inline]
    pub(crate) fn begin(&self, activity: Activity, clock: &(impl Clock + ?Sized)) {
        self.meter.borrow_mut().separate(activity, || {
            let now_ns = clock.now_ns();
            self.now_ns.set(now_ns);
            now_ns
        });
        self.activity.set(activity);
        self.has_charged.set(false);
    }

    /// Takes what was sent to the core. Returns whether there was anything.
    pub(crate) fn receive(&self) -> bool {
        if !self.inbox.begin() {
            return false;
        }
        let mut received = 0;
        while let Some(message) = self.inbox.receive() {
            received += 1;
            match message {
                Message::Call(activity, call) => self.enqueue_for(activity, Work::Call(call)),
                Message::Wake(task) => self.schedule(task),
                Message::WakeThread(thread) => self.wake_thread(thread),
            }
            if received == MESSAGES_PER_TURN {
                self.inbox.leave_rest();
                break;
            }
        }
        self.statistics.borrow_mut().messages += u64::from(received);
        received > 0
    }

    /// Lets a task go on, unless it has ended since it was woken.
    pub(crate) fn continue_task(&self, id: TaskId) {
        let started = self.tasks.borrow_mut().start(id);
        let Some(body) = started else { return };
        let before = self.running.replace(Some((id, body.1.data())));
        let left = match self.ward.get() {
            Some(ward) => ward.run(body),
            None => ward::run(body),
        };
        self.running.set(before);
        // What is dropped is when nothing is borrowed any more.
        match left {
            Left::Waiting(body) => {
                let aborted = self.tasks.borrow_mut().suspend(id, body);
                drop(aborted);
            }
            Left::Over(body) => {
                let ended = self.tasks.borrow_mut().remove(id);
                drop((body, ended));
            }
            Left::Failed => self.lose_task(id),
        }
    }

    /// Tells whoever wants to know that a task has panicked.
    #[cold]
    fn lose_task(&self, id: TaskId) {
        let lost = self.tasks.borrow_mut().remove(id);
        lost.iter().for_each(Task::fail);
        let listeners = self.on_failure.borrow().clone();
        listeners.iter().for_each(|call| call(id));
    }

    /// Queues a woken task; one whose queue was removed goes on in its activity's default queue.
    pub(crate) fn schedule(&self, task: TaskId) {
        let place = self.tasks.borrow().place_of(task);
        let Some((queue, activity)) = place else { return };
        if let Err(work) = self.enqueue(queue, Work::Task(task)) {
            self.enqueue_for(activity, work);
        }
    }

    /// Takes everything out that may hold a handle, and so the loop itself. Returns whether there was
    /// anything.
    fn drop_pending(&self) -> bool {
        let events = self.queues.borrow_mut().take_all();
        let tasks = self.tasks.borrow_mut().take_all();
        let timers = self.wheel.borrow_mut().take_all();
        let changes = self.changes.take();
        let message = self.inbox.receive();
        let threads = mem::take(&mut self.clients.borrow_mut().threads);
        let has_more = !(events.is_empty() && tasks.is_empty() && timers.is_empty() && changes.is_empty());
        has_more || !threads.is_empty() || message.is_some()
    }
}

/// Drops what waits: the rest of a loop that was stopped.
impl<C, I> Drop for EventLoop<C, I> {
    fn drop(&mut self) {
        self.pollers.clear();
        // What is dropped may start something new in its destructor.
        while self.handle.shared().drop_pending() {}
    }
}

#[cfg(test)]
mod tests;
