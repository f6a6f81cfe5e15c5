//! The other cores of a server. A flow lives on one core; what of it arrives at another goes from core to
//! core until one knows it. That is seldom: the device sends a flow's packets to the core that answers them,
//! unless it does not know yet, or has forgotten. A flow moves only when cores are given back or taken again,
//! by the queue that frames take, too.

use crate::clients::Moving;
use crate::plan::{AWAY, Plan};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crossbeam_queue::SegQueue;
use nom_net::{Config, Presence};
use nom_port::buffer::Buffer;
use nom_port::nic::Received;
use nom_rt::{INFRASTRUCTURE, Remote};

/// Frames that may wait for a core: a full ring of a device. It has lost those beyond, as a device does.
/// Flows are never lost.
const WAITING_MAX: usize = 1024;

/// How a frame came to a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From its device.
    Device,
    /// From the device of a core that does not serve.
    Handed,
    /// From a core that keeps a copy.
    Copied,
    /// On its way round, by the plan of a version; it may still be passed on to so many cores.
    Round { version: u32, left: usize },
}

/// What goes from core to core.
pub(crate) enum Passed<B, C> {
    /// A frame.
    Frame(Received<B>, Way),
    /// A flow with its client.
    Flow(Box<Moving<B, C>>),
    /// Addresses, routers and name servers, as the first core has found them out.
    Addresses(Arc<Config>),
}

/// A core, as the others see it.
struct Peer<B, C> {
    remote: Remote,
    waiting: SegQueue<Passed<B, C>>,
    /// The version of the plan that it has carried out.
    done: AtomicU32,
}

/// What the cores share.
struct Group<B, C> {
    plan: AtomicU64,
    cores: Box<[Peer<B, C>]>,
    presence: Arc<Presence>,
}

/// What went from core to core, as one of them counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passing {
    /// Frames passed on because the core has no such flow.
    pub passed: u64,
    /// Frames copied to all others because they concern all.
    pub copied: u64,
    /// Frames that came from other cores.
    pub taken: u64,
    /// Frames that another core did not take because too many waited for it.
    pub lost: u64,
    /// Flows given to other cores.
    pub given: u64,
    /// Flows that came from other cores.
    pub adopted: u64,
    /// Flows that came from other cores and were given up: their addresses were in use, or no core had room.
    pub refused: u64,
}

impl core::ops::AddAssign for Passing {
    fn add_assign(&mut self, other: Passing) {
        self.passed += other.passed;
        self.copied += other.copied;
        self.taken += other.taken;
        self.lost += other.lost;
        self.given += other.given;
        self.adopted += other.adopted;
        self.refused += other.refused;
    }
}

/// The cores of a server, as one of them sees them; `C` is what the service keeps about a client.
pub struct Peers<B, C> {
    group: Arc<Group<B, C>>,
    own: usize,
    /// The plan that this core follows.
    plan: Plan,
    pub(crate) passing: Passing,
}

impl<B: Buffer, C> Peers<B, C> {
    /// The view of each of the cores that `remotes` lead to.
    pub fn group(remotes: Vec<Remote>) -> Vec<Peers<B, C>> {
        let peer = |remote| Peer { remote, waiting: SegQueue::new(), done: AtomicU32::new(0) };
        let cores: Box<[Peer<B, C>]> = remotes.into_iter().map(peer).collect();
        let plan = Plan::of(cores.len());
        let group = Arc::new(Group { plan: AtomicU64::new(plan.word()), cores, presence: Presence::new() });
        let view = |own| Peers { group: group.clone(), own, plan, passing: Passing::default() };
        (0..group.cores.len()).map(view).collect()
    }

    /// What the stacks of all cores share.
    pub(crate) fn presence(&self) -> Arc<Presence> {
        self.group.presence.clone()
    }

    /// The way to this core.
    pub fn remote(&self) -> &Remote {
        &self.group.cores[self.own].remote
    }

    /// Which of them this core is, from 0 on.
    pub fn index(&self) -> usize {
        self.own
    }

    /// How many cores there are, whether they serve or not.
    pub(crate) fn count(&self) -> usize {
        self.group.cores.len()
    }

    /// The newest plan. What was done for it by a core that has said so is seen from now on.
    pub(crate) fn newest(&self) -> Plan {
        Plan::from_word(self.group.plan.load(Ordering::Acquire))
    }

    /// The plan that this core follows.
    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }

    /// Follows another plan; what it asks of this core is yet to be done.
    pub(crate) fn follow(&mut self, plan: Plan) {
        self.plan = plan;
    }

    /// Has all cores follow another plan.
    pub(crate) fn publish(&mut self, plan: Plan) {
        self.group.plan.store(plan.word(), Ordering::Release);
        self.ring_present();
    }

    /// Has all cores look again that have not left.
    pub(crate) fn ring_present(&self) {
        let is_present = |peer: &&Peer<B, C>| peer.done.load(Ordering::Acquire) != AWAY;
        self.group.cores.iter().filter(is_present).for_each(Peer::ring);
    }

    /// Has the first core look, which leads.
    pub(crate) fn ring_first(&self) {
        self.group.cores[0].ring();
    }

    /// Says that this core has done what the plan asks, and from now on passes nothing on by an older one.
    pub(crate) fn set_done(&mut self) {
        let own = &self.group.cores[self.own].done;
        if own.load(Ordering::Relaxed) != self.plan.version {
            own.store(self.plan.version, Ordering::Release);
            self.ring_first();
        }
    }

    /// Says that this core leaves: it is not rung for any more.
    pub(crate) fn set_away(&mut self) {
        self.group.cores[self.own].done.store(AWAY, Ordering::Release);
        self.ring_first();
    }

    /// Whether all cores have done what the newest plan asks; those beyond its ring may have left.
    pub(crate) fn are_all_done(&self) -> bool {
        let plan = self.newest();
        self.group.cores.iter().enumerate().all(|(index, peer)| {
            let done = peer.done.load(Ordering::Acquire);
            done == plan.version || index >= usize::from(plan.ring) && done == AWAY
        })
    }

    /// Whether a core has left.
    pub(crate) fn is_away(&self, index: usize) -> bool {
        self.are_away(index..index + 1)
    }

    /// Whether the cores `range` have left.
    pub(crate) fn are_away(&self, mut range: core::ops::Range<usize>) -> bool {
        range.all(|index| self.group.cores[index].done.load(Ordering::Acquire) == AWAY)
    }

    /// Whether the cores `range` are there.
    pub(crate) fn are_present(&self, mut range: core::ops::Range<usize>) -> bool {
        range.all(|index| self.group.cores[index].done.load(Ordering::Acquire) != AWAY)
    }

    /// Passes a frame that is not this core's on to the next core; gives it back if it is nobody's: on the
    /// core where it came in, which may have given out the cookie that it brings.
    pub(crate) fn pass_on(&mut self, frame: Received<B>, way: Way) -> Option<Received<B>> {
        // What this core follows may be older than the frame's way.
        let plan = self.newest();
        let left = match way {
            Way::Round { version, left } if version == plan.version => left,
            _ => plan.hops(),
        };
        let Some(left) = left.checked_sub(1) else { return Some(frame) };
        self.passing.passed += 1;
        self.send(plan.after(self.own), frame, Way::Round { version: plan.version, left });
        None
    }

    /// Has an active core take a frame as if its device had received it; gives it back if this core is one.
    pub(crate) fn hand_on(&mut self, frame: Received<B>) -> Option<Received<B>> {
        let plan = self.newest();
        if plan.has(self.own) {
            return Some(frame);
        }
        self.passing.passed += 1;
        self.send(plan.active_for(self.own), frame, Way::Handed);
        None
    }

    /// Copies a frame, by handles, to all other cores of the ring.
    pub(crate) fn copy(&mut self, frame: &Received<B>) {
        self.passing.copied += 1;
        let ring = usize::from(self.newest().ring);
        let own = self.own;
        for to in (0..ring).filter(|to| *to != own) {
            self.send(to, frame.clone(), Way::Copied);
        }
    }

    /// Gives a flow to core `to`, which is yet to be [rung](Peers::ring_present) for.
    pub(crate) fn give(&mut self, to: usize, flow: Box<Moving<B, C>>) {
        self.group.cores[to].waiting.push(Passed::Flow(flow));
    }

    /// Tells all other cores, those that have left, too, what this one has found out.
    pub(crate) fn tell(&self, found: &Config) {
        let found = Arc::new(found.clone());
        let others = self.group.cores.iter().enumerate().filter(|(index, _)| *index != self.own);
        others.for_each(|(_, peer)| peer.waiting.push(Passed::Addresses(found.clone())));
        self.ring_present();
    }

    /// The next that another core has sent.
    pub(crate) fn take(&mut self) -> Option<Passed<B, C>> {
        self.group.cores[self.own].waiting.pop()
    }

    /// Whether another core has sent something.
    pub(crate) fn has_mail(&self) -> bool {
        !self.group.cores[self.own].waiting.is_empty()
    }

    fn send(&mut self, to: usize, frame: Received<B>, way: Way) {
        let peer = &self.group.cores[to];
        if peer.waiting.len() >= WAITING_MAX {
            self.passing.lost += 1;
            return;
        }
        peer.waiting.push(Passed::Frame(frame, way));
        peer.ring();
    }
}

impl<B, C> Peer<B, C> {
    /// Has it look: what was sent is found by the poll that follows the message.
    fn ring(&self) {
        self.remote.post(INFRASTRUCTURE, |_| {});
    }
}

impl<B, C> fmt::Debug for Peers<B, C> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Peers(core {} of {})", self.own, self.group.cores.len())
    }
}
