//! Two stacks back to back over a link that loses, reorders, duplicates and corrupts: what arrives is what
//! was sent.

mod common;

use common::{Device, Faults, Machine, Peer, Random, World, bytes, config};
use nom_net::{Closed, SmallSegments};
use nom_port::nic::Offloads;
use std::net::SocketAddr;
use std::time::Duration;

const ALL: Offloads = Offloads { checksum: true, segment_tcp4: true, segment_tcp6: true };
const NONE: Offloads = Offloads { checksum: false, segment_tcp4: false, segment_tcp6: false };

struct Case {
    seed: u64,
    faults: Faults,
    offloads: Offloads,
    len: usize,
    is_ipv6: bool,
    /// Bytes that each side takes ahead.
    window: u32,
    small_segments: SmallSegments,
    /// Batching delay of both sides, in microseconds.
    delay: u64,
}

const PLAIN: Case = Case {
    seed: 1,
    faults: Faults { loss: 0, reorder: 0, duplicate: 0, corrupt: 0 },
    offloads: NONE,
    len: 200_000,
    is_ipv6: false,
    window: 256 << 10,
    small_segments: SmallSegments::AtOnce,
    delay: 0,
};

fn transfer(case: &Case) -> World<Peer, Peer> {
    let mut random = Random::new(case.seed);
    let (up, down) = (bytes(&mut random, case.len), bytes(&mut random, case.len / 2));
    let mut right_device = Device::new(2, case.offloads);
    right_device.piece = 700;
    let settings = |number| {
        let mut config = config(number, case.seed);
        config.tcp.fix_windows(case.window, 256 << 10);
        config.tcp.small_segments = case.small_segments;
        // Over the worst of these links, data takes longer than peers are commonly waited for.
        config.tcp.linger = Duration::from_secs(1000);
        config
    };
    let left_device = Device::new(1, case.offloads);
    let left = Machine::new(left_device, settings(1), Peer::sending(up.clone()));
    let right = Machine::new(right_device, settings(2), Peer::sending(down.clone()));
    let mut world = World::new(left, right, case.seed, case.faults);
    world.left.stack.set_delay(Duration::from_micros(case.delay)).unwrap();
    world.right.stack.set_delay(Duration::from_micros(case.delay)).unwrap();
    world.right.stack.listen(80);
    let six: std::net::IpAddr = [0xfd00, 0, 0, 0, 0, 0, 0, 2].into();
    let address = if case.is_ipv6 { six } else { [10, 0, 0, 2].into() };
    let flow = world.left.stack.connect(SocketAddr::new(address, 80)).unwrap();
    world.left.application.flow = Some(flow);
    let is_done = world.run(Duration::from_secs(3000), |world| {
        world.left.application.closed.is_some() && world.right.application.closed.is_some()
    });
    let (left, right) = (&world.left.application, &world.right.application);
    let seed = case.seed;
    assert!(is_done, "seed {seed}: not over at {:?}: {:?} {:?}", world.now, left.closed, right.closed);
    let ends = (left.closed, right.closed);
    assert!(right.incoming == up, "seed {seed}: {} of {} bytes up, {ends:?}", right.incoming.len(), up.len());
    assert!(left.incoming == down, "seed {seed}: {} of {} bytes down", left.incoming.len(), down.len());
    assert_eq!((left.closed, right.closed), (Some(Closed::Finished), Some(Closed::Finished)), "seed {seed}");
    world
}

#[test]
fn a_clean_link_needs_no_second_try() {
    for (offloads, is_ipv6) in [(NONE, false), (ALL, false), (NONE, true), (ALL, true)] {
        let world = transfer(&Case { offloads, len: 3_000_000, is_ipv6, ..PLAIN });
        for counters in [world.left.stack.counters(), world.right.stack.counters()] {
            assert_eq!(counters.retransmissions, 0, "{counters:?}");
            let dropped = counters.iter().filter(|(name, _)| name.starts_with("dropped"));
            assert_eq!(dropped.map(|(_, count)| count).sum::<u64>(), 0, "{counters:?}");
        }
    }
}

const SMALL_SEGMENTS: [SmallSegments; 4] =
    [SmallSegments::AtOnce, SmallSegments::AtOnce, SmallSegments::Held, SmallSegments::Acknowledged];

/// A link and two stacks as a seed makes them.
fn fate(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let mut percent = |limit| random.below(limit);
    let (loss, reorder) = (percent(15), percent(30));
    let faults = Faults { loss, reorder, duplicate: percent(10), corrupt: percent(5) };
    let mut one_of = |choices: [u64; 4]| choices[random.below(4) as usize];
    Case {
        seed,
        faults,
        offloads: if seed.is_multiple_of(2) { ALL } else { NONE },
        is_ipv6: seed.is_multiple_of(3),
        window: one_of([1 << 20, 65_535, 8000, 1000]) as u32,
        small_segments: SMALL_SEGMENTS[one_of([0, 1, 2, 3]) as usize],
        delay: one_of([0, 0, 20, 3000]),
        ..PLAIN
    }
}

#[test]
fn a_bad_link_delivers_every_byte_once_and_in_order() {
    // 1293 once left both sides waiting for each other after a timeout.
    for seed in (0..60).chain([1293]) {
        transfer(&fate(seed));
    }
}

#[test]
fn a_seed_replays_to_the_last_counter() {
    let [first, second] = [0, 0].map(|_| transfer(&fate(7)));
    assert_eq!(first.now, second.now);
    assert_eq!(first.left.stack.counters(), second.left.stack.counters());
    assert_eq!(first.right.stack.counters(), second.right.stack.counters());
}
