//! Devices that break, or break the rules.

use super::*;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

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

/// That frames come and go.
fn works(function: &FakeFunction, pair: &mut Pair, number: u16) {
    while pair.receive().is_some() {}
    function.sent(number);
    for seed in 0..70 {
        assert!(function.deliver(number, [0; 12], &frame(seed, 60 + seed)), "frame {seed} finds no buffer");
        assert_eq!(gather(&pair.receive().expect("a frame").frame), frame(seed, 60 + seed));
        let mut out = outgoing(pair, &frame(seed, 54), &[&frame(seed + 1, 90)]);
        pair.transmit(&mut out).unwrap();
        pair.kick();
        let sent = function.sent(number);
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0][12..], [frame(seed, 54), frame(seed + 1, 90)].concat());
    }
}

#[test]
fn a_device_that_needs_a_reset_wakes_its_driver_which_goes_on() {
    for Bench { function, pair, .. } in benches() {
        let mut pair = pair.on_failure(tell);
        let features = function.driver_features();
        assert_eq!(told(&mut pair), None);
        assert!(pair.arm());
        function.interrupts();
        function.break_down();
        assert_eq!(function.interrupts(), 1 << 5, "who sleeps is woken");
        pair.disarm();
        assert!(pair.receive().is_none());
        assert!(!pair.arm(), "it looks again, for what comes after the reset");
        assert_eq!((told(&mut pair), function.resets()), (None, 2));
        assert_eq!((function.status(), function.driver_features()), (15, features));
        works(&function, &mut pair, 0);
        assert_eq!((pair.counters().resets, function.resets()), (1, 2));
        assert!(pair.arm());
        function.interrupts();
        assert!(function.deliver(0, [0; 12], &frame(1, 60)));
        assert_eq!(function.interrupts(), 1 << 5, "its interrupts are bound again");
    }
}

/// A frame comes and the device breaks before the core, which may have to wait for a processor, is woken: no
/// other interrupt will say so.
#[test]
fn one_interrupt_for_a_frame_and_for_the_end_is_enough() {
    for Bench { function, pair, .. } in benches() {
        let mut pair = pair.on_failure(tell);
        assert!(pair.arm());
        function.interrupts();
        assert!(function.deliver(0, [0; 12], &frame(1, 60)));
        function.break_down();
        assert_eq!(function.interrupts(), 1 << 5, "which were one");
        pair.disarm();
        assert!(pair.receive().is_some());
        assert!(!pair.arm(), "it does not sleep for good");
        assert_eq!((TOLD.take(), pair.counters().resets), (None, 1));
        works(&function, &mut pair, 0);
    }
}

#[test]
fn what_the_device_had_comes_back_once() {
    for Bench { function, memory, pair, .. } in benches() {
        let mut pair = pair.on_failure(tell);
        let mut taken = None;
        for _ in 0..3 {
            works(&function, &mut pair, 0);
            let before = pair.counters();
            let mut out = outgoing(&mut pair, &frame(1, 54), &[&frame(2, 700), &frame(3, 700)]);
            let kept = out.payload[0].clone();
            pair.transmit(&mut out).unwrap();
            pair.kick();
            // The device is at it: both of us and the ring hold the payload.
            let (_, bytes) = function.take_sent(0).unwrap();
            assert_eq!((bytes.len(), kept.buffer().handles()), (12 + 54 + 1400, 2));
            let waiting = function.queue(0, |queue, _| std::iter::from_fn(|| queue.take()).count());
            function.break_down();
            assert_eq!(told(&mut pair), None);
            let after = pair.counters();
            assert_eq!((kept.buffer().handles(), &kept[..]), (1, &frame(2, 700)[..]));
            assert_eq!(after.reset_chains - before.reset_chains, (waiting + 1) as u64);
            assert!(pair.receive().is_none());
            assert_eq!(pair.counters().refilled_buffers - after.refilled_buffers, 64, "all are lent anew");
            let again = *taken.get_or_insert_with(|| memory.held());
            assert_eq!(memory.held(), again, "neither rings nor buffers need more memory");
        }
    }
}

#[test]
fn a_device_that_breaks_again_and_again_is_given_up() {
    let Bench { function, pair, .. } = bench(ALL_FEATURES);
    let mut pair = pair.on_failure(tell);
    for _ in 0..3 {
        for _ in 0..shared::RESETS_MAX {
            function.break_down();
            assert_eq!(told(&mut pair), None);
        }
        works(&function, &mut pair, 0);
        pair.clock.0.set(pair.clock.0.get() + 60_000_000_000);
    }
    pair.clock.0.set(pair.clock.0.get() - 1_000_000_000);
    function.break_down();
    assert_eq!(told(&mut pair), Some(Error::BrokeOften(9)));
    assert!(std::format!("{}", Error::BrokeOften(9)).contains("9 times in a minute"));
}

#[test]
fn a_device_that_is_another_after_its_reset_is_given_up() {
    let told_after = |change: fn(&mut FakeOptions)| {
        let Bench { function, pair, .. } = bench(ALL_FEATURES);
        let mut pair = pair.on_failure(tell);
        function.change(change);
        function.break_down();
        told(&mut pair)
    };
    let lacking = told_after(|device| device.features &= !feature::MERGEABLE);
    assert_eq!(lacking, Some(Error::FeaturesRefused(feature::MERGEABLE)));
    assert!(matches!(told_after(|device| device.is_stubborn = true), Some(Error::FeaturesRefused(_))));
    assert_eq!(told_after(|device| device.queue_size = 32), Some(Error::NoQueue(0)));
    assert_eq!(told_after(|device| device.vectors = 0), Some(Error::NoVector(0)));
}

#[test]
fn what_was_not_lent_is_said_of_either_ring() {
    thread_local! {
        static CAUSE: Cell<Option<Error>> = const { Cell::new(None) };
    }
    for queue in [0, 1] {
        for Bench { function, pair, mut device, .. } in benches() {
            device.on_reset(Arc::new(|cause| CAUSE.set(Some(cause))));
            let mut pair = pair.on_failure(tell);
            function.queue(queue, |queue, _| queue.put_raw(0xfff, 1, 60));
            assert!(pair.receive().is_none());
            pair.room();
            assert_eq!(told(&mut pair), None);
            assert_eq!(CAUSE.take(), Some(Error::BrokeRules), "queue {queue}");
            let counters = pair.counters();
            let errors = [counters.error_identifier_out_of_range, counters.error_overrun].iter().sum::<u64>();
            assert_eq!((errors, counters.resets), (1, 1), "it stays counted");
            works(&function, &mut pair, 0);
        }
    }
}

/// Two queue pairs of a device of all features or fewer, all told of what cannot be mended.
fn two(features: u64) -> (FakeFunction, NetDevice<FakeRegisters>, [Pair; 2]) {
    let memory = FakeMemory::new(16 << 20);
    let function = FakeFunction::new(FakeOptions { features, ..Default::default() }, memory.clone());
    let opened = open(function.clone(), &memory, &Options { pairs: 2, ..Options::default() }).unwrap();
    let start =
        |(setup, bit): (PairSetup<_, _>, u8)| setup.start(Ticks::default(), bit).unwrap().on_failure(tell);
    let pairs: Vec<Pair> = opened.pairs.into_iter().zip(5..).map(start).collect();
    (function, opened.device, pairs.try_into().unwrap())
}

/// Core 1 knows nothing of the reset and goes on with rings at which nobody looks.
#[test]
fn each_pair_begins_anew_when_it_looks() {
    for features in [ALL_FEATURES, ALL_FEATURES & !transport::feature::PACKED] {
        let (function, mut device, [mut first, mut second]) = two(features);
        let rung = Arc::new(AtomicU64::new(0));
        let rings = rung.clone();
        device.on_reset(Arc::new(move |_| {
            rings.fetch_add(1, Relaxed);
        }));
        device.set_promiscuous(true).unwrap();
        device.set_pairs(1).unwrap();
        device.set_pairs(2).unwrap();
        works(&function, &mut first, 0);
        works(&function, &mut second, 1);
        for round in 1..5 {
            // Every other time it looks only after a second reset.
            for _ in 0..1 + round % 2 {
                first.clock.0.set(first.clock.0.get() + 60_000_000_000);
                let commands = function.commands().len();
                function.break_down();
                assert_eq!(told(&mut first), None);
                assert_eq!(function.commands()[commands..], [vec![0, 0, 1], vec![4, 0, 2, 0]], "said again");
                assert!(!function.deliver(1, [0; 12], &frame(1, 60)), "it has lent nothing yet");
                let mut out = outgoing(&mut second, &frame(1, 54), &[&frame(2, 700)]);
                second.transmit(&mut out).unwrap();
                second.kick();
                assert!(function.take_sent(1).is_none(), "what went into the old ring is lost");
                works(&function, &mut first, 0);
            }
            assert!(second.receive().is_none());
            works(&function, &mut second, 1);
            works(&function, &mut first, 0);
        }
        assert_eq!((first.counters().resets, second.counters().resets), (6, 0));
        assert_eq!(rung.load(Relaxed), 6);
        assert!(second.counters().reset_chains > 0);
    }
}

/// Both cores find the same out; the second finds that it was mended.
#[test]
fn a_device_that_two_cores_find_broken_is_reset_once() {
    let (function, _device, [mut first, mut second]) = two(ALL_FEATURES);
    for pair in [&mut first, &mut second] {
        assert_eq!(told(pair), None);
    }
    for queue in [0, 2] {
        function.queue(queue, |queue, _| queue.put_raw(0xfff, 1, 60));
    }
    assert!(first.receive().is_none() && second.receive().is_none());
    assert_eq!((told(&mut first), told(&mut second)), (None, None));
    assert_eq!((first.counters().resets, second.counters().resets, function.resets()), (1, 0, 2));
    works(&function, &mut first, 0);
    works(&function, &mut second, 1);
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

    /// Whatever it does, the driver goes on after a reset, or says why it does not: it is never silent, and
    /// never panics.
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
            match told(&mut pair) {
                Some(error) => prop_assert_eq!(error, Error::BrokeOften(9)),
                None => works(&function, &mut pair, 0),
            }
        }
    }
}
