//! The batching delay W, as it was promised: no packet is held longer, W = 0 holds none, and the mean latency
//! of a single client grows by W within 5%.

use crate::random::Random;
use crate::scenario::quiet;
use crate::world::{Outcome, World};
use std::time::Duration;

/// Answers at the beginning that do not count: the first waits for the neighbour's address.
const WARMUP: usize = 10;

const LIMIT: Duration = Duration::from_secs(600);

/// Measures a single client at several W, and looks at many clients.
///
/// # Panics
/// If W is not what it must be.
pub fn run(seed: u64, is_printed: bool) -> Outcome {
    let mut random = Random::new(seed);
    let mut total = Outcome { hash: 0, virtual_ns: 0, frames: 0, achieved: 0 };
    let without_ns = single(seed, 0, is_printed, &mut total);
    for micros in [10, 40, 100, 1000, 1 + random.within(0..10_000)] {
        let with_ns = single(seed, micros, is_printed, &mut total);
        let w_ns = (micros * 1000) as f64;
        let growth_ns = with_ns - without_ns;
        // A clock that is wrong by a thousandth measures so.
        let most_ns = 0.05 * w_ns + 0.002 * without_ns;
        assert!(
            (growth_ns - w_ns).abs() <= most_ns,
            "W = {micros} us made the mean latency of a single client {growth_ns} ns longer"
        );
    }
    for micros in [0, random.within(1..10_001)] {
        many(seed, micros, is_printed, &mut total);
    }
    crate::govern::run(seed, &mut random, &mut total);
    total
}

pub(crate) fn finish(world: &mut World, total: &mut Outcome) {
    let outcome = world.run(LIMIT);
    total.hash = total.hash.rotate_left(1) ^ outcome.hash;
    total.virtual_ns += outcome.virtual_ns;
    total.frames += outcome.frames;
    total.achieved += outcome.achieved;
}

/// The mean latency of one client with W = `micros`, in nanoseconds.
fn single(seed: u64, micros: u64, is_printed: bool, total: &mut Outcome) -> f64 {
    let (mut world, _, latencies) = quiet(seed, micros, 1, is_printed);
    finish(&mut world, total);
    let latencies = latencies.borrow();
    let counted = &latencies[WARMUP..];
    counted.iter().sum::<u64>() as f64 / counted.len() as f64
}

/// The world checks after every event that nothing is held too long; this looks at why batches were flushed.
fn many(seed: u64, micros: u64, is_printed: bool, total: &mut Outcome) {
    let (mut world, server, _) = quiet(seed, micros, 30, is_printed);
    finish(&mut world, total);
    let host = world.host(server);
    let held_ns = host.tally().held_max_ns;
    let (received, sent) = host.tallies();
    if micros > 0 {
        assert!(held_ns > 0 && sent.time.flushes > 0, "W = {micros} us held nothing");
        return;
    }
    assert!(held_ns == 0, "W = 0 held a packet for {held_ns} ns");
    let held = [received.time, received.ring, received.nothing_more, sent.time, sent.ring, sent.nothing_more];
    assert!(held.iter().all(|tally| tally.flushes == 0), "W = 0 flushed a batch that was held: {held:?}");
    assert!(
        received.unheld.packets == received.unheld.flushes,
        "with W = 0 a packet was handled together with the next"
    );
}
