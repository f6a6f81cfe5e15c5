//! Receive-side scaling.

use super::*;
use std::collections::BTreeSet;

/// The key of Microsoft's "Verifying the RSS Hash Calculation".
const KNOWN: [u8; KEY_BYTES] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

fn opened(fake: FakeOptions, pairs: u16) -> Result<(FakeFunction, NetDevice<FakeRegisters>)> {
    let memory = FakeMemory::new(16 << 20);
    let function = FakeFunction::new(fake, memory.clone());
    let options = Options { pairs, hash_key: KNOWN, ..Options::default() };
    Ok((function.clone(), open(function, &memory, &options)?.device))
}

fn with_rss() -> FakeOptions {
    FakeOptions { features: ALL_FEATURES | feature::RSS, ..FakeOptions::default() }
}

#[test]
fn frames_are_spread_by_their_hash_over_the_pairs_that_serve() {
    let (function, mut device) = opened(with_rss(), 4).unwrap();
    let spread = function.spread().expect("it was told");
    // 66.9.149.187:2794 to 161.142.100.80:1766.
    let input = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
    assert_eq!(spread.hash(&input), 0x51cc_c178, "the key is the one that was given");
    assert_eq!((spread.kinds, spread.unclassified, spread.table.len()), (0b110110, 0, 128));
    for pairs in [4, 3, 1, 2] {
        device.set_pairs(pairs).unwrap();
        let table = function.spread().expect("still by the hash").table;
        let uses = |pair: u16| table.iter().filter(|queue| **queue == pair).count();
        let uses: Vec<usize> = (0..pairs).map(uses).collect();
        assert!(uses.iter().all(|count| count.abs_diff(128 / usize::from(pairs)) <= 1), "{uses:?}");
        assert_eq!(uses.iter().sum::<usize>(), 128, "no pair beyond");
        assert_eq!(function.pairs_in_use(), pairs);
    }
    let ports = (0..64u16).map(|port| [&input[..8], &port.to_be_bytes(), &[6, 0xe6]].concat());
    let spread = function.spread().expect("by the hash");
    let queues: BTreeSet<u16> = ports.map(|input| spread.queue(spread.hash(&input))).collect();
    assert_eq!(queues.len(), 2, "a client's connections are spread");
}

#[test]
fn a_lone_pair_needs_no_hash() {
    let (function, device) = opened(with_rss(), 1).unwrap();
    assert_eq!((device.features() & feature::RSS, function.spread()), (0, None));
}

#[test]
fn a_device_without_a_hash_that_is_of_use_spreads_as_it_likes() {
    let small = |rss| FakeOptions { rss, ..with_rss() };
    let refusing = FakeOptions { answer: 1, ..with_rss() };
    for fake in [FakeOptions::default(), small((2, 40)), small((0, 40)), small((128, 39))] {
        let (function, _device) = opened(fake.clone(), 4).unwrap();
        assert_eq!((function.spread(), function.pairs_in_use()), (None, 4), "{fake:?}");
    }
    assert_eq!(opened(refusing, 4).err(), Some(Error::CommandRefused(4, 0)), "not for the hash alone");
}

#[test]
fn a_device_that_was_reset_is_told_again() {
    let memory = FakeMemory::new(16 << 20);
    let function = FakeFunction::new(with_rss(), memory.clone());
    let options = Options { pairs: 2, hash_key: KNOWN, ..Options::default() };
    let Opened { device: _device, pairs } = open(function.clone(), &memory, &options).unwrap();
    let mut pairs: Vec<Pair> =
        pairs.into_iter().map(|setup| setup.start(Ticks::default(), 1).unwrap()).collect();
    let before = function.spread().expect("it was told");
    function.break_down();
    assert!(!pairs[0].arm(), "it is found broken");
    assert_eq!(function.spread(), Some(before));
    assert_eq!(pairs[0].counters().resets, 1);
}

#[test]
fn where_a_hash_spreads_each_receive_queue_hears_that_there_are_buffers_again() {
    for (features, told) in
        [(ALL_FEATURES | feature::RSS, [[1, 1], [2, 2]]), (ALL_FEATURES, [[1, 0], [1, 1]])]
    {
        let memory = FakeMemory::new(16 << 20);
        let function = FakeFunction::new(FakeOptions { features, ..FakeOptions::default() }, memory.clone());
        let options = Options { pairs: 2, hash_key: KNOWN, ..Options::default() };
        let Opened { device: _device, pairs } = open(function.clone(), &memory, &options).unwrap();
        let started: Vec<Pair> = pairs
            .into_iter()
            .zip(told)
            .map(|(setup, told)| {
                let pair = setup.start(Ticks::default(), 1).unwrap();
                assert_eq!([0, 2].map(|queue| function.kicks(queue)), told);
                pair
            })
            .collect();
        assert_eq!(started.len(), 2);
    }
}
