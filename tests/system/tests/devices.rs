//! PCI devices, driven by applications.

use nom_system_tests::{Guest, Iommu, MachineKind};

const ENTROPY: &str = "virtio-rng-pci";

#[test]
fn an_application_drives_a_device() {
    for kind in [MachineKind::Q35, MachineKind::Microvm] {
        let guest = Guest::bundle("tests/guest/bundles/device.toml").machine(kind);
        let life = guest.device(ENTROPY).device("virtio-serial-pci").run();
        life.expect_status(0).expect_no("FAILED").expect("ok interrupts-as-upcalls");
    }
}

fn foreign_dma_is_blocked(iommu: Iommu, name: &str) {
    let guest = Guest::bundle("tests/guest/bundles/dma.toml").iommu(iommu).cpus(2);
    guest
        .device("virtio-rng-pci,iommu_platform=on,disable-legacy=on")
        .run()
        .expect_status(0)
        .expect_no("FAILED")
        .expect(&format!("dma protection={name}"))
        .expect("DMA blocked")
        .expect("ok dma-victim");
}

#[test]
fn virtio_iommu_blocks_foreign_dma() {
    foreign_dma_is_blocked(Iommu::Virtio, "virtio-iommu");
}

#[test]
fn intel_iommu_blocks_foreign_dma() {
    foreign_dma_is_blocked(Iommu::Intel, "intel-iommu");
}

#[test]
fn devices_come_and_go() {
    let mut vm = Guest::bundle("tests/guest/bundles/hotplug.toml").hotplug_slots(1).boot();
    for round in 0..2 {
        vm.wait_for(&format!("hotplug round={round} waiting"));
        vm.plug(0, ENTROPY, "entropy", &[]);
        vm.wait_for(&format!("hotplug round={round} device="));
        vm.unplug("entropy");
        vm.wait_for(&format!("hotplug round={round} left"));
    }
    vm.wait_for("hotplug waits for the end");
    vm.plug(0, ENTROPY, "end", &[]);
    vm.finish().expect_status(0).expect("ok hotplug");
}

/// Interrupt messages are writes, and neither unit of this QEMU keeps a device from writing them (a VT-d unit
/// that remaps interrupts is told to, see the kernel's log): so no vector may do harm, whoever sent it.
#[test]
fn forged_interrupts_harm_nobody() {
    for iommu in [Iommu::Virtio, Iommu::Intel] {
        let guest = Guest::bundle("tests/guest/bundles/forger.toml").iommu(iommu).cpus(2);
        let life = guest.device("edu,dma_mask=0xffffffffffffffff").run();
        life.expect_status(0).expect_no("FAILED").expect("ok neighbour-undisturbed");
    }
}

#[test]
fn a_flood_of_blocked_dma_ends_and_fills_no_log() {
    for iommu in [Iommu::Virtio, Iommu::Intel] {
        let guest = Guest::bundle("tests/guest/bundles/flood.toml").iommu(iommu).cpus(2);
        let life = guest.device("virtio-rng-pci,iommu_platform=on,disable-legacy=on").run();
        let life = life.expect_status(0).expect_no("FAILED").expect("ok neighbour-undisturbed");
        let lines = life.serial.matches("DMA blocked").count();
        assert!((1..=8).contains(&lines), "{lines} lines are few, but not none");
    }
}

/// The device has neither a function-level reset nor virtio's: its second owner would drive what the first
/// one left running.
#[test]
fn a_device_that_cannot_be_reset_has_one_owner() {
    let guest = Guest::bundle("tests/guest/bundles/inherit.toml").device("edu");
    guest.run().expect_status(0).expect_no("FAILED").expect("ok one-owner").expect("it has no reset");
}

#[test]
fn applications_have_secrets_or_do_not_start() {
    let guest =
        Guest::bundle("tests/guest/bundles/board.toml").cpus(2).memory("96M").qemu("-cpu max,rdrand=off");
    let life = guest.clone().run().expect("no RDRAND, so no secrets");
    assert!(life.control.iter().all(|line| line.word != "started"), "nobody starts");
    guest.command_line("seed=public").run().expect_status(0).expect_no("FAILED");
}
