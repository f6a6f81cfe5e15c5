//! Who of one activity runs next, and for how long: OSv's scheduler (section 2.4).
//!
//! The client with the lowest moving average of recent run time runs next, until its average passes that of
//! the runner-up. Be `R(t)` the average of a client at time `t`, with run time at `s` counted by `exp((s -
//! t) / decay)`. All averages decay alike, so `R(t) * exp(t / decay)` puts them in the same order, and that
//! number stays as it is while the client does not run: each decision updates the one client that ran, and
//! sleeping clients are not even known here. The exponential, here called the scale, would overflow, so time
//! is cut into epochs, at whose borders numbers are scaled down.
//!
//! For hysteresis a client is lent some run time when it starts and gives it back when it stops; with two
//! busy clients of equal weight, 2 ms of it make slices of 4 ms.

use super::ring::Ring;
use core::num::NonZeroU32;

/// Times that an average decays in one epoch: `exp(256)` is far from what a double can hold, in both
/// directions.
pub(super) const DECAYS_PER_EPOCH: u64 = 256;

/// A client's weight and its run time so far. The client keeps it while it has nothing to do.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// The scaled average, over the weight.
    runtime: f64,
    /// One over the weight.
    share: f64,
    /// In which epoch it was scaled.
    epoch: u64,
}

impl Account {
    /// Of a client that never ran. It gets the core before all that have run of late.
    #[must_use]
    pub fn new(weight: NonZeroU32) -> Self {
        Self { runtime: 0.0, share: 1.0 / f64::from(weight.get()), epoch: 0 }
    }

    /// Changes the share: of two busy clients, each gets its weight over the sum of both.
    pub fn set_weight(&mut self, weight: NonZeroU32) {
        let before = self.share;
        self.share = 1.0 / f64::from(weight.get());
        // What it ran so far was divided by the old weight.
        self.runtime *= self.share / before;
    }

    fn rebase(&mut self, epoch: u64) {
        let epochs = epoch.saturating_sub(self.epoch);
        if epochs > 0 {
            self.runtime *= shrinkage(epochs);
            self.epoch = epoch;
        }
    }
}

/// By what numbers are multiplied at the border of so many epochs.
pub(super) fn shrinkage(epochs: u64) -> f64 {
    libm::exp(-(epochs.saturating_mul(DECAYS_PER_EPOCH) as f64))
}

/// A client that is ready. Its account without the epoch, which is everybody's here.
#[derive(Clone, Copy, Debug)]
struct Slot<K> {
    client: K,
    runtime: f64,
    share: f64,
}

impl<K> Slot<K> {
    fn into_account(self, epoch: u64) -> (K, Account) {
        (self.client, Account { runtime: self.runtime, share: self.share, epoch })
    }
}

#[derive(Debug)]
struct Running<K> {
    slot: Slot<K>,
    /// Subtracted from its run time as long as it runs.
    lent: f64,
    /// What the scale was when it was charged last.
    scale: f64,
}

impl<K> Running<K> {
    #[inline]
    fn charge(&mut self, scale: f64) {
        // What a clock that goes back takes away, it gives when it goes on.
        self.slot.runtime += (scale - self.scale) * self.slot.share;
        self.scale = scale;
    }
}

/// The clients of one activity that are ready. `K` names a client.
#[derive(Debug)]
pub(super) struct RunQueue<K> {
    /// By run time, then by who came first. Whoever comes nearly always belongs to one end: who has just run,
    /// or slept for long.
    ready: Ring<Slot<K>>,
    running: Option<Running<K>>,
}

impl<K> Default for RunQueue<K> {
    fn default() -> Self {
        Self { ready: Ring::default(), running: None }
    }
}

impl<K: Copy + PartialEq> RunQueue<K> {
    /// Clients that run or are ready to.
    pub fn load(&self) -> usize {
        self.ready.len() + usize::from(self.running.is_some())
    }

    /// Whether any client is ready beside the one that runs.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.ready.front().is_some()
    }

    /// Who runs.
    #[inline]
    pub fn running(&self) -> Option<K> {
        self.running.as_ref().map(|running| running.slot.client)
    }

    /// The account of a client that the running one starts: as if it had run as much, so that to start
    /// others gains nothing. A new one if none is running.
    pub fn inherit(&self, weight: NonZeroU32, epoch: u64) -> Account {
        let Some(running) = &self.running else { return Account::new(weight) };
        let (_, mut account) = running.slot.into_account(epoch);
        account.set_weight(weight);
        account
    }

    /// A client became ready. A decision is due.
    pub fn wake(&mut self, client: K, mut account: Account, epoch: u64) {
        account.rebase(epoch);
        self.enqueue(Slot { client, runtime: account.runtime, share: account.share });
    }

    /// The running client is no longer ready; returns its account. A decision is due.
    #[inline]
    pub fn block(&mut self, scale: f64, epoch: u64) -> Option<Account> {
        self.charge(scale);
        self.running.take().map(|running| running.slot.into_account(epoch).1)
    }

    /// A client is no longer ready, whether it runs or not; returns its account.
    pub fn withdraw(&mut self, client: K, epoch: u64) -> Option<Account> {
        if let Some(running) = self.running.take_if(|running| running.slot.client == client) {
            return Some(running.slot.into_account(epoch).1);
        }
        let place = self.ready.position(|slot| slot.client == client)?;
        self.ready.remove(place).map(|slot| slot.into_account(epoch).1)
    }

    /// The running client lets all others go first that are ready. Returns who runs from now on.
    #[inline]
    pub fn give_way(&mut self, scale: f64, lent: f64) -> Option<K> {
        let running = self.running.as_mut()?;
        running.charge(scale);
        if let Some(last) = self.ready.back() {
            if last.runtime > running.slot.runtime {
                running.slot.runtime = last.runtime;
            }
            self.ready.exchange(&mut running.slot);
            running.lent = lent * running.slot.share;
        }
        Some(running.slot.client)
    }

    /// Who runs from now on. `lent` is what a client of weight 1 is lent.
    pub fn decide(&mut self, scale: f64, lent: f64) -> Option<K> {
        self.charge(scale);
        let first = self.ready.front().map(|slot| slot.runtime);
        let has_turn =
            |running: &Running<K>| first.is_none_or(|first| running.slot.runtime - running.lent < first);
        if !self.running.as_ref().is_some_and(has_turn) {
            if let Some(running) = self.running.take() {
                self.enqueue(running.slot);
            }
            let start = |slot: Slot<K>| Running { slot, lent: lent * slot.share, scale };
            self.running = self.ready.pop_front().map(start);
        }
        self.running()
    }

    /// By what share the scale grows until the running client's number, less what it was lent, passes that
    /// of the first that waits; nothing if nobody does.
    pub fn preempt_after(&self, scale: f64) -> Option<f64> {
        let (first, running) = (self.ready.front()?, self.running.as_ref()?);
        let ran = (scale - running.scale) * running.slot.share;
        let ahead = first.runtime - (running.slot.runtime + ran - running.lent);
        Some(ahead.max(0.0) / (running.slot.share * scale))
    }

    /// Charges the running client until now: by how much the scale has grown, over its weight.
    #[inline]
    pub fn charge(&mut self, scale: f64) {
        if let Some(running) = &mut self.running {
            running.charge(scale);
        }
    }

    /// The time since the running client was charged last was another's.
    pub fn skip(&mut self, scale: f64) {
        if let Some(running) = &mut self.running {
            running.scale = scale;
        }
    }

    /// Another epoch begins: all numbers shrink alike, so their order stays.
    pub fn shrink(&mut self, by: f64) {
        self.ready.iter_mut().for_each(|slot| slot.runtime *= by);
        if let Some(running) = &mut self.running {
            running.slot.runtime *= by;
            running.lent *= by;
            running.scale *= by;
        }
    }

    fn enqueue(&mut self, slot: Slot<K>) {
        let comes_before = |other: &Slot<K>| other.runtime <= slot.runtime;
        if self.ready.back().is_none_or(comes_before) {
            return self.ready.push_back(slot);
        }
        let place = self.ready.partition_point(comes_before);
        self.ready.insert(place, slot);
    }
}
