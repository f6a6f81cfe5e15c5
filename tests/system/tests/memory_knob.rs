//! What memcached holds follows its limit, up and down, while it serves.

use nom_system_tests::{Guest, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Values of a KiB: 24 MiB of them.
const COUNT: usize = 24 << 10;
const LENGTH: usize = 1024;
const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("the server takes it");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        line
    }

    fn say(&mut self, command: &str, answer: &str) {
        self.send(format!("{command}\r\n").as_bytes());
        assert_eq!(self.line(), format!("{answer}\r\n"));
    }

    /// A number that `stats` tells.
    fn stat(&mut self, name: &str) -> u64 {
        self.send(b"stats\r\n");
        let mut value = None;
        loop {
            let line = self.line();
            if line == "END\r\n" {
                return value.unwrap_or_else(|| panic!("no {name}"));
            }
            if let Some(("STAT", rest)) = line.trim_end().split_once(' ')
                && let Some((known, number)) = rest.split_once(' ')
                && known == name
            {
                value = number.parse().ok();
            }
        }
    }

    /// Stores values, each in a frame of its own, as a server of many clients sees them.
    fn store(&mut self, numbers: impl Iterator<Item = usize>) {
        for number in numbers {
            let set = [format!("set {number} 0 0 {LENGTH}\r\n").as_bytes(), &value(number), b"\r\n"].concat();
            self.send(&set);
            assert_eq!(self.line(), "STORED\r\n");
        }
    }

    /// Whether a value is there; it is the right one.
    fn holds(&mut self, number: usize) -> bool {
        self.send(format!("get {number}\r\n").as_bytes());
        let head = self.line();
        if head == "END\r\n" {
            return false;
        }
        assert_eq!(head, format!("VALUE {number} 0 {LENGTH}\r\n"));
        let mut bytes = vec![0; LENGTH + 7];
        self.0.read_exact(&mut bytes).expect("a value");
        assert!(
            bytes.starts_with(&value(number)) && bytes.ends_with(b"\r\nEND\r\n"),
            "the value of {number}"
        );
        true
    }

    /// Waits until the machine has so many bytes free, or fewer; whoever waits asks for something.
    fn await_free(&mut self, is_enough: impl Fn(u64) -> bool, what: &str) -> u64 {
        let start = Instant::now();
        loop {
            let free = self.stat("nom_free_bytes");
            if is_enough(free) {
                return free;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {} MiB are free", free / MIB);
            (0..200).for_each(|number| {
                self.holds(number);
            });
        }
    }
}

/// The bytes of a value, others for each.
fn value(number: usize) -> Vec<u8> {
    (0..LENGTH).map(|at| b'a' + ((number * 7 + at * (1 + number % 5)) % 26) as u8).collect()
}

#[test]
fn what_memcached_holds_follows_its_limit() {
    let server = Server::boot(Guest::app("memcached").memory("128M"), 11211);
    let mut client = Client(BufReader::new(server.connect()));
    client.say("cache_memlimit 60", "OK");
    let before = client.await_free(|free| free > 60 * MIB, "at first");
    client.store(0..COUNT);
    let full = client.await_free(|free| free + 24 * MIB < before, "after it was filled");
    assert!(before - full > 24 * MIB, "{} MiB for 24 of values", (before - full) / MIB);
    // Of what is used last, every other one: so those that stay lie among others that go.
    (0..COUNT).step_by(5).for_each(|number| assert!(client.holds(number)));

    client.say("cache_memlimit 8", "OK");
    assert_eq!(client.stat("limit_maxbytes"), 8 * MIB);
    let shrunk = client.await_free(|free| free > full + (before - full) / 2, "after the limit fell");
    let held = (0..COUNT).filter(|number| client.holds(*number)).count();
    let last = client.stat("nom_free_bytes");
    println!("free: {} KiB, full {}, shrunk {}, {held} values", before >> 10, full >> 10, last >> 10);
    assert!((1000..8000).contains(&held), "{held} values in 8 MiB");

    client.say("cache_memlimit 60", "OK");
    client.store(0..COUNT);
    assert!((0..COUNT).all(|number| client.holds(number)));
    client.await_free(|free| free < shrunk, "it takes memory again");
}
