//! What goes from core to core.

use alloc::boxed::Box;
use alloc::sync::Arc;
use nom_net::Config;
use nom_port::nic::Received;

/// How a frame came to a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameBy {
    /// From its device.
    Device,
    /// From the device of a core that does not serve.
    Handed,
    /// From a core that keeps a copy.
    Copied,
    /// On its way round, in the epoch of a number; it may still be forwarded to so many cores.
    Round {
        /// The epoch's number.
        number: u32,
        /// Cores that it may still be forwarded to.
        left: usize,
    },
}

/// What one core sends another; `F` is a flow with all that its core knows of it.
#[derive(Debug)]
pub enum Mail<B, F> {
    /// A frame.
    Frame(Received<B>, CameBy),
    /// A migrating flow.
    Flow(Box<F>),
    /// Addresses, routers and name servers, as the first core has found them out.
    Addresses(Arc<Config>),
}

/// What went from core to core, as one of them counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardCounts {
    /// Frames forwarded because the core has no such flow.
    pub forwarded: u64,
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

impl core::ops::AddAssign for ForwardCounts {
    fn add_assign(&mut self, other: ForwardCounts) {
        self.forwarded += other.forwarded;
        self.copied += other.copied;
        self.taken += other.taken;
        self.lost += other.lost;
        self.given += other.given;
        self.adopted += other.adopted;
        self.refused += other.refused;
    }
}
