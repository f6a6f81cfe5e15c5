//! Timers that are read: timerfd_create(2).

use super::open::Stream;
use super::ready::{Events, Waiters};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::task::Waker;
use nom_fs::{Errno, NodeType};
use nom_rt::Handle;

/// Bytes of how often it was due.
const BYTES: usize = 8;

/// When a timer is due, on the board's clock: the next time, and how far apart from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// The next time; none if it is not set.
    pub next_ns: Option<u64>,
    /// How far apart; 0 if it is due once.
    pub interval_ns: u64,
}

impl Schedule {
    /// How often it was due until `now_ns`, and the schedule from then on.
    pub fn until(self, now_ns: u64) -> (u64, Schedule) {
        let Some(next_ns) = self.next_ns.filter(|next_ns| *next_ns <= now_ns) else { return (0, self) };
        if self.interval_ns == 0 {
            return (1, Schedule { next_ns: None, ..self });
        }
        let count = (now_ns - next_ns) / self.interval_ns + 1;
        (
            count,
            Schedule {
                next_ns: Some(next_ns.saturating_add(count.saturating_mul(self.interval_ns))),
                ..self
            },
        )
    }
}

#[derive(Debug, Default)]
struct State {
    schedule: Cell<Schedule>,
    /// How often it was due and nobody read that.
    due: Cell<u64>,
    /// Tells the setting that is in force from earlier ones, whose alarms may still come.
    setting: Cell<u64>,
    waiters: Waiters,
}

impl State {
    fn advance(&self, now_ns: u64) {
        let (count, schedule) = self.schedule.get().until(now_ns);
        self.schedule.set(schedule);
        self.due.update(|due| due.saturating_add(count));
    }
}

/// A timer.
#[derive(Debug)]
pub(crate) struct Timer {
    state: Rc<State>,
    handle: Handle,
    /// Whether its times are given since 1970.
    pub is_realtime: bool,
}

impl Timer {
    /// One that is not set.
    pub(crate) fn new(handle: &Handle, is_realtime: bool) -> Timer {
        Timer { state: Rc::default(), handle: handle.clone(), is_realtime }
    }

    /// Its schedule from now on.
    pub fn schedule(&self) -> Schedule {
        self.state.advance(self.handle.clock_ns());
        self.state.schedule.get()
    }

    /// Sets it.
    pub fn set(&self, schedule: Schedule) {
        self.state.schedule.set(schedule);
        self.state.due.set(0);
        self.state.setting.update(|setting| setting + 1);
        arm(&self.handle, &self.state);
    }
}

/// Has who waits woken when it is due.
fn arm(handle: &Handle, state: &Rc<State>) {
    let Some(next_ns) = state.schedule.get().next_ns else { return };
    let (state, setting) = (Rc::downgrade(state), state.setting.get());
    handle.at(next_ns, move |handle| {
        let Some(state) = state.upgrade().filter(|state| state.setting.get() == setting) else { return };
        state.advance(handle.clock_ns());
        state.waiters.wake();
        arm(handle, &state);
    });
}

impl Stream for Timer {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        let target = target.get_mut(..BYTES).ok_or(Errno::EINVAL)?;
        self.state.advance(self.handle.clock_ns());
        match self.state.due.take() {
            0 => Err(Errno::EAGAIN),
            due => {
                target.copy_from_slice(&due.to_ne_bytes());
                Ok(BYTES)
            }
        }
    }

    fn ready(&self) -> Events {
        self.state.advance(self.handle.clock_ns());
        Events::IN.when(self.state.due.get() > 0)
    }

    fn wake(&self, waker: &Waker) {
        self.state.waiters.add(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::File
    }

    fn label(&self) -> Vec<u8> {
        b"anon_inode:[timerfd]".to_vec()
    }

    fn timer(&self) -> Option<&Timer> {
        Some(self)
    }
}
