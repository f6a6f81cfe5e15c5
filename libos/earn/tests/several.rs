//! Delay, cores, memory and admission as one decision, as the real governors of a simulated server make it.

mod common;

use common::estate::Estate;
use nom_economy_sim::resources::Resources;

const ALL: &str = "batching_delay,cores,memory,admission";

fn share(seed: u64) -> f64 {
    let scenario = Resources::random(seed);
    let earned = Estate::new(&scenario, ALL, seed).live();
    let profit: f64 = earned.iter().map(|earned| earned.profit).sum();
    profit / earned.iter().map(|earned| earned.oracle).sum::<f64>()
}

#[test]
fn knobs_that_move_one_at_a_time_find_the_best_of_all_settings() {
    // Where each knob decided by itself these made 42%, 47%, 68% and 50%: all of them answered the same loss.
    for seed in [100_053, 100_003, 100_035, 100_023] {
        let share = share(seed);
        assert!(share > 0.85, "seed {seed}: {share}");
    }
}

#[test]
fn a_loss_that_more_cores_end_refuses_nobody_for_good() {
    // Where each knob decided by itself: 1% and 33%, with one core, no client and 2 MiB at the end.
    for seed in [100_025, 100_013] {
        let share = share(seed);
        assert!(share > 0.85, "seed {seed}: {share}");
    }
}
