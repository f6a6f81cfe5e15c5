//! Which thread runs next and for how long, decided without a machine: OSv's scheduler (section 2.4).
//!
//! The thread with the lowest moving average of recent run time runs next, until its average passes that of
//! the runner-up. Be `R(t)` the average of a thread at time `t`, with run time at `s` counted by `exp((s -
//! t) / decay)`. All averages decay alike, so `R(t) * exp(t / decay)` puts them in the same order, and that
//! number stays as it is while the thread does not run: each decision updates the one thread that ran, and
//! sleeping threads are not even known here. The exponential would overflow, so time is cut into epochs, at
//! whose borders numbers are scaled down.
//!
//! For hysteresis a thread is lent some run time when it starts and gives it back when it stops; with two
//! busy threads of equal weight, 2 ms of it make slices of 4 ms.

use alloc::collections::BTreeMap;
use core::cmp::Ordering;
use core::mem;
use core::num::NonZeroU32;

/// Times that an average decays in one epoch: `exp(256)` is far from what a double can hold, in both
/// directions.
const DECAYS_PER_EPOCH: u64 = 256;

/// How the scheduler behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// After this time, what a thread ran counts by 1/e, in nanoseconds.
    pub decay_ns: u64,
    /// What a thread is lent, in nanoseconds. With others waiting, nobody is preempted sooner.
    pub hysteresis_ns: u64,
}

impl Default for Settings {
    /// OSv's values.
    fn default() -> Self {
        Self { decay_ns: 200_000_000, hysteresis_ns: 2_000_000 }
    }
}

/// A thread's weight and its run time so far. It travels with the thread: between sleep and run queue, and
/// from core to core, if their clocks agree.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// The scaled average, over the weight.
    runtime: f64,
    /// In which epoch it was scaled.
    epoch: u64,
    weight: NonZeroU32,
}

impl Account {
    /// Of a thread that never ran. It gets the core before all that have run of late.
    #[must_use]
    pub fn new(weight: NonZeroU32) -> Self {
        Self { runtime: 0.0, epoch: 0, weight }
    }

    /// Changes the share: of two busy threads, each gets its weight over the sum of both.
    pub fn set_weight(&mut self, weight: NonZeroU32) {
        // What it ran so far was divided by the old weight.
        self.runtime *= f64::from(self.weight.get()) / f64::from(weight.get());
        self.weight = weight;
    }

    fn rebase(&mut self, epoch: u64) {
        let epochs = epoch.saturating_sub(self.epoch);
        if epochs > 0 {
            self.runtime *= libm::exp(-((epochs * DECAYS_PER_EPOCH) as f64));
            self.epoch = epoch;
        }
    }
}

/// The place of a ready thread: by run time, then by who came first.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    runtime: f64,
    arrival: u64,
}

impl Eq for Place {}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        self.runtime.total_cmp(&other.runtime).then(self.arrival.cmp(&other.arrival))
    }
}

#[derive(Debug)]
struct Running<K> {
    thread: K,
    account: Account,
    /// Subtracted from its run time as long as it runs.
    lent: f64,
    since_ns: u64,
}

/// What the core does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<K> {
    /// Who runs; nobody if no thread is ready.
    pub thread: Option<K>,
    /// When to decide again even if nothing happens; never if nobody else waits. The only timer there is.
    pub preempt_at_ns: Option<u64>,
}

/// The run queue of one core. `K` names a thread.
#[derive(Debug)]
pub struct RunQueue<K> {
    settings: Settings,
    ready: BTreeMap<Place, (K, Account)>,
    running: Option<Running<K>>,
    epoch: u64,
    arrivals: u64,
}

impl<K: Copy> RunQueue<K> {
    /// A queue without threads.
    ///
    /// # Panics
    /// If the averages would decay in no time.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        assert!(settings.decay_ns > 0, "a decay of 0 ns: expected more");
        Self { settings, ready: BTreeMap::new(), running: None, epoch: 0, arrivals: 0 }
    }

    /// Threads that run or are ready to: the core's load.
    #[must_use]
    pub fn load(&self) -> usize {
        self.ready.len() + usize::from(self.running.is_some())
    }

    /// Who runs.
    #[must_use]
    pub fn running(&self) -> Option<K> {
        self.running.as_ref().map(|running| running.thread)
    }

    /// The account of a thread that the running one starts: as if it had run as much, so that starting
    /// threads gains nothing. A new one if none is running.
    pub fn inherit(&mut self, weight: NonZeroU32, now_ns: u64) -> Account {
        self.charge(now_ns);
        let parent = self.running.as_ref().map(|running| running.account);
        let mut account = parent.unwrap_or(Account::new(weight));
        account.set_weight(weight);
        account
    }

    /// A thread became ready. A decision is due.
    pub fn wake(&mut self, thread: K, mut account: Account, now_ns: u64) {
        self.enter_epoch(now_ns);
        account.rebase(self.epoch);
        self.enqueue(thread, account);
    }

    /// The running thread is no longer ready; returns it with its account. A decision is due.
    pub fn block(&mut self, now_ns: u64) -> Option<(K, Account)> {
        self.charge(now_ns);
        self.running.take().map(|running| (running.thread, running.account))
    }

    /// The running thread lets all others go first that are ready. A decision is due.
    pub fn give_way(&mut self, now_ns: u64) {
        self.charge(now_ns);
        let Some(mut running) = self.running.take() else { return };
        let last = self.ready.last_key_value().map_or(f64::MIN, |(place, _)| place.runtime);
        running.account.runtime = running.account.runtime.max(last);
        self.enqueue(running.thread, running.account);
    }

    /// Who runs from now on, and until when at most.
    pub fn decide(&mut self, now_ns: u64) -> Decision<K> {
        self.charge(now_ns);
        let first = self.ready.first_key_value().map(|(place, _)| place.runtime);
        let has_turn =
            |running: &Running<K>| first.is_none_or(|first| running.account.runtime - running.lent < first);
        if !self.running.as_ref().is_some_and(has_turn) {
            if let Some(running) = self.running.take() {
                self.enqueue(running.thread, running.account);
            }
            self.start_first(now_ns);
        }
        Decision { thread: self.running(), preempt_at_ns: self.preempt_at_ns(now_ns) }
    }

    /// Takes a ready thread out, for another core: the one whose turn is last.
    pub fn give_away(&mut self) -> Option<(K, Account)> {
        self.ready.pop_last().map(|(_, thread)| thread)
    }

    fn enqueue(&mut self, thread: K, account: Account) {
        let place = Place { runtime: account.runtime, arrival: self.arrivals };
        self.arrivals += 1;
        self.ready.insert(place, (thread, account));
    }

    fn start_first(&mut self, now_ns: u64) {
        let Some((_, (thread, account))) = self.ready.pop_first() else { return };
        let lent = self.cost(now_ns, self.settings.hysteresis_ns, account.weight);
        self.running = Some(Running { thread, account, lent, since_ns: now_ns });
    }

    /// Charges the running thread until now.
    fn charge(&mut self, now_ns: u64) {
        self.enter_epoch(now_ns);
        let Some(mut running) = self.running.take() else { return };
        let ran_ns = now_ns.saturating_sub(running.since_ns);
        running.account.runtime += self.cost(running.since_ns, ran_ns, running.account.weight);
        running.since_ns += ran_ns;
        self.running = Some(running);
    }

    /// What it adds to a thread's number to run from `start_ns` for `ran_ns`.
    fn cost(&self, start_ns: u64, ran_ns: u64, weight: NonZeroU32) -> f64 {
        let decays = ran_ns as f64 / self.settings.decay_ns as f64;
        self.scale(start_ns) * libm::expm1(decays) / f64::from(weight.get())
    }

    /// When the running thread's number, less what it was lent, passes that of the first that waits.
    fn preempt_at_ns(&self, now_ns: u64) -> Option<u64> {
        let (running, (first, _)) = (self.running.as_ref()?, self.ready.first_key_value()?);
        let ahead = first.runtime - (running.account.runtime - running.lent);
        let weight = f64::from(running.account.weight.get());
        let decays = libm::log1p(ahead.max(0.0) * weight / self.scale(now_ns));
        // A nanosecond more than needed: running a bit too long is paid for, waking too early is not.
        let ns = libm::ceil(decays * self.settings.decay_ns as f64) as u64 + 1;
        Some(now_ns.saturating_add(ns))
    }

    fn epoch_ns(&self) -> u64 {
        self.settings.decay_ns.saturating_mul(DECAYS_PER_EPOCH)
    }

    /// `exp(time / decay)`, with time counted from the beginning of the epoch.
    fn scale(&self, at_ns: u64) -> f64 {
        let since_ns = at_ns.wrapping_sub(self.epoch * self.epoch_ns()) as i64;
        libm::exp(since_ns as f64 / self.settings.decay_ns as f64)
    }

    fn enter_epoch(&mut self, now_ns: u64) {
        let epoch = now_ns / self.epoch_ns();
        if epoch <= self.epoch {
            return;
        }
        let shrink = libm::exp(-(((epoch - self.epoch) * DECAYS_PER_EPOCH) as f64));
        self.epoch = epoch;
        if let Some(running) = &mut self.running {
            running.account.rebase(epoch);
            running.lent *= shrink;
        }
        for (place, (thread, mut account)) in mem::take(&mut self.ready) {
            account.rebase(epoch);
            self.ready.insert(Place { runtime: account.runtime, ..place }, (thread, account));
        }
    }
}

/// To which core the core `here` should give a thread away, if to any: the one with the least load, if both
/// are nearer to each other then.
#[must_use]
pub fn lighter_core(loads: &[usize], here: usize) -> Option<usize> {
    let (core, least) = loads.iter().enumerate().min_by_key(|(_, load)| **load)?;
    (loads.get(here)? >= &(least + 2)).then_some(core)
}

#[cfg(test)]
mod tests;
