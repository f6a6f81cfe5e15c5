//! A machine whose power button is pressed tells its applications, and a machine that ends is off.

use nom_system_tests::{Ending, Guest, Iommu, MachineKind, Server};
use std::io::{Read, Write};
use std::net::TcpStream;

const BUNDLE: &str = "tests/guest/bundles/shutdown.toml";

#[test]
fn who_handles_a_shutdown_is_told_and_others_end() {
    for (machine, iommu) in [
        (MachineKind::Q35, Iommu::None),
        (MachineKind::Q35, Iommu::Virtio),
        (MachineKind::Q35, Iommu::Intel),
        (MachineKind::Microvm, Iommu::None),
    ] {
        let mut vm = Guest::bundle(BUNDLE).machine(machine).iommu(iommu).cpus(2).boot();
        vm.wait_for_report("started app=other");
        vm.wait_for("ready\nready\n");
        vm.press_power_button();
        let life = vm.finish().expect_status(7).expect("told 1 time(s)");
        life.report("exited app=other status=143");
    }
}

#[test]
fn a_machine_that_boots_when_the_button_is_pressed_ends() {
    for machine in [MachineKind::Q35, MachineKind::Microvm] {
        let mut vm = Guest::bundle("tests/guest/bundles/shares.toml").machine(machine).boot();
        vm.press_power_button();
        vm.finish().expect_ending(&Ending::Stopped);
    }
}

/// Answers that a client asks for and takes its time to read, and the bytes of each value.
const ANSWERS: usize = 60;
const VALUE: usize = 100_000;

#[test]
fn memcached_on_two_cores_answers_what_was_asked_and_ends() {
    Server::on_cores("shutdown", Guest::app("memcached"), 11211, 2, |server| {
        let mut idle = server.connect();
        let mut client = server.connect();
        let value = "v".repeat(VALUE);
        client.write_all(format!("set k 0 0 {VALUE}\r\n{value}\r\n").as_bytes()).expect("sent");
        let mut stored = [0; 8];
        client.read_exact(&mut stored).expect("it is stored");
        client.write_all("get k\r\n".repeat(ANSWERS).as_bytes()).expect("sent");
        let mut first = [0; 1];
        client.read_exact(&mut first).expect("the first answer begins");
        server.vm.press_power_button();
        let mut nothing = Vec::new();
        idle.read_to_end(&mut nothing).expect("the server closes in order");
        assert_eq!(nothing, b"");
        let late = TcpStream::connect(server.address).and_then(|mut late| late.read(&mut [0; 1]));
        // The other core may accept one more before it hears of the end.
        assert_eq!(late.unwrap_or(0), 0, "nobody is refused half-way");
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).expect("the rest, and an end in order");
        let answer = format!("VALUE k 0 {VALUE}\r\n{value}\r\nEND\r\n");
        assert_eq!(1 + answers.len(), ANSWERS * answer.len());
        server.vm.wait_for_report("halt status=0");
    });
}

#[test]
fn nhttpd_ends_in_order() {
    let server = Server::boot(Guest::app("nhttpd"), 80);
    let mut client = server.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut first = [0; 12];
    client.read_exact(&mut first).expect("answered");
    let Server { mut vm, .. } = server;
    vm.press_power_button();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("the server closes in order");
    vm.finish().expect_status(0);
}
