//! The clients that Debian packages, on loopback: `memccapable` and `memcaslap` of libmemcached-tools.

#[allow(dead_code, reason = "each test uses a part")]
mod common;

use common::{program, serve};
use nom_memcached_core::Options;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Output};

/// Runs an installed program; `None`, and a note, if it is not.
fn run(name: &str, arguments: &[&str]) -> Option<Output> {
    let Some(path) = program(name) else {
        eprintln!("skipped: {name} is not installed (Debian: libmemcached-tools)");
        return None;
    };
    Some(Command::new("timeout").arg("100").arg(path).args(arguments).output().expect("the program starts"))
}

#[test]
fn memccapable_passes_whole() {
    let address = serve(Options::default());
    let port = address.port().to_string();
    let Some(output) = run("memccapable", &["-h", "127.0.0.1", "-p", &port]) else { return };
    let report = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let passed = report.lines().filter(|line| line.contains("[pass]")).count();
    assert!(output.status.success() && !report.contains("[FAIL]"), "{report}");
    assert!(passed >= 50, "only {passed} tests ran:\n{report}");
}

/// What `memcaslap` takes for granted. Without a file it writes this one into the user's directory, and
/// who runs it at the same time reads half of it.
const DISTRIBUTION: &str = "key\n64 64 1\nvalue\n1024 1024 1\ncmd\n0 0.1\n1 0.9\n";

/// What `memcaslap` says of one run: every request answered, every value what it was.
fn memcaslap_is_clean(arguments: &[&str]) {
    let address = serve(Options::default()).to_string();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("distribution");
    std::fs::write(&file, DISTRIBUTION).expect("it can be written");
    let file = file.to_str().expect("a name of letters");
    let common = ["-s", &address, "-F", file, "-T", "1", "-c", "8", "-x", "20000"];
    let Some(output) = run("memcaslap", &[&common[..], arguments].concat()) else { return };
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = |name: &str| -> Option<u64> {
        let line = report.lines().find(|line| line.trim_start().starts_with(name))?;
        line.split(':').nth(1)?.trim().parse().ok()
    };
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    assert!(count("cmd_get").is_some_and(|gets| gets > 10000), "{report}");
    assert_eq!(count("get_misses"), Some(0), "{report}");
    assert!(count("verify_misses").unwrap_or(0) == 0 && count("verify_failed").unwrap_or(0) == 0, "{report}");
}

#[test]
fn memcaslap_runs_clean_in_text() {
    memcaslap_is_clean(&["-v", "0.2"]);
}

#[test]
fn memcaslap_runs_clean_in_binary() {
    memcaslap_is_clean(&["-B", "-v", "0.2"]);
}

#[test]
fn memcaslap_runs_clean_with_many_keys_at_a_time() {
    memcaslap_is_clean(&["-d", "50", "-v", "0.2"]);
}

#[test]
fn memcaslap_runs_clean_with_large_values() {
    memcaslap_is_clean(&["-X", "20000", "-v", "0.2"]);
}

#[test]
fn datagrams_are_answered_in_frames() {
    let address = serve(Options::default());
    let mut stream = TcpStream::connect(address).expect("it listens");
    let value = "v".repeat(3000);
    stream.write_all(format!("set long 0 0 3000\r\n{value}\r\n").as_bytes()).expect("it reads");
    let mut line = [0; 8];
    stream.read_exact(&mut line).expect("it answers");
    assert_eq!(&line, b"STORED\r\n");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("there is a free port");
    socket.send_to(b"\x12\x34\0\0\0\x01\0\0get long\r\n", address).expect("loopback takes a datagram");
    let mut reply = Vec::new();
    for number in 0..3 {
        let mut datagram = [0; 2000];
        let len = socket.recv(&mut datagram).expect("a datagram comes");
        assert_eq!(&datagram[..8], &[0x12, 0x34, 0, number, 0, 3, 0, 0]);
        reply.extend_from_slice(&datagram[8..len]);
    }
    assert_eq!(reply, format!("VALUE long 0 3000\r\n{value}\r\nEND\r\n").as_bytes());
}
