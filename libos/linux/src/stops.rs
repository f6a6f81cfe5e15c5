//! Stopping processes and letting them go on: job control in signal(7), wait(2).
//!
//! A process stops when it is sent the signal, unless it blocks or handles it: from then on its threads
//! neither run nor go on with a call that waits, and no call is interrupted by that.

use crate::descriptors::ready::Waiters;
use crate::process::Process;
use crate::signals::{Effect, Info, Signal, SignalSet};
use core::cell::Cell;
use core::task::Waker;
use linux_raw_sys::general::{CLD_CONTINUED, CLD_STOPPED, SA_NOCLDSTOP};

/// The first process of the family: as that of a container it is never stopped, since nobody could let it go
/// on.
const FIRST: u32 = 1;

/// Whether a process is stopped, and what its parent has not heard of that.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    by: Cell<Option<Signal>>,
    untold: Cell<Option<StateChange>>,
    waiters: Waiters,
}

/// What a parent can wait for beside a child's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateChange {
    /// It was stopped.
    Stopped(Signal),
    /// It was let go on.
    Continued,
}

impl StateChange {
    /// As `wait4` tells it.
    pub fn wait_status(self) -> u32 {
        const STOPPED: u32 = 0x7f;
        const CONTINUED: u32 = 0xffff;
        match self {
            StateChange::Stopped(signal) => STOPPED | signal.number() << 8,
            StateChange::Continued => CONTINUED,
        }
    }

    /// `CLD_*` and the status, as `SIGCHLD` says them.
    pub fn child_code(self) -> (u32, u32) {
        match self {
            StateChange::Stopped(signal) => (CLD_STOPPED, signal.number()),
            StateChange::Continued => (CLD_CONTINUED, Signal::CONT.number()),
        }
    }
}

impl Stops {
    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.by.get().is_some()
    }

    /// Wakes when it goes on, or is to end.
    pub fn wake(&self, waker: &Waker) {
        self.waiters.add(waker);
    }

    /// It goes on, for whatever reason.
    pub fn release(&self) {
        self.by.set(None);
        self.waiters.wake();
    }

    /// What the parent was not told yet.
    pub fn untold(&self) -> Option<StateChange> {
        self.untold.get()
    }

    /// The parent was told.
    pub fn tell(&self) {
        self.untold.set(None);
    }
}

/// The signals that stop a process, all or those that it may handle.
fn stopping() -> SignalSet {
    let all = (1..=crate::signals::SIGNALS).filter_map(|number| Signal::new(number.into()).ok());
    all.filter(|signal| signal.default_effect() == Effect::Stop)
        .fold(SignalSet::default(), |set, signal| set.with(SignalSet::of(signal)))
}

impl Process {
    /// What sending a signal does at once, before it waits to be delivered: whether that was all.
    pub(crate) fn settle_at_once(&self, signal: Signal, is_blocked: bool) -> bool {
        match signal.default_effect() {
            Effect::Continue => {
                self.forget_signals(stopping());
                if self.stops.is_stopped() {
                    self.stops.release();
                    self.changed(StateChange::Continued);
                }
                false
            }
            Effect::Stop => {
                self.forget_signals(SignalSet::of(Signal::CONT));
                let has_handler = self.actions.borrow().get(signal).handler != 0;
                if is_blocked && signal != Signal::STOP || has_handler {
                    return false;
                }
                self.stop(signal);
                true
            }
            _ => {
                if signal == Signal::KILL {
                    self.stops.release();
                }
                false
            }
        }
    }

    fn forget_signals(&self, which: SignalSet) {
        self.pending.borrow_mut().forget(which);
        self.tasks().iter().for_each(|task| task.pending.borrow_mut().forget(which));
    }

    /// Stops it, unless nobody is there who could let it go on: then those signals that a terminal sends do
    /// nothing.
    pub(crate) fn stop(&self, signal: Signal) {
        let is_left_alone = self.id == FIRST || self.ending.get().is_some();
        if is_left_alone || signal != Signal::STOP && self.is_orphaned() {
            return;
        }
        if !self.stops.is_stopped() {
            self.stops.by.set(Some(signal));
            self.tasks().iter().for_each(|task| task.attend());
            // Those who run on other cores come back before anybody hears of it, and stay.
            self.memory().stop_others();
            self.changed(StateChange::Stopped(signal));
        }
    }

    /// Whether nobody in its session and outside of its group has a child in that (setpgid(2), "orphaned
    /// process group").
    pub(crate) fn is_orphaned(&self) -> bool {
        let group = self.group.get();
        let has_keeper = |member: &Process| {
            let parent = self.family.process(member.parent());
            parent.is_some_and(|parent| {
                parent.group.get() != group && parent.session.get() == member.session.get()
            })
        };
        let members = self.family.processes();
        !members.iter().any(|member| member.group.get() == group && has_keeper(member))
    }

    /// Its parent hears of it.
    fn changed(&self, what: StateChange) {
        self.stops.untold.set(Some(what));
        let Some(parent) = self.family.process(self.parent()) else { return };
        parent.child_ended.wake_all();
        if !parent.actions.borrow().get(Signal::CHLD).has(SA_NOCLDSTOP) {
            let (code, status) = what.child_code();
            parent.send(&self.family, Info::child(Signal::CHLD, code, self.id, self.user(), status));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general::{SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};

    #[test]
    fn four_signals_stop_and_a_parent_is_told_in_words_of_linux() {
        let four = [SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU];
        assert_eq!(stopping().0, four.iter().fold(0, |set, number| set | 1 << (number - 1)));
        let stopped = StateChange::Stopped(Signal::STOP);
        assert_eq!((stopped.wait_status(), stopped.child_code()), (0x137f, (5, 19)));
        assert_eq!(
            (StateChange::Continued.wait_status(), StateChange::Continued.child_code()),
            (0xffff, (6, 18))
        );
    }
}
