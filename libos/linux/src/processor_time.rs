//! Processor time: how long threads and processes had the core, and who waits until that is so much
//! (clock_getcpuclockid(3)).
//!
//! The runtime counts it where one thread makes way for another, so that a call costs nothing. What a thread
//! does within its calls counts as its own, and is not told apart.

use crate::call::Call;
use crate::process::Process;
use crate::task::Task;
use alloc::rc::{Rc, Weak};
use core::cell::Cell;
use linux_raw_sys::general::{CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
use nom_fs::Errno;
use nom_rt::{Handle, WaitQueue};

/// What a process's threads that have ended, and its children that were waited for, had of the core; and who
/// waits until it has more.
#[derive(Debug, Default)]
pub(crate) struct SpentTime {
    ended_threads_ns: Cell<u64>,
    children_ns: Cell<u64>,
    /// Whether anybody waits until the process runs again: looked at whenever a thread goes on.
    is_awaited: Cell<bool>,
    waiting: WaitQueue,
}

impl Task {
    /// How long it had the core, in nanoseconds.
    pub(crate) fn ran_ns(&self) -> u64 {
        self.lived_waiter().and_then(|waiter| waiter.ran_ns()).unwrap_or(0)
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

    /// One of its threads goes on, or it ends.
    #[inline]
    pub(crate) fn goes_on(&self) {
        if self.spent.is_awaited.replace(false) {
            self.spent.waiting.wake_all();
        }
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
    /// process or a thread of the caller in them (`MAKE_PROCESS_CPUCLOCK` of Linux): its identifier, inverted,
    /// above three bits.
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

    /// What it says, in nanoseconds: of `process`, or of the thread of it; 0 once that has ended.
    pub fn ns(&self, process: &Process) -> u64 {
        match self {
            ProcessorClock::Process => process.ran_ns(),
            ProcessorClock::Thread(task) => task.upgrade().map_or(0, |task| task.ran_ns()),
        }
    }

    /// Waits until it says `at_ns`, or `process` has ended.
    pub async fn reach(&self, handle: &Handle, process: &Weak<Process>, at_ns: u64) {
        while let Some(there) = process.upgrade().filter(|process| !process.has_ended()) {
            let before_ns = self.ns(&there);
            if before_ns >= at_ns {
                return;
            }
            drop(there);
            // With one core it cannot say so any sooner.
            handle.sleep(at_ns - before_ns).await;
            let Some(there) = process.upgrade().filter(|process| !process.has_ended()) else { return };
            if self.ns(&there) == before_ns {
                // Nobody has run whose time it is: no alarm is set until somebody does.
                let look = || {
                    there.spent.is_awaited.set(true);
                    (self.ns(&there) != before_ns || there.has_ended()).then_some(())
                };
                there.spent.waiting.until(look).await;
            }
        }
    }
}
