//! What passes a narrow line that delays, loses and reorders, beside what could: exact, as time is
//! virtual and the dice fall as seeds say.

mod common;

use common::{Device, Faults, Line, Machine, Peer, Random, World, bytes, config};
use nom_net::Instant;
use nom_net::counters::Counters;
use nom_port::nic::Offloads;
use std::net::SocketAddr;
use std::time::Duration;

/// Bits a second that the line carries.
const RATE: u64 = 50_000_000;
/// Payload of a full segment, with timestamps, and what it takes on the line.
const PAYLOAD: f64 = 1448.0;
const FRAME: f64 = 1514.0;

#[derive(Clone, Copy, Debug)]
struct Point {
    rtt_ms: u64,
    /// Of a million.
    loss: u64,
    /// Of a million.
    late: u64,
    /// How long what waits in front of the line may wait.
    queue_ms: u64,
    seconds: u64,
}

/// Bits a second that arrive, and what the sender counted.
fn measure(point: Point, seed: u64) -> (f64, Counters) {
    let len = (point.seconds * RATE / 8) as usize;
    let machine =
        |number, peer| Machine::new(Device::new(number, Offloads::default()), config(number, seed), peer);
    let left = machine(1, Peer::sending(bytes(&mut Random::new(seed), len)));
    let right = machine(2, Peer { is_closing_when_sent: true, ..Peer::default() });
    let mut world = World::new(left, right, seed, Faults::default());
    world.delay = Duration::from_millis(point.rtt_ms) / 2;
    let (queue, busy) = (Duration::from_millis(point.queue_ms), [Instant::default(); 2]);
    world.line = Some(Line { rate: RATE, queue, loss: point.loss, late: point.late, busy });
    world.right.stack.listen(80);
    let flow = world.left.stack.connect(SocketAddr::from(([10, 0, 0, 2], 80))).unwrap();
    world.left.application.flow = Some(flow);
    let end = Instant::default() + Duration::from_secs(point.seconds);
    while world.now < end && world.step() {}
    let arrived = &world.right.application.incoming;
    assert!(*arrived == world.left.application.outgoing[..arrived.len()]);
    let bits = arrived.len() as f64 * 8.0;
    (bits / (world.now - Instant::default()).as_secs_f64(), *world.left.stack.counters())
}

/// What could pass: the line's rate, or, where each segment is lost with probability p, what a sender
/// that takes a loss to say that the path is full reaches in the long run: the larger of RFC 9438's
/// figure for Cubic (section 5.1, equation 6) and that of its Reno-friendly sender, which is Reno's
/// (section 4.3).
fn possible(point: Point) -> f64 {
    let line = RATE as f64 * PAYLOAD / FRAME;
    if point.loss == 0 {
        return line;
    }
    let (p, rtt) = (point.loss as f64 / 1e6, point.rtt_ms as f64 / 1e3);
    let window = (1.5 / p).sqrt().max(1.054 * (rtt / p).powf(0.75));
    line.min(window * PAYLOAD * 8.0 / rtt)
}

/// The mean share of what is possible over some seeds, with the counts of all.
fn share(point: Point, seeds: u64) -> (f64, Vec<Counters>) {
    let (rates, counters): (Vec<f64>, Vec<Counters>) = (1..=seeds).map(|seed| measure(point, seed)).unzip();
    let share = rates.iter().sum::<f64>() / seeds as f64 / possible(point);
    println!("{point:?}: {share:.2} of {:.2} Mbit/s", possible(point) / 1e6);
    (share, counters)
}

const CLEAN: Point = Point { rtt_ms: 10, loss: 0, late: 0, queue_ms: 40, seconds: 4 };

#[test]
fn a_clean_path_is_filled() {
    // Over 100 ms and more slow start, which hears of a full path a round trip late, overflows the queue.
    // Were as much sent at once, while that is mended, as the window has room for, it would be 0.72 and 0.52.
    for (rtt_ms, seconds, least) in [(10, 3, 0.95), (50, 4, 0.9), (100, 5, 0.83), (200, 8, 0.75)] {
        let (share, counters) = share(Point { rtt_ms, seconds, ..CLEAN }, 1);
        assert!(share >= least, "{share:.3} of the line at {rtt_ms} ms");
        assert_eq!(counters[0].timeouts, 0, "at {rtt_ms} ms");
    }
}

#[test]
fn a_short_queue_is_enough() {
    // In bursts, twice as fast as the line, a window would overflow it long before the path is full: without
    // pacing these are 0.91, 0.51, 0.50 and 0.24.
    let points = [(20, 5, 4, 0.93), (50, 5, 5, 0.8), (100, 10, 8, 0.6), (200, 10, 10, 0.6)];
    for (rtt_ms, queue_ms, seconds, least) in points {
        let (share, counters) = share(Point { rtt_ms, queue_ms, seconds, ..CLEAN }, 1);
        assert!(share >= least, "{share:.3} of the line at {rtt_ms} ms and a queue of {queue_ms}");
        assert_eq!(counters[0].timeouts, 0, "at {rtt_ms} ms and a queue of {queue_ms}");
    }
}

#[test]
fn what_is_late_by_a_fifth_of_a_round_trip_costs_nothing() {
    let (share, counters) = share(Point { late: 10_000, seconds: 3, ..CLEAN }, 2);
    assert!(share >= 0.95, "{share:.3} of the line");
    assert!(counters.iter().all(|counters| counters.reductions_undone > 0), "{counters:?}");
}

#[test]
fn random_losses_leave_what_the_standard_says() {
    for (rtt_ms, loss, seeds) in [(10, 10_000, 2), (50, 1_000, 2), (50, 10_000, 8), (200, 10_000, 12)] {
        let (share, counters) = share(Point { rtt_ms, loss, seconds: 6, ..CLEAN }, seeds);
        assert!(share >= 0.95, "{share:.3} at {rtt_ms} ms with {loss} of a million lost");
        let timeouts: u64 = counters.iter().map(|counters| counters.timeouts).sum();
        assert!(timeouts <= 1, "{timeouts} timeouts at {rtt_ms} ms with {loss} of a million lost");
    }
}

#[test]
fn a_handshake_that_outlasts_its_timeout_costs_nothing_later() {
    // The first timeout is a second: SYN and its answer go twice. Seven windows that double are a little more
    // than 0.9 Mbit/s; were the timeout taken for a sign that the path is full, it would be 0.06.
    let (rate, counters) = measure(Point { rtt_ms: 1200, seconds: 12, ..CLEAN }, 1);
    println!("{:.2} Mbit/s behind a late handshake", rate / 1e6);
    assert!(rate >= 9e5, "{rate:.0} bit/s");
    assert!(counters.timeouts > 0);
}
