//! memcached without `-m` takes all memory that nobody else needs, and gives back when somebody does.

use nom_system_tests::{Guest, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Bytes of the values, and how many are stored: more than the machine's memory.
const LENGTH: usize = 8000;
const COUNT: usize = 16_000;
/// Stored at a time, so that a slow computer waits seldom.
const AT_ONCE: usize = 40;
/// Those who come when memory is full of values, and how much of a request each has sent.
const CROWD: usize = 200;
const WHOLE: usize = 100_000;
const HALF: usize = 90_000;
const MIB: u64 = 1 << 20;

fn line(client: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).expect("the server answers");
    line
}

fn say(client: &mut BufReader<TcpStream>, bytes: &[u8]) {
    client.get_mut().write_all(bytes).expect("the server takes it");
}

fn stat(client: &mut BufReader<TcpStream>, name: &str) -> u64 {
    say(client, b"stats\r\n");
    let mut value = None;
    loop {
        let line = line(client);
        if line == "END\r\n" {
            return value.unwrap_or_else(|| panic!("no {name}"));
        }
        if let Some(number) = line.strip_prefix(&format!("STAT {name} ")) {
            value = number.trim().parse().ok();
        }
    }
}

fn value(number: usize) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; LENGTH]
}

fn store(client: &mut BufReader<TcpStream>) {
    for first in (0..COUNT).step_by(AT_ONCE) {
        let numbers = first..first + AT_ONCE;
        let set =
            |number| [format!("set {number} 0 0 {LENGTH}\r\n").as_bytes(), &value(number), b"\r\n"].concat();
        say(client, &numbers.clone().flat_map(set).collect::<Vec<u8>>());
        numbers.for_each(|number| assert_eq!(line(client), "STORED\r\n", "{number}"));
    }
}

#[test]
fn memcached_takes_all_that_nobody_else_needs_and_gives_it_back() {
    let guest = Guest::app("memcached").arguments(&["-c", "2000"]);
    Server::on_cores("shrinker", guest, 11211, 1, |server| {
        let connect = || BufReader::new(server.connect());
        let mut client = connect();
        store(&mut client);
        let (full, evicted) = (stat(&mut client, "curr_items"), stat(&mut client, "evictions"));
        let held = full * LENGTH as u64;
        println!("{full} values, {} MiB; {evicted} went", held / MIB);
        assert!(held > 70 * MIB && evicted > 0, "{} MiB of 96, {evicted} went", held / MIB);

        let mut crowd: Vec<_> = (0..CROWD).map(|_| connect()).collect();
        for (number, one) in crowd.iter_mut().enumerate() {
            say(one, format!("set crowd{number} 0 0 {WHOLE}\r\n").as_bytes());
            say(one, &vec![b'x'; HALF]);
        }
        let stats = ["curr_items", "evictions", "nom_free_bytes"];
        println!("half: {:?}", stats.map(|name| stat(&mut client, name)));
        for (number, one) in crowd.iter_mut().enumerate() {
            say(one, &vec![b'x'; WHOLE - HALF]);
            say(one, b"\r\n");
            let answer = line(one);
            let mut now = || stats.map(|name| stat(&mut client, name));
            assert_eq!(answer, "STORED\r\n", "{number}: {stats:?} {:?}", now());
        }
        let left = stat(&mut client, "curr_items");
        println!("{left} values are left; {} KiB are free", stat(&mut client, "nom_free_bytes") >> 10);
        assert!(left < full, "{full} values, and then {left}");
        // What was used last is there, and right.
        say(&mut client, format!("get {}\r\n", COUNT - 1).as_bytes());
        assert_eq!(line(&mut client), format!("VALUE {} 0 {LENGTH}\r\n", COUNT - 1));
        let mut bytes = vec![0; LENGTH + 7];
        client.read_exact(&mut bytes).expect("a value");
        assert_eq!(&bytes[..LENGTH], &value(COUNT - 1)[..]);
    });
}
