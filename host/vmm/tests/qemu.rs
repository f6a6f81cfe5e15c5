//! Machines that QEMU really runs, with the probe image in the kernel's place.

use nom_vmm::meminfo;
use nom_vmm::probe_image::{CONTROL, EXIT, ProbeImage, SERIAL};
use nom_vmm::qemu::{DetachedMachine, ProcessIdentity};
use nom_vmm::qmp::Monitor;
use nom_vmm::{
    Allocation, Ending, Iommu, MachineConfig, MachineKind, Network, Outcome, PluggedDevice, Qemu, Session,
    Vmm,
};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

fn prepare(image: ProbeImage) -> (TempDir, MachineConfig) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("image");
    std::fs::write(&file, image.build()).expect("the image is written");
    (directory, MachineConfig::new(file))
}

fn start(directory: &TempDir, config: &MachineConfig) -> Session {
    Session::new(Qemu.start(config, directory.path()).expect("QEMU starts"))
}

fn run(image: ProbeImage, change: impl FnOnce(&mut MachineConfig)) -> Outcome {
    let (directory, mut config) = prepare(image);
    change(&mut config);
    start(&directory, &config).finish(PATIENCE).expect("watched to its end")
}

fn greeting() -> ProbeImage {
    ProbeImage::new().output(SERIAL, b"hello\n").output(CONTROL, b"boot clock=none\nhalt status=7\n")
}

#[test]
fn both_machines_deliver_output_reports_and_status() {
    for kind in MachineKind::ALL {
        let outcome = run(greeting().output(EXIT, &[0x10]), |config| config.kind = *kind);
        assert_eq!(outcome.ending, Ending::Halted(7), "{kind}: {outcome:?}");
        assert_eq!(outcome.serial, "hello\n", "{kind}");
        assert_eq!(outcome.control[0].field("clock"), Some("none"), "{kind}");
    }
}

#[test]
fn a_panic_is_told_from_an_orderly_end() {
    let outcome = run(greeting().output(EXIT, &[0x11]), |_| {});
    assert_eq!((outcome.ending, outcome.serial.as_str()), (Ending::Panicked, "hello\n"));
}

#[test]
fn a_machine_that_does_not_end_is_killed() {
    let (directory, config) = prepare(greeting());
    let mut session = start(&directory, &config);
    assert!(session.wait_until(PATIENCE, |session| session.serial() == "hello\n").expect("watched"));
    let outcome = session.finish(Duration::from_millis(1)).expect("watched");
    assert!(outcome.timed_out);
    assert_eq!(outcome.ending, Ending::Stopped);
}

#[test]
fn a_dropped_machine_leaves_no_process() {
    let (directory, config) = prepare(greeting());
    let mut session = start(&directory, &config);
    let process = ProcessIdentity::of(session.machine().process_id()).expect("it runs");
    drop(session);
    assert!(!process.is_running());
}

#[test]
fn what_qemu_refuses_is_said_in_its_words() {
    let outcome = run(greeting(), |config| config.devices = vec!["no-such-device".to_owned()]);
    let Ending::Failed(reason) = outcome.ending else { panic!("{outcome:?}") };
    assert!(reason.contains("no-such-device"), "{reason}");
}

#[test]
fn every_shape_of_machine_starts() {
    let image = || greeting().output(EXIT, &[0x10]);
    let shapes: &[fn(&mut MachineConfig)] = &[
        |c| c.iommu = Iommu::Virtio,
        |c| c.iommu = Iommu::Intel,
        |c| c.cores = 64,
        |c| c.memory = "2M".parse().expect("a size"),
        |c| (c.allocation, c.kind) = (Allocation::Immediate, MachineKind::Microvm),
        |c| (c.kind, c.hotplug_slots) = (MachineKind::Microvm, 2),
        |c| (c.networks, c.iommu) = (vec![Network::default(); 2], Iommu::Virtio),
        |c| (c.networks, c.kind) = (vec![Network::default(); 2], MachineKind::Microvm),
    ];
    for (number, shape) in shapes.iter().enumerate() {
        let outcome = run(image(), shape);
        assert_eq!(outcome.ending, Ending::Halted(7), "shape {number}: {outcome:?}");
    }
}

#[test]
fn only_memory_taken_at_the_start_is_held_by_a_machine_that_touches_none() {
    let holds_kib = |allocation| {
        let (directory, config) = prepare(greeting());
        let memory = "256M".parse().expect("a size");
        let mut session = start(&directory, &MachineConfig { memory, allocation, ..config });
        assert!(session.wait_until(PATIENCE, |session| session.serial() == "hello\n").expect("watched"));
        let status = format!("/proc/{}/status", session.machine().process_id());
        let status = std::fs::read_to_string(status).expect("QEMU runs");
        meminfo::value(&status, "VmRSS").expect("Linux counts it")
    };
    assert!(holds_kib(Allocation::Immediate) >= 256 << 10);
    assert!(holds_kib(Allocation::OnDemand) < 256 << 10);
}

#[test]
fn a_machine_starts_in_its_own_namespace() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: a TAP device needs root");
        return;
    }
    let namespace = nom_vmm::Namespace::create("test-qemu", 2).expect("made");
    let outcome = run(greeting().output(EXIT, &[0x10]), |config| config.networks = vec![namespace.network()]);
    assert_eq!(outcome.ending, Ending::Halted(7), "{outcome:?}");
    let (directory, mut config) = prepare(greeting());
    config.networks = vec![namespace.network()];
    let mut session = start(&directory, &config);
    assert!(session.wait_until(PATIENCE, |session| session.serial() == "hello\n").expect("watched"));
    let inside = namespace.command("ip").args(["netns", "pids", namespace.name()]).output().expect("ip runs");
    let inside = String::from_utf8_lossy(&inside.stdout).into_owned();
    let ours = session.machine().process_id().to_string();
    assert!(inside.lines().any(|process| process == ours), "{ours} is not among {inside}");
}

#[test]
fn devices_come_and_go_by_the_monitor() {
    let (directory, mut config) = prepare(greeting());
    config.hotplug_slots = 1;
    let mut session = start(&directory, &config);
    assert!(session.wait_until(PATIENCE, |session| session.serial() == "hello\n").expect("watched"));
    let device = PluggedDevice {
        driver: "virtio-rng-pci".to_owned(),
        id: "entropy".to_owned(),
        slot: 0,
        properties: Default::default(),
    };
    session.machine().plug(&device).expect("plugged");
    let refusal = session.machine().plug(&device).expect_err("the slot is taken");
    assert!(format!("{refusal:#}").contains("device_add"), "{refusal:#}");
    // This guest never switched the slot's power on, so the device leaves at once.
    session.machine().unplug("entropy", PATIENCE).expect("unplugged");
    let refusal = session.machine().unplug("entropy", PATIENCE).expect_err("it is gone");
    assert!(format!("{refusal:#}").contains("entropy"), "{refusal:#}");
}

#[test]
fn a_detached_machine_runs_on_until_it_is_stopped() {
    let (directory, config) = prepare(greeting());
    let pid = Qemu.start_detached(&config, directory.path()).expect("it starts");
    let process = ProcessIdentity::of(pid).expect("it runs");
    let mut monitor = Monitor::connect(directory.path(), "qmp.sock").expect("its monitor listens");
    let status = monitor.execute("query-status", serde_json::json!({})).expect("it answers");
    assert_eq!(status["status"], "running");
    drop(monitor);
    let log = || std::fs::read_to_string(directory.path().join("serial.log")).expect("a log");
    let deadline = Instant::now() + PATIENCE;
    while log() != "hello\n" {
        assert!(Instant::now() < deadline, "the log has `{}`", log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let machine = DetachedMachine::new(directory.path().to_owned(), process);
    let obeyed = machine.stop(Duration::from_millis(300)).expect("stopped");
    assert!(!obeyed && !process.is_running(), "it hears nothing, and is killed");
}

#[test]
fn a_detached_machine_that_cannot_start_says_why() {
    let (directory, mut config) = prepare(greeting());
    config.devices = vec!["no-such-device".to_owned()];
    let refusal = Qemu.start_detached(&config, directory.path()).expect_err("refused");
    assert!(refusal.to_string().contains("no-such-device"), "{refusal}");
}
