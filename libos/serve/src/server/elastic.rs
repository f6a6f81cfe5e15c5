//! A core's part in how many cores serve: it follows the epochs, leaves and comes back.

use super::Server;
use alloc::sync::Arc;
use nom_elastic::{CorePool, ElasticCore};
use nom_net::Instant;
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_service::Service;

impl<N: Nic, C: Clock, S: Service<N::Buffer>> Server<N, C, S> {
    /// Lets cores be given back and taken again while the server runs, as the setting or the control port
    /// says ([`crate::Setting::cores`]). Every core of the server is told of the same pool, after it is told
    /// of the other cores.
    pub fn set_pool(&mut self, pool: Arc<dyn CorePool>) {
        if let Some(core) = &mut self.front.core {
            core.set_pool(pool);
            self.front.lend();
        }
    }

    /// Whether cores can be given back and taken again.
    pub(super) fn is_elastic(&self) -> bool {
        self.front.core.as_ref().is_some_and(ElasticCore::is_elastic)
    }

    /// How many cores serve.
    pub fn serving(&self) -> usize {
        self.front.core.as_ref().map_or(1, |core| core.newest().active.into())
    }

    /// Whether other cores have done something that this one is to act on and has not seen. Whoever sleeps
    /// then has missed a doorbell.
    pub fn is_behind(&self) -> bool {
        self.front.core.as_ref().is_some_and(ElasticCore::is_behind)
    }

    /// Does what the newest epoch asks of this core, and, on the first, makes the next.
    pub(super) fn follow(&mut self, now_ns: u64) {
        let Some(core) = &self.front.core else { return };
        if core.newest() != core.epoch() {
            self.front.follow(&mut self.stack, Instant::from_nanos(now_ns));
        }
        if self.is_closing() {
            return;
        }
        if self.front.core.as_mut().is_some_and(|core| core.coordinate(now_ns)) {
            self.front.tell_serving();
        }
    }

    /// Whether this core is to leave and nothing is left to do on it: it looks when the first core says that
    /// all are ready.
    pub fn can_leave(&self) -> bool {
        self.front.core.as_ref().is_some_and(ElasticCore::can_leave) && self.stack.is_deserted()
    }

    /// Gives the core back, and goes on when it is called back.
    #[cold]
    pub(super) fn leave(&mut self, now_ns: u64) {
        let mut steering = self.steering.take();
        if let Some(steering) = &mut steering {
            // Whoever governs hears of all that was served.
            self.end_window(steering, now_ns);
            // What it said last of connections, and of memory that they hold, is nobody's any more.
            if let Some(governor) = &mut steering.governor {
                self.tell_consumed(&mut **governor, now_ns);
            }
            self.front.report_away(&mut self.stack);
        }
        if let Some(core) = &mut self.front.core {
            core.leave();
        }
        if let Some(steering) = &steering {
            steering.handle.slept();
        }
        self.steering = steering;
    }

    /// Is there again, if it has left. The time that it was away belongs to no window.
    pub(super) fn come_back(&mut self, now_ns: u64) {
        if !self.front.core.as_mut().is_some_and(ElasticCore::come_back) {
            return;
        }
        let (traffic, setting) = (self.stack.nic().traffic(), self.in_force());
        if let Some(stopwatch) = self.stack.nic().stopwatch() {
            stopwatch.close(now_ns, traffic, setting);
        }
    }
}
