//! Processors: acquired, shared, given back, and left alone when there is nothing to do.

use nom_system_tests::{Guest, Life};

fn all_ok(guest: Guest) -> Life {
    guest.run().expect_status(0).expect_no("FAILED")
}

#[test]
fn an_application_works_on_every_processor() {
    for processors in [2, 7] {
        all_ok(Guest::bundle("tests/guest/bundles/many-cores.toml").cpus(processors));
    }
}

#[test]
fn an_application_works_on_sixty_four_processors() {
    all_ok(Guest::bundle("tests/guest/bundles/many-cores.toml").cpus(64).memory("512M"));
}

#[test]
fn work_pauses_and_goes_on_wherever_there_is_a_processor() {
    for processors in [1, 2, 4] {
        all_ok(Guest::bundle("tests/guest/bundles/pauses.toml").cpus(processors));
    }
}

#[test]
fn a_processor_whose_work_pauses_is_its_neighbours() {
    all_ok(Guest::bundle("tests/guest/bundles/pauses-beside.toml").cpus(2))
        .expect("ok neighbour-has-the-processor");
}

/// Within 1% of 50, 33 and 17: the application itself judges.
#[test]
fn shares_follow_weights_on_one_processor() {
    let guest = Guest::bundle("tests/guest/bundles/shares.toml");
    // Time is counted in instructions: a turn in which the host paused the guest would be too long.
    all_ok(guest.emulated().qemu("-icount shift=5")).expect("ok shares");
}

#[test]
fn a_core_is_taken_after_a_warning() {
    all_ok(Guest::bundle("tests/guest/bundles/revoke-ignore.toml"));
}

#[test]
fn a_core_that_is_given_up_when_warned_is_not_taken() {
    all_ok(Guest::bundle("tests/guest/bundles/revoke-yield.toml"));
}

#[test]
fn deadlines_are_kept_and_an_idle_machine_takes_no_interrupts() {
    for processors in [1, 4] {
        all_ok(Guest::bundle("tests/guest/bundles/waits.toml").cpus(processors)).expect("ok tickless-idle");
    }
}

/// A deadline beyond all time is none in the past, whoever names it.
#[test]
fn no_deadline_makes_a_storm_of_timer_interrupts() {
    all_ok(Guest::bundle("tests/guest/bundles/storm.toml").cpus(2)).expect("ok tickless-idle");
}

/// Time is counted in instructions, so that no turn is longer than it should be because the host paused it.
#[test]
fn weights_hold_against_one_that_leaves_before_its_turns_end() {
    let guest = Guest::bundle("tests/guest/bundles/evade.toml").cpus(2);
    all_ok(guest.emulated().qemu("-icount shift=5")).expect("ok weights-cannot-be-evaded");
}

#[test]
fn translations_are_forgotten_on_every_processor() {
    for processors in [1, 3] {
        all_ok(Guest::bundle("tests/guest/bundles/translations.toml").cpus(processors));
    }
}
