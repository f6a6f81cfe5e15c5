//! Long paths: windows and queues that grow as far as the path needs it, and no further than memory allows.

mod common;

use common::{Device, Faults, Machine, Peer, Random, World, bytes, config};
use nom_net::{Config, Instant};
use nom_port::nic::Offloads;
use std::net::SocketAddr;
use std::time::Duration;

const ALL: Offloads = Offloads { checksum: true, segment_tcp4: true, segment_tcp6: true };
const ROUND_TRIP: Duration = Duration::from_millis(100);

fn world(len: usize, faults: Faults, change: impl Fn(&mut Config)) -> World<Peer, Peer> {
    let outgoing = bytes(&mut Random::new(1), len);
    let machine = |number, peer| {
        let mut config = config(number, 1);
        change(&mut config);
        Machine::new(Device::new(number, ALL), config, peer)
    };
    let left = machine(1, Peer::sending(outgoing));
    let right = machine(2, Peer { is_closing_when_sent: true, ..Peer::default() });
    let mut world = World::new(left, right, 1, faults);
    world.delay = ROUND_TRIP / 2;
    world.right.stack.listen(80);
    let flow = world.left.stack.connect(SocketAddr::from(([10, 0, 0, 2], 80))).unwrap();
    world.left.application.flow = Some(flow);
    world
}

/// How long it takes to bring `len` bytes to the peer, who has all of them in the end.
fn time(world: &mut World<Peer, Peer>) -> Duration {
    let len = world.left.application.outgoing.len();
    let is_done = world.run(Duration::from_secs(600), |world| world.right.application.incoming.len() >= len);
    assert!(is_done, "{} of {len} bytes", world.right.application.incoming.len());
    assert!(world.right.application.incoming == world.left.application.outgoing);
    world.now - Instant::default()
}

#[test]
fn a_path_of_100_ms_is_filled_by_windows_that_grow() {
    const LEN: usize = 60_000_000;
    let fixed =
        time(&mut world(LEN, Faults::default(), |config| config.tcp.fix_windows(256 << 10, 256 << 10)));
    let mut grown = world(LEN, Faults::default(), |_| {});
    let tuned = time(&mut grown);
    let ratio = fixed.as_secs_f64() / tuned.as_secs_f64();
    println!("{LEN} bytes over 100 ms: {fixed:?} with 256 KiB, {tuned:?} tuned: {ratio:.1} times as fast");
    assert!(ratio > 10.0, "{fixed:?} with windows of 256 KiB, {tuned:?} with windows that grow");
    assert!(grown.right.stack.counters().receive_windows_grown > 3);
}
