//! Devices without PCI, as `microvm` has them.

use nom_system_tests::{Guest, MachineKind, Server};

fn device() -> Guest {
    Guest::bundle("tests/guest/bundles/device.toml").machine(MachineKind::Microvm)
}

#[test]
fn an_application_drives_a_device_without_pci() {
    let life = device().device("virtio-rng-device").device("virtio-serial-device").run();
    life.expect_status(0).expect_no("FAILED").expect("ok interrupts-as-upcalls").expect("ok not-its-device");
}

/// A page is mapped as a whole: whoever had one of the two would drive both. The second is not even named.
#[test]
fn a_page_with_two_devices_is_nobodys() {
    let second = "-device virtio-serial-device,bus=virtio-mmio-bus.2";
    let life = device().device("virtio-rng-device").qemu(second).run();
    life.expect("another device has registers in the same page")
        .expect("FAILED ownership: unexpected error NoDevice");
}

#[test]
fn a_legacy_device_is_refused_by_name() {
    let legacy = "-global virtio-mmio.force-legacy=true";
    device().device("virtio-rng-device").qemu(legacy).run().expect("a legacy device (QEMU: -global");
}

/// Frames by polling and by interrupts, on split rings and, where QEMU offers them, packed ones.
#[test]
fn the_gateway_answers_without_pci() {
    for (properties, layout) in [("", "split"), (",packed=on", "packed")] {
        let guest = Guest::bundle("tests/guest/bundles/net.toml").machine(MachineKind::Microvm);
        let device = format!("virtio-net-device,netdev=net0{properties}");
        let life = guest.qemu("-netdev user,id=net0,restrict=on").device(&device).run();
        let life = life.expect_status(0).expect_no("FAILED").expect("ok net-polling");
        life.expect("ok net-interrupts").expect(&format!("net layout={layout}"));
    }
}

#[test]
fn memcached_is_capable_without_pci() {
    let guest = Guest::app("memcached").machine(MachineKind::Microvm).memory("128M");
    let server = Server::boot(guest, 11211);
    if let Some(said) = server.load("memccapable", "-h {host} -p {port}") {
        assert!(said.contains("All tests passed"), "{said}");
    }
}
