//! One run of the transmitter, over one connection or, if it resets them, several.

use crate::options::Options;
use crate::sizes::Sizes;
use alloc::vec::Vec;
use core::fmt;
use core::mem::take;
use nom_port::buffer::{Buffer, Sink, Slice};
use nom_service::Stream;

/// Greeting before each measurement.
const SYNC: &[u8] = b"SyncMe";

/// Farewell, with the end of its C string.
const QUIT: &[u8] = b"QUIT\0";

/// Bytes of a repeat count, big-endian.
const COUNT_LEN: usize = 4;

/// Messages of the first size that are exchanged before the measurements.
const WARMUP: u32 = 100;

/// The transmitter sent something else than what its turn was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    expected: &'static str,
    got: Vec<u8>,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProtocolError { expected, got } = self;
        write!(f, "expected {expected}, got '{}'; ", got.escape_ascii())?;
        write!(f, "both sides must be started with the same -l -u -p -i -r -s")
    }
}

impl core::error::Error for ProtocolError {}

/// What the transmitter sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The greeting before the warm-up.
    WarmupSync,
    Warmup,
    /// The greeting after it.
    WarmupEnd,
    /// The greeting before a size, or the farewell.
    SizeSync,
    /// The repeat count of a size.
    Count,
    /// The greeting before a trial.
    TrialSync,
    Trial,
    /// The farewell of a connection that is reset, and what comes on the next.
    Reset {
        trials_left: bool,
    },
    /// Nothing.
    Finished,
}

/// One run.
#[derive(Debug)]
pub struct Session<B> {
    options: Options,
    sizes: Sizes,
    turn: Turn,
    /// The part of a word that has come.
    word: Vec<u8>,
    /// The part of a message that has come.
    message: Vec<Slice<B>>,
    /// Bytes of messages.
    size: u64,
    /// Bytes of the message to come.
    missing: u64,
    /// Messages of the trial to come, the present one included.
    messages: u32,
    /// How often they come in each trial.
    count: u32,
    trials: u32,
    /// Nanosecond at which the trial began.
    began: u64,
    /// Nanoseconds a message took in the best trial.
    best: u64,
    /// Whether the transmitter waits to hear that.
    owes_time: bool,
}

impl<B: Buffer> Session<B> {
    /// A run that has not begun.
    pub fn new(options: Options) -> Session<B> {
        Session {
            sizes: Sizes::new(options.first, options.last, options.perturbation),
            turn: Turn::WarmupSync,
            word: Vec::new(),
            message: Vec::new(),
            size: 0,
            missing: 0,
            messages: 0,
            count: 0,
            trials: 0,
            began: 0,
            best: u64::MAX,
            owes_time: false,
            options,
        }
    }

    /// Whether the transmitter has done all it wanted.
    pub fn is_finished(&self) -> bool {
        self.turn == Turn::Finished
    }

    /// Size of the messages of the present measurement, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The transmitter has connected, for the first time or again.
    pub fn connected(&mut self, sink: &mut impl Sink<B>) {
        if take(&mut self.owes_time) {
            let ten_nanoseconds = u32::try_from(self.best / 10).unwrap_or(u32::MAX);
            sink.copy(&ten_nanoseconds.to_be_bytes());
        }
    }

    /// Takes the next piece of a connection's stream at a time in nanoseconds, and answers.
    pub fn receive(
        &mut self,
        mut input: Slice<B>,
        now: u64,
        sink: &mut impl Sink<B>,
    ) -> Result<Stream, ProtocolError> {
        while !input.is_empty() {
            let used = match self.turn {
                Turn::Warmup | Turn::Trial => self.take_message(&input, now, sink),
                Turn::Finished => return Ok(Stream::Close),
                _ => {
                    let (used, flow) = self.take_word(&input, now, sink)?;
                    if flow == Stream::Close {
                        return Ok(flow);
                    }
                    used
                }
            };
            input.advance(used);
        }
        Ok(Stream::Open)
    }

    /// Takes a piece of a message; answers one that is complete.
    fn take_message(&mut self, input: &Slice<B>, now: u64, sink: &mut impl Sink<B>) -> usize {
        let used = self.missing.min(input.len() as u64) as usize;
        self.missing -= used as u64;
        let is_returned = !self.options.streaming || self.turn == Turn::Warmup;
        if is_returned {
            self.message.push(input.part(0..used));
        }
        if self.missing > 0 {
            return used;
        }
        // Whoever sent the first one of a trial unasked owes none for the last.
        let is_last = self.options.bidirectional && self.turn == Turn::Trial && self.messages == 1;
        let message = self.message.drain(..);
        if is_last {
            drop(message)
        } else {
            message.for_each(|slice| sink.share(slice))
        }
        self.missing = self.size;
        self.messages -= 1;
        if self.messages == 0 {
            self.end_messages(now);
        }
        used
    }

    fn begin_messages(&mut self, turn: Turn, messages: u32, now: u64) {
        (self.turn, self.messages, self.missing, self.began) = (turn, messages, self.size, now);
        if messages == 0 {
            self.end_messages(now);
        }
    }

    fn end_messages(&mut self, now: u64) {
        if self.turn == Turn::Warmup {
            self.turn = Turn::WarmupEnd;
            return;
        }
        self.trials -= 1;
        self.best = self.best.min(now.saturating_sub(self.began) / u64::from(self.count.max(1)));
        self.owes_time = self.options.streaming && self.trials == 0;
        self.turn = self.after_trial(self.trials > 0);
    }

    fn after_trial(&self, trials_left: bool) -> Turn {
        match (self.options.reset, trials_left) {
            (true, trials_left) => Turn::Reset { trials_left },
            (false, true) => Turn::TrialSync,
            (false, false) => Turn::SizeSync,
        }
    }

    /// Takes a piece of a word, and does what a complete one asks for.
    fn take_word(
        &mut self,
        input: &Slice<B>,
        now: u64,
        sink: &mut impl Sink<B>,
    ) -> Result<(usize, Stream), ProtocolError> {
        let len = match (self.turn, self.word.first().or(input.first())) {
            (Turn::Count, _) => COUNT_LEN,
            (Turn::Reset { .. }, _) | (Turn::SizeSync, Some(b'Q')) => QUIT.len(),
            _ => SYNC.len(),
        };
        let used = (len - self.word.len()).min(input.len());
        self.word.extend_from_slice(&input[..used]);
        if self.word.len() < len {
            return Ok((used, Stream::Open));
        }
        let word = take(&mut self.word);
        let flow = match (self.turn, &word[..]) {
            (Turn::Count, count) => self.count(count)?,
            (Turn::SizeSync, QUIT) => self.quit(Turn::Finished, sink),
            (Turn::Reset { trials_left: true }, QUIT) => self.quit(Turn::TrialSync, sink),
            (Turn::Reset { trials_left: false }, QUIT) => self.quit(Turn::SizeSync, sink),
            (Turn::Reset { .. }, _) => return Err(ProtocolError { expected: "QUIT", got: word }),
            (_, SYNC) => self.sync(now, sink),
            (Turn::SizeSync, _) => return Err(ProtocolError { expected: "SyncMe or QUIT", got: word }),
            _ => return Err(ProtocolError { expected: "SyncMe", got: word }),
        };
        Ok((used, flow))
    }

    fn quit(&mut self, then: Turn, sink: &mut impl Sink<B>) -> Stream {
        sink.copy(QUIT);
        self.turn = then;
        Stream::Close
    }

    fn sync(&mut self, now: u64, sink: &mut impl Sink<B>) -> Stream {
        sink.copy(SYNC);
        match self.turn {
            Turn::WarmupSync => {
                self.size = self.options.first.into();
                self.begin_messages(Turn::Warmup, WARMUP, now);
            }
            Turn::WarmupEnd => self.turn = self.after_trial(false),
            Turn::SizeSync => self.turn = Turn::Count,
            _ => {
                self.begin_messages(Turn::Trial, self.count, now);
                if self.options.bidirectional && !self.options.streaming && self.count > 0 {
                    send(self.size, sink);
                }
            }
        }
        Stream::Open
    }

    fn count(&mut self, word: &[u8]) -> Result<Stream, ProtocolError> {
        let Some(size) = self.sizes.next() else {
            return Err(ProtocolError { expected: "no further size", got: word.to_vec() });
        };
        self.size = size;
        self.count = word.iter().fold(0, |count, byte| count << 8 | u32::from(*byte));
        (self.trials, self.best) = (self.options.trials, u64::MAX);
        self.turn = Turn::TrialSync;
        Ok(Stream::Open)
    }
}

/// Sends a message of so many bytes that nobody asked for; what is in it nobody looks at.
fn send<B: Buffer>(mut bytes: u64, sink: &mut impl Sink<B>) {
    const SOME: [u8; 4096] = [b'a'; 4096];
    while bytes > 0 {
        let now = bytes.min(SOME.len() as u64);
        sink.copy(&SOME[..now as usize]);
        bytes -= now;
    }
}
