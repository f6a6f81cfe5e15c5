//! One system call on its way: who makes it, with what.

use crate::buffers::CallBuffer;
use crate::family::ProcessFamily;
use crate::process::{OwnMemory, Process};
use crate::signals::{Info, Signal};
use crate::table;
use crate::task::Task;
use crate::trace::Tracer;
use alloc::rc::Rc;
use core::cell::Cell;
use core::fmt;
use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use nom_app::sockets::Thread;
use nom_fs::Errno;

/// A system call.
pub struct Call<'a> {
    /// Its arguments, as the registers have them.
    pub arguments: [u64; 6],
    family: &'a Rc<ProcessFamily>,
    task: &'a Rc<Task>,
    thread: &'a Thread<'a>,
    memory: Rc<OwnMemory>,
    was_interrupted: Cell<bool>,
    /// Until when it waits, or waits again: of a call that goes on after a signal that nobody handled.
    limit_ns: Cell<u64>,
}

/// The limit of a call that may wait for ever.
pub(crate) const NO_LIMIT_NS: u64 = u64::MAX;

/// A call that a signal ended early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrokenOff {
    /// Its number.
    pub number: u64,
    /// Until when it would have waited.
    limit_ns: u64,
}

impl BrokenOff {
    /// Whether it is made again after a handler that wants that: never if it waits for a limited time, since
    /// a part of that is over (signal(7): `ERESTART_RESTARTBLOCK` of Linux, and `EINTR` of a socket with a
    /// limit).
    pub fn restarts(&self) -> bool {
        self.limit_ns == NO_LIMIT_NS && table::restarts(self.number)
    }

    /// If nobody handled the signal it is made again as if nothing had happened: until when it waits then.
    pub fn goes_on(&self) -> Option<u64> {
        table::goes_on(self.number).then_some(self.limit_ns)
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Call({:?}, {:x?})", self.task, self.arguments)
    }
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        family: &'a Rc<ProcessFamily>,
        task: &'a Rc<Task>,
        thread: &'a Thread<'a>,
        arguments: [u64; 6],
    ) -> Call<'a> {
        let memory = task.process.memory();
        let limit_ns = Cell::new(task.kept_limit_ns.replace(NO_LIMIT_NS));
        Call { arguments, family, task, thread, memory, was_interrupted: Cell::new(false), limit_ns }
    }

    /// An argument that is a number of 32 bits, whatever else is in its register.
    pub fn int(&self, index: usize) -> i32 {
        self.arguments[index] as i32
    }

    /// Who makes it.
    pub fn task(&self) -> &Rc<Task> {
        self.task
    }

    /// The process of who makes it.
    pub fn process(&self) -> &Rc<Process> {
        &self.task.process
    }

    /// What all processes share.
    pub fn family(&self) -> &Rc<ProcessFamily> {
        self.family
    }

    /// The memory of who makes it.
    pub fn memory(&self) -> &OwnMemory {
        &self.memory
    }

    /// A buffer of `len` bytes of any value.
    pub(crate) fn buffer(&self, len: usize) -> CallBuffer {
        self.family.buffers.take(len)
    }

    /// The runtime's thread that it runs on.
    pub fn thread(&self) -> &Thread<'a> {
        self.thread
    }

    /// Blocks until `future` is ready.
    ///
    /// # Errors
    /// `EINTR` if a signal is to be delivered before, or the thread is to end.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Errno> {
        self.family.tracer.iter().for_each(Tracer::flush);
        let mut future = pin!(future);
        let result = self.thread.block_on(poll_fn(|context| {
            let stops = &self.process().stops;
            if stops.is_stopped() {
                // It goes on with that later.
                stops.wake(context.waker());
            } else if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(value));
            }
            // Whoever interrupts it wakes the thread itself.
            if self.task.is_interrupted() { Poll::Ready(Err(Errno::EINTR)) } else { Poll::Pending }
        }));
        self.was_interrupted.set(result.is_err());
        result
    }

    /// As [`Call::block_on`], until the board's clock says `deadline_ns`, if there is a deadline: nothing
    /// then.
    ///
    /// # Errors
    /// `EINTR`.
    pub fn block_until<F: Future>(
        &self,
        deadline_ns: Option<u64>,
        future: F,
    ) -> Result<Option<F::Output>, Errno> {
        let deadline_ns = deadline_ns.map(|asked_ns| {
            if self.limit_ns.get() == NO_LIMIT_NS {
                self.limit_ns.set(asked_ns);
            }
            self.limit_ns.get()
        });
        self.block_before(deadline_ns, future)
    }

    /// As [`Call::block_until`], for a call that is made again as if it had not waited at all, like one
    /// without a deadline.
    ///
    /// # Errors
    /// `EINTR`.
    pub fn block_before<F: Future>(
        &self,
        deadline_ns: Option<u64>,
        future: F,
    ) -> Result<Option<F::Output>, Errno> {
        let Some(deadline_ns) = deadline_ns else { return self.block_on(future).map(Some) };
        let handle = &self.family.handle;
        let mut sleep = pin!(handle.sleep_until(deadline_ns));
        let mut future = pin!(future);
        self.block_on(poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            sleep.as_mut().poll(context).map(|_| None)
        }))
    }

    /// It, of this number, as a signal ended it, if `result` says that it did. One that has done a part of
    /// what it was to do says how much.
    #[inline]
    pub(crate) fn broken_off(&self, number: u64, result: Result<u64, Errno>) -> Option<BrokenOff> {
        let is_broken_off = self.was_interrupted.get() && result == Err(Errno::EINTR);
        is_broken_off.then(|| BrokenOff { number, limit_ns: self.limit_ns.get() })
    }

    /// Sends who makes it a signal.
    pub fn raise(&self, signal: Signal) {
        self.task.send(Info::sent(signal, 0, self.process().id, self.process().user()));
    }

    /// Nanoseconds since 1970, and on the clock that only goes forwards.
    pub fn now(&self) -> (u64, u64) {
        (nom_sys::time::unix_ns(), nom_sys::time::now_ns())
    }
}
