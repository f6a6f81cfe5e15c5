//! Two stacks back to back over a link that loses, reorders, duplicates and corrupts: what arrives is what
//! was sent.

mod common;

use common::{Device, Faults, Machine, Peer, Random, World, bytes, config};
use nom_net::Closed;
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
}

fn transfer(case: &Case) -> World<Peer, Peer> {
    let mut random = Random(case.seed);
    let (up, down) = (bytes(&mut random, case.len), bytes(&mut random, case.len / 2));
    let mut right_device = Device::new(2, case.offloads);
    right_device.piece = 700;
    let left = Machine::new(Device::new(1, case.offloads), config(1, case.seed), Peer::sending(up.clone()));
    let right = Machine::new(right_device, config(2, case.seed), Peer::sending(down.clone()));
    let mut world = World::new(left, right, case.seed, case.faults);
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
    assert!(right.incoming == up, "seed {seed}: {} of {} bytes up", right.incoming.len(), up.len());
    assert!(left.incoming == down, "seed {seed}: {} of {} bytes down", left.incoming.len(), down.len());
    assert_eq!((left.closed, right.closed), (Some(Closed::Finished), Some(Closed::Finished)), "seed {seed}");
    world
}

#[test]
fn a_clean_link_needs_no_second_try() {
    for (offloads, is_ipv6) in [(NONE, false), (ALL, false), (NONE, true), (ALL, true)] {
        let world = transfer(&Case { seed: 1, faults: Faults::default(), offloads, len: 3_000_000, is_ipv6 });
        for counters in [world.left.stack.counters(), world.right.stack.counters()] {
            assert_eq!(counters.retransmissions, 0, "{counters:?}");
            let dropped: u64 =
                counters.iter().filter(|(name, _)| name.starts_with("dropped")).map(|(_, n)| n).sum();
            assert_eq!(dropped, 0, "{counters:?}");
        }
    }
}

#[test]
fn a_bad_link_delivers_every_byte_once_and_in_order() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut percent = |limit| random.below(limit);
        let faults =
            Faults { loss: percent(15), reorder: percent(30), duplicate: percent(10), corrupt: percent(5) };
        let offloads = if seed % 2 == 0 { ALL } else { NONE };
        transfer(&Case { seed, faults, offloads, len: 200_000, is_ipv6: seed % 3 == 0 });
    }
}
