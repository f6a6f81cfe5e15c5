//! Who may use a terminal now, and how long its readers wait: job control in termios(3) and signal(7), `MIN`
//! and `TIME` of "Canonical and noncanonical mode".

use super::{Side, Terminal, TerminalEnd};
use crate::call::Call;
use crate::descriptors::ready::until_ready;
use crate::descriptors::{Description, Stream};
use crate::signals::Signal;
use core::future::poll_fn;
use core::task::Poll;
use nom_fs::Errno;

/// What a process wants of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To change how it works.
    Change,
}

impl TerminalEnd {
    /// Has a process wait that is not in the foreground of its own terminal, as the signal for that says.
    ///
    /// # Errors
    /// `EIO` for who is not to read and ignores or blocks that signal, or whom nobody could let go on;
    /// `EINTR` if a handler runs.
    pub fn admit(&self, call: &Call<'_>, wish: Wish) -> Result<(), Errno> {
        let terminal = &self.terminal;
        if self.side == Side::Master {
            return Ok(());
        }
        let signal = if wish == Wish::Read { Signal::TTIN } else { Signal::TTOU };
        // All is looked at again by who was let go on, as if it asked for the first time.
        while terminal.has_in_background(call) && !terminal.is_free(wish) {
            let (process, task) = (call.process(), call.task());
            if task.blocked().has(signal) || process.actions.borrow().ignores(signal) {
                return if wish == Wish::Read { Err(Errno::EIO) } else { Ok(()) };
            }
            if process.is_orphaned() {
                return Err(Errno::EIO);
            }
            terminal.signal(process.group.get(), signal);
            if !process.stops.is_stopped() && !task.is_interrupted() {
                // A first process is never stopped.
                return Err(Errno::EIO);
            }
            call.block_on(poll_fn(|_| if task.is_interrupted() { Poll::Pending } else { Poll::Ready(()) }))?;
        }
        Ok(())
    }

    /// What `read` gets of it; waits for that unless the description says not to.
    ///
    /// # Errors
    /// As [`TerminalEnd::admit`]; `EAGAIN`; `EINTR`; what `read` says.
    pub fn wait_to_read<T>(
        &self,
        call: &Call<'_>,
        description: &Description,
        mut read: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.admit(call, Wish::Read)?;
        let (terminal, is_nonblocking) = (&self.terminal, description.is_nonblocking());
        if self.side == Side::Master {
            return match read() {
                Err(Errno::EAGAIN) if !is_nonblocking => {
                    call.block_on(until_ready(read, |waker| self.wake(waker)))?
                }
                result => result,
            };
        }
        let begun_ns = call.now().1;
        loop {
            if is_nonblocking && terminal.state().unread > 0 {
                terminal.discipline.borrow_mut().wait_no_more();
            }
            match read() {
                Err(Errno::EAGAIN) if !is_nonblocking => {}
                result => return result,
            }
            let before = terminal.state();
            let deadline_ns = terminal.discipline.borrow().patience().map(|patience| match patience {
                Patience::All(ns) => begun_ns.saturating_add(ns),
                Patience::Pause(ns) => call.now().1.saturating_add(ns),
            });
            let changed = until_ready(
                || if terminal.state() == before { Err(Errno::EAGAIN) } else { Ok(()) },
                |waker| self.wake(waker),
            );
            if call.block_before(deadline_ns, changed)?.is_none() {
                terminal.discipline.borrow_mut().wait_no_more();
            }
        }
    }
}

/// How long a reader without lines waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// So many nanoseconds for a byte.
    All(u64),
    /// So many nanoseconds from one byte to the next.
    Pause(u64),
}

/// What a reader of the slave waits for a change of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    unread: usize,
    is_readable: bool,
    is_hung_up: bool,
}

impl Terminal {
    fn state(&self) -> State {
        let discipline = self.discipline.borrow();
        State {
            unread: discipline.unread(),
            is_readable: discipline.is_readable(),
            is_hung_up: self.is_hung_up.get(),
        }
    }

    /// Whether anybody may do that.
    fn is_free(&self, wish: Wish) -> bool {
        wish == Wish::Write && !self.discipline.borrow().modes().writing_is_for_foreground()
    }

    /// Whether it is the terminal of who makes a call, and another group has it.
    fn has_in_background(&self, call: &Call<'_>) -> bool {
        let (process, foreground) = (call.process(), self.foreground.get());
        let is_own = self.session.get() == Some(process.session.get());
        is_own && foreground != 0 && foreground != process.group.get()
    }
}
