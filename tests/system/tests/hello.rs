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
