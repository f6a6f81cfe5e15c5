//! Which client of a core runs next, and for how long, decided without a machine.
//!
//! Request queues, on which tasks go on, and threads are clients side by side, each of one activity. Between
//! activities it is start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996): each has a virtual time,
//! which advances by the nanoseconds that it used over its weight, and the ready one with the least is
//! served, until it is one turn ahead of the next. One that wakes goes on from the later of its own virtual
//! time and the core's, which is the least of those that are ready: it has no claim from when it slept.
//! Between the clients of one activity it is OSv's rule ([run_queue](self::run_queue)).
//!
//! Of the omni-kernel's functions of a scheduler (appendix A, Table III), `add_client` and `client_ready`
//! are [`Scheduler::wake`] here, `client_suspended` and `remove_client` [`Scheduler::block`] and
//! [`Scheduler::withdraw`], `schedule` [`Scheduler::decide`], `poll_ready` [`Scheduler::preempt_at_ns`], and
//! `resource_record` [`Scheduler::leave`].

mod exponential;
mod ring;
mod run_queue;

use crate::meter::Activity;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem;
use core::num::NonZeroU32;
use exponential::Exponential;
use nom_service::ByActivity;
pub use run_queue::Account;
use run_queue::{DECAYS_PER_EPOCH, RunQueue, shrinkage};

/// How the scheduler behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// After this time, what a client ran counts by 1/e, in nanoseconds.
    pub decay_ns: u64,
    /// What a client is lent, in nanoseconds. With others of its activity waiting, nobody is preempted
    /// sooner.
    pub hysteresis_ns: u64,
    /// How far the activity that is served gets ahead of the next, in nanoseconds of its own: at most so long
    /// waits one that wakes and was not served of late.
    pub turn_ns: u64,
}

impl Default for Settings {
    /// OSv's values for clients.
    fn default() -> Self {
        Self { decay_ns: 200_000_000, hysteresis_ns: 2_000_000, turn_ns: 200_000 }
    }
}

/// An activity that has or had clients here, as it is named here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatId(usize);

/// Nanoseconds of an activity of weight 1, in units of 2^-40. In 128 bits they never overflow.
type VirtualTime = u128;

/// What one nanosecond costs an activity.
fn cost_of(weight: NonZeroU32) -> u64 {
    COST_OF_ONE / u64::from(weight.get())
}

/// The same for weight 1.
const COST_OF_ONE: u64 = 1 << 40;

#[derive(Debug)]
struct Seat<K> {
    /// What a nanosecond adds to its virtual time.
    cost: u64,
    time: VirtualTime,
    /// It stands in `Scheduler::waiting`.
    is_waiting: bool,
    /// Empty while the activity is served.
    queue: RunQueue<K>,
}

/// The scheduler of one core. `K` names a client.
#[derive(Debug)]
pub struct Scheduler<K> {
    settings: Settings,
    seats: Vec<Seat<K>>,
    seat_ids: ByActivity<SeatId>,
    /// Activities that are ready and not served, by their virtual times.
    waiting: BinaryHeap<Reverse<(VirtualTime, SeatId)>>,
    /// The core's virtual time.
    time: VirtualTime,
    served: Option<SeatId>,
    /// The clients of the one that is served, here since each switch between threads asks them.
    queue: RunQueue<K>,
    /// Until when it was charged; nothing while the core does something else.
    charged_ns: Option<u64>,
    /// `exp(time / decay)`, with time counted from the beginning of the epoch.
    scale: Exponential,
    /// By what share that grows within the hysteresis.
    lent_growth: f64,
    epoch: u64,
    /// When the epoch began, and when it ends.
    epoch_from_ns: u64,
    epoch_to_ns: u64,
}

impl<K: Copy + PartialEq> Scheduler<K> {
    /// Of a core that has nothing to do.
    ///
    /// # Panics
    /// If the averages would decay in no time.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        assert!(settings.decay_ns > 0, "a decay of 0 ns: expected more");
        let scale = Exponential::new(settings.decay_ns);
        Self {
            settings,
            seats: Vec::new(),
            seat_ids: ByActivity::default(),
            waiting: BinaryHeap::new(),
            time: 0,
            served: None,
            queue: RunQueue::default(),
            charged_ns: None,
            scale,
            lent_growth: scale.growth(settings.hysteresis_ns),
            epoch: 0,
            epoch_from_ns: 0,
            epoch_to_ns: settings.decay_ns.saturating_mul(DECAYS_PER_EPOCH),
        }
    }

    /// What names the activity; it is of weight 1, if it was not known.
    pub fn seat_of(&mut self, activity: Activity) -> SeatId {
        *self.seat_ids.get_or_insert_with(activity, || {
            let queue = RunQueue::default();
            self.seats.push(Seat { cost: COST_OF_ONE, time: 0, is_waiting: false, queue });
            SeatId(self.seats.len() - 1)
        })
    }

    /// Changes an activity's share of the core: its weight over those of all that are ready.
    pub fn set_weight(&mut self, activity: Activity, weight: NonZeroU32, now_ns: u64) {
        self.charge(now_ns);
        let id = self.seat_of(activity);
        self.seats[id.0].cost = cost_of(weight);
    }

    /// Whether any client is ready.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.queue.load() > 0 || !self.waiting.is_empty()
    }

    /// Whether any client is ready beside the one that runs.
    #[inline]
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.queue.has_waiting() || !self.waiting.is_empty()
    }

    /// The activity that is served, and who of it runs.
    #[must_use]
    pub fn running(&self) -> Option<(SeatId, K)> {
        self.served.zip(self.queue.running())
    }

    /// The account of a client that the running one starts for `id`: as if it had run as much, so that
    /// to start others gains nothing. A new one if none of that activity is running.
    pub fn inherit(&mut self, id: SeatId, weight: NonZeroU32, now_ns: u64) -> Account {
        if self.served != Some(id) || self.charged_ns.is_none() {
            return Account::new(weight);
        }
        let scale = self.scale_at(now_ns);
        self.queue.charge(scale);
        self.queue.inherit(weight, self.epoch)
    }

    /// A client became ready. A decision is due.
    pub fn wake(&mut self, id: SeatId, client: K, account: Account, now_ns: u64) {
        // Before anybody's claim is compared with what the running one has used.
        self.charge(now_ns);
        let seat = &mut self.seats[id.0];
        let is_served = self.served == Some(id);
        let queue = if is_served { &mut self.queue } else { &mut seat.queue };
        if queue.load() == 0 {
            seat.time = seat.time.max(self.time);
        }
        queue.wake(client, account, self.epoch);
        if !is_served && !mem::replace(&mut seat.is_waiting, true) {
            self.waiting.push(Reverse((seat.time, id)));
        }
    }

    /// The running client is no longer ready; returns its account. A decision is due.
    #[inline]
    pub fn block(&mut self, now_ns: u64) -> Option<Account> {
        let scale = self.scale_at(now_ns);
        self.queue.block(scale, self.epoch)
    }

    /// A client is no longer ready, whether it runs or not; returns its account, if it was. A decision is
    /// due.
    pub fn withdraw(&mut self, id: SeatId, client: K, now_ns: u64) -> Option<Account> {
        self.charge(now_ns);
        let is_served = self.served == Some(id);
        let queue = if is_served { &mut self.queue } else { &mut self.seats[id.0].queue };
        let account = queue.withdraw(client, self.epoch)?;
        if !is_served && queue.load() == 0 {
            self.seats[id.0].is_waiting = false;
            self.waiting.retain(|Reverse((_, other))| *other != id);
        }
        Some(account)
    }

    /// The running client, as whoever asks is it, lets all others of its activity go first that are ready.
    /// Returns who runs from now on, and the time as it was told, which whoever asks then need not keep.
    #[inline]
    pub fn give_way(&mut self, now_ns: u64) -> (Option<K>, u64) {
        let (scale, now_ns) = self.scale_and_time(now_ns);
        (self.queue.give_way(scale), now_ns)
    }

    /// Who of the activity that is served runs from now on, when the running one has just blocked.
    #[inline]
    pub fn succeed(&mut self) -> Option<K> {
        self.queue.succeed()
    }

    /// Which activity is served from now on, and who of it runs. It is charged until the core does something
    /// else: [`Scheduler::leave`].
    pub fn decide(&mut self, now_ns: u64) -> Option<K> {
        self.charge(now_ns);
        self.choose_activity();
        let scale = self.scale_at(now_ns);
        if self.charged_ns.is_none() {
            self.queue.skip(scale);
        }
        self.charged_ns = self.served.map(|_| now_ns);
        self.queue.decide(scale, self.lent_growth)
    }

    /// The core does something else from now on, which nobody here is charged with.
    pub fn leave(&mut self, now_ns: u64) {
        self.charge(now_ns);
        self.charged_ns = None;
    }

    /// When to decide again even if nothing happens; never if nobody waits.
    pub fn preempt_at_ns(&mut self, now_ns: u64) -> Option<u64> {
        self.charge(now_ns);
        let scale = self.scale_at(now_ns);
        // Two nanoseconds more than needed: running a bit too long is paid for, waking too early is not.
        let of_client = self
            .queue
            .preempt_after(scale, self.lent_growth)
            .map(|growth| self.scale.time_to_grow(growth) + 2);
        let of_activity = self.turn_left_ns();
        let left_ns = of_client.into_iter().chain(of_activity).min()?;
        Some(now_ns.saturating_add(left_ns))
    }

    /// How long the activity that is served, and was just charged, goes on while another waits.
    fn turn_left_ns(&self) -> Option<u64> {
        let (Reverse((next, _)), served) = (self.waiting.peek()?, self.served?);
        let Seat { cost, time, .. } = self.seats[served.0];
        let turn = u128::from(self.settings.turn_ns) * u128::from(cost);
        let left = (next + turn).saturating_sub(time);
        // Rounded up: by then it is so far ahead.
        Some(u64::try_from(left.div_ceil(u128::from(cost))).unwrap_or(u64::MAX))
    }

    /// Charges who runs and the activity that is served, unless the core does something else.
    fn charge(&mut self, now_ns: u64) {
        let scale = self.scale_at(now_ns);
        let Some((charged_ns, served)) = self.charged_ns.zip(self.served) else { return };
        self.queue.charge(scale);
        let seat = &mut self.seats[served.0];
        seat.time += u128::from(now_ns.saturating_sub(charged_ns)) * u128::from(seat.cost);
        self.charged_ns = Some(now_ns.max(charged_ns));
        // The least of those that are ready; if nobody is, where the last one stopped.
        let own = if self.queue.load() > 0 || self.waiting.is_empty() { seat.time } else { VirtualTime::MAX };
        let least = self.waiting.peek().map_or(own, |Reverse((next, _))| own.min(*next));
        self.time = self.time.max(least);
    }

    /// The one that is served goes on, unless it has nothing to do or has had its turn.
    fn choose_activity(&mut self) {
        let goes_on = self.queue.load() > 0 && (self.waiting.is_empty() || self.turn_left_ns() != Some(0));
        if goes_on && self.served.is_some() {
            return;
        }
        if let Some(served) = self.served.take() {
            let seat = &mut self.seats[served.0];
            mem::swap(&mut seat.queue, &mut self.queue);
            if seat.queue.load() > 0 {
                seat.is_waiting = true;
                self.waiting.push(Reverse((seat.time, served)));
            }
        }
        let Some(Reverse((time, id))) = self.waiting.pop() else { return };
        let seat = &mut self.seats[id.0];
        seat.is_waiting = false;
        mem::swap(&mut seat.queue, &mut self.queue);
        self.time = self.time.max(time);
        (self.served, self.charged_ns) = (Some(id), None);
    }

    #[inline]
    fn scale_at(&mut self, now_ns: u64) -> f64 {
        self.scale_and_time(now_ns).0
    }

    /// The same with the time, which whoever asks gets back from the rare call in a register that calls do
    /// not keep anyway: for the usual case there is no other to save.
    #[inline]
    fn scale_and_time(&mut self, now_ns: u64) -> (f64, u64) {
        match self.scale.near(now_ns) {
            Some(scale) => (scale, now_ns),
            None => self.compute_scale(now_ns),
        }
    }

    #[cold]
    #[inline(never)]
    fn compute_scale(&mut self, now_ns: u64) -> (f64, u64) {
        if now_ns >= self.epoch_to_ns {
            self.change_epoch(now_ns);
        }
        (self.scale.compute(now_ns, self.epoch_from_ns), now_ns)
    }

    fn change_epoch(&mut self, now_ns: u64) {
        let epoch_ns = (self.epoch_to_ns - self.epoch_from_ns).max(1);
        let epochs = (now_ns - self.epoch_from_ns) / epoch_ns;
        self.epoch += epochs;
        self.epoch_from_ns += epochs * epoch_ns;
        self.epoch_to_ns = self.epoch_from_ns.saturating_add(epoch_ns);
        let by = shrinkage(epochs);
        self.queue.shrink(by);
        self.seats.iter_mut().for_each(|seat| seat.queue.shrink(by));
    }
}

#[cfg(test)]
mod tests;
