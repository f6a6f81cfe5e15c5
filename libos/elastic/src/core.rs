//! One of a server's cores, with its way to the others.
//!
//! A flow lives on one core; what of it arrives at another is forwarded from core to core until one knows it.
//! That is seldom: the device sends a flow's packets to the core that answers them, unless it does not know
//! yet, or has forgotten. A flow migrates only when cores are given back or taken again, by the queue that
//! forwarded frames take, too.

use crate::coordinator::Coordinator;
use crate::epoch::{AWAY, Epoch};
use crate::mail::{CameBy, ForwardCounts, Mail};
use crate::pool::CorePool;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crossbeam_queue::SegQueue;
use nom_net::{Config, Presence};
use nom_port::buffer::Buffer;
use nom_port::nic::Received;
use nom_rt::{INFRASTRUCTURE, Remote};

/// Frames that may wait for a core: a full ring of a device. It has lost those beyond, as a device does.
/// Flows are never lost.
const WAITING_MAX: usize = 1024;

/// A core, as the others see it.
struct Peer<B, F> {
    remote: Remote,
    waiting: SegQueue<Mail<B, F>>,
    /// Number of the epoch that it has carried out.
    done: AtomicU32,
}

/// What the cores share.
struct Group<B, F> {
    epoch: AtomicU64,
    cores: Box<[Peer<B, F>]>,
    presence: Arc<Presence>,
}

/// A core's part in how many cores serve.
struct Lease {
    pool: Arc<dyn CorePool>,
    /// What it leads, if it is the first.
    coordinator: Coordinator,
    /// Whether this core has left, and has not come back yet.
    is_away: bool,
    /// Number of the epoch by which it left last.
    left_by: Option<u32>,
}

/// The cores of a server, as one of them sees them; `F` is a migrating flow.
pub struct ElasticCore<B, F> {
    group: Arc<Group<B, F>>,
    own: usize,
    /// The epoch that this core follows.
    epoch: Epoch,
    /// If cores can be given back.
    lease: Option<Lease>,
    /// What went from core to core.
    pub counts: ForwardCounts,
}

impl<B: Buffer, F> ElasticCore<B, F> {
    /// The view of each of the cores that `remotes` lead to. All serve.
    pub fn group(remotes: Vec<Remote>) -> Vec<ElasticCore<B, F>> {
        let peer = |remote| Peer { remote, waiting: SegQueue::new(), done: AtomicU32::new(0) };
        let cores: Box<[Peer<B, F>]> = remotes.into_iter().map(peer).collect();
        let epoch = Epoch::of(cores.len());
        let group = Arc::new(Group { epoch: AtomicU64::new(epoch.word()), cores, presence: Presence::new() });
        let view = |own| ElasticCore {
            group: group.clone(),
            own,
            epoch,
            lease: None,
            counts: ForwardCounts::default(),
        };
        (0..group.cores.len()).map(view).collect()
    }

    /// Lets cores be given back and taken again. Every core of the group is told of the same pool.
    pub fn set_pool(&mut self, pool: Arc<dyn CorePool>) {
        self.lease = Some(Lease { pool, coordinator: Coordinator::new(), is_away: false, left_by: None });
    }

    /// Whether cores can be given back and taken again.
    pub fn is_elastic(&self) -> bool {
        self.lease.is_some()
    }

    /// What the stacks of all cores share.
    pub fn presence(&self) -> Arc<Presence> {
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

    /// The newest epoch. What was done for it by a core that has said so is seen from now on.
    pub fn newest(&self) -> Epoch {
        Epoch::from_word(self.group.epoch.load(Ordering::Acquire))
    }

    /// The epoch that this core follows.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Follows another epoch; what it asks of this core is yet to be done.
    pub fn follow(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// Has so many cores serve, 0 for all, once a change that is under way is over: on the first core.
    pub fn order(&mut self, cores: u16) {
        if let Some(lease) = &mut self.lease {
            lease.coordinator.order(cores);
        }
    }

    /// On the first core: makes the next step of a change. Returns whether there was something to look at.
    pub fn coordinate(&mut self, now_ns: u64) -> bool {
        if self.own != 0 {
            return false;
        }
        let Some(mut lease) = self.lease.take_if(|lease| !lease.coordinator.is_at_rest(now_ns)) else {
            return false;
        };
        lease.coordinator.step(&*lease.pool, self, now_ns);
        self.lease = Some(lease);
        true
    }

    /// Whether other cores have done something that this one is to act on and has not seen. Whoever sleeps
    /// then has missed a doorbell.
    pub fn is_behind(&self) -> bool {
        let leads = |lease: &Lease| self.own == 0 && lease.coordinator.can_go_on(self);
        self.has_mail() || self.newest() != self.epoch || self.lease.as_ref().is_some_and(leads)
    }

    /// Has all cores follow another epoch.
    pub(crate) fn publish(&self, epoch: Epoch) {
        self.group.epoch.store(epoch.word(), Ordering::Release);
        self.ring_present();
    }

    /// Has all cores look again that have not left.
    pub fn ring_present(&self) {
        let is_present = |peer: &&Peer<B, F>| peer.done.load(Ordering::Acquire) != AWAY;
        self.group.cores.iter().filter(is_present).for_each(Peer::ring);
    }

    /// Has the first core look, which leads.
    pub fn ring_first(&self) {
        self.group.cores[0].ring();
    }

    /// Says that this core has done what its epoch asks, and from now on forwards nothing by an older one.
    pub fn set_done(&mut self) {
        let own = &self.group.cores[self.own].done;
        if own.load(Ordering::Relaxed) != self.epoch.number {
            own.store(self.epoch.number, Ordering::Release);
            self.ring_first();
        }
    }

    /// Whether this core is to leave and nothing but its own flows keeps it.
    pub fn can_leave(&self) -> bool {
        let Some(lease) = &self.lease else { return false };
        self.own >= usize::from(self.epoch.ring)
            && lease.left_by != Some(self.epoch.number)
            && self.are_all_done()
            && !self.has_mail()
    }

    /// Gives this core back: it is not rung for any more. Returns when it has been called back.
    #[cold]
    pub fn leave(&mut self) {
        let Some(lease) = &mut self.lease else { return };
        (lease.is_away, lease.left_by) = (true, Some(self.epoch.number));
        self.group.cores[self.own].done.store(AWAY, Ordering::Release);
        self.group.cores[0].ring();
        lease.pool.leave(self.own);
    }

    /// Says that this core is there again, if it had left. Returns whether it had.
    pub fn come_back(&mut self) -> bool {
        let Some(lease) = self.lease.as_mut().filter(|lease| lease.is_away) else { return false };
        lease.is_away = false;
        self.set_done();
        true
    }

    /// Whether all cores have done what the newest epoch asks; those beyond its ring may have left.
    pub(crate) fn are_all_done(&self) -> bool {
        let epoch = self.newest();
        self.group.cores.iter().enumerate().all(|(index, peer)| {
            let done = peer.done.load(Ordering::Acquire);
            done == epoch.number || index >= usize::from(epoch.ring) && done == AWAY
        })
    }

    /// Whether a core has left.
    pub fn is_away(&self, index: usize) -> bool {
        self.are_away(index..index + 1)
    }

    /// Whether the cores `range` have left.
    pub(crate) fn are_away(&self, mut range: Range<usize>) -> bool {
        range.all(|index| self.group.cores[index].done.load(Ordering::Acquire) == AWAY)
    }

    /// Whether the cores `range` are there.
    pub(crate) fn are_present(&self, mut range: Range<usize>) -> bool {
        range.all(|index| self.group.cores[index].done.load(Ordering::Acquire) != AWAY)
    }

    /// Forwards a frame that is not this core's to the next core; gives it back if it is nobody's: on the
    /// core where it came in, which may have given out the cookie that it brings.
    pub fn forward(&mut self, frame: Received<B>, came_by: CameBy) -> Option<Received<B>> {
        // What this core follows may be older than what the frame went round by.
        let epoch = self.newest();
        let left = match came_by {
            CameBy::Round { number, left } if number == epoch.number => left,
            _ => epoch.hops(),
        };
        let Some(left) = left.checked_sub(1) else { return Some(frame) };
        self.counts.forwarded += 1;
        self.send(epoch.after(self.own), frame, CameBy::Round { number: epoch.number, left });
        None
    }

    /// Has an active core take a frame as if its device had received it; gives it back if this core is one.
    pub fn hand_on(&mut self, frame: Received<B>) -> Option<Received<B>> {
        let epoch = self.newest();
        if epoch.has(self.own) {
            return Some(frame);
        }
        self.counts.forwarded += 1;
        self.send(epoch.active_for(self.own), frame, CameBy::Handed);
        None
    }

    /// Copies a frame, by handles, to all other cores of the ring.
    pub fn copy(&mut self, frame: &Received<B>) {
        self.counts.copied += 1;
        let ring = usize::from(self.newest().ring);
        let own = self.own;
        for to in (0..ring).filter(|to| *to != own) {
            self.send(to, frame.clone(), CameBy::Copied);
        }
    }

    /// Gives a flow to core `to`, which is yet to be [rung](ElasticCore::ring_present) for.
    pub fn give(&mut self, to: usize, flow: Box<F>) {
        self.group.cores[to].waiting.push(Mail::Flow(flow));
    }

    /// Tells all other cores, those that have left, too, what this one has found out.
    pub fn tell(&self, found: &Config) {
        let found = Arc::new(found.clone());
        let others = self.group.cores.iter().enumerate().filter(|(index, _)| *index != self.own);
        others.for_each(|(_, peer)| peer.waiting.push(Mail::Addresses(found.clone())));
        self.ring_present();
    }

    /// The next that another core has sent.
    pub fn take(&mut self) -> Option<Mail<B, F>> {
        // Nearly always there is nothing, and to see that takes no fence, as taking does.
        if self.has_mail() { self.group.cores[self.own].waiting.pop() } else { None }
    }

    /// Whether another core has sent something.
    pub fn has_mail(&self) -> bool {
        !self.group.cores[self.own].waiting.is_empty()
    }

    fn send(&mut self, to: usize, frame: Received<B>, came_by: CameBy) {
        let peer = &self.group.cores[to];
        if peer.waiting.len() >= WAITING_MAX {
            self.counts.lost += 1;
            return;
        }
        peer.waiting.push(Mail::Frame(frame, came_by));
        peer.ring();
    }
}

impl<B, F> Peer<B, F> {
    /// Has it look: what was sent is found by the poll that follows the message.
    fn ring(&self) {
        self.remote.post(INFRASTRUCTURE, |_| {});
    }
}

impl<B, F> fmt::Debug for ElasticCore<B, F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ElasticCore({} of {})", self.own, self.group.cores.len())
    }
}
