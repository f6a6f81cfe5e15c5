//! A governor, and a control port, for a stack that is no [`Server`](crate::Server)'s: that of an application
//! on sockets.

use crate::clients::Measured;
use crate::control::{Control, Desk, Order, Snapshot};
use crate::steering::{Course, Steering};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use nom_net::batch::DELAY_MAX;
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_rt::handle::Handle;
use nom_rt::rest::Thresholds;
use nom_service::{Earned, Governor, Setting, Stream, Window};

/// Who sets the batching delay of one core's stack, whether it polls, and how many clients it may have.
///
/// It has no other knob: sockets stay on their core, and their application has no
/// [`Demand`](nom_service::Demand).
pub struct Steered {
    steering: Steering,
    desk: Option<Reception>,
    setting: Setting,
    /// Clients that are connected.
    clients: u32,
    /// Frames received before the last poll, and when that was, if it found any.
    frames: u64,
    polled_ns: u64,
}

impl Steered {
    /// Measures requests on `stack` from now on, as the loop of `handle` polls it.
    pub fn new<N: Nic, C: Clock>(stack: &mut Measured<N, C>, handle: &Handle) -> Steered {
        stack.nic().start();
        Steered {
            steering: Steering::new(handle.clone()),
            desk: None,
            setting: Setting { batching_delay: stack.delay(), ..Setting::default() },
            clients: 0,
            frames: 0,
            polled_ns: 0,
        }
    }

    /// Lets `governor` set the working point.
    pub fn govern(&mut self, governor: Box<dyn Governor>) {
        self.steering.govern(governor);
    }

    /// Obeys what is ordered at the control port at this TCP port, where somebody else is to listen and to
    /// let the [`Reception`] answer.
    pub fn control(&mut self, port: u16) -> Reception {
        let desk = Desk::new(Control::new(port, 1), 0, self.steering.handle.clone());
        let reception = Reception { desk: Rc::new(RefCell::new(desk)), earned: Rc::default() };
        self.desk.insert(reception).clone()
    }

    /// How many clients may be connected; all that come, if there is no number.
    #[must_use]
    pub fn clients_max(&self) -> Option<u32> {
        self.setting.clients_max
    }

    /// To be called right before the stack is polled, which has so many `clients`. Returns when to call again
    /// though nothing comes; never, if there is nothing to look at.
    pub fn steer<N: Nic, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        clients: u32,
        now_ns: u64,
    ) -> Option<u64> {
        self.clients = clients;
        self.note_poll(stack, now_ns);
        if let Some(setting) = self.steering.look(now_ns) {
            self.set(stack, setting);
        }
        self.obey(stack, now_ns);
        if let Course::Open(due_ns) = self.steering.course(stack.nic().stopwatch()?, now_ns) {
            return due_ns;
        }
        self.end_window(stack, now_ns);
        self.steering.idle_until(now_ns)
    }

    /// Does what was ordered at the control port.
    fn obey<N: Nic, C: Clock>(&mut self, stack: &mut Measured<N, C>, now_ns: u64) {
        let order = self.desk.as_ref().and_then(|reception| reception.desk.borrow_mut().order());
        let Some(Order { delay, hold, .. }) = order else { return };
        let is_let_go = self.steering.obey(hold);
        let batching_delay = delay.unwrap_or(self.setting.batching_delay);
        self.set(stack, Setting { batching_delay, ..self.setting });
        if is_let_go {
            self.end_window(stack, now_ns);
        }
    }

    fn end_window<N: Nic, C: Clock>(&mut self, stack: &mut Measured<N, C>, now_ns: u64) {
        let traffic = stack.nic().traffic();
        let Some(stopwatch) = stack.nic().stopwatch() else { return };
        let (clients, is_overridden) = (self.clients, self.steering.end_window());
        let window = Window { clients, is_overridden, ..stopwatch.close(now_ns, traffic, self.setting) };
        let mut earned = None;
        if let Some(governor) = &mut self.steering.governor {
            let setting = stack.nic().governing(|| governor.observe(&window));
            earned = governor.earned(&mut |_, _| ());
            if let Some(setting) = self.steering.begin_window(setting) {
                self.set(stack, setting);
            }
        }
        if let Some(Reception { desk, earned: told }) = &self.desk {
            told.set(earned);
            desk.borrow_mut().report(window, || Snapshot { earned, ..Snapshot::of_stack(stack) });
        }
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
            self.steering.handle.set_thresholds(thresholds);
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
    earned: Rc<Cell<Option<Earned>>>,
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
        desk.refresh(Snapshot { earned: self.earned.get(), ..Snapshot::of_stack(stack) });
        desk.respond(input, out)
    }
}

#[cfg(test)]
mod tests;
