//! The bulletin board against what the machine was made of.

use nom_system_tests::{Guest, Life, MachineKind};
use rustix::process::{Pid, Signal, kill_process};
use std::thread::sleep;
use std::time::Duration;

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

/// What measures the clock comes round after 55 ms: a processor that its host does not run for longer misses
/// a round of it, and must not take that time for none.
#[test]
fn a_host_that_stops_the_machine_at_boot_does_not_slow_its_clock() {
    let guest = || Guest::app("hello").emulated();
    let rate = |life: Life| -> f64 {
        life.report("boot").field("tsc_hz").and_then(|hz| hz.parse().ok()).expect("a rate")
    };
    let calm = rate(guest().run());
    for _ in 0..5 {
        let mut vm = guest().boot();
        let id = Pid::from_raw(vm.process_id().cast_signed()).expect("QEMU's process");
        for _ in 0..40 {
            kill_process(id, Signal::STOP).expect("it is stopped");
            sleep(Duration::from_millis(70));
            kill_process(id, Signal::CONT).expect("it goes on");
            sleep(Duration::from_millis(4));
        }
        let disturbed = rate(vm.finish().expect_status(0));
        assert!((disturbed / calm - 1.0).abs() < 0.01, "{disturbed} Hz in place of {calm}");
    }
}
