//! A context: one application on one core. What it was doing, and what it has yet to be told.

use crate::frames::Search;
use crate::machine::{Frame, Reflection};
use crate::space::{Space, UserAddr};
use nom_abi::upcall::{Events, Registers, Upcall};

/// Whether a context can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// The application does not hold this core.
    #[default]
    Absent,
    /// It runs, or could.
    Ready,
    /// It sleeps in `core_wait`.
    Waiting {
        /// Board time at which it wakes by itself.
        deadline_ns: u64,
        /// Where the events go.
        events: UserAddr,
    },
}

/// What `memory_grant` goes on with, which is called again until it is done. The program holds the memory,
/// and cannot name it before all is zeroed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// What finds it.
    pub(crate) search: Search,
    /// First frame, once it is found.
    pub(crate) frame: Option<Frame>,
    /// Frames that are zeroed.
    pub(crate) zeroed: u64,
}

/// An application on a core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// Whether it can run.
    pub(crate) state: State,
    /// Its registers, while it is not the core's current one.
    pub(crate) registers: Registers,
    /// The address space that it is in.
    pub(crate) space: Option<Space>,
    /// Frame of its vector registers and segment bases.
    pub(crate) state_frame: Frame,
    /// Where its upcall handler begins, and the top of that one's stack, if it has registered one.
    pub(crate) handler: Option<(UserAddr, UserAddr)>,
    /// Whether upcalls wait: it is in its handler, or has never registered one.
    pub(crate) upcalls_wait: bool,
    /// What it has yet to be told.
    pub(crate) events: Events,
    /// Board time from which on it is told of its timer.
    pub(crate) timer_ns: Option<u64>,
    /// What it is being granted.
    pub(crate) unfinished: Option<Grant>,
    /// Where system calls go that are not for this kernel.
    pub(crate) reflection: Option<Reflection>,
}

impl Context {
    /// A context that is about to begin.
    pub(crate) fn begin(registers: Registers, space: Option<Space>, state_frame: Frame) -> Context {
        let state = State::Ready;
        Context { state, registers, space, state_frame, upcalls_wait: true, ..Context::default() }
    }

    /// Whether an upcall can be delivered to it now.
    pub(crate) fn takes_upcalls(&self) -> bool {
        self.handler.is_some() && !self.upcalls_wait && self.unfinished.is_none()
    }

    /// Makes an upcall pending.
    pub(crate) fn post(&mut self, upcall: Upcall) {
        self.events.pending |= upcall.mask();
    }

    /// Takes everything that is pending.
    pub(crate) fn take_events(&mut self) -> Events {
        core::mem::take(&mut self.events)
    }
}
