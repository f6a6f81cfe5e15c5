//! A client of memcached's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Speaks memcached's text protocol, and sees to it that the server does.
pub struct MemcachedClient(BufReader<TcpStream>);

impl MemcachedClient {
    /// One on a connection by which no answer is due.
    pub fn new(stream: TcpStream) -> MemcachedClient {
        MemcachedClient(BufReader::new(stream))
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("the server takes it");
    }

    /// One line of an answer, with its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        line
    }

    /// Asks for a value of `length` bytes; `None` if it is not there.
    pub fn get(&mut self, key: &str, length: usize) -> Option<Vec<u8>> {
        self.send(format!("get {key}\r\n").as_bytes());
        let head = self.line();
        if head == "END\r\n" {
            return None;
        }
        assert_eq!(head, format!("VALUE {key} 0 {length}\r\n"));
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).expect("a value");
        assert_eq!([self.line(), self.line()], ["\r\n", "END\r\n"], "behind the value of {key}");
        Some(bytes)
    }

    /// A number that `stats` tells.
    pub fn stat(&mut self, name: &str) -> u64 {
        self.send(b"stats\r\n");
        let (prefix, mut value) = (format!("STAT {name} "), None);
        loop {
            let line = self.line();
            if line == "END\r\n" {
                return value.unwrap_or_else(|| panic!("no {name}"));
            }
            assert!(!line.is_empty(), "the server closed");
            if let Some(number) = line.strip_prefix(&prefix) {
                value = number.trim_end().parse().ok();
            }
        }
    }
}
