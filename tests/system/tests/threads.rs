//! What it takes to go from one thread of a core to another, in guest instructions.

use nom_system_tests::Guest;

/// Most instructions of a switch, with what the core's loop takes in between.
const MOST: [(&str, u64); 3] = [("yield", 150), ("yield_of_16", 150), ("wake_and_block", 736)];

/// Whoever computes for long makes way for others of its core, and alone on it is left alone.
#[test]
fn computing_threads_are_interrupted_for_others() {
    let life = Guest::bundle("tests/guest/bundles/threads.toml").run().expect_status(0).expect_no("FAILED");
    life.expect("ok computing-starves-nobody").expect("ok computing-alone-is-tickless");
}

#[test]
fn a_switch_between_threads_costs_what_is_promised() {
    let guest = Guest::bundle("tests/guest/bundles/threads.toml");
    let counted = guest.emulated().qemu("-icount shift=0").run().expect_status(0);
    let counted =
        MOST.map(|(name, most)| (name, counted.number(&format!("figure name={name} cycles=")), most));
    println!("{counted:?}");
    for (name, instructions, most) in counted {
        assert!((1..=most).contains(&instructions), "{name} takes {instructions} instructions");
    }
}
