//! Ring 0 as it sees itself, in a kernel that is the shipped one but for a look at what boot made.

use nom_system_tests::{Guest, MachineKind};
use std::collections::BTreeSet;

/// The steps of boot in one of the kernels' lists.
fn steps(path: &str) -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let text = std::fs::read_to_string(format!("{root}/{path}")).expect("the kernel's list");
    let list = text.lines().skip_while(|line| !line.starts_with("fn kernel_main"));
    list.filter(|line| !line.contains("nom_kernel_selfcheck::run()")).map(str::to_owned).collect()
}

#[test]
fn both_kernels_boot_by_the_same_list() {
    let (shipped, checked) = (steps("kernel/src/main.rs"), steps("kernel/selfcheck/src/main.rs"));
    assert!(shipped.len() > 10);
    assert_eq!(shipped, checked);
}

/// Page tables, registers and descriptor tables, of every processor, are what the layout and the processor's
/// features say.
fn all_is_as_expected(guest: Guest, cores: u32) {
    let life = guest.selfcheck().cpus(cores).run().expect_status(0).expect_no("selfcheck FAILED");
    let life = life.expect("selfcheck ok page tables").expect("selfcheck ok processors");
    for core in 0..cores {
        for part in ["registers", "descriptors"] {
            assert!(
                life.serial.contains(&format!("selfcheck ok {part} of core {core}:")),
                "{part} of {core}"
            );
        }
    }
}

#[test]
fn ring_0_is_as_the_layout_says() {
    for kind in [MachineKind::Q35, MachineKind::Microvm] {
        all_is_as_expected(Guest::app("hello").machine(kind), 3);
    }
}

/// An older processor, without SMAP, UMIP and x2APIC, has what it can have; and memory above 4 GiB.
#[test]
fn ring_0_is_as_the_layout_says_on_an_older_processor() {
    all_is_as_expected(
        Guest::app("hello").emulated().qemu("-cpu Westmere,-x2apic").command_line("seed=public"),
        2,
    );
    all_is_as_expected(Guest::app("hello").memory("5G"), 1);
}

/// Who finds a way to read one address of the kernel's half does not know from it where all memory is.
#[test]
fn the_direct_map_is_somewhere_else_at_each_boot() {
    let place = || {
        let life = Guest::app("hello").selfcheck().run().expect_status(0);
        let (_, rest) = life.serial.split_once("direct map at ").expect("the place is told");
        rest.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let places: BTreeSet<String> = (0..3).map(|_| place()).collect();
    assert!(places.len() > 1, "three boots, one place of 65,000: {places:?}");
}
