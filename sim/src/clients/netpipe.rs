//! The transmitter of NetPIPE, as `NPtcp -h`: messages of growing size, each of which must come back.

use super::caller::{Conversation, Wish};
use crate::random::text;
use crate::servers::netpipe_options;
use nom_net::Closed;
use nom_netpipe_core::Sizes;

/// How often each size is sent: few, for time passes with the round trips.
const REPEATS: u32 = 2;
/// Messages before the first measurement.
const WARMUP: u32 = 100;

/// What it says, and hears as an answer.
#[derive(Clone, Debug)]
enum Line {
    Word(&'static [u8]),
    /// Answered by nothing.
    Count,
    Message(u64),
}

/// One transmitter, which begins anew when its stream fails.
pub struct Client {
    /// What it will say, in reverse order.
    script: Vec<Line>,
    expected: Vec<u8>,
    input: Vec<u8>,
    name: u64,
    is_over: bool,
    achieved: u64,
}

fn script() -> Vec<Line> {
    let options = netpipe_options();
    let sync = || Line::Word(b"SyncMe");
    let mut lines = vec![sync()];
    lines.extend((0..WARMUP).map(|_| Line::Message(options.first.into())));
    lines.push(sync());
    for size in Sizes::new(options.first, options.last, options.perturbation) {
        lines.extend([sync(), Line::Count]);
        for _ in 0..options.trials {
            lines.push(sync());
            lines.extend((0..REPEATS).map(|_| Line::Message(size)));
        }
    }
    lines.push(Line::Word(b"QUIT\0"));
    lines.reverse();
    lines
}

impl Client {
    /// A transmitter of messages that `name` begins.
    pub fn new(name: u64) -> Client {
        Client {
            script: script(),
            expected: Vec::new(),
            input: Vec::new(),
            name,
            is_over: false,
            achieved: 0,
        }
    }
}

impl Conversation for Client {
    fn opened(&mut self) {}

    fn go_on(&mut self, _: u64, out: &mut Vec<u8>) -> Wish {
        if self.input.len() < self.expected.len() {
            return Wish::Answer;
        }
        self.input.clear();
        self.expected.clear();
        while self.expected.is_empty() {
            match self.script.pop() {
                None => {
                    self.is_over = true;
                    return Wish::Close;
                }
                Some(Line::Count) => out.extend_from_slice(&REPEATS.to_be_bytes()),
                Some(Line::Word(word)) => {
                    out.extend_from_slice(word);
                    self.expected.extend_from_slice(word);
                }
                Some(Line::Message(size)) => {
                    self.name += 1;
                    self.expected = text(self.name, 0, size as usize);
                    out.extend_from_slice(&self.expected);
                }
            }
        }
        Wish::Answer
    }

    fn received(&mut self, _: u64, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        assert!(self.expected.starts_with(&self.input), "netpipe: a message came back changed");
        self.achieved += u64::from(self.expected.len() == self.input.len());
    }

    fn ended(&mut self, _: u64, _: Closed) {
        self.script = script();
        self.expected.clear();
        self.input.clear();
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn achieved(&self) -> u64 {
        self.achieved
    }
}
