//! Whether a core with nothing to do polls on or sleeps until an interrupt: decided without a machine.
//!
//! ```text
//!             gaps between work shorter than `poll_below_ns`, on average
//!   Interrupts ------------------------------------------------> Polling
//!              <------------------------------------------------
//!                    no work for `sleep_after_ns`
//! ```
//! On interrupts a core sleeps as soon as it has nothing to do. The two thresholds are apart, and after
//! polling in vain the average starts at the upper one, so that it takes sustained load to poll again: one
//! packet, or one burst, does not.
//!
//! A core that polls may keep those from running whom it waits for: the threads of the computer that bring
//! its packets, where they share its processor. Then work is there as soon as it lets go. Each wait that
//! ends so halves the patience of the next ones; now and then all of it is tried again.

/// Of the new gap in the moving average: 1/8, as TCP smooths round trips (RFC 6298).
const SMOOTHING: u64 = 8;

/// The least patience to which a core comes down by itself: what a sleep costs.
const PATIENCE_LEAST_NS: u64 = Thresholds::ADAPTIVE.sleep_after_ns;

/// After so many waits that ended in a sleep, but sooner than all patience would, that is tried again. Each
/// trial that fails costs a handful of long waits; they are to stay beyond the 99th percentile.
const MISSED_MAX: u32 = 64;

/// When to change between the modes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Polls if the time without work between work is below this on average.
    pub poll_below_ns: u64,
    /// Goes back to interrupts after so long without work.
    pub sleep_after_ns: u64,
}

impl Thresholds {
    /// Sleeps whenever there is nothing to do.
    pub const INTERRUPTS: Self = Self { poll_below_ns: 0, sleep_after_ns: 0 };

    /// Never sleeps.
    pub const POLLING: Self = Self { poll_below_ns: u64::MAX, sleep_after_ns: u64::MAX };

    /// Polls for about as long as a sleep and its interrupt cost in a virtual machine, which is at most twice
    /// what the best choice would have cost (ski rental).
    pub const ADAPTIVE: Self = Self { poll_below_ns: 10_000, sleep_after_ns: 50_000 };

    /// Polls on for `patience_ns` without work, and again as soon as work is half as rare as that: for who
    /// waits for one peer at a time, whose answer takes longer than a sleep costs, and wants it at once.
    #[must_use]
    pub const fn patient(patience_ns: u64) -> Self {
        Self { poll_below_ns: patience_ns / 2, sleep_after_ns: patience_ns }
    }
}

/// How a core waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It looks again and again.
    Polling,
    /// It sleeps until something happens.
    Interrupts,
}

/// The state machine above.
#[derive(Clone, Debug)]
pub struct Policy {
    thresholds: Thresholds,
    mode: Mode,
    /// Since when there was nothing to do.
    idle_since_ns: Option<u64>,
    /// The moving average of the time without work between work.
    gap_ns: u64,
    /// How long it polls without work at present; `sleep_after_ns` at most.
    patience_ns: u64,
    /// When it lost patience with the present wait.
    let_go_ns: Option<u64>,
    /// Waits that all patience might have outlasted, since that was tried.
    missed: u32,
    /// How late sleeps end that time ends, as far as is known.
    late_ns: u64,
    /// How often the mode became polling.
    pub to_polling: u64,
    /// How often the mode became interrupts.
    pub to_interrupts: u64,
}

impl Policy {
    /// Starts on interrupts, unless told never to sleep.
    #[must_use]
    pub fn new(thresholds: Thresholds) -> Self {
        let mode = if thresholds == Thresholds::POLLING { Mode::Polling } else { Mode::Interrupts };
        let patience_ns = thresholds.sleep_after_ns;
        Self {
            thresholds,
            mode,
            idle_since_ns: None,
            gap_ns: patience_ns,
            patience_ns,
            let_go_ns: None,
            missed: 0,
            late_ns: 0,
            to_polling: 0,
            to_interrupts: 0,
        }
    }

    /// Other thresholds from now on.
    pub fn set(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
        self.gap_ns = thresholds.sleep_after_ns;
        self.patience_ns = thresholds.sleep_after_ns;
        if thresholds == Thresholds::POLLING && self.mode == Mode::Interrupts {
            self.mode = Mode::Polling;
            self.to_polling += 1;
        }
    }

    /// Whether to sleep until `deadline_ns`: a wait that is shorter than the patience is not worth it.
    #[must_use]
    pub fn is_worth_sleeping(&self, now_ns: u64, deadline_ns: Option<u64>) -> bool {
        deadline_ns.is_none_or(|deadline_ns| {
            let wait_ns = self.alarm_ns(deadline_ns).saturating_sub(now_ns);
            wait_ns > 0 && wait_ns >= self.thresholds.sleep_after_ns
        })
    }

    /// When to end a sleep so that it is over by `deadline_ns`: earlier by as much as sleeps end late, within
    /// the patience. The rest is polled through.
    #[must_use]
    pub fn alarm_ns(&self, deadline_ns: u64) -> u64 {
        deadline_ns.saturating_sub(self.late_ns.min(self.thresholds.sleep_after_ns))
    }

    /// A sleep ended so late. The worst is remembered, less and less.
    pub fn overslept(&mut self, late_ns: u64) {
        self.late_ns = late_ns.max(self.late_ns - self.late_ns / SMOOTHING);
    }

    /// How the core waits.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// There was work.
    #[inline]
    pub fn worked(&mut self, now_ns: u64) {
        let gap_ns = self.idle_since_ns.take().map_or(0, |since| now_ns.saturating_sub(since));
        if let Some(let_go_ns) = self.let_go_ns.take() {
            self.learn(gap_ns, now_ns.saturating_sub(let_go_ns));
        }
        if self.mode == Mode::Interrupts {
            // Rounded up, so that it reaches every gap from below, and down to 0 from above.
            let change = gap_ns.abs_diff(self.gap_ns).div_ceil(SMOOTHING);
            let is_longer = gap_ns > self.gap_ns;
            self.gap_ns = if is_longer { self.gap_ns + change } else { self.gap_ns - change };
            if self.gap_ns < self.thresholds.poll_below_ns {
                self.mode = Mode::Polling;
                self.to_polling += 1;
            }
        }
    }

    /// There was no work: the mode in which to wait for more.
    #[inline]
    pub fn idle(&mut self, now_ns: u64) -> Mode {
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        let has_patience = now_ns.saturating_sub(since_ns) < self.patience_ns;
        if self.mode == Mode::Polling && !has_patience {
            self.mode = Mode::Interrupts;
            self.to_interrupts += 1;
            self.gap_ns = self.thresholds.sleep_after_ns;
            self.let_go_ns = Some(now_ns);
        }
        self.mode
    }

    /// A wait of `gap_ns` ended `after_ns` after patience did.
    #[cold]
    fn learn(&mut self, gap_ns: u64, after_ns: u64) {
        let most_ns = self.thresholds.sleep_after_ns;
        if after_ns < self.patience_ns / 2 {
            self.patience_ns = (self.patience_ns / 2).max(PATIENCE_LEAST_NS.min(most_ns));
        }
        self.missed += u32::from(gap_ns < most_ns);
        if self.missed == MISSED_MAX {
            (self.missed, self.patience_ns) = (0, most_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const THRESHOLDS: Thresholds = Thresholds { poll_below_ns: 10, sleep_after_ns: 50 };

    /// Works at a time and is idle right after; so many times, `gap` apart.
    fn drive(policy: &mut Policy, now: &mut u64, gap: u64, times: u64) {
        for _ in 0..times {
            policy.idle(*now);
            *now += gap;
            if gap >= THRESHOLDS.sleep_after_ns {
                policy.idle(*now);
            }
            policy.worked(*now);
        }
    }

    #[test]
    fn sustained_load_polls_and_silence_sleeps() {
        let (mut policy, mut now) = (Policy::new(THRESHOLDS), 0);
        drive(&mut policy, &mut now, 1, 3);
        assert_eq!(policy.mode(), Mode::Interrupts, "a burst is no load");
        drive(&mut policy, &mut now, 1, 30);
        assert_eq!(policy.mode(), Mode::Polling);
        assert_eq!(policy.idle(now), Mode::Polling);
        assert_eq!(policy.idle(now + 49), Mode::Polling);
        assert_eq!(policy.idle(now + 50), Mode::Interrupts);
        policy.worked(now + 51);
        assert_eq!(policy.mode(), Mode::Interrupts, "one packet is no load");
        assert_eq!((policy.to_polling, policy.to_interrupts), (1, 1));
    }

    #[test]
    fn load_between_the_thresholds_changes_nothing() {
        let (mut policy, mut now) = (Policy::new(THRESHOLDS), 0);
        drive(&mut policy, &mut now, 30, 100);
        assert_eq!((policy.mode(), policy.to_polling), (Mode::Interrupts, 0));
        drive(&mut policy, &mut now, 1, 30);
        drive(&mut policy, &mut now, 30, 100);
        assert_eq!((policy.mode(), policy.to_polling, policy.to_interrupts), (Mode::Polling, 1, 0));
    }

    #[test]
    fn work_without_a_pause_is_load() {
        let mut policy = Policy::new(THRESHOLDS);
        (0..30).for_each(|now| policy.worked(now));
        assert_eq!(policy.mode(), Mode::Polling);
    }

    #[test]
    fn short_waits_are_spun_through() {
        let adaptive = Policy::new(THRESHOLDS);
        let worth =
            [None, Some(150), Some(149), Some(100)].map(|until| adaptive.is_worth_sleeping(100, until));
        assert_eq!(worth, [true, true, false, false]);
        let interrupts = Policy::new(Thresholds::INTERRUPTS);
        assert!(interrupts.is_worth_sleeping(100, Some(101)));
        assert!(!interrupts.is_worth_sleeping(100, Some(100)), "the deadline has come");
    }

    #[test]
    fn the_patient_poll_between_messages_and_sleep_in_silence() {
        let (mut policy, mut now) = (Policy::new(Thresholds::patient(1000)), 0);
        for _ in 0..30 {
            policy.idle(now);
            now += 90;
            policy.worked(now);
        }
        assert_eq!((policy.idle(now), policy.idle(now + 999)), (Mode::Polling, Mode::Polling));
        assert_eq!(policy.idle(now + 1000), Mode::Interrupts);
        assert_eq!(Thresholds::patient(0), Thresholds::INTERRUPTS);
    }

    /// Waits for answers that come after `answer_ns`, but one in `starved` only when the core sleeps, and a
    /// sleep costs 60 us. Returns how long each wait was.
    fn wait(policy: &mut Policy, answer_ns: u64, starved: u64, times: u64) -> Vec<u64> {
        const LOOK_NS: u64 = 1_000;
        let mut now_ns = 0;
        let one = |number: u64| {
            let (began_ns, mut slept_ns) = (now_ns, None);
            loop {
                let is_asleep = policy.idle(now_ns) == Mode::Interrupts;
                slept_ns = slept_ns.or(is_asleep.then_some(now_ns));
                let is_starved = number.is_multiple_of(starved);
                let due_ns = match slept_ns {
                    Some(slept_ns) if is_starved => slept_ns + 60_000 + answer_ns,
                    Some(slept_ns) => (began_ns + answer_ns).max(slept_ns) + 60_000,
                    None => {
                        if is_starved {
                            u64::MAX
                        } else {
                            began_ns + answer_ns
                        }
                    }
                };
                now_ns += LOOK_NS;
                if now_ns >= due_ns {
                    policy.worked(now_ns);
                    now_ns += LOOK_NS;
                    return now_ns - began_ns;
                }
            }
        };
        (0..times).map(one).collect()
    }

    fn percentile(waits: &[u64], percent: usize) -> u64 {
        let mut waits = waits.to_vec();
        waits.sort_unstable();
        waits[waits.len() * percent / 100]
    }

    #[test]
    fn patience_that_keeps_others_from_running_ends() {
        let mut policy = Policy::new(Thresholds::patient(1_000_000));
        let waits = wait(&mut policy, 40_000, 30, 20_000);
        let (middle, rare) = (percentile(&waits, 50), percentile(&waits[1000..], 99));
        assert!(middle < 60_000, "most answers are still polled for: {middle}");
        assert!(rare < 400_000, "and few are kept waiting: {rare}");
    }

    #[test]
    fn patience_that_is_worth_it_stays_and_comes_back() {
        let mut policy = Policy::new(Thresholds::patient(1_000_000));
        let polled = |waits: &[u64]| waits.iter().filter(|wait| **wait < 310_000).count();
        assert!(polled(&wait(&mut policy, 300_000, u64::MAX, 1000)) > 900);
        // Somebody else wants the processor for a while.
        wait(&mut policy, 40_000, 4, 1000);
        assert!(policy.patience_ns < 500_000);
        let waits = wait(&mut policy, 300_000, u64::MAX, 3000);
        assert!(polled(&waits[1000..]) > 1900, "{}", polled(&waits[1000..]));
    }

    #[test]
    fn who_oversleeps_sets_the_alarm_earlier() {
        let mut policy = Policy::new(THRESHOLDS);
        assert_eq!(policy.alarm_ns(1000), 1000);
        policy.overslept(16);
        policy.overslept(2);
        assert_eq!(policy.alarm_ns(1000), 986, "the worst counts, less and less");
        assert!(policy.is_worth_sleeping(936, Some(1000)) && !policy.is_worth_sleeping(937, Some(1000)));
        policy.overslept(1_000_000);
        assert_eq!(policy.alarm_ns(1000), 950, "no more than the patience is polled through");
        (0..100).for_each(|_| policy.overslept(0));
        assert!(policy.alarm_ns(1000) > 990);
        policy.set(Thresholds::INTERRUPTS);
        assert_eq!(policy.alarm_ns(1000), 1000);
    }

    #[test]
    fn polling_can_be_ordered_and_countermanded() {
        let mut policy = Policy::new(THRESHOLDS);
        policy.set(Thresholds::POLLING);
        assert_eq!(policy.idle(1_000_000), Mode::Polling);
        policy.set(Thresholds::INTERRUPTS);
        assert_eq!(policy.idle(1_000_000), Mode::Interrupts);
        assert_eq!((policy.to_polling, policy.to_interrupts), (1, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]

        #[test]
        fn fixed_modes_stay(steps in proptest::collection::vec((any::<bool>(), 0u64..1_000_000), 0..200)) {
            let fixed = [(Thresholds::POLLING, Mode::Polling), (Thresholds::INTERRUPTS, Mode::Interrupts)];
            for (thresholds, mode) in fixed {
                let (mut policy, mut now) = (Policy::new(thresholds), 0);
                for &(works, later) in &steps {
                    now += later;
                    if works { policy.worked(now) } else { prop_assert_eq!(policy.idle(now), mode) }
                }
                prop_assert_eq!((policy.mode(), policy.to_polling, policy.to_interrupts), (mode, 0, 0));
            }
        }

        #[test]
        fn switches_alternate(steps in proptest::collection::vec((any::<bool>(), 0u64..100), 0..400)) {
            let (mut policy, mut now) = (Policy::new(THRESHOLDS), 0);
            for (works, later) in steps {
                now += later;
                if works { policy.worked(now) } else { policy.idle(now); }
                let ahead = policy.to_polling - policy.to_interrupts;
                prop_assert_eq!(ahead, u64::from(policy.mode() == Mode::Polling));
            }
        }
    }
}
