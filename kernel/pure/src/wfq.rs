//! Weighted fair queueing of applications on one core: policy only.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996). Each application has a virtual time that
//! advances by the cycles it used divided by its weight; the ready one with the least goes next, so over any
//! interval in which two are ready their cycles differ from the ratio of their weights by no more than
//! about one slice each. The queue's own virtual time is the least of those that are ready. One that wakes
//! continues from the later of its own and the queue's: it cannot hoard a claim while it sleeps and starve
//! the others, and it is next in line (Linux's CFS places sleepers at `min_vruntime` for the same reason).
//!
//! The one that runs stays ready. Charge it for what it ran *before* waking others: the queue cannot
//! know of cycles that it was not told.

use nom_abi::layout::APPLICATIONS_MAX;

/// Largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// The applications that hold one core, by their index.
#[derive(Clone, Debug)]
pub struct Queue {
    members: u64,
    ready: u64,
    weights: [u16; APPLICATIONS_MAX],
    virtual_times: [u64; APPLICATIONS_MAX],
    now: u64,
}

impl Queue {
    /// A queue without members.
    pub const fn new() -> Queue {
        Queue {
            members: 0,
            ready: 0,
            weights: [1; APPLICATIONS_MAX],
            virtual_times: [0; APPLICATIONS_MAX],
            now: 0,
        }
    }

    /// Adds a member, asleep, with `weight` (brought into 1 to [`WEIGHT_MAX`]).
    ///
    /// # Panics
    /// If it is a member already.
    pub fn insert(&mut self, id: usize, weight: u32) {
        todo!()
    }

    /// Removes a member, ready or asleep; nothing happens if it is none.
    pub fn remove(&mut self, id: usize) {
        todo!()
    }

    /// Makes a member ready; nothing happens if it is. Charge the running one first.
    pub fn wake(&mut self, id: usize) {
        todo!()
    }

    /// Makes a member sleep; nothing happens if it does. Charge it first, if it ran.
    pub fn sleep(&mut self, id: usize) {
        todo!()
    }

    /// Counts `cycles` that a member has run, asleep by now or not.
    pub fn charge(&mut self, id: usize, cycles: u64) {
        todo!()
    }

    /// Lets every other ready member go before `id`, which gives up what it may have been owed.
    pub fn yield_to_others(&mut self, id: usize) {
        todo!()
    }

    /// The ready member that goes next; it stays ready.
    pub fn pick(&self) -> Option<usize> {
        todo!()
    }

    /// Members that are ready, the running one among them.
    pub fn ready_count(&self) -> u32 {
        self.ready.count_ones()
    }

    /// Whether `id` is a member.
    pub fn contains(&self, id: usize) -> bool {
        todo!()
    }

    /// Cycles that `running` may use before it is `slice` cycles of its own ahead of the ready member that
    /// is furthest behind; none if no other is ready. A timer need only be armed for this.
    pub fn cycles_left(&self, running: usize, slice: u64) -> Option<u64> {
        todo!()
    }

    /// Whether `running` has used up its turn: it is `slice` cycles ahead of another ready member.
    pub fn should_preempt(&self, running: usize, slice: u64) -> bool {
        self.cycles_left(running, slice) == Some(0)
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new()
    }
}
