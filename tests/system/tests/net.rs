//! Network devices, driven by applications.

use nom_system_tests::{Guest, Iommu, MachineKind};

const BUNDLE: &str = "tests/guest/bundles/net.toml";

/// A machine with the application under test and a network device with these properties.
fn guest(kind: MachineKind, properties: &str) -> Guest {
    let device = format!("virtio-net-pci,disable-legacy=on,netdev=net0{properties}");
    Guest::bundle(BUNDLE).machine(kind).qemu("-netdev user,id=net0,restrict=on").device(&device)
}

fn the_gateway_answers(kind: MachineKind, properties: &str, layout: &str) {
    let life = guest(kind, properties).run().expect_status(0).expect_no("FAILED");
    life.expect(&format!("net layout={layout}")).expect("ok net-polling").expect("ok net-interrupts");
}

#[test]
fn split_rings_carry_frames() {
    the_gateway_answers(MachineKind::Q35, "", "split");
    the_gateway_answers(MachineKind::Microvm, "", "split");
}

#[test]
fn packed_rings_carry_frames() {
    the_gateway_answers(MachineKind::Q35, ",packed=on", "packed");
    the_gateway_answers(MachineKind::Microvm, ",packed=on", "packed");
}

#[test]
fn a_queue_pair_works_on_another_core() {
    let life = guest(MachineKind::Q35, "").cpus(2).run().expect_status(0).expect_no("FAILED");
    life.expect("net cores=2 pairs=1").expect("net pair=0 received=50").expect("ok net-cores");
}

#[test]
fn an_iommu_lets_frames_through() {
    let device = ",iommu_platform=on";
    let life = guest(MachineKind::Q35, device).iommu(Iommu::Virtio).cpus(2).run();
    let life = life.expect_status(0).expect_no("FAILED").expect("ok net-interrupts");
    life.report("boot dma=virtio-iommu");
}

/// What the driver adds to a frame, in instructions: a bound against carelessness, not a promise.
#[test]
fn a_frame_costs_few_instructions() {
    for properties in ["", ",packed=on"] {
        let counted = guest(MachineKind::Q35, properties).emulated().qemu("-icount shift=0");
        let life = counted.run().expect_status(0);
        life.serial.lines().filter(|line| line.starts_with("net cost")).for_each(|line| println!("{line}"));
        for label in ["net cost slices=0 transmit=", "net cost slices=1 transmit=", "receive="] {
            let instructions = life.number(label);
            assert!(instructions < 1000, "{label}{instructions} with `{properties}`");
        }
    }
}
