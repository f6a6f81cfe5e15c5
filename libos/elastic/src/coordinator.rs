//! How many cores serve: the first core leads every change, by the epochs that all follow. The numbers are
//! those of the transitions in the crate's description.

use crate::core::ElasticCore;
use crate::pool::CorePool;
use nom_port::buffer::Buffer;

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Rest,
    /// Fewer: the last of so many cores give their flows away.
    Giving {
        before: usize,
    },
    /// They have; once no core forwards anything to them any more, they leave.
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
pub(crate) struct Coordinator {
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

impl Coordinator {
    /// All cores serve.
    pub fn new() -> Coordinator {
        Coordinator { wanted: 0, begun: 0, retry_ns: None, stage: Stage::Rest }
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
    pub fn can_go_on<B: Buffer, F>(&self, cores: &ElasticCore<B, F>) -> bool {
        let active = usize::from(cores.newest().active);
        match self.stage {
            Stage::Rest => false,
            Stage::Coming { cores: wanted } => cores.are_present(active..wanted),
            Stage::Closing { before, has_rung } => {
                cores.are_away(active..before) || !has_rung && cores.are_all_done()
            }
            Stage::Giving { .. } | Stage::Widening { .. } | Stage::Sharing => cores.are_all_done(),
        }
    }

    /// Makes the next transition if it is time to.
    pub fn step<B: Buffer, F>(&mut self, pool: &dyn CorePool, cores: &ElasticCore<B, F>, now_ns: u64) {
        self.stage = match self.stage {
            Stage::Rest => self.begin(pool, cores, now_ns),
            Stage::Coming { cores: wanted } => welcome(cores, wanted),
            Stage::Closing { before, has_rung } => close(cores, before, has_rung),
            stage if !cores.are_all_done() => stage,
            Stage::Giving { before } => self.narrow(pool, cores, before, now_ns),
            // 7
            Stage::Widening { cores: wanted } => {
                cores.publish(cores.newest().next(wanted, wanted, true));
                Stage::Sharing
            }
            // 8
            Stage::Sharing => {
                let epoch = cores.newest();
                let active = usize::from(epoch.active);
                cores.publish(epoch.next(active, active, false));
                Stage::Rest
            }
        };
    }

    /// 1 and 5.
    fn begin<B: Buffer, F>(&mut self, pool: &dyn CorePool, cores: &ElasticCore<B, F>, now_ns: u64) -> Stage {
        (self.begun, self.retry_ns) = (self.wanted, None);
        let epoch = cores.newest();
        let (present, all) = (usize::from(epoch.active), cores.count());
        let wanted = if self.wanted == 0 { all } else { usize::from(self.wanted).min(all) };
        if wanted == present {
            return Stage::Rest;
        }
        if wanted < present {
            cores.publish(epoch.next(present, wanted, true));
            return Stage::Giving { before: present };
        }
        let come = pool.resize(wanted).clamp(present, wanted);
        self.retry_ns = (come != wanted).then_some(now_ns + RETRY_NS);
        if come > present { Stage::Coming { cores: come } } else { Stage::Rest }
    }

    /// 2 and 2b. Not before all have given their flows away: what is on its way to a queue that the device
    /// closes is lost.
    fn narrow<B: Buffer, F>(
        &mut self,
        pool: &dyn CorePool,
        cores: &ElasticCore<B, F>,
        before: usize,
        now_ns: u64,
    ) -> Stage {
        let epoch = cores.newest();
        let active = usize::from(epoch.active);
        if pool.resize(active) > active {
            self.retry_ns = Some(now_ns + RETRY_NS);
            return Stage::Widening { cores: before };
        }
        cores.publish(epoch.next(active, active, false));
        Stage::Closing { before, has_rung: false }
    }
}

/// 6: widens the ring once all that were called are there.
fn welcome<B: Buffer, F>(cores: &ElasticCore<B, F>, wanted: usize) -> Stage {
    let epoch = cores.newest();
    let active = usize::from(epoch.active);
    if !cores.are_present(active..wanted) {
        return Stage::Coming { cores: wanted };
    }
    cores.publish(epoch.next(wanted, active, false));
    Stage::Widening { cores: wanted }
}

/// 3 and 4: tells those who are to leave when they can, and waits until they have.
fn close<B: Buffer, F>(cores: &ElasticCore<B, F>, before: usize, has_rung: bool) -> Stage {
    let is_over = cores.are_away(usize::from(cores.newest().active)..before);
    let can_leave = !has_rung && cores.are_all_done();
    if can_leave {
        cores.ring_present();
    }
    if is_over { Stage::Rest } else { Stage::Closing { before, has_rung: has_rung || can_leave } }
}
