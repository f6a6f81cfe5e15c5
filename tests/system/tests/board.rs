//! The bulletin board against what the machine was made of.

use nom_system_tests::{Guest, MachineKind};

#[test]
fn the_board_tells_the_truth() {
    for kind in [MachineKind::Q35, MachineKind::Microvm] {
        let guest = Guest::bundle("tests/guest/bundles/board.toml").machine(kind);
        guest.cpus(2).memory("96M").run().expect_status(0).expect_no("FAILED").expect("dma=trusted");
    }
}

/// An Intel processor that denies nothing is taken for one that has every flaw.
#[test]
fn the_board_tells_what_the_processor_betrays() {
    for (vendor, hazards) in [("GenuineIntel", "meltdown,mds,spectre"), ("AuthenticAMD", "spectre")] {
        let guest = Guest::bundle("tests/guest/bundles/board.toml").emulated().cpus(2).memory("96M");
        let life = guest.qemu(&format!("-cpu max,vendor={vendor}")).run();
        life.expect_status(0).expect(&format!("unmitigated={hazards}."));
    }
}
