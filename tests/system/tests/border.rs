//! The border between the rings, against programs that mean no good.

use nom_system_tests::Guest;

#[test]
fn the_kernel_minds_no_state_of_the_processor() {
    Guest::bundle("tests/guest/bundles/crossing.toml").run().expect_status(0).expect_no("FAILED");
}

#[test]
fn random_system_calls_end_at_most_their_application() {
    for processors in [1, 3] {
        let guest = Guest::bundle("tests/guest/bundles/fuzz.toml").cpus(processors).memory("128M");
        let life = guest.device("virtio-rng-pci").log("error").run();
        life.expect_status(0).expect_no("FAILED").expect("ok lifecycle").expect("ok neighbour-undisturbed");
    }
}
