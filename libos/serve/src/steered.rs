//! A governor, and a control port, for a stack that is no [`Server`](crate::Server)'s: that of an application
//! on sockets.

use crate::clients::Measured;
use crate::control::{Control, Desk, Order, Snapshot};
use crate::server::WINDOW_NS;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use nom_net::batch::DELAY_MAX;
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_rt::handle::Handle;
use nom_rt::rest::Thresholds;
use nom_service::{Earned, Governor, Setting, Stream, Window};

/// Who sets the batching delay of one core's stack, and whether it polls. It has no other knob: sockets stay
/// on their core, and their application has no [`Demand`](nom_service::Demand).
pub struct Steered {
    governor: Option<Box<dyn Governor>>,
    /// Whether what it wants is not set: somebody else has the working point.
    is_held: bool,
    /// Whether somebody else had it in any part of the present window.
    was_overridden: bool,
    /// Of the loop that polls the stack.
    handle: Handle,
    desk: Option<Reception>,
    window_ns: u64,
    setting: Setting,
    /// Frames received before the last poll, and when that was, if it found any.
    frames: u64,
    polled_ns: u64,
}

impl Steered {
    /// Measures requests on `stack` from now on, as the loop of `handle` polls it.
    pub fn new<N: Nic, C: Clock>(stack: &mut Measured<N, C>, handle: &Handle) -> Steered {
        stack.nic().start();
        Steered {
            governor: None,
            is_held: false,
            was_overridden: false,
            handle: handle.clone(),
            desk: None,
            window_ns: WINDOW_NS,
            setting: Setting { batching_delay: stack.delay(), ..Setting::default() },
            frames: 0,
            polled_ns: 0,
        }
    }

    /// Lets `governor` set the working point.
    pub fn govern(&mut self, governor: Box<dyn Governor>) {
        self.window_ns = governor.window_ns();
        self.governor = Some(governor);
    }

    /// Obeys what is ordered at the control port at this TCP port, where somebody else is to listen and to
    /// let the [`Reception`] answer.
    pub fn control(&mut self, port: u16) -> Reception {
        let desk = Desk::new(Control::new(port, 1), 0, self.handle.clone());
        let reception = Reception { desk: Rc::new(RefCell::new(desk)), earned: Rc::default() };
        self.desk.insert(reception).clone()
    }

    /// To be called right before the stack is polled. Returns when to call again though nothing comes; never,
    /// if there is nothing to look at.
    pub fn steer<N: Nic, C: Clock>(&mut self, stack: &mut Measured<N, C>, now_ns: u64) -> Option<u64> {
        self.note_poll(stack, now_ns);
        let wanted = self.governor.as_mut().and_then(|governor| governor.look(now_ns));
        if let Some(setting) = wanted.filter(|_| !self.is_held) {
            self.set(stack, setting);
        }
        self.obey(stack, now_ns);
        let stopwatch = stack.nic().stopwatch()?;
        let (began_ns, has_answered) = (stopwatch.began_ns(), stopwatch.has_answered());
        let end_ns = began_ns.saturating_add(self.window_ns);
        if now_ns < end_ns {
            return if has_answered { Some(end_ns) } else { self.idle_until(began_ns) };
        }
        self.end_window(stack, now_ns);
        self.idle_until(now_ns)
    }

    /// Does what was ordered at the control port.
    fn obey<N: Nic, C: Clock>(&mut self, stack: &mut Measured<N, C>, now_ns: u64) {
        let order = self.desk.as_ref().and_then(|reception| reception.desk.borrow_mut().order());
        let Some(Order { delay, hold, .. }) = order else { return };
        let was_held = self.is_held;
        self.is_held = hold.unwrap_or(was_held);
        self.was_overridden = true;
        let batching_delay = delay.unwrap_or(self.setting.batching_delay);
        self.set(stack, Setting { batching_delay, ..self.setting });
        // A governor that is let go sets its own point at once.
        if was_held && !self.is_held {
            self.end_window(stack, now_ns);
        }
    }

    fn end_window<N: Nic, C: Clock>(&mut self, stack: &mut Measured<N, C>, now_ns: u64) {
        let (traffic, is_held) = (stack.nic().traffic(), self.is_held);
        let Some(stopwatch) = stack.nic().stopwatch() else { return };
        let is_overridden = core::mem::replace(&mut self.was_overridden, is_held);
        let window = Window { is_overridden, ..stopwatch.close(now_ns, traffic, self.setting) };
        let mut earned = None;
        if let Some(governor) = &mut self.governor {
            let setting = stack.nic().governing(|| governor.observe(&window));
            self.window_ns = governor.window_ns();
            earned = governor.earned(&mut |_, _| ());
            if governor.governs() && !is_held {
                self.set(stack, setting);
            }
        }
        if let Some(Reception { desk, earned: told }) = &self.desk {
            *told.borrow_mut() = earned;
            desk.borrow_mut().report(window, || Snapshot { earned, ..Snapshot::of_stack(stack) });
        }
    }

    fn idle_until(&self, began_ns: u64) -> Option<u64> {
        let idle_ns = self.governor.as_ref().and_then(|governor| governor.idle_ns());
        idle_ns.map(|idle_ns| began_ns.saturating_add(idle_ns.max(self.window_ns)))
    }

    /// Frames may have lain unseen since the last poll, if that found some and so took its time; after a
    /// sleep none have.
    fn note_poll<N: Nic, C: Clock>(&mut self, stack: &mut Measured<N, C>, now_ns: u64) {
        let frames = stack.counters().frames_received;
        let has_worked = core::mem::replace(&mut self.frames, frames) != frames;
        let before_ns = core::mem::replace(&mut self.polled_ns, now_ns);
        if let Some(stopwatch) = stack.nic().stopwatch() {
            stopwatch.look(if has_worked { before_ns } else { now_ns });
        }
    }

    fn set<N: Nic, C: Clock>(&mut self, stack: &mut Measured<N, C>, setting: Setting) {
        let batching_delay = setting.batching_delay.min(DELAY_MAX);
        if batching_delay != self.setting.batching_delay {
            stack.set_delay(batching_delay).expect("no longer than the longest");
        }
        if setting.polls != self.setting.polls {
            let thresholds = if setting.polls { Thresholds::POLLING } else { Thresholds::ADAPTIVE };
            self.handle.set_thresholds(thresholds);
        }
        self.setting = Setting { batching_delay, ..setting };
    }
}

/// The control port of a steered stack ([`crate::control`]), for whoever accepts its clients. Clones are the
/// same.
#[derive(Clone)]
pub struct Reception {
    desk: Rc<RefCell<Desk>>,
    /// What the application had earned at the end of the last window, if somebody reckons.
    earned: Rc<RefCell<Option<Earned>>>,
}

impl fmt::Debug for Reception {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Reception({})", self.port())
    }
}

impl Reception {
    /// The TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.desk.borrow().port()
    }

    /// Answers a client that has sent `input` and was not answered: takes the requests out that have come
    /// whole, and puts the answers behind what `out` has. Says whether its stream goes on.
    pub fn respond<N: Nic, C: Clock>(
        &self,
        stack: &mut Measured<N, C>,
        input: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Stream {
        let mut desk = self.desk.borrow_mut();
        desk.refresh(Snapshot { earned: *self.earned.borrow(), ..Snapshot::of_stack(stack) });
        desk.respond(input, out)
    }
}

#[cfg(test)]
mod tests;
