//! Grants of memory, and memory management by applications.

use nom_system_tests::Guest;

#[test]
fn memory_comes_by_size_and_colour_and_every_error_changes_nothing() {
    Guest::bundle("tests/guest/bundles/grants.toml").memory("3G").run().expect_status(0).expect_no("FAILED");
}

#[test]
fn an_application_pages_on_demand_copies_on_write_and_evicts() {
    Guest::bundle("tests/guest/bundles/pager.toml")
        .run()
        .expect_status(0)
        .expect("ok demand-paging")
        .expect("ok copy-on-write")
        .expect("ok pager-with-backing-store");
}
