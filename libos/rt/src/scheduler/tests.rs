use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap as Map;

mod activities;

const MS: u64 = 1_000_000;

/// The clients of one activity.
struct One {
    scheduler: Scheduler<u32>,
    seat: SeatId,
}

impl One {
    fn new() -> One {
        let mut scheduler = Scheduler::new(Settings::default());
        let seat = scheduler.seat_of(Activity(1));
        One { scheduler, seat }
    }

    fn wake(&mut self, client: u32, account: Account, now_ns: u64) {
        self.scheduler.wake(self.seat, client, account, now_ns);
    }

    fn decide(&mut self, now_ns: u64) -> Option<u32> {
        self.scheduler.decide(now_ns)
    }

    fn block(&mut self, now_ns: u64) -> Option<(u32, Account)> {
        let (_, client) = self.scheduler.running()?;
        self.scheduler.block(now_ns).map(|account| (client, account))
    }
}

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).expect("no test uses 0")
}

fn account() -> Account {
    Account::new(weight(1))
}

/// What the core does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decision {
    thread: Option<u32>,
    preempt_at_ns: Option<u64>,
}

fn decide(queue: &mut One, now_ns: u64) -> Decision {
    Decision { thread: queue.decide(now_ns), preempt_at_ns: queue.scheduler.preempt_at_ns(now_ns) }
}

/// Lets busy threads run until `until_ns`; returns each slice: who, and for how long.
fn run(queue: &mut One, from_ns: u64, until_ns: u64) -> Vec<(u32, u64)> {
    let (mut now_ns, mut slices) = (from_ns, Vec::<(u32, u64)>::new());
    while now_ns < until_ns {
        let decision = decide(queue, now_ns);
        let next_ns = decision.preempt_at_ns.unwrap_or(until_ns).min(until_ns);
        let thread = decision.thread.expect("they are busy");
        match slices.last_mut() {
            Some((last, ns)) if *last == thread => *ns += next_ns - now_ns,
            _ => slices.push((thread, next_ns - now_ns)),
        }
        now_ns = next_ns;
    }
    slices
}

fn share(slices: &[(u32, u64)], thread: u32) -> f64 {
    let sum = |of: &dyn Fn(u32) -> bool| -> u64 {
        slices.iter().filter(|(other, _)| of(*other)).map(|(_, ns)| ns).sum()
    };
    sum(&|other| other == thread) as f64 / sum(&|_| true) as f64
}

#[test]
fn a_thread_alone_needs_no_timer() {
    let mut queue = One::new();
    assert_eq!(decide(&mut queue, 0), Decision { thread: None, preempt_at_ns: None });
    queue.wake(7, account(), 10);
    assert_eq!(decide(&mut queue, 10), Decision { thread: Some(7), preempt_at_ns: None });
    assert_eq!(queue.block(20).map(|(thread, _)| thread), Some(7));
    assert_eq!((queue.decide(20), queue.scheduler.has_ready()), (None, false));
}

#[test]
fn two_busy_threads_alternate_every_4_ms() {
    let mut queue = One::new();
    queue.wake(1, account(), 0);
    queue.wake(2, account(), 0);
    let slices = run(&mut queue, 0, 1_000 * MS);
    assert!(slices[0].1.abs_diff(2 * MS) < MS / 10, "the first is lent 2 ms");
    for pair in slices[1..slices.len() - 1].windows(2) {
        assert_ne!(pair[0].0, pair[1].0);
        assert!(pair[0].1.abs_diff(4 * MS) < MS / 10, "{pair:?}");
    }
}

#[test]
fn weights_are_shares() {
    let mut queue = One::new();
    for percent in [50, 33, 17] {
        queue.wake(percent, Account::new(weight(percent)), 0);
    }
    let slices = run(&mut queue, 0, 20_000 * MS);
    for percent in [50, 33, 17] {
        assert!((share(&slices, percent) * 100.0 - f64::from(percent)).abs() < 0.5, "{percent}");
    }
}

#[test]
fn a_changed_weight_changes_the_share() {
    let mut queue = One::new();
    queue.wake(1, account(), 0);
    queue.wake(2, account(), 0);
    run(&mut queue, 0, 1_000 * MS);
    let (thread, mut account) = queue.block(1_000 * MS).expect("one runs");
    account.set_weight(weight(3));
    queue.wake(thread, account, 1_000 * MS);
    let slices = run(&mut queue, 1_000 * MS, 20_000 * MS);
    assert!((share(&slices, thread) - 0.75).abs() < 0.01);
}

#[test]
fn who_slept_long_is_first_but_does_not_keep_the_core() {
    let mut queue = One::new();
    queue.wake(1, account(), 0);
    queue.wake(2, account(), 0);
    let decision = decide(&mut queue, 0);
    let (sleeper, its_account) = queue.block(0).expect("somebody runs");
    assert_eq!(decision.thread, Some(sleeper));
    run(&mut queue, 0, 10_000 * MS);
    queue.wake(sleeper, its_account, 10_000 * MS);
    let slices = run(&mut queue, 10_000 * MS, 12_000 * MS);
    assert_eq!(slices[0].0, sleeper);
    // Averages of 1 and 0 meet after decay * ln 2, whether it slept for 10 s or for a year.
    assert!((138 * MS..145 * MS).contains(&slices[0].1), "{:?}", slices[0]);
}

#[test]
fn starting_threads_gains_nothing() {
    let mut queue = One::new();
    queue.wake(1, account(), 0);
    queue.wake(2, account(), 0);
    run(&mut queue, 0, 1_000 * MS);
    let child = queue.scheduler.inherit(queue.seat, weight(1), 1_000 * MS);
    queue.wake(3, child, 1_000 * MS);
    let slices = run(&mut queue, 1_000 * MS, 1_030 * MS);
    assert!(slices.iter().all(|(_, ns)| *ns < 10 * MS), "{slices:?}");
}

#[test]
fn who_gives_way_is_last() {
    let mut queue = One::new();
    (1..=3).for_each(|thread| queue.wake(thread, account(), 0));
    let mut order = Vec::new();
    for now_ns in [0, 10, 20, 30] {
        order.extend(queue.decide(now_ns));
        queue.scheduler.give_way(now_ns + 5);
    }
    assert_eq!(order, [1, 2, 3, 1]);
}

/// The definition, applied to all threads at each step.
#[derive(Default)]
struct Averages(Map<u32, (f64, f64)>);

impl Averages {
    fn pass(&mut self, ns: u64, running: Option<u32>) {
        let decay = (-(ns as f64) / Settings::default().decay_ns as f64).exp();
        for (thread, (average, weight)) in &mut self.0 {
            *average *= decay;
            if running == Some(*thread) {
                *average += (1.0 - decay) / *weight;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wake(u32),
    Block,
    Run(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1u32..8).prop_map(Step::Wake),
        1 => Just(Step::Block),
        4 => (1u64..40 * MS).prop_map(Step::Run),
    ];
    proptest::collection::vec(step, 1..200)
}

/// Follows the steps from `start_ns` on; returns each decision, with times from there.
fn follow(steps: &[Step], start_ns: u64, mut check: impl FnMut(u64, &Decision)) -> Vec<Decision> {
    let mut queue = One::new();
    let mut asleep: Map<u32, Account> = (1..8).map(|n| (n, Account::new(weight(n)))).collect();
    let (mut now_ns, mut decisions) = (start_ns, Vec::new());
    for step in steps {
        match step {
            Step::Wake(thread) => {
                asleep.remove(thread).into_iter().for_each(|account| queue.wake(*thread, account, now_ns));
            }
            Step::Block => asleep.extend(queue.block(now_ns)),
            Step::Run(ns) => now_ns += ns,
        }
        let decision = decide(&mut queue, now_ns);
        check(now_ns - start_ns, &decision);
        let preempt_at_ns = decision.preempt_at_ns.map(|at_ns| at_ns - start_ns);
        decisions.push(Decision { preempt_at_ns, ..decision });
    }
    decisions
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 128 }))]

    #[test]
    fn updating_only_who_ran_is_enough(steps in steps()) {
        let mut averages = Averages((1..8).map(|n| (n, (0.0, f64::from(n)))).collect());
        let (mut awake, mut running, mut last_ns) = (Vec::new(), None, 0);
        let mut step = steps.iter();
        follow(&steps, 0, |now_ns, decision| {
            averages.pass(now_ns - last_ns, running);
            last_ns = now_ns;
            match step.next() {
                Some(Step::Wake(thread)) if !awake.contains(thread) => awake.push(*thread),
                Some(Step::Block) => awake.retain(|thread| Some(*thread) != running),
                _ => (),
            }
            if decision.thread != running && let Some(chosen) = decision.thread {
                let lowest = awake.iter().map(|thread| averages.0[thread].0).fold(f64::MAX, f64::min);
                assert!(averages.0[&chosen].0 <= lowest + 1e-12, "{chosen} is not the one that ran least");
            }
            running = decision.thread;
        });
    }

    #[test]
    fn nobody_is_preempted_before_the_hysteresis(steps in steps()) {
        let mut running = None;
        follow(&steps, 0, |now_ns, decision| {
            if decision.thread != running && let Some(at_ns) = decision.preempt_at_ns {
                assert!(at_ns - now_ns >= Settings::default().hysteresis_ns, "{decision:?} at {now_ns}");
            }
            running = decision.thread;
        });
    }

    #[test]
    fn epochs_change_nothing(steps in steps(), before_ns in 0u64..4_000 * MS, epochs in 1u64..1_000_000) {
        let epoch_ns = Settings::default().decay_ns * DECAYS_PER_EPOCH;
        let expected = follow(&steps, 0, |_, _| ());
        let shifted = follow(&steps, epochs * epoch_ns - before_ns, |_, _| ());
        for (expected, shifted) in expected.iter().zip(&shifted) {
            let times = (expected.preempt_at_ns, shifted.preempt_at_ns);
            prop_assert_eq!(times.0.is_some(), times.1.is_some());
            let difference = times.0.zip(times.1).map_or(0, |(a, b)| a.abs_diff(b));
            prop_assert_eq!(expected.thread, shifted.thread);
            prop_assert!(difference <= 1_000, "{:?} {:?}", expected, shifted);
        }
    }
}
