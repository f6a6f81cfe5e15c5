use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The same by other means: timers by tick, then by age.
struct Model {
    timers: BTreeMap<(u64, u32), TimerId>,
    now: u64,
}

#[derive(Clone, Debug)]
enum Step {
    /// Nanoseconds from now; negative has passed.
    Insert(i64),
    /// The timer that was inserted so many steps ago.
    Cancel(usize),
    /// Nanoseconds.
    Advance(u64),
}

/// Durations of every order of magnitude up to ten years, so that every level that matters is used.
fn duration() -> impl Strategy<Value = u64> {
    (0..59u32, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => duration().prop_map(|ahead| Step::Insert(ahead as i64)),
        1 => duration().prop_map(|behind| Step::Insert(-(behind as i64))),
        2 => (0..20usize).prop_map(Step::Cancel),
        2 => duration().prop_map(Step::Advance),
    ]
}

impl Model {
    fn insert(&mut self, wheel: &mut Wheel<u32>, deadline_ns: u64, age: u32) -> TimerId {
        let id = wheel.insert(deadline_ns, age);
        self.timers.insert((deadline_ns.div_ceil(1000).max(self.now / 1000), age), id);
        id
    }

    fn cancel(&mut self, wheel: &mut Wheel<u32>, id: TimerId) {
        let waiting = self.timers.iter().find(|(_, other)| **other == id).map(|(key, _)| *key);
        assert_eq!(wheel.cancel(id), waiting.map(|(_, age)| age));
        waiting.map(|key| self.timers.remove(&key));
    }

    fn advance(&mut self, wheel: &mut Wheel<u32>, now_ns: u64) {
        self.now = now_ns;
        let later = self.timers.split_off(&(now_ns / 1000 + 1, 0));
        let due: Vec<u32> = std::mem::replace(&mut self.timers, later).into_keys().map(|key| key.1).collect();
        assert!(due.is_empty() || wheel.is_due(now_ns));
        let mut fired = Vec::new();
        wheel.expire(now_ns, &mut fired);
        assert_eq!(fired, due);
    }

    fn compare(&self, wheel: &Wheel<u32>) {
        assert_eq!(wheel.len(), self.timers.len());
        let earliest = self.timers.keys().next().map(|key| key.0 * 1000);
        let next = wheel.next_deadline_ns();
        assert_eq!(next.is_some(), earliest.is_some());
        assert!(next <= earliest);
        if self.timers.len() <= LOOK_MAX {
            assert_eq!(next, earliest);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 512 }))]

    #[test]
    fn a_wheel_is_a_sorted_map(start in duration(), steps in proptest::collection::vec(step(), 1..120)) {
        let mut wheel = Wheel::new(start);
        let mut model = Model { timers: BTreeMap::new(), now: start };
        let mut inserted = Vec::new();
        for (age, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(ahead) => {
                    let deadline = model.now.saturating_add_signed(ahead);
                    inserted.push(model.insert(&mut wheel, deadline, age as u32));
                }
                Step::Cancel(ago) => {
                    if let Some(&id) = inserted.iter().nth_back(ago) {
                        model.cancel(&mut wheel, id);
                    }
                }
                Step::Advance(by) => {
                    let now = model.now.saturating_add(by);
                    model.advance(&mut wheel, now);
                }
            }
            model.compare(&wheel);
        }
        model.advance(&mut wheel, u64::MAX);
        prop_assert!(wheel.is_empty());
    }

    #[test]
    fn who_sleeps_until_the_next_deadline_is_never_late(
        ahead in proptest::collection::vec(duration(), 1..60)
    ) {
        let mut wheel = Wheel::new(0);
        for &deadline in &ahead {
            wheel.insert(deadline, deadline);
        }
        let (mut due, mut wakeups) = (Vec::new(), 0);
        while let Some(now) = wheel.next_deadline_ns() {
            wheel.expire(now, &mut due);
            prop_assert!(due.drain(..).all(|deadline| deadline <= now && now < deadline + 1000));
            wakeups += 1;
        }
        prop_assert!(wakeups <= ahead.len() + LEVELS * ahead.len() / LOOK_MAX);
    }
}

#[test]
fn never_early_and_at_most_a_tick_late() {
    let mut wheel = Wheel::new(0);
    wheel.insert(1_001, 'a');
    let mut due = Vec::new();
    wheel.expire(1_999, &mut due);
    assert_eq!((due.len(), wheel.next_deadline_ns()), (0, Some(2_000)));
    wheel.expire(2_000, &mut due);
    assert_eq!(due, ['a']);
}

#[test]
fn timers_of_a_time_far_away_are_moved_once_a_level() {
    let mut wheel = Wheel::new(0);
    let hour = 3_600_000_000_000;
    (0..100).for_each(|n| _ = wheel.insert(hour, n));
    let mut wakeups = 0;
    let mut due = Vec::new();
    while let Some(now) = wheel.next_deadline_ns() {
        assert!(now <= hour && due.is_empty());
        wheel.expire(now, &mut due);
        wakeups += 1;
    }
    assert_eq!(due, (0..100).collect::<Vec<_>>());
    assert!(wakeups <= LEVELS);
}

#[test]
fn the_name_of_a_gone_timer_means_nothing() {
    let mut wheel = Wheel::new(0);
    let gone = wheel.insert(5_000, 1);
    assert_eq!(wheel.get_mut(gone), Some(&mut 1));
    assert_eq!(wheel.cancel(gone), Some(1));
    wheel.insert(5_000, 2);
    assert_eq!((wheel.cancel(gone), wheel.get_mut(gone)), (None, None));
    assert_eq!(wheel.len(), 1);
}

#[test]
fn the_last_tick_there_is_can_be_waited_for() {
    let mut wheel = Wheel::new(u64::MAX - 10_000);
    wheel.insert(u64::MAX / 1000 * 1000, ());
    let mut due = Vec::new();
    wheel.expire(u64::MAX - 5_000, &mut due);
    assert!(due.is_empty());
    wheel.expire(u64::MAX, &mut due);
    assert_eq!(due, [()]);
}

#[test]
fn a_wheel_that_was_emptied_is_like_new() {
    let mut wheel = Wheel::new(0);
    [5, 5_000, 5_000_000].into_iter().for_each(|deadline| _ = wheel.insert(deadline, deadline));
    let mut values = wheel.take_all();
    values.sort_unstable();
    assert_eq!(values, [5, 5_000, 5_000_000]);
    assert_eq!((wheel.next_deadline_ns(), wheel.is_due(u64::MAX - 1)), (None, false));
    wheel.insert(7_000, 7);
    assert_eq!(wheel.next_deadline_ns(), Some(7_000));
}
