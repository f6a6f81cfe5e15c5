//! Servers on several cores, each with a queue pair of its own: on a TAP device, which takes root.

use nom_system_tests::{Guest, Server};
use nom_vmm::{Namespace, namespace};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a machine may take to be reached.
const PATIENCE: Duration = Duration::from_secs(60);

/// Queue pairs, and cores.
const PAIRS: u32 = 2;

/// Boots an application on two cores in a network namespace of its own, and there has `test` look at it.
/// Without the rights for that it says so.
fn on_two_cores(app: &str, port: u16, test: impl FnOnce(&Server) + Send) {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root || !Path::new("/dev/net/tun").exists() {
        println!("skipped: {app} on a TAP device needs root and /dev/net/tun");
        return;
    }
    let namespace = Namespace::create(&format!("queues-{app}"), PAIRS).expect("a namespace");
    let inside = || {
        namespace.enter().expect("entered");
        let device = namespace::DEVICE;
        let tap = format!("-netdev tap,id=net0,ifname={device},script=no,downscript=no,queues={PAIRS}");
        let vectors = 2 * PAIRS + 2;
        let card = format!("virtio-net-pci,disable-legacy=on,netdev=net0,mq=on,vectors={vectors}");
        let guest = Guest::app(app).cpus(PAIRS).memory("256M").qemu(&tap).device(&card);
        let mut vm = guest.boot();
        vm.wait_for(", on 2 cores");
        let address = SocketAddr::new(namespace::GUEST.into(), port);
        reach(address);
        test(&Server { vm, address });
    };
    std::thread::scope(|scope| scope.spawn(inside).join().expect("no panic"));
}

/// Waits until the machine is a neighbour: the host asks for its Ethernet address only for some
/// milliseconds, and fails to connect if an emulated core is slower than that.
fn reach(address: SocketAddr) {
    let end = Instant::now() + PATIENCE;
    while let Err(error) = TcpStream::connect(address) {
        assert!(Instant::now() < end, "{address}: {error}");
    }
}

/// The number that memcached's statistics show for `name`.
fn stat(server: &Server, name: &str) -> u64 {
    let mut stream = server.connect();
    stream.write_all(b"stats\r\n").expect("the request is sent");
    let lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    let prefix = format!("STAT {name} ");
    let value =
        lines.take_while(|line| line != "END").find_map(|line| Some(line.strip_prefix(&prefix)?.to_owned()));
    value.expect("a statistic").parse().expect("a number")
}

#[test]
fn memcached_serves_one_store_on_two_cores() {
    on_two_cores("memcached", 11211, |server| {
        assert_eq!(stat(server, "threads"), 2);
        if let Some(said) = server.load("memccapable", "-h 10.0.2.15 -p {port}") {
            assert!(said.contains("All tests passed"), "{said}");
        }
        if let Some(said) = server.load("memcaslap", "-s 10.0.2.15:{port} -T 1 -c 16 -t 3s -v 0.5") {
            for line in ["get_misses: 0", "verify_misses: 0", "verify_failed: 0"] {
                assert!(said.contains(line), "expected `{line}`:\n{said}");
            }
            assert!(stat(server, "total_connections") > 16);
            assert!(stat(server, "bytes_written") > stat(server, "cmd_get"));
        }
    });
}

#[test]
fn nhttpd_serves_files_on_two_cores() {
    on_two_cores("nhttpd", 80, |server| {
        // Connections of different ports reach different cores; each has every file.
        for _ in 0..16 {
            let mut stream = server.connect();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it is sent");
            let status = BufReader::new(stream).lines().next().expect("an answer").expect("a line");
            assert_eq!(status, "HTTP/1.1 200 OK");
        }
    });
}
