//! Every scenario from fixed seeds, each twice: what a seed does, it does again.

use clap::ValueEnum as _;
use nom_sim::{Scenario, run};

#[test]
fn a_seed_replays_bit_for_bit() {
    for scenario in Scenario::value_variants() {
        let first = run(*scenario, 1, false);
        assert_eq!(first, run(*scenario, 1, false), "{scenario:?}: the second run went another way");
        assert!(first.achieved > 0 && first.frames > 0, "{scenario:?}: nothing happened: {first:?}");
    }
}

#[test]
fn seeds_differ() {
    assert_ne!(run(Scenario::Http, 1, false).hash, run(Scenario::Http, 2, false).hash);
}
