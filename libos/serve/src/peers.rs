//! The other cores of a server. A flow lives on the core where it began; what of it arrives at another core
//! goes from core to core until one knows it. That is seldom: the device sends a flow's packets to the core
//! that answers them, unless it does not know yet, or has forgotten.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use crossbeam_queue::SegQueue;
use nom_port::buffer::Buffer;
use nom_port::nic::Received;
use nom_rt::{INFRASTRUCTURE, Remote};

/// Frames that may wait for a core: a full ring of a device. It has lost those beyond, as a device does.
const WAITING_MAX: usize = 1024;

/// A frame on its way between cores.
pub(crate) struct Passed<B> {
    pub frame: Received<B>,
    /// Cores that it may still be passed on to.
    pub left: usize,
}

/// A core, as the others see it.
struct Peer<B> {
    remote: Remote,
    waiting: SegQueue<Passed<B>>,
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
}

/// The cores of a server, as one of them sees them.
pub struct Peers<B> {
    cores: Arc<[Peer<B>]>,
    own: usize,
    pub(crate) passing: Passing,
}

impl<B: Buffer> Peers<B> {
    /// The view of each of the cores that `remotes` lead to.
    pub fn group(remotes: Vec<Remote>) -> Vec<Peers<B>> {
        let cores: Arc<[Peer<B>]> =
            remotes.into_iter().map(|remote| Peer { remote, waiting: SegQueue::new() }).collect();
        (0..cores.len()).map(|own| Peers { cores: cores.clone(), own, passing: Passing::default() }).collect()
    }

    /// The way to this core.
    pub fn remote(&self) -> &Remote {
        &self.cores[self.own].remote
    }

    /// Which of them this core is, from 0 on.
    pub fn index(&self) -> usize {
        self.own
    }

    /// Other cores.
    pub(crate) fn count(&self) -> usize {
        self.cores.len() - 1
    }

    /// Passes a frame that is not this core's on to the next core.
    pub(crate) fn pass_on(&mut self, frame: Received<B>, left: usize) {
        self.passing.passed += 1;
        self.send((self.own + 1) % self.cores.len(), Passed { frame, left: left - 1 });
    }

    /// Copies a frame, by handles, to all other cores.
    pub(crate) fn copy(&mut self, frame: &Received<B>) {
        self.passing.copied += 1;
        for step in 1..self.cores.len() {
            self.send((self.own + step) % self.cores.len(), Passed { frame: frame.clone(), left: 0 });
        }
    }

    /// The next frame from another core.
    pub(crate) fn take(&mut self) -> Option<Passed<B>> {
        let passed = self.cores[self.own].waiting.pop()?;
        self.passing.taken += 1;
        Some(passed)
    }

    fn send(&mut self, to: usize, passed: Passed<B>) {
        let peer = &self.cores[to];
        if peer.waiting.len() >= WAITING_MAX {
            self.passing.lost += 1;
            return;
        }
        peer.waiting.push(passed);
        // The frame is found by the poll that follows the message.
        peer.remote.post(INFRASTRUCTURE, |_| {});
    }
}

impl<B> fmt::Debug for Peers<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Peers(core {} of {})", self.own, self.cores.len())
    }
}
