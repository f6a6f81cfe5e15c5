//! A core's part in how many cores serve: it follows the plans, leaves and comes back.

use super::Server;
use crate::crew::Crew;
use crate::peers::Peers;
use crate::roster::Leader;
use alloc::sync::Arc;
use nom_net::Instant;
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_service::Service;

/// What a core knows of it.
pub(super) struct Membership {
    crew: Arc<dyn Crew>,
    /// What it leads, if it is the first.
    pub leader: Leader,
    /// Whether this core has left, and was not polled since.
    is_away: bool,
    /// The version of the plan by which it left last.
    left_by: Option<u32>,
}

impl<N: Nic, C: Clock, S: Service<N::Buffer>> Server<N, C, S> {
    /// Lets cores be given back and taken again while the server runs, as the setting or the control port
    /// says ([`crate::Setting::cores`]). Every core of the server is told of the same crew.
    pub fn set_crew(&mut self, crew: Arc<dyn Crew>) {
        self.membership = Some(Membership { crew, leader: Leader::new(), is_away: false, left_by: None });
        self.front.lend();
    }

    /// How many cores serve.
    pub fn serving(&self) -> usize {
        self.front.peers.as_ref().map_or(1, |peers| peers.newest().active.into())
    }

    /// Whether other cores have done something that this one is to act on and has not seen. Whoever sleeps
    /// then has missed a doorbell.
    pub fn is_behind(&self) -> bool {
        let Some(peers) = &self.front.peers else { return false };
        let leads = |membership: &Membership| peers.index() == 0 && membership.leader.can_go_on(peers);
        peers.has_mail() || peers.newest() != peers.plan() || self.membership.as_ref().is_some_and(leads)
    }

    /// Does what the newest plan asks of this core, and, on the first, makes the next.
    pub(super) fn follow(&mut self, now_ns: u64) {
        let Some(peers) = &mut self.front.peers else { return };
        if peers.newest() != peers.plan() {
            self.front.follow(&mut self.stack, Instant::from_nanos(now_ns));
        }
        let is_closing = self.is_closing();
        let (Some(peers), Some(membership)) = (&mut self.front.peers, &mut self.membership) else { return };
        if !is_closing && peers.index() == 0 && !membership.leader.is_at_rest(now_ns) {
            membership.leader.step(&*membership.crew, peers, now_ns);
            self.front.tell_serving();
        }
    }

    /// Whether this core is to leave and nothing is left to do on it: it looks when the first core says that
    /// all are ready.
    pub fn can_leave(&self) -> bool {
        let (Some(peers), Some(membership)) = (&self.front.peers, &self.membership) else { return false };
        let plan = peers.plan();
        peers.index() >= usize::from(plan.ring)
            && membership.left_by != Some(plan.version)
            && peers.are_all_done()
            && !peers.has_mail()
            && self.stack.is_deserted()
    }

    /// Gives the core back, and goes on when it is mustered again.
    #[cold]
    pub(super) fn leave(&mut self, now_ns: u64) {
        let mut steering = self.steering.take();
        if let Some(steering) = &mut steering {
            // Whoever governs hears of all that was served.
            self.end_window(steering, now_ns);
            self.front.report_away(&mut self.stack);
        }
        if let (Some(peers), Some(membership)) = (&mut self.front.peers, &mut self.membership) {
            (membership.is_away, membership.left_by) = (true, Some(peers.plan().version));
            peers.set_away();
            membership.crew.leave(peers.index());
        }
        if let Some(steering) = &steering {
            steering.handle.slept();
        }
        self.steering = steering;
    }

    /// Is there again, if it has left. The time that it was away belongs to no window.
    pub(super) fn come_back(&mut self, now_ns: u64) {
        let Some(membership) = self.membership.as_mut().filter(|membership| membership.is_away) else {
            return;
        };
        membership.is_away = false;
        self.front.peers.iter_mut().for_each(Peers::set_done);
        let (traffic, setting) = (self.stack.nic().traffic(), self.in_force());
        if let Some(stopwatch) = self.stack.nic().stopwatch() {
            stopwatch.close(now_ns, traffic, setting);
        }
    }
}
