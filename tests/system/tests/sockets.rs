//! Echo in a machine, by tasks and in both styles of sockets, under clients of this computer.

use nom_system_tests::{Guest, Server};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

const CLIENTS: usize = 8;
const BYTES: usize = 200_000;

/// Bytes that no other client sends.
fn bytes_of(client: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at * 31 + at / 255 + client) as u8).collect()
}

/// Sends all and then says so; the server sends all back and does the same.
fn is_echoed(mut stream: TcpStream, bytes: &[u8]) {
    let mut sender = stream.try_clone().expect("a second handle");
    let mut back = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            sender.write_all(bytes).expect("the server takes all");
            sender.shutdown(Shutdown::Write).expect("it is open");
        });
        stream.read_to_end(&mut back).expect("the server answers and closes");
    });
    assert!(back == bytes, "{} of {} bytes came back", back.len(), bytes.len());
}

fn serves(style: &str) {
    let guest = Guest::app("echo").arguments(&[style]).memory("64M");
    let server = Server::boot(guest, 7);
    // One who connects and says nothing keeps nobody from being served.
    let silent = server.connect();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let stream = server.connect();
            scope.spawn(move || is_echoed(stream, &bytes_of(client)));
        }
    });
    drop(silent);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout is set");
    socket.send_to(b"datagram", server.address).expect("it is sent");
    let mut back = [0; 100];
    let len = socket.recv(&mut back).expect("an answer");
    assert_eq!(&back[..len], b"datagram");
}

#[test]
fn a_task_serves_each_client() {
    serves("tasks");
}

#[test]
fn threads_block_on_sockets() {
    serves("threads");
}

#[test]
fn one_task_serves_by_readiness() {
    serves("readiness");
}
