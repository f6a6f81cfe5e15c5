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

/// Who finds a way to read one address of the kernel's half does not know from it where all memory is, or
/// what code there is to misuse.
#[test]
fn the_kernel_and_the_direct_map_are_somewhere_else_at_each_boot() {
    let places = |command_line: &str| {
        let life = Guest::app("hello").selfcheck().command_line(command_line).run().expect_status(0);
        ["image at ", "direct map at "].map(|what| {
            let (_, rest) = life.serial.split_once(what).expect("the place is told");
            rest.split_whitespace().next().unwrap_or_default().to_owned()
        })
    };
    let boots: Vec<[String; 2]> = (0..3).map(|_| places("")).collect();
    for (what, number) in ["479 of the image", "65,000 of the direct map"].into_iter().zip([0, 1]) {
        let distinct: BTreeSet<&String> = boots.iter().map(|places| &places[number]).collect();
        assert!(distinct.len() > 1, "three boots, one place of {what}: {distinct:?}");
    }
    assert_eq!(places("nokaslr")[0], "0xffffffff80000000", "where a debugger expects it");
}
