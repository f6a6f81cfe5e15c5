//! A client of memcached that knows what it stored, and checks every byte that it reads.

use super::caller::{Conversation, Wish};
use crate::random::{Random, text};
use nom_net::Closed;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Requests that were not answered.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Set { key: u64, name: u64, len: usize },
    Get { key: u64 },
    Delete { key: u64 },
}

/// Times from a request to its answer, in nanoseconds.
pub type Latencies = Rc<RefCell<Vec<u64>>>;

/// One client.
pub struct Client {
    random: Random,
    /// Which keys are its. After a stream that failed it takes new ones: what was on its way may come yet.
    prefix: u64,
    /// What it stored: the name of a text and its length.
    stored: BTreeMap<u64, (u64, usize)>,
    asked: VecDeque<Asked>,
    input: Vec<u8>,
    left: u64,
    pipeline: usize,
    think_ns: u64,
    size_bits: u64,
    is_closing: bool,
    achieved: u64,
    asked_ns: u64,
    latencies: Option<Latencies>,
}

impl Client {
    /// A client that asks `requests` times, up to `pipeline` at once.
    pub fn new(mut random: Random, requests: u64, pipeline: usize, think_ns: u64) -> Client {
        let prefix = random.word();
        let size_bits = random.choose(&[5, 10, 16]);
        Client {
            random,
            prefix,
            stored: BTreeMap::new(),
            asked: VecDeque::new(),
            input: Vec::new(),
            left: requests,
            pipeline,
            think_ns,
            size_bits,
            is_closing: false,
            achieved: 0,
            asked_ns: 0,
            latencies: None,
        }
    }

    /// One that asks for small values, one after the other, and notes how long each answer took.
    pub fn timed(random: Random, requests: u64, latencies: Latencies) -> Client {
        Client { size_bits: 5, latencies: Some(latencies), ..Client::new(random, requests, 1, 0) }
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        let key = self.random.within(0..16);
        let full = format!("{:x}-{key}", self.prefix);
        let asked = match self.random.within(0..10) {
            0..4 => {
                let (name, len) = (self.random.word(), self.random.skewed(self.size_bits) as usize);
                out.extend_from_slice(format!("set {full} 7 0 {len}\r\n").as_bytes());
                out.extend_from_slice(&text(name, 0, len));
                out.extend_from_slice(b"\r\n");
                Asked::Set { key, name, len }
            }
            4 => {
                out.extend_from_slice(format!("delete {full}\r\n").as_bytes());
                Asked::Delete { key }
            }
            _ => {
                out.extend_from_slice(format!("get {full}\r\n").as_bytes());
                Asked::Get { key }
            }
        };
        self.left -= 1;
        self.asked.push_back(asked);
    }

    /// Takes the answer to the first request; `None` if it has not come whole.
    fn take_answer(&mut self) -> Option<()> {
        let asked = *self.asked.front()?;
        let end = self.input.windows(2).position(|two| two == b"\r\n")?;
        let line = self.input[..end].to_vec();
        let mut used = end + 2;
        match asked {
            Asked::Set { key, name, len } => {
                self.expect(&line, b"STORED");
                self.stored.insert(key, (name, len));
            }
            Asked::Delete { key } => {
                let was_there = self.stored.remove(&key).is_some();
                self.expect(&line, if was_there { b"DELETED" } else { b"NOT_FOUND" });
            }
            Asked::Get { key } => match self.stored.get(&key) {
                None => self.expect(&line, b"END"),
                Some(&(name, len)) => {
                    used += len + 2 + 5;
                    if self.input.len() < used {
                        return None;
                    }
                    self.expect(&line, format!("VALUE {:x}-{key} 7 {len}", self.prefix).as_bytes());
                    let value = [text(name, 0, len), b"\r\nEND\r\n".to_vec()].concat();
                    assert!(
                        self.input[end + 2..used] == value[..],
                        "memcached: another value than was stored"
                    );
                }
            },
        }
        self.input.drain(..used);
        self.asked.pop_front();
        self.achieved += 1;
        Some(())
    }

    fn expect(&self, line: &[u8], expected: &[u8]) {
        assert!(
            line == expected,
            "memcached: got `{}` for `{}`",
            line.escape_ascii(),
            expected.escape_ascii()
        );
    }
}

impl Conversation for Client {
    fn opened(&mut self) {
        self.is_closing = false;
    }

    fn go_on(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Wish {
        if !self.asked.is_empty() {
            return Wish::Answer;
        }
        if self.left == 0 {
            self.is_closing = true;
            return Wish::Close;
        }
        if self.think_ns > 0 && now_ns < self.asked_ns {
            return Wish::Until(self.asked_ns);
        }
        if self.random.happens(5_000) && self.latencies.is_none() {
            return Wish::Reset;
        }
        let count = self.random.within(1..self.pipeline as u64 + 1).min(self.left);
        (0..count).for_each(|_| self.ask(out));
        self.asked_ns = now_ns;
        Wish::Answer
    }

    fn received(&mut self, now_ns: u64, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while self.take_answer().is_some() {}
        if self.asked.is_empty() {
            assert!(self.input.is_empty(), "memcached: bytes that nobody asked for");
            if let Some(latencies) = &self.latencies {
                latencies.borrow_mut().push(now_ns - self.asked_ns);
            }
            let think_ns = if self.think_ns > 0 { self.random.within(0..2 * self.think_ns) } else { 0 };
            self.asked_ns = now_ns + think_ns;
        }
    }

    fn ended(&mut self, _: u64, why: Closed) {
        assert!(
            why != Closed::Finished || self.asked.is_empty(),
            "memcached: ended in order with {} requests unanswered",
            self.asked.len()
        );
        self.left += self.asked.len() as u64;
        self.asked.clear();
        self.input.clear();
        self.stored.clear();
        self.prefix = self.random.word();
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.asked.is_empty()
    }

    fn achieved(&self) -> u64 {
        self.achieved
    }
}
