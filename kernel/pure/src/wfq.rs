//! Weighted fair queueing of applications on one core: policy only.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996). Each application has a virtual time that
//! advances by the cycles it used divided by its weight; the ready one with the least goes next, so over any
//! interval in which two are ready their cycles differ from the ratio of their weights by no more than
//! about one slice each. The queue's own virtual time is the least of those that are ready. One that wakes
//! continues from the later of its own and the queue's: it cannot hoard a claim while it sleeps and starve
//! the others, and it is next in line (Linux's CFS places sleepers at `min_vruntime` for the same reason).
//!
//! Nothing but running moves a member's own time: it survives sleep, leaving and coming back.
//!
//! The one that runs stays ready. Charge it for what it ran *before* waking others: the queue cannot
//! know of cycles that it was not told.

#[cfg(test)]
mod tests;

use crate::ids::AppId;
use nom_abi::layout::APPLICATIONS_MAX;
use zerocopy::FromZeros;

/// Largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// Virtual time never passes this: the queue starts its count anew before.
const TIME_MAX: u64 = 1 << 62;

/// The applications that hold one core, by their index.
///
/// Virtual times count cycles at [`WEIGHT_MAX`], so they grow at most 10,000 times as fast as cycles, and no
/// ready member's is before the queue's own (`now`).
#[derive(Clone, Debug, FromZeros)]
pub struct Queue {
    /// Who is in the queue, one bit each.
    members: u64,
    /// Who is ready, one bit each; a part of `members`.
    ready: u64,
    /// Of members; whoever never was one has none.
    weights: [u16; APPLICATIONS_MAX],
    virtual_times: [u64; APPLICATIONS_MAX],
    /// The queue's own virtual time: the least of the ready ones, or what it was when the last one slept.
    now: u64,
}

impl Queue {
    /// Adds a member, asleep, with `weight` (brought into 1 to [`WEIGHT_MAX`]). One that was a member before
    /// goes on from its own virtual time: whoever leaves in the middle of a turn, or is started anew, has
    /// still used what it used.
    ///
    /// # Panics
    /// If it is a member already.
    pub fn insert(&mut self, id: AppId, weight: u32) {
        assert!(!self.contains(id), "application {id:?} is in the queue already");
        self.members |= id.bit();
        self.weights[id.index()] = weight.clamp(1, WEIGHT_MAX) as u16;
        self.virtual_times[id.index()] = self.virtual_times[id.index()].max(self.now);
    }

    /// Removes a member, ready or asleep; nothing happens if it is none.
    pub fn remove(&mut self, id: AppId) {
        self.sleep(id);
        self.members &= !id.bit();
    }

    /// Makes a member ready; nothing happens if it is. Charge the running one first.
    pub fn wake(&mut self, id: AppId) {
        if self.contains(id) && !self.is_ready(id) {
            self.virtual_times[id.index()] = self.virtual_times[id.index()].max(self.now);
            self.ready |= id.bit();
        }
    }

    /// Makes a member sleep; nothing happens if it does. Charge it first, if it ran.
    pub fn sleep(&mut self, id: AppId) {
        if !self.is_ready(id) {
            return;
        }
        self.ready &= !id.bit();
        self.advance_to_least();
    }

    /// Counts `cycles` that a member has run, asleep by now or not.
    pub fn charge(&mut self, id: AppId, cycles: u64) {
        if !self.contains(id) {
            return;
        }
        let cost = self.virtual_cycles(id, cycles);
        self.virtual_times[id.index()] = self.virtual_times[id.index()].saturating_add(cost).min(TIME_MAX);
        self.advance_to_least();
        if self.virtual_times[id.index()] >= TIME_MAX / 2 {
            self.restart_count();
        }
    }

    /// Lets every other ready member go before `id`, which gives up what it may have been owed.
    pub fn yield_to_others(&mut self, id: AppId) {
        if let Some(last) = self.others(id).map(|other| self.virtual_times[other.index()]).max() {
            self.virtual_times[id.index()] = self.virtual_times[id.index()].max(last + 1);
            self.advance_to_least();
        }
    }

    /// The ready member that goes next; it stays ready.
    pub fn pick(&self) -> Option<AppId> {
        bits(self.ready).min_by_key(|id| self.virtual_times[id.index()])
    }

    /// Whether `id` is a member.
    pub fn contains(&self, id: AppId) -> bool {
        self.members & id.bit() != 0
    }

    /// Cycles that `running` may use before it is `slice` cycles of its own ahead of the ready member that
    /// is furthest behind; none if no other is ready. A timer need only be armed for this.
    pub fn cycles_left(&self, running: AppId, slice: u64) -> Option<u64> {
        let least = self.others(running).map(|other| self.virtual_times[other.index()]).min()?;
        let turn_ends = least.saturating_add(self.virtual_cycles(running, slice));
        let left = turn_ends.saturating_sub(self.virtual_times[running.index()]);
        Some(scaled(left, self.weights[running.index()].into(), WEIGHT_MAX.into()))
    }

    /// Whether `running` has used up its turn: it is `slice` cycles ahead of another ready member.
    pub fn should_preempt(&self, running: AppId, slice: u64) -> bool {
        self.cycles_left(running, slice) == Some(0)
    }

    /// What `cycles` add to a member's virtual time; rounded up, so that whoever runs gets on.
    fn virtual_cycles(&self, id: AppId, cycles: u64) -> u64 {
        scaled(cycles, WEIGHT_MAX.into(), self.weights[id.index()].into()).min(TIME_MAX)
    }

    fn is_ready(&self, id: AppId) -> bool {
        self.ready & id.bit() != 0
    }

    /// The ready members but `id`.
    fn others(&self, id: AppId) -> impl Iterator<Item = AppId> {
        bits(self.ready & !id.bit())
    }

    fn advance_to_least(&mut self) {
        if let Some(first) = self.pick() {
            self.now = self.now.max(self.virtual_times[first.index()]);
        }
    }

    /// Counts virtual time from the queue's own on. Sleepers that are behind it lose nothing: they
    /// would start there anyway when they wake.
    fn restart_count(&mut self) {
        for time in &mut self.virtual_times {
            *time = time.saturating_sub(self.now);
        }
        self.now = 0;
    }
}

impl Default for Queue {
    /// A queue without members.
    fn default() -> Queue {
        Queue::new_zeroed()
    }
}

/// `value * by / of`, rounded up; where the product is no word, which is a week of cycles, a little more.
fn scaled(value: u64, by: u64, of: u64) -> u64 {
    value.checked_mul(by).map_or_else(|| value.div_ceil(of).saturating_mul(by), |all| all.div_ceil(of))
}

/// The applications whose bits are set.
fn bits(mut mask: u64) -> impl Iterator<Item = AppId> {
    core::iter::from_fn(move || {
        let lowest = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (lowest < 64).then_some(AppId::new(lowest))
    })
}
