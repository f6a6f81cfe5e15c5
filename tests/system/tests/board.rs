//! The bulletin board against what the machine was made of.

use nom_system_tests::{Guest, MachineKind};

#[test]
fn the_board_tells_the_truth() {
    for kind in [MachineKind::Q35, MachineKind::Microvm] {
        let guest = Guest::bundle("tests/guest/bundles/board.toml").machine(kind);
        guest.cpus(2).memory("96M").run().expect_status(0).expect_no("FAILED").expect("dma=trusted");
    }
}
