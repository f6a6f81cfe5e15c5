//! Work that takes time, and devices that break: what of the world these change, and what they must not.

use crate::host::Cost;
use crate::scenario::{LIMIT, worked};

/// Mean latency in nanoseconds of clients of a server whose work costs `cost`, and its device's resets.
fn mean_ns(cost: Cost, clients: usize, broken: Option<(u64, u64)>) -> (f64, u64) {
    let (mut world, server, latencies) = worked(7, cost, clients, broken);
    world.run(LIMIT);
    let latencies = latencies.take();
    assert!(latencies.len() >= 400, "all were answered");
    let mean = latencies.iter().sum::<u64>() as f64 / latencies.len() as f64;
    (mean, world.host(server).tally().resets)
}

#[test]
fn a_request_costs_a_packet_in_and_a_packet_out() {
    let free = mean_ns(Cost::default(), 1, None).0;
    let packets = mean_ns(Cost { packet_ns: 10_000, byte_ps: 0 }, 1, None).0;
    // An acknowledgement alone costs a packet, too, but nobody waits for it.
    let more = packets - free;
    assert!((19_000.0..40_000.0).contains(&more), "{more} ns more");
    let bytes = mean_ns(Cost { packet_ns: 0, byte_ps: 100_000 }, 1, None).0 - free;
    assert!((10_000.0..200_000.0).contains(&bytes), "{bytes} ns more");
}

#[test]
fn a_core_that_has_much_to_do_lets_clients_wait_for_one_another() {
    let more = |clients| {
        let with = mean_ns(Cost { packet_ns: 20_000, byte_ps: 0 }, clients, None).0;
        with - mean_ns(Cost::default(), clients, None).0
    };
    let (alone, among_twenty) = (more(1), more(20));
    // A closed loop, each of whose requests takes one core two packets' time.
    assert!(among_twenty > 5.0 * alone, "{alone} ns more alone, {among_twenty} ns among twenty");
}

#[test]
fn connections_outlive_a_device_that_breaks() {
    let sound = mean_ns(Cost::default(), 5, None);
    let broken = mean_ns(Cost::default(), 5, Some((3_000_000, 50_000_000)));
    assert_eq!((sound.1, broken.1), (0, 1));
    assert!(broken.0 > sound.0, "{} ns, and {} ns with a device that broke", sound.0, broken.0);
}
