//! Messages between applications.

use nom_system_tests::Guest;

#[test]
fn messages_arrive_whole_and_wake_their_receiver() {
    for processors in [1, 2] {
        let life = Guest::bundle("tests/guest/bundles/ring.toml").cpus(processors).run();
        life.expect_status(0).expect("ok ping").expect("ok pong");
    }
}
