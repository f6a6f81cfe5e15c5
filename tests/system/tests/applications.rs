//! Applications: what they are told, how they end, and that nothing of them stays.

use nom_system_tests::{Guest, MachineKind};
use std::time::Duration;

#[test]
fn arguments_environment_and_status_pass_the_border() {
    Guest::bundle("tests/guest/bundles/show.toml")
        .run()
        .expect_status(42)
        .expect("argument 0 `one`")
        .expect("argument 1 ``")
        .expect("argument 2 `two words`")
        .expect("argument 3 `ümläut`")
        .expect("variable GREETING `hello = world`");
}

#[test]
fn arguments_of_the_command_replace_those_of_the_manifest() {
    let guest = Guest::bundle("tests/guest/bundles/show.toml").arguments(&["other"]);
    guest.run().expect_status(42).expect("argument 0 `other`").expect_no("`one`");
}

#[test]
fn everything_lies_elsewhere_at_each_boot() {
    let boot = || Guest::bundle("tests/guest/bundles/place.toml").run().expect_status(0);
    let (first, second) = (boot(), boot());
    for part in ["image", "stack", "start", "board", "channel", "region", "seed"] {
        let label = format!("place {part}=");
        assert_ne!(first.after(&label), second.after(&label), "{part}");
    }
}

/// The supervisor starts one offender after the other, beside a neighbour that must not notice.
fn misdeeds(guest: Guest) {
    let life = guest.run().expect_status(0).expect_no("FAILED").expect("ok neighbour-undisturbed");
    for report in [
        "read-null faulted on core",
        "read of 0x0, which is not mapped",
        "write to 0x8, which is not mapped",
        "execution of 0x0, which is not mapped",
        "divide-by-zero faulted on core",
        "divide error (vector 0",
        "undefined-instruction faulted on core",
        "invalid opcode (vector 6",
        "halt faulted on core",
        "general protection (vector 13",
        "nom_guest_tests::misdeeds::", // The backtrace knows functions by their names.
        "panicked at",
        "stack overflow: raise `stack` (write to",
    ] {
        assert!(life.serial.contains(report), "expected `{report}` on the console");
    }
    for offender in
        ["write-code", "write-board", "write-prices", "execute-stack", "stack-overflow", "fault-in-handler"]
    {
        assert_eq!(life.report(&format!("faulted app={offender}")).field("status"), Some("139"));
    }
}

#[test]
fn a_panic_tells_by_which_functions_it_came_to_pass() {
    let guest = || Guest::bundle("tests/guest/bundles/panic.toml");
    let life = guest().run().expect_status(101).expect("panicked at").expect("as asked");
    let trace: Vec<&str> = life.serial.lines().filter(|line| line.contains("  #")).collect();
    let is_named = |name: &str| trace.iter().any(|line| line.contains(name));
    assert!(is_named("core::panicking::panic_fmt+") && is_named("nom_main+"), "{trace:#?}");
    let bare = guest().without_symbols().run().expect_status(101).expect("as asked");
    let (number, place) = bare.after("  #0").split_once("image+0x").expect("an address of the image");
    assert!(number.is_empty() && u64::from_str_radix(place, 16).is_ok(), "{place}");
}

#[test]
fn a_fault_ends_its_application_alone_on_one_processor() {
    misdeeds(Guest::bundle("tests/guest/bundles/misdeeds.toml"));
}

#[test]
fn a_fault_ends_its_application_alone_on_several_processors() {
    misdeeds(Guest::bundle("tests/guest/bundles/misdeeds.toml").cpus(3).machine(MachineKind::Microvm));
}

#[test]
fn ten_thousand_lives_leave_no_trace() {
    Guest::bundle("tests/guest/bundles/lifecycle.toml")
        .cpus(2)
        .memory("128M")
        .log("error")
        .boot()
        .patience(Duration::from_secs(900))
        .finish()
        .expect_status(0)
        .expect_no("FAILED")
        .expect("lifecycle rounds=10000")
        .expect("ok neighbour-undisturbed");
}

#[test]
fn caps_hold() {
    Guest::bundle("tests/guest/bundles/cap.toml").cpus(2).run().expect_status(0).expect_no("FAILED");
}
