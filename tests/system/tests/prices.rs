//! Prices on the bulletin board.

use nom_system_tests::Guest;

#[test]
fn one_application_publishes_prices_and_all_others_only_read_them() {
    for processors in [1, 2] {
        let life = Guest::bundle("tests/guest/bundles/prices.toml").cpus(processors).run();
        let life = life.expect_status(0).expect_no("FAILED").expect("ok prices-published");
        let life = life.expect("ok prices-read").expect("ok prices-forbidden").expect("prices revision=1000");
        assert_eq!(life.report("faulted app=vandal").field("status"), Some("139"));
    }
}
