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

/// The clients of one activity that are ready. `K` names a client.
#[derive(Debug)]
pub(super) struct RunQueue<K> {
    /// The running one, if one runs; then those that wait, by run time, then by who came first. Whoever comes
    /// nearly always belongs to one end: who has just run, or slept for long.
    clients: Ring<Slot<K>>,
    is_running: bool,
    /// What the scale was when the running one was charged last.
    charged: f64,
    /// What it was when its turn began: what is subtracted from its run time as long as it runs is in
    /// proportion to that.
    begun: f64,
}

impl<K> Default for RunQueue<K> {
    fn default() -> Self {
        Self { clients: Ring::default(), is_running: false, charged: 0.0, begun: 0.0 }
    }
}

impl<K: Copy + PartialEq> RunQueue<K> {
    /// Clients that run or are ready to.
    pub fn load(&self) -> usize {
        self.clients.len()
    }

    /// Whether any client is ready beside the one that runs.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.load() > usize::from(self.is_running)
    }

    /// Who runs.
    #[inline]
    pub fn running(&self) -> Option<K> {
        self.running_slot().map(|slot| slot.client)
    }

    #[inline]
    fn running_slot(&self) -> Option<&Slot<K>> {
        if self.is_running { self.clients.front() } else { None }
    }

    /// The first of those that wait.
    #[inline]
    fn next(&self) -> Option<&Slot<K>> {
        let place = usize::from(self.is_running);
        if place < self.clients.len() { self.clients.get(place) } else { None }
    }

    /// The account of a client that the running one starts: as if it had run as much, so that to start
    /// others gains nothing. A new one if none is running.
    pub fn inherit(&self, weight: NonZeroU32, epoch: u64) -> Account {
        let Some(running) = self.running_slot() else { return Account::new(weight) };
        let (_, mut account) = running.into_account(epoch);
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
        self.take_running().map(|slot| slot.into_account(epoch).1)
    }

    /// Who runs from now on, when the running one has just blocked, and was charged until now.
    #[inline]
    pub fn succeed(&mut self) -> Option<K> {
        debug_assert!(!self.is_running, "who ran has blocked");
        self.begun = self.charged;
        self.is_running = self.clients.len() > 0;
        self.running()
    }

    #[inline]
    fn take_running(&mut self) -> Option<Slot<K>> {
        if core::mem::take(&mut self.is_running) { self.clients.pop_front() } else { None }
    }

    /// A client is no longer ready, whether it runs or not; returns its account.
    pub fn withdraw(&mut self, client: K, epoch: u64) -> Option<Account> {
        let place = self.clients.position(|slot| slot.client == client)?;
        self.is_running &= place > 0;
        self.clients.remove(place).map(|slot| slot.into_account(epoch).1)
    }

    /// The running client, as whoever asks says that there is one, lets all others go first that are ready.
    /// Returns who runs from now on.
    #[inline]
    pub fn give_way(&mut self, scale: f64) -> Option<K> {
        debug_assert!(self.is_running, "who runs gives way");
        let grown = scale - self.charged;
        (self.charged, self.begun) = (scale, scale);
        let next = self.clients.rotate(|running, last| {
            let runtime = running.runtime + grown * running.share;
            running.runtime = if last.runtime > runtime { last.runtime } else { runtime };
        });
        next.map(|slot| slot.client)
    }

    /// Who runs from now on. `growth` is by what share the scale grows within the time that a client is lent.
    pub fn decide(&mut self, scale: f64, growth: f64) -> Option<K> {
        self.charge(scale);
        let lent = self.begun * growth;
        let has_turn = |running: &Slot<K>| {
            self.next().is_none_or(|first| running.runtime - lent * running.share < first.runtime)
        };
        if !self.running_slot().is_some_and(has_turn) {
            if let Some(slot) = self.take_running() {
                self.enqueue(slot);
            }
            self.is_running = self.clients.len() > 0;
            (self.charged, self.begun) = (scale, scale);
        }
        self.running()
    }

    /// By what share the scale grows until the running client's number, less what it was lent, passes that
    /// of the first that waits; nothing if nobody does.
    pub fn preempt_after(&self, scale: f64, growth: f64) -> Option<f64> {
        let (first, running) = (self.next()?, self.running_slot()?);
        let ran = (scale - self.charged - self.begun * growth) * running.share;
        let ahead = first.runtime - (running.runtime + ran);
        Some(ahead.max(0.0) / (running.share * scale))
    }

    /// Charges the running client until now: by how much the scale has grown, over its weight.
    #[inline]
    pub fn charge(&mut self, scale: f64) {
        if !self.is_running {
            return;
        }
        if let Some(running) = self.clients.front_mut() {
            // What a clock that goes back takes away, it gives when it goes on.
            running.runtime += (scale - self.charged) * running.share;
        }
        self.charged = scale;
    }

    /// The time since the running client was charged last was another's.
    pub fn skip(&mut self, scale: f64) {
        self.charged = scale;
    }

    /// Another epoch begins: all numbers shrink alike, so their order stays.
    pub fn shrink(&mut self, by: f64) {
        self.clients.iter_mut().for_each(|slot| slot.runtime *= by);
        (self.charged, self.begun) = (self.charged * by, self.begun * by);
    }

    /// Puts a client that is to wait where it belongs.
    fn enqueue(&mut self, slot: Slot<K>) {
        let comes_before = |other: &Slot<K>| other.runtime <= slot.runtime;
        let waiting = usize::from(self.is_running);
        if self.clients.len() == waiting || self.clients.back().is_none_or(comes_before) {
            return self.clients.push_back(slot);
        }
        let place = self.clients.partition_point(waiting, comes_before);
        self.clients.insert(place, slot);
    }
}
