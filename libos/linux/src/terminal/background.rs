//! Who uses a terminal that another group of processes has: job control in termios(3).

use super::TerminalEnd;
use crate::call::Call;
use crate::signals::{IGNORE, Signal};
use linux_raw_sys::general::TOSTOP;
use nom_fs::Errno;

/// What somebody is about to do with a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminalUse {
    /// To read.
    Read,
    /// To write, which the terminal's modes may let everybody do.
    Write,
    /// To change its modes, or who has it.
    Change,
}

impl TerminalEnd<'_> {
    fn is_in_background(&self, call: &Call<'_>) -> bool {
        let (terminal, process) = (self.terminal, call.process());
        !self.is_master
            && terminal.session.get() == Some(process.session.get())
            && terminal.foreground.get() != process.group.get()
    }

    /// Returns at once if the caller's group has the terminal, or it is not the caller's. Otherwise the group
    /// is sent a signal, which stops it, and whoever lets it go on may have given it the terminal.
    ///
    /// # Errors
    /// `EIO` if the signal would do nothing, or nobody could let the group go on; `EINTR` of who handles it.
    pub fn await_foreground(&self, call: &Call<'_>, what: TerminalUse) -> Result<(), Errno> {
        let process = call.process();
        let signal = if what == TerminalUse::Read { Signal::TTIN } else { Signal::TTOU };
        while self.is_in_background(call) {
            if what == TerminalUse::Write && !self.terminal.discipline.borrow().stops_writers() {
                return Ok(());
            }
            let is_ignored = process.actions.borrow().get(signal).handler == IGNORE;
            if is_ignored || call.task().blocked.get().has(signal) {
                return if what == TerminalUse::Read { Err(Errno::EIO) } else { Ok(()) };
            }
            if process.is_orphaned() {
                return Err(Errno::EIO);
            }
            self.terminal.signal(process.group.get(), signal);
            if process.stops.is_stopped() {
                call.block_on(core::future::ready(()))?;
            } else if call.task().is_interrupted() {
                call.block_on(core::future::pending::<()>())?;
            } else {
                return Err(Errno::EIO);
            }
        }
        Ok(())
    }
}

impl super::discipline::LineDiscipline {
    /// Whether who writes in the background is stopped.
    fn stops_writers(&self) -> bool {
        self.modes().has(TOSTOP)
    }
}
