//! QEMU's network device breaks: somebody who is not the program writes into a ring, which QEMU notices with
//! the next frame (DEVICE_NEEDS_RESET). Servers reset it and go on, with the same connections.

use nom_system_tests::{Guest, Server};
use nom_vmm::qmp::Monitor;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What the console says of a reset.
const TOLD: &str = "the network device broke and was reset: the device says that only a reset helps";

/// A packet of GDB's remote protocol to QEMU, and the answer without its frame.
fn debug(stream: &mut UnixStream, packet: &str) -> String {
    let sum = packet.bytes().fold(0_u8, u8::wrapping_add);
    stream.write_all(format!("${packet}#{sum:02x}").as_bytes()).expect("QEMU listens");
    // That the machine stands still is told unasked.
    std::iter::repeat_with(|| answer(stream)).find(|said| !said.starts_with('T')).expect("an answer")
}

fn answer(stream: &mut UnixStream) -> String {
    let mut said = Vec::new();
    let mut byte = [0];
    while !(said.len() > 3 && said[said.len() - 3] == b'#') {
        assert_eq!(stream.read(&mut byte).expect("an answer"), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    stream.write_all(b"+").expect("QEMU listens");
    let said = String::from_utf8(said).expect("text");
    said.split(['$', '#']).nth(1).expect("a packet").to_owned()
}

/// Has the next buffer of queue `queue` be one that no ring has. The machine stands still meanwhile: what
/// comes between a look and a word, as a late acknowledgement does, would take the buffer first.
fn break_queue(directory: &Path, queue: u32) {
    let mut monitor = Monitor::connect(directory, "qmp.sock").expect("a monitor");
    wait_for_silence(&mut monitor, queue);
    let socket = directory.join("gdb.sock");
    let server = format!("gdbserver unix:{},server=on,wait=off", socket.display());
    monitor.execute("human-monitor-command", json!({ "command-line": server })).expect("a debugger may come");
    let mut debugger = UnixStream::connect(&socket).expect("QEMU waits for a debugger");
    assert_eq!(debug(&mut debugger, "Qqemu.PhyMemMode:1"), "OK");
    let entry = next_entry(&mut monitor, queue);
    assert_eq!(debug(&mut debugger, &format!("M{entry:x},2:ffff")), "OK");
    assert_eq!(debug(&mut debugger, "D"), "OK");
}

/// Where the available ring (section 2.7.6) of queue `queue` names the buffer that the device takes next.
fn next_entry(monitor: &mut Monitor, queue: u32) -> u64 {
    let status = queue_status(monitor, queue);
    let slot = number(&status, "last-avail-idx") % number(&status, "vring-num");
    // Behind flags and index.
    number(&status, "vring-avail") + 4 + 2 * slot
}

fn queue_status(monitor: &mut Monitor, queue: u32) -> Value {
    let devices = monitor.execute("x-query-virtio", json!({})).expect("QEMU knows its devices");
    let all = devices.as_array().expect("a list");
    let net = all.iter().find(|device| device["name"] == "virtio-net").expect("a network device");
    let asked = json!({ "path": net["path"], "queue": queue });
    monitor.execute("x-query-virtio-queue-status", asked).expect("the queue is known")
}

fn number(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// Waits until half a second has brought no frame. One that comes while the machine stands still is delivered
/// as it goes on, and QEMU 7.2 forgets what it tells of the device then: `virtio_set_status` in
/// `hw/virtio/virtio.c` hands the frame on, and writes the status of before over DEVICE_NEEDS_RESET.
fn wait_for_silence(monitor: &mut Monitor, queue: u32) {
    let mut seen = (number(&queue_status(monitor, queue), "last-avail-idx"), 0);
    while seen.1 < 5 {
        std::thread::sleep(Duration::from_millis(100));
        let now = number(&queue_status(monitor, queue), "last-avail-idx");
        seen = if now == seen.0 { (now, seen.1 + 1) } else { (now, 0) };
    }
}

/// Sends a command, and reads the answer up to its `end`; `None` if the connection ends.
fn ask(stream: &mut TcpStream, command: &str, end: &str) -> Option<String> {
    stream.write_all(command.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(end.as_bytes()) {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        answer.push(byte[0]);
    }
    Some(String::from_utf8(answer).expect("text"))
}

fn get(stream: &mut TcpStream) -> Option<String> {
    ask(stream, "get a\r\n", "END\r\n")
}

/// Waits until the console has told of so many resets, and no more.
fn wait_for_resets(server: &mut Server, count: usize) {
    let told = |server: &mut Server| server.vm.console().matches(TOLD).count();
    for _ in 0..100 {
        server.vm.run_for(Duration::from_millis(100));
        if told(server) == count {
            return;
        }
    }
    panic!("{} resets instead of {count}", told(server));
}

const FOUND: Option<&str> = Some("VALUE a 0 1\r\nx\r\nEND\r\n");

#[test]
fn a_broken_device_is_reset_and_connections_go_on() {
    let mut server = Server::boot(Guest::app("memcached").memory("96M"), 11211);
    let mut old = server.connect();
    assert_eq!(ask(&mut old, "set a 0 0 1\r\nx\r\n", "\r\n").as_deref(), Some("STORED\r\n"));
    let directory = server.vm.directory().to_owned();
    for number in 1..=3 {
        break_queue(&directory, 0);
        assert_eq!(get(&mut old).as_deref(), FOUND, "after it broke {number} times");
        wait_for_resets(&mut server, number);
    }
    assert_eq!(get(&mut server.connect()).as_deref(), FOUND, "who comes later is served, too");
}

/// The queue of a core that sleeps breaks, and the other's: both cores take their parts up again.
#[test]
fn all_cores_go_on_with_a_device_that_was_reset() {
    let guest = Guest::app("memcached").arguments(&["-t", "2"]);
    Server::on_cores("broken", guest, 11211, 2, |server| {
        let mut crowd: Vec<TcpStream> = (0..16).map(|_| server.connect()).collect();
        assert_eq!(ask(&mut crowd[0], "set a 0 0 1\r\nx\r\n", "\r\n").as_deref(), Some("STORED\r\n"));
        let directory = server.vm.directory().to_owned();
        for queue in [0, 2, 0] {
            assert!(crowd.iter_mut().all(|client| get(client).as_deref() == FOUND));
            break_queue(&directory, queue);
            for client in &mut crowd {
                assert_eq!(get(client).as_deref(), FOUND, "after queue {queue} broke");
            }
            crowd.push(server.connect());
        }
        wait_for_resets(server, 3);
    });
}
