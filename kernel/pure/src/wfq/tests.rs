use super::*;
use crate::testing::{app, cases, effort};
use proptest::prelude::*;

const SLICE: u64 = 1_000_000;

/// Lets ready members run for `total` cycles, each as long as it may, and adds up what each got.
fn run(queue: &mut Queue, total: u64) -> [u64; APPLICATIONS_MAX] {
    let mut used = [0; APPLICATIONS_MAX];
    let mut left = total;
    while left > 0 {
        let running = queue.pick().expect("somebody is ready");
        let turn = queue.cycles_left(running, SLICE).unwrap_or(left).clamp(1, left);
        queue.charge(running, turn);
        used[running.index()] += turn;
        left -= turn;
    }
    used
}

/// A queue with one ready member for each weight, numbered from 0.
fn ready(weights: &[u32]) -> Queue {
    let mut queue = Queue::default();
    for (id, weight) in weights.iter().enumerate() {
        queue.insert(app(id), *weight);
        queue.wake(app(id));
    }
    queue
}

#[test]
fn shares_follow_weights() {
    let used = run(&mut ready(&[50, 33, 17]), 1000 * SLICE);
    for (id, weight) in [50, 33, 17].into_iter().enumerate() {
        let exact = weight * 10 * SLICE;
        assert!(used[id].abs_diff(exact) < exact / 100, "{weight}%: {} of {exact} cycles", used[id]);
    }
}

#[test]
fn one_alone_runs_without_end() {
    let mut queue = ready(&[7]);
    assert_eq!((queue.pick(), queue.cycles_left(app(0), SLICE)), (Some(app(0)), None));
    queue.charge(app(0), u64::MAX);
    assert_eq!((queue.pick(), queue.should_preempt(app(0), SLICE)), (Some(app(0)), false));
}

#[test]
fn nobody_ready_is_nobody_picked() {
    let mut queue = ready(&[1, 1]);
    queue.sleep(app(0));
    queue.remove(app(1));
    assert_eq!((queue.pick(), queue.ready), (None, 0));
    assert!(queue.contains(app(0)) && !queue.contains(app(1)));
    queue.wake(app(1));
    assert_eq!(queue.pick(), None);
}

#[test]
fn a_turn_lasts_a_slice() {
    let mut queue = ready(&[100, 100]);
    assert_eq!(queue.cycles_left(app(0), SLICE), Some(SLICE));
    queue.charge(app(0), SLICE - 1);
    assert!(!queue.should_preempt(app(0), SLICE));
    queue.charge(app(0), 1);
    assert!(queue.should_preempt(app(0), SLICE));
    assert_eq!(queue.pick(), Some(app(1)));
}

#[test]
fn a_sleeper_does_not_hoard() {
    let mut queue = ready(&[100, 100]);
    queue.sleep(app(1));
    run(&mut queue, 1000 * SLICE);
    queue.wake(app(1));
    let used = run(&mut queue, 100 * SLICE);
    assert!(used[0].abs_diff(used[1]) <= 2 * SLICE, "{used:?}");
}

#[test]
fn a_sleeper_that_wakes_waits_for_one_turn_at_most() {
    let mut queue = ready(&[100, 100, 100]);
    queue.sleep(app(2));
    run(&mut queue, 777 * SLICE + 5);
    queue.wake(app(2));
    let used = run(&mut queue, 2 * SLICE + 2);
    assert!(used[2] > 0, "{used:?}");
}

#[test]
fn all_start_level_after_the_core_was_idle() {
    let mut queue = ready(&[100, 100]);
    queue.sleep(app(1));
    queue.charge(app(0), 500 * SLICE);
    queue.sleep(app(0));
    queue.wake(app(1));
    queue.wake(app(0));
    assert_eq!(queue.cycles_left(app(1), SLICE), Some(SLICE));
    assert_eq!(queue.cycles_left(app(0), SLICE), Some(SLICE));
}

#[test]
fn a_newcomer_starts_level_with_those_that_are_ready() {
    let mut queue = ready(&[100, 100]);
    queue.charge(app(1), 5 * SLICE);
    queue.sleep(app(0));
    queue.insert(app(2), 100);
    queue.wake(app(2));
    assert_eq!(queue.cycles_left(app(2), SLICE), Some(SLICE));
}

#[test]
fn whoever_yields_goes_last() {
    let mut queue = ready(&[100, 100, 100]);
    queue.yield_to_others(app(0));
    assert_eq!(queue.pick(), Some(app(1)));
    queue.charge(app(1), 10);
    queue.charge(app(2), 20);
    queue.yield_to_others(app(0));
    assert_eq!(queue.pick(), Some(app(1)));
    queue.sleep(app(1));
    queue.sleep(app(2));
    queue.yield_to_others(app(0));
    assert_eq!(queue.pick(), Some(app(0)));
}

#[test]
fn virtual_time_can_go_on_for_ever() {
    let mut queue = ready(&[1, 10_000]);
    let mut used = [0_u128; 2];
    for _ in 0..400 {
        let running = queue.pick().unwrap();
        let turn = queue.cycles_left(running, 1 << 48).unwrap();
        queue.charge(running, turn);
        used[running.index()] += u128::from(turn);
    }
    assert!(used[0] > 1 << 50, "the test is long enough to pass the largest virtual time: {used:?}");
    let ratio = used[1] / used[0];
    assert!((9_800..10_200).contains(&ratio), "{ratio} to 1");
}

/// What holds at any time.
fn check(queue: &Queue) {
    assert_eq!(queue.ready & !queue.members, 0);
    for id in bits(queue.ready) {
        assert!(queue.virtual_times[id.index()] >= queue.now, "{id:?} is before the queue's own time");
    }
    let least = bits(queue.ready).map(|id| queue.virtual_times[id.index()]).min();
    assert_eq!(queue.pick().map(|id| queue.virtual_times[id.index()]), least);
    assert_eq!(queue.pick().is_some(), queue.ready != 0, "work conserving");
    assert!(queue.pick().is_none_or(|id| queue.contains(id) && queue.is_ready(id)));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, u32),
    Remove(usize),
    Wake(usize),
    Sleep(usize),
    Charge(usize, u64),
    Yield(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let id = || prop_oneof![0..4_usize, 0..APPLICATIONS_MAX];
    let cycles = prop_oneof![0..10_000_000_u64, any::<u64>()];
    prop_oneof![
        2 => (id(), any::<u32>()).prop_map(|(id, weight)| Step::Insert(id, weight)),
        1 => id().prop_map(Step::Remove),
        4 => id().prop_map(Step::Wake),
        2 => id().prop_map(Step::Sleep),
        4 => (id(), cycles).prop_map(|(id, cycles)| Step::Charge(id, cycles)),
        1 => id().prop_map(Step::Yield),
    ]
}

/// Weights up to `most`, the extremes among them.
fn weight(most: u32) -> impl Strategy<Value = u32> {
    prop_oneof![1..=most, Just(1), Just(most)]
}

fn take(step: Step, queue: &mut Queue) {
    match step {
        Step::Insert(id, weight) if !queue.contains(app(id)) => queue.insert(app(id), weight),
        Step::Insert(..) => {}
        Step::Remove(id) => queue.remove(app(id)),
        Step::Wake(id) => queue.wake(app(id)),
        Step::Sleep(id) => queue.sleep(app(id)),
        Step::Charge(id, cycles) => queue.charge(app(id), cycles),
        Step::Yield(id) => queue.yield_to_others(app(id)),
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn any_sequence_of_operations_keeps_the_queue_in_order(
        steps in prop::collection::vec(step(), 1..effort(200, 40)),
    ) {
        let mut queue = Queue::default();
        for step in steps {
            take(step, &mut queue);
            check(&queue);
        }
    }

    /// The theorem that start-time fair queueing is about, with members that sleep and wake beside the two.
    #[test]
    fn two_that_stay_ready_never_drift_apart(
        weights in prop::collection::vec(1..=WEIGHT_MAX, 3..8),
        turns in prop::collection::vec((1..=SLICE, any::<u8>()), 1..effort(300, 40)),
    ) {
        let mut queue = ready(&weights);
        let mut used = [0_u64; 2];
        for (turn, noise) in turns {
            let running = queue.pick().unwrap();
            queue.charge(running, turn);
            if running < app(2) {
                used[running.index()] += turn;
            }
            let other = 2 + usize::from(noise / 2) % (weights.len() - 2);
            if noise % 2 == 0 { queue.sleep(app(other)) } else { queue.wake(app(other)) }

            let service = |id: usize| used[id] as f64 / f64::from(weights[id]);
            let bound = SLICE as f64 / f64::from(weights[0]) + SLICE as f64 / f64::from(weights[1]);
            prop_assert!((service(0) - service(1)).abs() <= bound * 1.001);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Ruse {
    None,
    Sleep,
    Leave,
}

proptest! {
    #![proptest_config(cases(300))]

    /// One member sleeps or leaves at any moment of its turns, and is back at once: however cunningly, it
    /// gets no more than its share and a turn.
    #[test]
    fn coming_and_going_gains_nothing(
        weights in (1..=100_u32, 1..=100_u32),
        ruses in prop::collection::vec(
            (1..=SLICE, prop::sample::select(vec![Ruse::None, Ruse::Sleep, Ruse::Leave])),
            1..effort(400, 60),
        ),
    ) {
        let mut queue = ready(&[weights.0, weights.1]);
        let mut used = [0_u64; 2];
        for (turn, ruse) in ruses {
            let running = queue.pick().unwrap();
            // The honest one runs as long as it may.
            let honest = running == app(0);
            let turn = if honest { queue.cycles_left(running, SLICE).unwrap().max(1) } else { turn };
            queue.charge(running, turn);
            used[running.index()] += turn;
            match ruse {
                Ruse::None => {}
                Ruse::Sleep => queue.sleep(app(1)),
                Ruse::Leave => {
                    queue.remove(app(1));
                    queue.insert(app(1), weights.1);
                }
            }
            queue.wake(app(1));
            let service = |id: usize| used[id] as f64 / f64::from([weights.0, weights.1][id]);
            let bound = SLICE as f64 / f64::from(weights.0) + SLICE as f64 / f64::from(weights.1);
            prop_assert!(service(1) - service(0) <= bound * 1.001, "{used:?} cycles");
        }
    }
}

proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn nobody_starves(
        weights in prop::collection::vec(weight(effort(WEIGHT_MAX, 50)), 2..12),
    ) {
        let mut queue = ready(&weights);
        // In a round that is long enough for the least share to be a slice, everybody has a turn.
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let least = u64::from(*weights.iter().min().expect("not empty"));
        let used = run(&mut queue, 2 * SLICE * sum.div_ceil(least));
        for (id, weight) in weights.iter().enumerate() {
            prop_assert!(used[id] > 0, "application {} of weight {}", id, weight);
        }
    }

    #[test]
    fn any_shares_follow_any_weights(weights in prop::collection::vec(1..=effort(100_u32, 10), 2..6)) {
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let total = effort(200, 100) * sum * SLICE;
        let used = run(&mut ready(&weights), total);
        for (id, weight) in weights.iter().enumerate() {
            let exact = total / sum * u64::from(*weight);
            prop_assert!(used[id].abs_diff(exact) <= exact / 100, "{} of {} cycles", used[id], exact);
        }
    }
}
