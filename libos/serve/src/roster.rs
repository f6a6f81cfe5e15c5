//! How many cores serve: the first core leads every change, one at a time, by the plans that all follow.

use crate::crew::Crew;
use crate::peers::Peers;
use nom_port::buffer::Buffer;

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Rest,
    /// Fewer: the last of so many cores give their flows away.
    Giving {
        before: usize,
    },
    /// They have; once no core passes anything on to them any more, they leave.
    Closing {
        before: usize,
        has_rung: bool,
    },
    /// More: cores come back until there are so many.
    Coming {
        cores: usize,
    },
    /// They are there; once all have heard of them, they can be given flows.
    Widening {
        cores: usize,
    },
    /// They are given flows.
    Sharing,
}

/// What the first core knows of a change.
#[derive(Debug)]
pub(crate) struct Leader {
    /// Cores that are to serve; 0 for all.
    wanted: u16,
    /// What was last begun.
    begun: u16,
    /// When to ask for it again, if there were fewer to be had.
    retry_ns: Option<u64>,
    stage: Stage,
}

/// How often cores are asked for that were not to be had.
const RETRY_NS: u64 = 1_000_000_000;

impl Leader {
    /// All cores serve.
    pub fn new() -> Leader {
        Leader { wanted: 0, begun: 0, retry_ns: None, stage: Stage::Rest }
    }

    /// So many cores are to serve, 0 for all; once a change that is under way is over.
    pub fn order(&mut self, cores: u16) {
        self.wanted = cores;
    }

    /// Whether there is nothing to do.
    #[inline]
    pub fn is_at_rest(&self, now_ns: u64) -> bool {
        let is_settled = self.wanted == self.begun && self.retry_ns.is_none_or(|retry_ns| now_ns < retry_ns);
        self.stage == Stage::Rest && is_settled
    }

    /// Whether what others have done meanwhile lets it go on.
    pub fn can_go_on<B: Buffer, C>(&self, peers: &Peers<B, C>) -> bool {
        let active = usize::from(peers.newest().active);
        match self.stage {
            Stage::Rest => false,
            Stage::Coming { cores } => peers.are_present(active..cores),
            Stage::Closing { before, has_rung } => {
                peers.are_away(active..before) || !has_rung && peers.are_all_done()
            }
            Stage::Giving { .. } | Stage::Widening { .. } | Stage::Sharing => peers.are_all_done(),
        }
    }

    /// Does the next step if it is time to.
    pub fn step<B: Buffer, C>(&mut self, crew: &dyn Crew, peers: &mut Peers<B, C>, now_ns: u64) {
        self.stage = match self.stage {
            Stage::Rest => self.begin(crew, peers, now_ns),
            Stage::Coming { cores } => arrive(peers, cores),
            Stage::Closing { before, has_rung } => close(peers, before, has_rung),
            stage if !peers.are_all_done() => stage,
            Stage::Giving { before } => {
                let plan = peers.newest();
                let active = usize::from(plan.active);
                // Not before: what is on its way to a queue pair that the device closes is lost.
                if crew.muster(active) > active {
                    self.retry_ns = Some(now_ns + RETRY_NS);
                    return self.stage = Stage::Widening { cores: before };
                }
                peers.publish(plan.next(active, active, false));
                Stage::Closing { before, has_rung: false }
            }
            Stage::Widening { cores } => {
                peers.publish(peers.newest().next(cores, cores, true));
                Stage::Sharing
            }
            Stage::Sharing => {
                let plan = peers.newest();
                let active = usize::from(plan.active);
                peers.publish(plan.next(active, active, false));
                Stage::Rest
            }
        };
    }

    fn begin<B: Buffer, C>(&mut self, crew: &dyn Crew, peers: &mut Peers<B, C>, now_ns: u64) -> Stage {
        (self.begun, self.retry_ns) = (self.wanted, None);
        let plan = peers.newest();
        let (present, all) = (usize::from(plan.active), peers.count());
        let wanted = if self.wanted == 0 { all } else { usize::from(self.wanted).min(all) };
        if wanted == present {
            return Stage::Rest;
        }
        if wanted < present {
            peers.publish(plan.next(present, wanted, true));
            return Stage::Giving { before: present };
        }
        let cores = crew.muster(wanted).clamp(present, wanted);
        self.retry_ns = (cores != wanted).then_some(now_ns + RETRY_NS);
        if cores > present { Stage::Coming { cores } } else { Stage::Rest }
    }
}

/// Widens the ring once all that were mustered are there.
fn arrive<B: Buffer, C>(peers: &mut Peers<B, C>, cores: usize) -> Stage {
    let plan = peers.newest();
    let active = usize::from(plan.active);
    if !peers.are_present(active..cores) {
        return Stage::Coming { cores };
    }
    peers.publish(plan.next(cores, active, false));
    Stage::Widening { cores }
}

/// Waits until all have left who are to, and tells them when they can.
fn close<B: Buffer, C>(peers: &mut Peers<B, C>, before: usize, has_rung: bool) -> Stage {
    let is_over = peers.are_away(usize::from(peers.newest().active)..before);
    let can_leave = !has_rung && peers.are_all_done();
    if can_leave {
        peers.ring_present();
    }
    if is_over { Stage::Rest } else { Stage::Closing { before, has_rung: has_rung || can_leave } }
}
