//! What a seed does, it does again. The suite `sim` does this with every scenario, at full speed; here are
//! those that are quick without optimisation.

use nom_sim::{Scenario, run};

#[test]
fn a_seed_replays_bit_for_bit() {
    for scenario in [Scenario::Memcached, Scenario::Http] {
        let first = run(scenario, 1, false);
        assert_eq!(first, run(scenario, 1, false), "{scenario:?}: the second run went another way");
        assert!(first.achieved > 0 && first.frames > 0, "{scenario:?}: nothing happened: {first:?}");
    }
}

#[test]
fn seeds_differ() {
    assert_ne!(run(Scenario::Http, 1, false).hash, run(Scenario::Http, 2, false).hash);
}
