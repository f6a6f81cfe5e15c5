//! The servers, each in a machine of its own, under the clients that people use.

use nom_system_tests::{Guest, MachineKind, Server};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::time::Duration;

/// What the server answers until it closes the connection.
fn talk(server: &Server, request: &[u8]) -> String {
    let mut stream = server.connect();
    stream.write_all(request).expect("the request is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers and closes");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn memcached_answers_on_both_machines() {
    for kind in [MachineKind::Q35, MachineKind::Microvm] {
        let server = Server::boot(Guest::app("memcached").machine(kind).memory("128M"), 11211);
        let request = b"set a 0 0 5\r\nhello\r\nget a b\r\nincr a 1\r\nnonsense\r\nquit\r\n";
        let expected = "STORED\r\nVALUE a 0 5\r\nhello\r\nEND\r\n\
                        CLIENT_ERROR cannot increment or decrement non-numeric value\r\nERROR\r\n";
        assert_eq!(talk(&server, request), expected);
    }
}

#[test]
fn memcached_answers_datagrams() {
    let guest = Guest::app("memcached").arguments(&["-U", "11211"]).memory("128M");
    let server = Server::boot(guest, 11211);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout is set");
    let request = b"\x12\x34\0\0\0\x01\0\0version\r\n";
    socket.send_to(request, server.address).expect("the request is sent");
    let mut answer = [0; 100];
    let length = socket.recv(&mut answer).expect("an answer");
    assert_eq!(&answer[..8], b"\x12\x34\0\0\0\x01\0\0");
    assert!(answer[8..length].starts_with(b"VERSION 1."), "{:?}", answer[8..length].escape_ascii());
}

/// What is answered in place, and what is left to the stack: a value too long to be copied, and its reply in
/// several datagrams.
#[test]
fn memcached_answers_datagrams_in_place() {
    let guest = Guest::app("memcached").arguments(&["-U", "11211", "--packet-api"]).memory("128M");
    let server = Server::boot(guest, 11211);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout is set");
    socket.connect(server.address).expect("an address");
    let ask = |commands: &[u8], datagrams: u8| {
        socket.send(&[b"\x12\x34\0\0\0\x01\0\0", commands].concat()).expect("the request is sent");
        let mut reply = Vec::new();
        for number in 0..datagrams {
            let mut answer = [0; 2000];
            let len = socket.recv(&mut answer).expect("an answer");
            assert_eq!(answer[..8], [0x12, 0x34, 0, number, 0, datagrams, 0, 0]);
            reply.extend_from_slice(&answer[8..len]);
        }
        reply
    };
    let long = [b'v'; 1400];
    assert_eq!(ask(b"set a 3 0 5\r\nhello\r\n", 1), b"STORED\r\n");
    assert_eq!(ask(b"get a\r\n", 1), b"VALUE a 3 5\r\nhello\r\nEND\r\n");
    assert_eq!(ask(b"get b\r\n", 1), b"END\r\n");
    assert_eq!(ask(&[b"set b 0 0 1400\r\n", &long[..], b"\r\n"].concat(), 1), b"STORED\r\n");
    assert_eq!(ask(b"get b\r\n", 2), [b"VALUE b 0 1400\r\n", &long[..], b"\r\nEND\r\n"].concat());
    assert_eq!(ask(b"nonsense\r\n", 1), b"ERROR\r\n");
}

#[test]
fn memcached_is_capable_and_keeps_what_it_is_given() {
    let server = Server::boot(Guest::app("memcached").memory("128M"), 11211);
    if let Some(said) = server.load("memccapable", "-h {host} -p {port}") {
        assert!(said.contains("All tests passed"), "{said}");
    }
    if let Some(said) = server.load("memcaslap", "-s {host}:{port} -T 1 -c 16 -t 3s -v 0.5") {
        for line in ["get_misses: 0", "verify_misses: 0", "verify_failed: 0"] {
            assert!(said.contains(line), "expected `{line}`:\n{said}");
        }
    }
}

#[test]
fn memcached_refuses_memory_that_is_not_there() {
    let guest = Guest::app("memcached").arguments(&["-m", "500"]).memory("64M");
    guest.run().expect_status(1).expect("error: -m '500': expected at most ");
}

/// Several times the machine's memory in short values, which are copied, and in long ones, which are kept in
/// the buffers that they came in.
#[test]
fn memcached_outlives_its_memory() {
    let server = Server::boot(Guest::app("memcached").memory("16M"), 11211);
    let mut stream = server.connect();
    for (length, count) in [(5000, 8000), (100, 150_000), (5000, 8000)] {
        store(&mut stream, length, count);
    }
    assert_eq!(
        talk(&server, b"set last 0 0 2\r\nok\r\nget last\r\nquit\r\n"),
        "STORED\r\nVALUE last 0 2\r\nok\r\nEND\r\n"
    );
}

/// Stores `count` values of `length` bytes, and then hears that the server is still there.
fn store(stream: &mut std::net::TcpStream, length: usize, count: usize) {
    let value = "v".repeat(length);
    for numbers in (0..count).collect::<Vec<_>>().chunks(100) {
        let sets: String =
            numbers.iter().map(|n| format!("set {n} 0 0 {length} noreply\r\n{value}\r\n")).collect();
        stream.write_all(sets.as_bytes()).expect("the server takes it");
        stream.write_all(b"mn\r\n").expect("the server takes it");
        let mut answer = Vec::new();
        while !answer.ends_with(b"MN\r\n") {
            let mut bytes = [0; 512];
            let read = stream.read(&mut bytes).expect("the server answers");
            assert!(read > 0, "the server closed: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&bytes[..read]);
        }
        assert_eq!(answer, b"MN\r\n");
    }
}

#[test]
fn nhttpd_serves_files() {
    let server = Server::boot(Guest::app("nhttpd").memory("128M"), 80);
    let page = talk(&server, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("It earns."), "{page}");
    let missing = talk(&server, b"GET /no HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
    if let Some(said) = server.load("wrk", "-c 16 -t 1 -d 2 http://{host}:{port}/") {
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
    }
    if let Some(said) = server.load("ab", "-k -q -n 2000 -c 8 http://{host}:{port}/") {
        assert!(said.contains("Failed requests:        0"), "{said}");
    }
    if let Some(said) = server.load("curl", "-s -r 0-8 http://{host}:{port}/index.html") {
        assert_eq!(said, "<!doctype");
    }
}

#[test]
fn netpipe_returns_messages() {
    let guest = Guest::app("netpipe").arguments(&["-u", "65536"]).memory("256M");
    let server = Server::boot(guest, 5002);
    // A number of messages of each size: by itself NPtcp sends for a time, as fast as this computer is.
    if let Some(said) = server.load("NPtcp", "-n 20 -h {host} -P {port} -u 65536") {
        assert!(said.contains("65536 bytes"), "{said}");
    }
    let both_ways = Guest::app("netpipe").arguments(&["-2", "-u", "4096"]).memory("256M");
    if let Some(said) = Server::boot(both_ways, 5002).load("NPtcp", "-2 -n 20 -h {host} -P {port} -u 4096") {
        assert!(said.contains("4096 bytes"), "{said}");
    }
    let mut stream = server.connect();
    stream.write_all(b"SyncMe").expect("the greeting is sent");
    let mut greeting = [0; 6];
    stream.read_exact(&mut greeting).expect("the greeting comes back");
    assert_eq!(&greeting, b"SyncMe");
}
