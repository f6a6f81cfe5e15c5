//! Who sets a core's working point: a governor, or somebody else who has it held.

use crate::stopwatch::Stopwatch;
use alloc::boxed::Box;
use nom_rt::handle::Handle;
use nom_service::{Governor, Setting};

/// How long windows are that no governor looks at.
const WINDOW_NS: u64 = 1_000_000_000;

/// Who sets the working point while a core serves.
pub(crate) struct Steering {
    /// Of the loop that polls, to choose between polling and interrupts.
    pub handle: Handle,
    pub governor: Option<Box<dyn Governor>>,
    /// Whether what it wants is not set: somebody else has the working point.
    is_held: bool,
    /// Whether somebody else had it in any part of the present window.
    was_overridden: bool,
    pub window_ns: u64,
}

/// Of the present window, whether it goes on.
pub(crate) enum Course {
    /// It does; when it is to be looked at next, if ever.
    Open(Option<u64>),
    /// It is to be ended.
    Over,
}

impl Steering {
    /// Nobody does yet.
    pub fn new(handle: Handle) -> Steering {
        Steering { handle, governor: None, is_held: false, was_overridden: false, window_ns: WINDOW_NS }
    }

    /// Lets `governor` do it.
    pub fn govern(&mut self, governor: Box<dyn Governor>) {
        self.window_ns = governor.window_ns();
        self.governor = Some(governor);
    }

    /// What the governor wants at once, if it may.
    pub fn look(&mut self, now_ns: u64) -> Option<Setting> {
        let wanted = self.governor.as_mut()?.look(now_ns);
        wanted.filter(|_| !self.is_held)
    }

    /// Somebody else has given an order, which may hold the governor or let it go. Returns whether it is let
    /// go: then the window ends, as it sets its own point at once.
    pub fn obey(&mut self, hold: Option<bool>) -> bool {
        let was_held = self.is_held;
        self.is_held = hold.unwrap_or(was_held);
        self.was_overridden = true;
        was_held && !self.is_held
    }

    /// Ends the window. Returns whether somebody else had the working point in any part of it.
    pub fn end_window(&mut self) -> bool {
        core::mem::replace(&mut self.was_overridden, self.is_held)
    }

    /// The governor has heard of a window, and answered with a setting: that, if it is to be set.
    pub fn begin_window(&mut self, answer: Setting) -> Option<Setting> {
        let governor = self.governor.as_ref()?;
        self.window_ns = governor.window_ns();
        (governor.governs() && !self.is_held).then_some(answer)
    }

    /// Whether the window that `stopwatch` measures is over.
    pub fn course(&self, stopwatch: &Stopwatch, now_ns: u64) -> Course {
        let began_ns = stopwatch.began_ns();
        let end_ns = began_ns.saturating_add(self.window_ns);
        match stopwatch.has_answered() {
            _ if now_ns >= end_ns => Course::Over,
            true => Course::Open(Some(end_ns)),
            false => Course::Open(self.idle_until(began_ns)),
        }
    }

    /// When a window that began then ends though nobody asks anything. An idle core is not woken to look at
    /// nothing, unless its governor says so.
    pub fn idle_until(&self, began_ns: u64) -> Option<u64> {
        let idle_ns = self.governor.as_ref()?.idle_ns()?;
        Some(began_ns.saturating_add(idle_ns.max(self.window_ns)))
    }
}
