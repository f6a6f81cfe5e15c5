//! Devices that break, or break the rules.

use super::*;

thread_local! {
    static TOLD: Cell<Option<Error>> = const { Cell::new(None) };
}

fn tell(error: Error) {
    TOLD.set(Some(error));
}

/// What the pair says when it is about to sleep.
fn told(pair: &mut Pair) -> Option<Error> {
    TOLD.set(None);
    pair.arm();
    pair.disarm();
    TOLD.get()
}

#[test]
fn a_device_that_needs_a_reset_wakes_its_driver_which_says_so() {
    for Bench { function, pair, .. } in benches() {
        let mut pair = pair.on_failure(tell);
        assert_eq!(told(&mut pair), None);
        assert!(pair.arm());
        function.interrupts();
        function.break_down();
        assert_eq!(function.interrupts(), 1 << 5, "who sleeps is woken");
        pair.disarm();
        assert!(pair.receive().is_none());
        assert_eq!(told(&mut pair), Some(Error::NeedsReset));
    }
}

/// A status is read when nothing came: never between the frames of a busy device.
#[test]
fn a_device_that_delivers_is_not_asked() {
    for Bench { function, pair, .. } in benches() {
        let mut pair = pair.on_failure(tell);
        assert_eq!(told(&mut pair), None);
        function.break_down();
        assert!(function.deliver(0, [0; 12], &frame(1, 60)));
        assert!(pair.receive().is_some());
        assert_eq!(told(&mut pair), None);
        assert_eq!(told(&mut pair), Some(Error::NeedsReset));
    }
}

#[test]
fn what_was_not_lent_is_said_of_either_ring() {
    for queue in [0, 1] {
        for Bench { function, pair, .. } in benches() {
            let mut pair = pair.on_failure(tell);
            function.queue(queue, |queue, _| queue.put_raw(0xfff, 1, 60));
            assert!(pair.receive().is_none());
            pair.room();
            assert_eq!(told(&mut pair), Some(Error::BrokeRules), "queue {queue}");
        }
    }
}

#[test]
fn impossible_numbers_of_pairs_are_refused() {
    for pairs in [0, 0x8000, 0xffff] {
        let memory = FakeMemory::new(1 << 20);
        let function =
            FakeFunction::new(FakeOptions { claims: Some(pairs), ..Default::default() }, memory.clone());
        let error = open(function, &memory, &Options::default()).err();
        assert_eq!(error, Some(Error::BadPairs(pairs)));
        assert!(std::format!("{}", error.unwrap()).contains("expected 1 to 32767"));
    }
}

/// What a hostile device does.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Deliver(usize),
    Use { queue: u16, id: u32, places: u16, written: u32 },
    BreakDown,
    Look,
}

fn deed() -> impl Strategy<Value = Deed> {
    let id = prop_oneof![0..70_u32, any::<u32>()];
    prop_oneof![
        (14..3000_usize).prop_map(Deed::Deliver),
        (0..2_u16, id, 1..4_u16, any::<u32>()).prop_map(|(queue, id, places, written)| Deed::Use {
            queue,
            id,
            places,
            written
        }),
        Just(Deed::BreakDown),
        Just(Deed::Look),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 64 }))]

    /// Whatever it does, the driver goes on or says why it does not: it is never silent, and never panics.
    #[test]
    fn a_hostile_device_is_survived_and_named(deeds in prop::collection::vec(deed(), 1..60)) {
        for Bench { function, pair, .. } in benches() {
            let mut pair = pair.on_failure(tell);
            let mut was_broken = false;
            for deed in &deeds {
                match *deed {
                    // A device whose rings are out of step finds no sense in them.
                    Deed::Deliver(bytes) if !was_broken => {
                        function.deliver(0, [0; 12], &frame(1, bytes));
                    }
                    Deed::Deliver(_) => {}
                    Deed::Use { queue, id, places, written } => {
                        was_broken = true;
                        function.queue(queue, |queue, _| queue.put_raw(id, places, written));
                    }
                    Deed::BreakDown => function.break_down(),
                    Deed::Look => while pair.receive().is_some() {},
                }
                pair.room();
            }
            while pair.receive().is_some() {}
            function.break_down();
            told(&mut pair);
            prop_assert!(told(&mut pair).is_some());
        }
    }
}
