//! A context: one application on one core. What it was doing, and what it has yet to be told.
//!
//! What it is made of is seen here and in the modules below only: others ask, or have it changed.

pub mod events;
mod reflection;

use crate::frames::Search;
use crate::ids::{AppId, CoreId};
use crate::kernel::Kernel;
use crate::machine::{Frame, Machine, Reflection};
use crate::space::{Space, UserAddr};
use crate::syscalls::{Caller, Reply};
use nom_abi::error::{Error, Result};
use nom_abi::syscall::arguments::{CoreTimer, SpaceSwitch};
use nom_abi::upcall::{Events, Registers, Upcall};

/// Whether a context can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
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
    state: State,
    /// Its registers, while it is not the core's current one.
    registers: Registers,
    /// The address space that it is in.
    space: Option<Space>,
    /// Frame of its vector registers and segment bases.
    state_frame: Frame,
    /// Where its upcall handler begins, and the top of that one's stack, if it has registered one.
    handler: Option<(UserAddr, UserAddr)>,
    /// Whether upcalls wait: it is in its handler, or has never registered one.
    upcalls_wait: bool,
    /// What it has yet to be told.
    events: Events,
    /// Board time from which on it is told of its timer.
    timer_ns: Option<u64>,
    /// What it is being granted.
    unfinished: Option<Grant>,
    /// Where system calls go that are not for this kernel.
    reflection: Option<Reflection>,
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

    /// Whether it runs, or could.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Board time at which it wakes by itself, if it sleeps.
    #[inline(always)]
    pub(crate) fn wakes_at_ns(&self) -> Option<u64> {
        match self.state {
            State::Waiting { deadline_ns, .. } => Some(deadline_ns),
            _ => None,
        }
    }

    /// Board time from which on it is told of its timer.
    #[inline(always)]
    pub(crate) fn timer_ns(&self) -> Option<u64> {
        self.timer_ns
    }

    /// Warns it that it loses its core at this board time, or takes such a warning back.
    pub(crate) fn warn(&mut self, deadline_ns: Option<u64>) {
        let (others, bit) = (self.events.pending & !Upcall::CoreRevoking.mask(), Upcall::CoreRevoking.mask());
        self.events.pending = if deadline_ns.is_some() { others | bit } else { others };
        self.events.revoke_deadline_ns = deadline_ns.unwrap_or(0);
    }

    /// What it is being granted.
    pub(crate) fn unfinished(&mut self) -> &mut Option<Grant> {
        &mut self.unfinished
    }

    /// Ends it; returns the frame that it had for its vector registers and segment bases.
    pub(crate) fn end(&mut self) -> Frame {
        core::mem::take(self).state_frame
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// The context of an application on a core.
    pub(crate) fn context(&mut self, core: CoreId, app: AppId) -> &mut Context {
        &mut self.contexts[core.index() * self.applications.len() + app.index()]
    }

    /// The space that an application is in on a core. Errors: WrongState (it does not hold the core).
    pub(crate) fn space_of(&self, core: CoreId, app: AppId) -> Result<Space> {
        let context = core.index() * self.applications.len() + app.index();
        self.contexts[context].space.ok_or(Error::WrongState)
    }

    /// Wakes who sleeps on a core no longer than to now.
    pub(crate) fn wake_expired(&mut self, core: CoreId) {
        let now = self.machine.now_ns();
        for app in self.all_applications() {
            if let State::Waiting { deadline_ns, .. } = self.context(core, app).state
                && deadline_ns <= now
            {
                self.wake(core, app);
            }
        }
    }

    /// Puts the registers at the border back into the context that they belong to.
    pub(crate) fn park_current(&mut self, core: CoreId, registers: &Registers) {
        if let Some(app) = self.cores[core].park() {
            self.context(core, app).registers = *registers;
        }
    }

    /// Makes a context the core's current one.
    pub(crate) fn unpark(&mut self, core: CoreId, app: AppId, registers: &mut Registers) {
        let context = self.context(core, app);
        *registers = context.registers;
        let (state, reflection, space) = (context.state_frame, context.reflection, context.space);
        let loaded = self.cores[core].unpark(app);
        if loaded != Some(app) {
            if let Some(other) = loaded {
                let frame = self.context(core, other).state_frame;
                self.machine.save_state(frame);
            }
            self.machine.load_state(state);
            self.machine.reflect(reflection);
        }
        self.machine.load_space(space.map(Space::root));
        if self.cores[core].vectors.defers() {
            self.undefer_vectors(core, app);
        }
    }

    pub(crate) fn space_switch(&mut self, caller: Caller<'_>, asked: SpaceSwitch) -> Result<Reply> {
        let space = self.member(caller.app, asked.space)?;
        self.context(caller.core, caller.app).space = Some(space);
        self.machine.load_space(Some(space.root()));
        Ok(Reply::DONE)
    }

    pub(crate) fn core_timer(&mut self, caller: Caller<'_>, asked: CoreTimer) -> Result<Reply> {
        self.context(caller.core, caller.app).timer_ns = Some(asked.deadline_ns).filter(|ns| *ns != u64::MAX);
        self.arm_timer(caller.core);
        Ok(Reply::DONE)
    }
}

/// What tests look at and change.
#[cfg(test)]
mod seen {
    use super::{Context, Events};

    impl Context {
        pub(crate) fn events(&self) -> &Events {
            &self.events
        }

        pub(crate) fn events_mut(&mut self) -> &mut Events {
            &mut self.events
        }
    }
}
