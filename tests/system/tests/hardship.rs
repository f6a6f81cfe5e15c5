//! Servers among clients that behave badly: whoever behaves well is answered all the same.

use nom_system_tests::{Guest, Server};
use std::io::{Read, Write};
use std::net::TcpStream;

/// One exchange, checked.
fn ask(stream: &mut TcpStream, request: &[u8], reply: &[u8]) {
    stream.write_all(request).expect("the request is sent");
    let mut answer = vec![0; reply.len()];
    stream.read_exact(&mut answer).expect("the server answers");
    assert_eq!(answer.escape_ascii().to_string(), reply.escape_ascii().to_string());
}

/// A client that behaves well, for some exchanges.
fn check_service(server: &Server, round: usize) {
    let mut stream = server.connect();
    for number in 0..20 {
        let set = format!("set good 0 0 6\r\n{round:02}-{number:03}\r\n");
        ask(&mut stream, set.as_bytes(), b"STORED\r\n");
        let value = format!("VALUE good 0 6\r\n{round:02}-{number:03}\r\nEND\r\n");
        ask(&mut stream, b"get good\r\n", value.as_bytes());
    }
}

/// Half a request and then silence; much asked for and nothing read; nonsense; and gone at any time, with
/// what was not read, so that the server hears a reset.
#[test]
fn clients_without_manners_stall_nobody() {
    let server = Server::boot(Guest::app("memcached").memory("64M"), 11211);
    let value = vec![b'v'; 100_000];
    let mut stream = server.connect();
    ask(&mut stream, &[b"set large 0 0 100000\r\n", &value[..], b"\r\n"].concat(), b"STORED\r\n");
    let mut rude = Vec::new();
    for round in 0..6 {
        for kind in 0..16 {
            let mut stream = server.connect();
            let request: &[u8] = match kind % 4 {
                0 => b"set half 0 0 1000\r\nno more than this",
                1 => &b"get large\r\n".repeat(20),
                2 => &[0x80, 0xff, 0xff, 0xff, b'\r', b'\n', 0, 0x80].repeat(50),
                _ => b"",
            };
            // The server may have hung up on nonsense.
            let _ = stream.write_all(request);
            rude.push(stream);
        }
        check_service(&server, round);
        // Every second one of them leaves.
        let mut stays = false;
        rude.retain(|_| {
            stays = !stays;
            stays
        });
    }
    drop(rude);
    check_service(&server, 99);
}

/// More is stored than the machine has memory: what does not fit is refused by name or takes the place of
/// what was not used, and nobody is sent away.
#[test]
fn a_server_without_memory_left_serves_on() {
    let guest = Guest::app("memcached").memory("8M");
    let server = Server::boot(guest, 11211);
    let value = vec![b'v'; 20_000];
    let mut stream = server.connect();
    let (mut stored, mut refused) = (0, 0);
    for number in 0..1000 {
        let head = format!("set item-{number} 0 0 {}\r\n", value.len());
        stream.write_all(&[head.as_bytes(), &value, b"\r\n"].concat()).expect("the request is sent");
        match line(&mut stream).as_str() {
            "STORED" => stored += 1,
            said if said.starts_with("SERVER_ERROR out of memory") => refused += 1,
            said => panic!("item {number}: {said}"),
        }
    }
    assert!(stored > 100, "{stored} stored, {refused} refused");
    check_service(&server, 1);
    let last = format!("get item-{}\r\n", 999);
    stream.write_all(last.as_bytes()).expect("the request is sent");
    let said = line(&mut stream);
    assert!(said == "END" || said == "VALUE item-999 0 20000", "{said}");
}

/// One line of the server's, without its end.
fn line(stream: &mut TcpStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).expect("the server answers");
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).expect("text")
}
