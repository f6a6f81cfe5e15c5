//! A governor for a stack that is no [`Server`](crate::Server)'s: that of an application on sockets.

use crate::clients::Measured;
use alloc::boxed::Box;
use nom_net::batch::DELAY_MAX;
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_rt::handle::Handle;
use nom_rt::rest::Thresholds;
use nom_service::{Governor, Setting};

/// Who sets the batching delay of one core's stack, and whether it polls. It has no other knob: sockets stay
/// on their core, and their application has no [`Demand`](nom_service::Demand).
pub struct Steered {
    governor: Box<dyn Governor>,
    /// Of the loop that polls the stack.
    handle: Handle,
    window_ns: u64,
    setting: Setting,
    /// Frames received before the last poll, and when that was, if it found any.
    frames: u64,
    polled_ns: u64,
}

impl Steered {
    /// Measures requests on `stack` from now on, and lets `governor` set its working point.
    pub fn new<N: Nic, C: Clock>(
        stack: &mut Measured<N, C>,
        governor: Box<dyn Governor>,
        handle: &Handle,
    ) -> Steered {
        stack.nic().start();
        let setting = Setting { batching_delay: stack.delay(), ..Setting::default() };
        let (window_ns, handle) = (governor.window_ns(), handle.clone());
        Steered { governor, handle, window_ns, setting, frames: 0, polled_ns: 0 }
    }

    /// To be called right before the stack is polled. Returns when to call again though nothing comes; never,
    /// if there is nothing to look at.
    pub fn steer<N: Nic, C: Clock>(&mut self, stack: &mut Measured<N, C>, now_ns: u64) -> Option<u64> {
        self.note_poll(stack, now_ns);
        if let Some(setting) = self.governor.look(now_ns) {
            self.set(stack, setting);
        }
        let stopwatch = stack.nic().stopwatch()?;
        let (began_ns, has_answered) = (stopwatch.began_ns(), stopwatch.has_answered());
        let end_ns = began_ns.saturating_add(self.window_ns);
        if now_ns < end_ns {
            return if has_answered { Some(end_ns) } else { self.idle_until(began_ns) };
        }
        let traffic = stack.nic().traffic();
        let window = stack.nic().stopwatch()?.close(now_ns, traffic, self.setting);
        let setting = stack.nic().governing(|| self.governor.observe(&window));
        self.window_ns = self.governor.window_ns();
        if self.governor.governs() {
            self.set(stack, setting);
        }
        self.idle_until(now_ns)
    }

    fn idle_until(&self, began_ns: u64) -> Option<u64> {
        self.governor.idle_ns().map(|idle_ns| began_ns.saturating_add(idle_ns.max(self.window_ns)))
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
