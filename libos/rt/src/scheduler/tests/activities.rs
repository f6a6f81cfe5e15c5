//! Between activities: against a model that knows all of everybody, and what users are promised.

use super::*;
use std::collections::BTreeSet;

const TURN_NS: u64 = 200_000;

/// Activities of weights 1, 2, 3..., with so many clients each, named by activity and number.
struct Core {
    scheduler: Scheduler<(u32, u32)>,
    seats: Vec<SeatId>,
    asleep: Map<(u32, u32), Account>,
    used_ns: Vec<u64>,
    now_ns: u64,
}

impl Core {
    fn new(activities: u32, clients: u32) -> Core {
        let mut scheduler = Scheduler::new(Settings::default());
        let seats = (0..activities).map(|n| {
            scheduler.set_weight(Activity(n), weight(n + 1), 0);
            scheduler.seat_of(Activity(n))
        });
        let seats = seats.collect();
        let names = (0..activities).flat_map(|n| (0..clients).map(move |client| (n, client)));
        let asleep = names.map(|name| (name, account())).collect();
        Core { scheduler, seats, asleep, used_ns: vec![0; activities as usize], now_ns: 1_000 }
    }

    fn wake(&mut self, name: (u32, u32)) {
        if let Some(account) = self.asleep.remove(&name) {
            self.scheduler.wake(self.seats[name.0 as usize], name, account, self.now_ns);
        }
    }

    /// Who is chosen runs for so long, or until its turn is over, and then sleeps if it is to.
    fn run(&mut self, ns: u64, sleeps: bool) -> Option<(u32, u32)> {
        let chosen = self.scheduler.decide(self.now_ns)?;
        let until_ns = self.scheduler.preempt_at_ns(self.now_ns).unwrap_or(u64::MAX);
        let ns = ns.min(until_ns.saturating_sub(self.now_ns));
        self.now_ns += ns;
        self.used_ns[chosen.0 as usize] += ns;
        if sleeps {
            self.asleep.extend(self.scheduler.block(self.now_ns).map(|account| (chosen, account)));
        }
        Some(chosen)
    }

    /// The core does something else.
    fn pause(&mut self, ns: u64) {
        self.scheduler.leave(self.now_ns);
        self.now_ns += ns;
    }
}

#[test]
fn shares_are_those_of_activities_however_many_clients_they_have() {
    let mut core = Core::new(2, 10);
    core.wake((1, 0));
    (0..10).for_each(|client| core.wake((0, client)));
    for round in 0..10_000 {
        core.run(50_000, false);
        // What the core does besides is nobody's.
        core.pause(round % 3 * 40_000);
    }
    let share = core.used_ns[1] as f64 / core.used_ns.iter().sum::<u64>() as f64;
    assert!((share - 2.0 / 3.0).abs() < 0.01, "{share}");
}

#[test]
fn a_changed_weight_counts_from_then_on() {
    let mut core = Core::new(2, 1);
    core.wake((0, 0));
    core.wake((1, 0));
    (0..1_000).for_each(|_| _ = core.run(TURN_NS, false));
    core.scheduler.set_weight(Activity(0), weight(6), core.now_ns);
    core.used_ns = vec![0; 2];
    (0..10_000).for_each(|_| _ = core.run(TURN_NS, false));
    let share = core.used_ns[0] as f64 / core.used_ns.iter().sum::<u64>() as f64;
    assert!((share - 0.75).abs() < 0.01, "{share}");
}

/// It sleeps before its turn is over, each time, and comes back at once.
#[test]
fn who_sleeps_and_wakes_gets_no_more_than_its_share() {
    for pause_ns in [0, 1, 150_000, 1_000_000] {
        let mut core = Core::new(2, 1);
        core.wake((0, 0));
        core.wake((1, 0));
        let mut wake_ns = 0;
        while core.now_ns < 2_000 * MS {
            let is_sleeper = core.scheduler.decide(core.now_ns) == Some((1, 0));
            core.run(40_000, is_sleeper);
            if !core.asleep.is_empty() && wake_ns < core.now_ns {
                wake_ns = core.now_ns + pause_ns;
            }
            if wake_ns <= core.now_ns {
                core.wake((1, 0));
            }
        }
        let share = core.used_ns[1] as f64 / core.used_ns.iter().sum::<u64>() as f64;
        assert!(share < 2.0 / 3.0 + 0.01, "{share} with pauses of {pause_ns} ns");
    }
}

#[test]
fn an_activity_that_slept_for_long_has_no_claim_from_then() {
    let mut core = Core::new(2, 1);
    core.wake((0, 0));
    (0..100).for_each(|_| _ = core.run(100 * MS, false));
    core.wake((1, 0));
    assert_eq!(core.run(10 * MS, false), Some((0, 0)), "whose turn it is");
    core.used_ns = vec![0; 2];
    (0..1_000).for_each(|_| _ = core.run(TURN_NS, false));
    let used: Vec<_> = core.used_ns.iter().map(|ns| *ns as f64).collect();
    assert!((used[1] / used[0] - 2.0).abs() < 0.1, "{used:?}");
}

#[test]
fn who_is_withdrawn_is_not_chosen() {
    let mut core = Core::new(2, 2);
    [(0, 0), (0, 1), (1, 0)].into_iter().for_each(|name| core.wake(name));
    assert_eq!(core.run(10, false), Some((0, 0)));
    let [zero, one] = [core.seats[0], core.seats[1]];
    assert!(core.scheduler.withdraw(one, (1, 0), core.now_ns).is_some());
    assert!(core.scheduler.withdraw(one, (1, 0), core.now_ns).is_none());
    assert!(core.scheduler.withdraw(zero, (0, 0), core.now_ns).is_some());
    assert_eq!(core.run(10, true), Some((0, 1)));
    assert_eq!((core.run(10, false), core.scheduler.has_ready()), (None, false));
}

#[derive(Clone, Debug)]
enum Step {
    Wake(u32, u32),
    Run(u64, bool),
    Pause(u64),
}

const ACTIVITIES: u32 = 4;
const CLIENTS: u32 = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..ACTIVITIES, 0..CLIENTS).prop_map(|(activity, client)| Step::Wake(activity, client)),
        4 => (1u64..3 * TURN_NS, prop::bool::weighted(0.3)).prop_map(|(ns, sleeps)| Step::Run(ns, sleeps)),
        1 => (1u64..TURN_NS).prop_map(Step::Pause),
    ];
    proptest::collection::vec(step, 1..300)
}

/// What is promised to an activity, kept as plain as can be: nanoseconds over weight of each since it became
/// ready.
#[derive(Default)]
struct Fair(Map<u32, f64>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]

    /// Somebody runs whenever anybody is ready, and only who is ready.
    #[test]
    fn it_conserves_work(steps in steps()) {
        let mut core = Core::new(ACTIVITIES, CLIENTS);
        let mut awake = BTreeSet::new();
        for step in steps {
            match step {
                Step::Wake(activity, client) => {
                    core.wake((activity, client));
                    awake.insert((activity, client));
                }
                Step::Run(ns, sleeps) => {
                    let chosen = core.run(ns, sleeps);
                    prop_assert_eq!(chosen.is_some(), !awake.is_empty());
                    prop_assert!(chosen.is_none_or(|name| awake.contains(&name)));
                    if sleeps {
                        chosen.map(|name| awake.remove(&name));
                    }
                }
                Step::Pause(ns) => core.pause(ns),
            }
            prop_assert_eq!(core.scheduler.has_ready(), !awake.is_empty());
        }
    }

    /// While two activities are both ready, neither gets ahead of the other by more than a turn and what it
    /// runs at a time, over its weight.
    #[test]
    fn no_activity_gets_ahead_of_another(steps in steps()) {
        let mut core = Core::new(ACTIVITIES, CLIENTS);
        let (mut awake, mut fair) = (BTreeSet::new(), Fair::default());
        for step in steps {
            let was_ready: BTreeSet<u32> = awake.iter().map(|(activity, _)| *activity).collect();
            match step {
                Step::Wake(activity, client) => {
                    core.wake((activity, client));
                    awake.insert((activity, client));
                    if !was_ready.contains(&activity) {
                        // Only what happens from now on counts, for all.
                        fair.0 = was_ready.iter().chain([&activity]).map(|other| (*other, 0.0)).collect();
                    }
                }
                Step::Run(ns, sleeps) => {
                    let before_ns = core.now_ns;
                    if let Some(chosen) = core.run(ns, sleeps) {
                        let share = (core.now_ns - before_ns) as f64 / f64::from(chosen.0 + 1);
                        *fair.0.entry(chosen.0).or_default() += share;
                        if sleeps {
                            awake.remove(&chosen);
                        }
                    }
                }
                Step::Pause(ns) => core.pause(ns),
            }
            let ready: BTreeSet<u32> = awake.iter().map(|(activity, _)| *activity).collect();
            fair.0.retain(|activity, _| ready.contains(activity));
            for (one, ones) in &fair.0 {
                for (other, others) in &fair.0 {
                    // A turn each, and what is rounded at each step.
                    let turns = 1.0 / f64::from(one + 1) + 1.0 / f64::from(other + 1);
                    let bound = TURN_NS as f64 * turns + 1_000.0;
                    prop_assert!(ones - others <= bound, "{} got {} more than {}", one, ones - others, other);
                }
            }
        }
    }

    /// Everybody who is ready, of whatever activity and weight, runs again within a bounded time.
    #[test]
    fn nobody_starves(weights in proptest::collection::vec(1u32..100, 1..6), clients in 1u32..5) {
        let activities = weights.len() as u32;
        let mut core = Core::new(activities, clients);
        for (n, of) in (0..).zip(&weights) {
            core.scheduler.set_weight(Activity(n), weight(*of), 0);
        }
        let names = (0..activities).flat_map(|n| (0..clients).map(move |client| (n, client)));
        let names: Vec<_> = names.collect();
        names.iter().for_each(|name| core.wake(*name));
        let mut last_ns: Map<(u32, u32), u64> = names.iter().map(|name| (*name, core.now_ns)).collect();
        let sum: u64 = weights.iter().map(|of| u64::from(*of)).sum();
        for _ in 0..3_000 {
            let chosen = core.run(u64::MAX >> 1, false).expect("all are ready");
            if activities * clients == 1 {
                return Ok(());
            }
            last_ns.insert(chosen, core.now_ns);
            for ((activity, client), at_ns) in &last_ns {
                let of = u64::from(weights[*activity as usize]);
                // Its activity's turns come round; in each of them its clients take turns of 4 ms.
                let bound_ns = u64::from(clients + 1) * 4 * MS * sum / of + 4 * TURN_NS * sum;
                prop_assert!(core.now_ns - at_ns <= bound_ns, "{} of {} starves", client, activity);
            }
        }
    }
}
