//! The border between the rings, against programs that mean no good.

use nom_system_tests::{Guest, Iommu, MachineKind};
use nom_vmm::qmp::Monitor;

#[test]
fn the_kernel_minds_no_state_of_the_processor() {
    Guest::bundle("tests/guest/bundles/crossing.toml").run().expect_status(0).expect_no("FAILED");
}

#[test]
fn random_system_calls_end_at_most_their_application() {
    for processors in [1, 3] {
        let guest = Guest::bundle("tests/guest/bundles/fuzz.toml").cpus(processors).memory("128M");
        let life = guest.device("virtio-rng-pci").log("error").run();
        life.expect_status(0).expect_no("FAILED").expect("ok lifecycle").expect("ok neighbour-undisturbed");
    }
}

#[test]
fn every_way_into_the_kernel_ends_where_it_began() {
    for kind in [MachineKind::Q35, MachineKind::Microvm] {
        let guest = Guest::bundle("tests/guest/bundles/rings.toml").machine(kind).cpus(2);
        guest.run().expect_status(0).expect_no("FAILED").expect("ok neighbour-undisturbed");
    }
}

/// They come at any instruction of applications and kernel, and are nobody's exception.
#[test]
fn non_maskable_interrupts_are_no_applications_exceptions() {
    const MONITOR: &str = "second.sock";
    let guest = Guest::bundle("tests/guest/bundles/rings.toml").cpus(2).arguments(&["10"]);
    let mut vm = guest.qemu(&format!("-qmp unix:{MONITOR},server=on,wait=off")).boot();
    vm.wait_for("ok segments");
    let mut monitor = Monitor::connect(vm.directory(), MONITOR).expect("a second monitor");
    for _ in 0..2_000 {
        if monitor.execute("inject-nmi", serde_json::json!({})).is_err() {
            break; // The machine has ended.
        }
    }
    let life = vm.finish().expect_status(0).expect_no("FAILED").expect("ok neighbour-undisturbed");
    let reports = life.serial.matches("non-maskable interrupts or late debug exceptions").count();
    assert!((1..20).contains(&reports), "{reports} reports of 2,000 are seldom, but not none");
}

/// Processors that take turns, and time that is counted in instructions: what comes through while a peer does
/// a piece of its work is the same whatever else the computer does.
fn counted(guest: Guest) -> Guest {
    guest.emulated().qemu("-icount shift=3,sleep=off")
}

/// Each thing that the greedy one does is done in many pieces, and between two of them others come in.
#[test]
fn nobody_is_kept_out_of_the_kernel() {
    for what in ["grants", "console"] {
        let manifest = format!("tests/guest/bundles/starved-{what}.toml");
        let life = counted(Guest::bundle(&manifest).cpus(2).memory("256M")).run().expect_status(0);
        println!("{what}: {} calls came through", life.number("starved calls="));
    }
}

/// What a device is to reach is told the IOMMU page by page, each time it has an owner.
#[test]
fn nobody_is_kept_out_of_the_kernel_by_devices_that_come_and_go() {
    for iommu in [Iommu::Virtio, Iommu::Intel] {
        let guest = Guest::bundle("tests/guest/bundles/starved-devices.toml").cpus(2).memory("256M");
        let guest = guest.iommu(iommu).device("virtio-rng-pci,iommu_platform=on,disable-legacy=on");
        let life = counted(guest).run().expect_status(0);
        println!("{iommu:?}: {} calls came through", life.number("starved calls="));
    }
}

/// Who holds the kernel's lock may be a processor that the computer does not run, while those that it runs
/// wait for it. Calls that come through, with as many processors as the computer has and with twice as many,
/// in turns.
#[test]
fn the_lock_bears_more_processors_than_the_computer_has() {
    let real = std::thread::available_parallelism().map_or(2, |count| count.get() as u32).min(16);
    let calls = |processors| {
        let life = Guest::bundle("tests/guest/bundles/contend.toml").cpus(processors).run().expect_status(0);
        life.number("calls=") as f64
    };
    let ratios: Vec<f64> = (0..3).map(|_| (1.0 / calls(real)) * calls(2 * real)).collect();
    println!("calls with twice the processors, against as many as there are: {ratios:.2?}");
    assert!(ratios.iter().any(|ratio| *ratio >= 1.0 / 3.0), "it collapses: {ratios:.2?}");
}

/// What others use is a secret, and a program makes the calls that it contains or that its manifest lists.
#[test]
fn a_manifest_gives_rights() {
    let life = Guest::bundle("tests/guest/bundles/rights.toml").run();
    let checks = [
        "what-others-use-is-hidden",
        "what-others-use-is-shown-to-a-monitor",
        "calls-that-are-not-linked-are-refused",
        "calls-that-the-manifest-lists-are-made",
    ];
    let life = life.expect_status(0).expect_no("FAILED").expect("confined may not call device_acquire");
    // Who may not wait ends, and says why, instead of asking again for ever.
    let life = life.expect("refuses to let the program wait (NotPermitted): see `calls` in its manifest");
    checks.into_iter().fold(life, |life, check| life.expect(&format!("ok {check}")));
}
