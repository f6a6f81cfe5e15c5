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

use alloc::collections::VecDeque;
use core::mem;
use core::num::NonZeroU32;
use exponential::Exponential;

mod exponential;

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
    /// One over the weight.
    share: f64,
    /// In which epoch it was scaled.
    epoch: u64,
}

impl Account {
    /// Of a thread that never ran. It gets the core before all that have run of late.
    #[must_use]
    pub fn new(weight: NonZeroU32) -> Self {
        Self { runtime: 0.0, share: 1.0 / f64::from(weight.get()), epoch: 0 }
    }

    /// Changes the share: of two busy threads, each gets its weight over the sum of both.
    pub fn set_weight(&mut self, weight: NonZeroU32) {
        let before = self.share;
        self.share = 1.0 / f64::from(weight.get());
        // What it ran so far was divided by the old weight.
        self.runtime *= self.share / before;
    }

    fn rebase(&mut self, epoch: u64) {
        let epochs = epoch.saturating_sub(self.epoch);
        if epochs > 0 {
            self.runtime *= libm::exp(-((epochs * DECAYS_PER_EPOCH) as f64));
            self.epoch = epoch;
        }
    }
}

#[derive(Debug)]
struct Running<K> {
    thread: K,
    account: Account,
    /// Subtracted from its run time as long as it runs.
    lent: f64,
    /// What the scale was when it was charged last.
    scale: f64,
}

/// The run queue of one core. `K` names a thread.
#[derive(Debug)]
pub struct RunQueue<K> {
    /// By run time, then by who came first. Whoever comes nearly always belongs to one end: who has just run,
    /// or slept for long.
    ready: VecDeque<(K, Account)>,
    running: Option<Running<K>>,
    /// `exp(time / decay)`, with time counted from the beginning of the epoch.
    scale: Exponential,
    /// By what share that grows within the hysteresis.
    lent_growth: f64,
    epoch: u64,
    /// When the epoch began, and when it ends.
    epoch_from_ns: u64,
    epoch_to_ns: u64,
}

impl<K: Copy> RunQueue<K> {
    /// A queue without threads.
    ///
    /// # Panics
    /// If the averages would decay in no time.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        assert!(settings.decay_ns > 0, "a decay of 0 ns: expected more");
        let scale = Exponential::new(settings.decay_ns);
        Self {
            ready: VecDeque::new(),
            running: None,
            scale,
            lent_growth: scale.growth(settings.hysteresis_ns),
            epoch: 0,
            epoch_from_ns: 0,
            epoch_to_ns: settings.decay_ns.saturating_mul(DECAYS_PER_EPOCH),
        }
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
        self.scale_at(now_ns);
        account.rebase(self.epoch);
        self.enqueue(thread, account);
    }

    /// The running thread is no longer ready; returns it with its account. A decision is due.
    pub fn block(&mut self, now_ns: u64) -> Option<(K, Account)> {
        self.charge(now_ns);
        self.running.take().map(|running| (running.thread, running.account))
    }

    /// The running thread lets all others go first that are ready. Returns who runs from now on.
    #[inline]
    pub fn give_way(&mut self, now_ns: u64) -> Option<K> {
        self.charge(now_ns);
        if let Some(running) = &mut self.running
            && let Some((thread, account)) = self.ready.front().copied()
            && let Some((_, last)) = self.ready.back()
        {
            // It is charged already, so nothing else about who runs changes.
            running.account.runtime = running.account.runtime.max(last.runtime);
            let before =
                (mem::replace(&mut running.thread, thread), mem::replace(&mut running.account, account));
            running.lent = running.scale * self.lent_growth * account.share;
            self.ready.pop_front();
            self.ready.push_back(before);
        }
        self.running()
    }

    /// Who runs from now on.
    pub fn decide(&mut self, now_ns: u64) -> Option<K> {
        self.charge(now_ns);
        let first = self.ready.front().map(|(_, account)| account.runtime);
        let has_turn =
            |running: &Running<K>| first.is_none_or(|first| running.account.runtime - running.lent < first);
        if !self.running.as_ref().is_some_and(has_turn) {
            if let Some(running) = self.running.take() {
                self.enqueue(running.thread, running.account);
            }
            self.start_first(now_ns);
        }
        self.running()
    }

    /// When to decide again even if nothing happens: when the running thread's number, less what it was lent,
    /// passes that of the first that waits; never if nobody does. The only timer there is.
    pub fn preempt_at_ns(&mut self, now_ns: u64) -> Option<u64> {
        let scale = self.scale_at(now_ns);
        let (_, first) = self.ready.front()?;
        let running = self.running.as_ref()?;
        let ran = (scale - running.scale) * running.account.share;
        let ahead = first.runtime - (running.account.runtime + ran - running.lent);
        // Two nanoseconds more than needed: running a bit too long is paid for, waking too early is not.
        let more_ns = self.scale.time_to_grow(ahead.max(0.0) / (running.account.share * scale));
        Some(now_ns.saturating_add(more_ns).saturating_add(2))
    }

    /// Takes a ready thread out, for another core: the one whose turn is last.
    pub fn give_away(&mut self) -> Option<(K, Account)> {
        self.ready.pop_back()
    }

    fn enqueue(&mut self, thread: K, account: Account) {
        let comes_before = |(_, other): &(K, Account)| other.runtime <= account.runtime;
        if self.ready.back().is_none_or(comes_before) {
            return self.ready.push_back((thread, account));
        }
        let place = self.ready.partition_point(comes_before);
        self.ready.insert(place, (thread, account));
    }

    fn start_first(&mut self, now_ns: u64) {
        let Some((thread, account)) = self.ready.pop_front() else { return };
        let scale = self.scale_at(now_ns);
        let lent = scale * self.lent_growth * account.share;
        self.running = Some(Running { thread, account, lent, scale });
    }

    /// Charges the running thread until now: by how much the scale has grown, over its weight.
    #[inline]
    fn charge(&mut self, now_ns: u64) {
        let scale = self.scale_at(now_ns);
        let Some(running) = &mut self.running else { return };
        // Unless the clock went back.
        if scale > running.scale {
            running.account.runtime += (scale - running.scale) * running.account.share;
            running.scale = scale;
        }
    }

    #[inline]
    fn scale_at(&mut self, now_ns: u64) -> f64 {
        match self.scale.near(now_ns) {
            Some(scale) => scale,
            None => self.compute_scale(now_ns),
        }
    }

    #[cold]
    fn compute_scale(&mut self, now_ns: u64) -> f64 {
        if now_ns >= self.epoch_to_ns {
            self.change_epoch(now_ns);
        }
        self.scale.compute(now_ns, self.epoch_from_ns)
    }

    #[cold]
    fn change_epoch(&mut self, now_ns: u64) {
        let epoch_ns = (self.epoch_to_ns - self.epoch_from_ns).max(1);
        let epochs = (now_ns - self.epoch_from_ns) / epoch_ns;
        self.epoch += epochs;
        self.epoch_from_ns += epochs * epoch_ns;
        self.epoch_to_ns = self.epoch_from_ns.saturating_add(epoch_ns);
        if let Some(running) = &mut self.running {
            let shrink = libm::exp(-((epochs * DECAYS_PER_EPOCH) as f64));
            running.account.rebase(self.epoch);
            running.lent *= shrink;
            running.scale *= shrink;
        }
        self.scale.forget();
        // All shrink alike, so their order stays.
        self.ready.iter_mut().for_each(|(_, account)| account.rebase(self.epoch));
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
