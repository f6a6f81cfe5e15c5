//! A client of nhttpd: pipelined requests for files and parts of them, every byte checked.

use super::caller::{Conversation, Wish};
use crate::random::{Random, text};
use crate::servers::{FILES, file_name};
use nom_net::Closed;
use std::collections::VecDeque;
use std::ops::Range;

/// A request that was not answered.
#[derive(Clone, Debug)]
struct Asked {
    file: usize,
    /// The part asked for; `None` for all of it.
    part: Option<Range<usize>>,
    is_head: bool,
}

/// One client.
pub struct Client {
    random: Random,
    asked: VecDeque<Asked>,
    /// A head that has not come whole.
    head: Vec<u8>,
    /// What is left of the present body: the file, and the bytes to come.
    body: Option<(usize, Range<usize>)>,
    left: u64,
    pipeline: u64,
    achieved: u64,
    /// When it last asked.
    asked_ns: u64,
    /// And when the time before: a server that was slow to deliver takes the client for idle.
    before_ns: u64,
    /// Whether the last time is so long ago that the server may have refused to wait.
    is_slow: bool,
    /// Whether it has.
    is_refused: bool,
}

/// nhttpd waits 20 s for a request; clocks differ by two thousandths at most.
const REQUEST_NS: u64 = 19_900_000_000;

impl Client {
    /// A client that asks `requests` times, up to `pipeline` at once.
    pub fn new(random: Random, requests: u64, pipeline: u64) -> Client {
        Client {
            random,
            asked: VecDeque::new(),
            head: Vec::new(),
            body: None,
            left: requests,
            pipeline,
            achieved: 0,
            asked_ns: 0,
            before_ns: 0,
            is_slow: false,
            is_refused: false,
        }
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        // Large files are asked for less often.
        let file = self.random.choose(&[0, 1, 1, 1, 2, 2, 2, 3, 3, 4]);
        let len = FILES[file] as u64;
        let is_part = len > 0 && self.random.happens(300_000);
        let part = is_part.then(|| {
            let start = self.random.within(0..len);
            start as usize..self.random.within(start + 1..len + 1) as usize
        });
        let is_head = self.random.happens(50_000);
        let method = if is_head { "HEAD" } else { "GET" };
        out.extend_from_slice(format!("{method} /{file} HTTP/1.1\r\nHost: sim\r\n").as_bytes());
        // Only GET knows ranges (RFC 9110 section 14.2).
        let part = part.filter(|_| !is_head);
        if let Some(part) = &part {
            out.extend_from_slice(format!("Range: bytes={}-{}\r\n", part.start, part.end - 1).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        self.left -= 1;
        self.asked.push_back(Asked { file, part, is_head });
    }

    /// Takes a head if it is whole; the number of bytes of `bytes` that were used.
    fn take_head(&mut self, bytes: &[u8]) -> usize {
        if self.is_refused {
            return bytes.len();
        }
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else { return bytes.len() };
        let head = String::from_utf8(self.head[..end].to_vec()).expect("heads are ASCII");
        self.head.clear();
        if self.is_slow && head.starts_with("HTTP/1.1 408 ") {
            // What it asked for has come too slowly; the end follows.
            self.is_refused = true;
            return bytes.len();
        }
        let asked = self.asked.front().cloned().expect("nhttpd: a reply that nobody asked for");
        let status = if asked.part.is_some() { "HTTP/1.1 206 " } else { "HTTP/1.1 200 " };
        assert!(head.starts_with(status), "nhttpd: expected {status}, got {head}");
        let part = asked.part.unwrap_or(0..FILES[asked.file]);
        let length = format!("\r\ncontent-length: {}\r\n", part.len());
        let lower = head.to_ascii_lowercase() + "\r\n";
        assert!(lower.contains(&length), "nhttpd: expected {length:?}, got {head}");
        self.body = Some((asked.file, if asked.is_head { 0..0 } else { part }));
        end + 4 - before
    }

    fn take_body(&mut self, bytes: &[u8]) -> usize {
        let Some((file, part)) = &mut self.body else { return 0 };
        let count = bytes.len().min(part.len());
        let expected = text(file_name(*file), part.start as u64, count);
        assert!(bytes[..count] == expected[..], "nhttpd: other bytes than /{file} has at {}", part.start);
        part.start += count;
        if part.start == part.end {
            self.body = None;
            self.asked.pop_front();
            self.achieved += 1;
        }
        count
    }
}

impl Conversation for Client {
    fn opened(&mut self) {}

    fn go_on(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Wish {
        if !self.asked.is_empty() {
            return Wish::Answer;
        }
        if self.left == 0 {
            return Wish::Close;
        }
        if self.random.happens(5_000) {
            return Wish::Reset;
        }
        self.before_ns = std::mem::replace(&mut self.asked_ns, now_ns);
        let count = self.random.within(1..self.pipeline + 1).min(self.left);
        (0..count).for_each(|_| self.ask(out));
        Wish::Answer
    }

    fn received(&mut self, now_ns: u64, mut bytes: &[u8]) {
        self.is_slow = now_ns - self.asked_ns > REQUEST_NS;
        while !bytes.is_empty() || self.body.is_some() {
            let used = if self.body.is_some() { self.take_body(bytes) } else { self.take_head(bytes) };
            bytes = &bytes[used..];
            if bytes.is_empty() && self.body.as_ref().is_none_or(|(_, part)| !part.is_empty()) {
                return;
            }
        }
    }

    fn ended(&mut self, now_ns: u64, why: Closed) {
        let was_prompt = now_ns - self.before_ns <= REQUEST_NS;
        assert!(
            why != Closed::Finished || self.asked.is_empty() || !was_prompt,
            "nhttpd: ended in order before its replies"
        );
        self.left += self.asked.len() as u64;
        self.asked.clear();
        self.is_refused = false;
        self.asked_ns = now_ns;
        self.head.clear();
        self.body = None;
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.asked.is_empty()
    }

    fn achieved(&self) -> u64 {
        self.achieved
    }
}
