//! The shortest way from nothing to an application and back.

use nom_system_tests::{Guest, MachineKind};

#[test]
fn hello_runs_on_both_machines() {
    for kind in [MachineKind::Q35, MachineKind::Microvm] {
        let life = Guest::app("hello").machine(kind).run().expect_status(0).expect("Hello from nom!");
        life.report("started app=hello");
        life.report("exited app=hello status=0");
    }
}

#[test]
fn the_smallest_and_the_largest_machine_boot() {
    for kind in [MachineKind::Q35, MachineKind::Microvm] {
        for memory in ["2M", "64G"] {
            let life = Guest::app("hello").machine(kind).memory(memory).run();
            life.expect_status(0).expect("Hello from nom!");
        }
    }
}
