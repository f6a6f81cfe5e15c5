//! Processor time: how long threads and processes had the core, and who waits until that is so much
//! (clock_getcpuclockid(3)).
//!
//! The runtime counts it where one thread makes way for another, so that a call costs nothing, and what a
//! thread has of other cores is counted when it comes back. What a thread
//! does within its calls counts as its own, and is not told apart.

use crate::call::Call;
use crate::process::Process;
use crate::runners::processors;
use crate::task::Task;
use alloc::rc::{Rc, Weak};
use core::cell::Cell;
use linux_raw_sys::general::{CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
use nom_fs::Errno;
use nom_rt::{Handle, WaitQueue};

/// Who waits until a thread, or any of a process, has the core again.
#[derive(Debug, Default)]
pub(crate) struct RunWaiters {
    /// Whether there is anybody: looked at whenever a thread goes on.
    is_awaited: Cell<bool>,
    waiting: WaitQueue,
}

impl RunWaiters {
    /// It goes on, or ends.
    #[inline]
    fn wake(&self) {
        if self.is_awaited.get() {
            self.is_awaited.set(false);
            self.waiting.wake_all();
        }
    }

    /// Waits until `has_run`, which is asked whenever it goes on.
    async fn until(&self, has_run: impl Fn() -> bool) {
        let look = || {
            self.is_awaited.set(true);
            has_run().then_some(())
        };
        self.waiting.until(look).await;
    }
}

/// What a process's threads that have ended, and its children that were waited for, had of the core; and who
/// waits until it has more.
#[derive(Debug, Default)]
pub(crate) struct SpentTime {
    ended_threads_ns: Cell<u64>,
    children_ns: Cell<u64>,
    waiters: RunWaiters,
}

impl Task {
    /// How long it had the core, in nanoseconds.
    pub(crate) fn ran_ns(&self) -> u64 {
        let here = self.lived_waiter().and_then(|waiter| waiter.ran_ns()).unwrap_or(0);
        here + self.elsewhere.ns()
    }

    /// It goes on.
    #[inline]
    pub(crate) fn goes_on(&self) {
        self.run_waiters.wake();
        self.process.spent.waiters.wake();
    }

    /// It has ended, and is none of its process's any more.
    pub(crate) fn runs_no_more(&self) {
        self.run_waiters.wake();
    }
}

impl Process {
    /// How long its threads had the core, in nanoseconds.
    pub(crate) fn ran_ns(&self) -> u64 {
        let present: u64 = self.tasks.borrow().values().map(|task| task.ran_ns()).sum();
        self.spent.ended_threads_ns.get() + present
    }

    /// The same of its children that it has waited for, and of theirs.
    pub(crate) fn children_ran_ns(&self) -> u64 {
        self.spent.children_ns.get()
    }

    /// A thread is about to end.
    pub(crate) fn keep_time_of(&self, task: &Task) {
        self.spent.ended_threads_ns.update(|before| before + task.ran_ns());
    }

    /// It has waited for a child that ended.
    pub(crate) fn keep_time_of_child(&self, child: &Process) {
        let of_child = child.ran_ns() + child.children_ran_ns();
        self.spent.children_ns.update(|before| before + of_child);
    }

    /// It has ended.
    pub(crate) fn runs_no_more(&self) {
        self.spent.waiters.wake();
    }
}

/// A clock of processor time.
#[derive(Clone, Debug)]
pub(crate) enum ProcessorClock {
    /// Of all threads of a process together.
    Process,
    /// Of one of its threads.
    Thread(Weak<Task>),
}

impl ProcessorClock {
    /// The clock of this number, if it is one of processor time, and whose it is. Numbers below zero have a
    /// process or a thread of the caller in them (`MAKE_PROCESS_CPUCLOCK` of Linux): its identifier,
    /// inverted, above three bits.
    ///
    /// # Errors
    /// `EINVAL` if there is no such process or thread.
    pub fn of(call: &Call<'_>, number: i32) -> Option<Result<(Rc<Process>, ProcessorClock), Errno>> {
        const OF_THREAD: i32 = 4;
        const KIND: i32 = 3;
        const NO_KIND: i32 = 3;
        let own = call.process();
        let thread = |task: &Rc<Task>| (own.clone(), ProcessorClock::Thread(Rc::downgrade(task)));
        let found = match number as u32 {
            CLOCK_PROCESS_CPUTIME_ID => Some((own.clone(), ProcessorClock::Process)),
            CLOCK_THREAD_CPUTIME_ID => Some(thread(call.task())),
            _ if number >= 0 => return None,
            _ if number & KIND == NO_KIND => None,
            _ => match (!(number >> 3) as u32, number & OF_THREAD != 0) {
                (0, true) => Some(thread(call.task())),
                (0, false) => Some((own.clone(), ProcessorClock::Process)),
                (id, true) => own.tasks.borrow().get(&id).map(thread),
                (id, false) => call.family().process(id).map(|other| (other, ProcessorClock::Process)),
            },
        };
        Some(found.ok_or(Errno::EINVAL))
    }

    /// What it says, in nanoseconds: of `process`, or of the thread of it; nothing once that has ended.
    pub fn ns(&self, process: &Process) -> Option<u64> {
        match self {
            ProcessorClock::Process => Some(process.ran_ns()),
            ProcessorClock::Thread(task) => {
                let is_there = |task: &Rc<Task>| process.tasks.borrow().contains_key(&task.id);
                task.upgrade().filter(is_there).map(|task| task.ran_ns())
            }
        }
    }

    /// Waits until it says `at_ns`. Nothing if it never will: the process or the thread has ended.
    pub async fn reach(&self, handle: &Handle, process: &Weak<Process>, at_ns: u64) -> Option<()> {
        let alive = || process.upgrade().filter(|process| !process.has_ended());
        loop {
            let before_ns = self.ns(&*alive()?)?;
            if before_ns >= at_ns {
                return Some(());
            }
            handle.sleep(self.least_ns(at_ns - before_ns)).await;
            let there = alive()?;
            if self.ns(&there)? == before_ns {
                self.await_run(&there, before_ns).await;
            }
        }
    }

    /// How long it takes at least until it says so much more: a process's threads run on several cores at a
    /// time.
    fn least_ns(&self, more_ns: u64) -> u64 {
        /// Whoever asked more often would take more time than it is about.
        const LEAST_NS: u64 = 100_000;
        match self {
            ProcessorClock::Process => (more_ns / u64::from(processors())).max(more_ns.min(LEAST_NS)),
            ProcessorClock::Thread(_) => more_ns,
        }
    }

    /// Waits until it has more to say than `before_ns`, or never will: no alarm is set while nobody runs
    /// whose time it is.
    async fn await_run(&self, process: &Process, before_ns: u64) {
        let has_run = || process.has_ended() || self.ns(process) != Some(before_ns);
        match self {
            ProcessorClock::Process => {
                let has_run = || {
                    process.tasks().iter().for_each(|task| task.attend());
                    has_run()
                };
                process.spent.waiters.until(has_run).await;
            }
            ProcessorClock::Thread(task) => {
                let Some(task) = task.upgrade() else { return };
                let has_run = || {
                    task.attend();
                    has_run()
                };
                task.run_waiters.until(has_run).await;
            }
        }
    }
}
