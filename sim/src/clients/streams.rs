//! A client that sends a long text and gets one back: bulk transfer in both directions at once.

use super::caller::{Conversation, Wish};
use crate::random::{Random, text};
use nom_net::Closed;

/// Bytes said at a time.
const PIECE: u64 = 30_000;

/// One client.
pub struct Client {
    random: Random,
    /// Names of the texts: this one comes back, the next is sent.
    name: u64,
    len: u64,
    said: u64,
    heard: u64,
    left: u64,
    /// Says that it will say no more as soon as that is so, not when it has heard all.
    is_half_closing: bool,
    has_begun: bool,
    is_strict: bool,
    achieved: u64,
}

impl Client {
    /// A client of `transfers` streams of up to `2^bits` bytes.
    pub fn new(mut random: Random, transfers: u64, bits: u64) -> Client {
        let (name, len) = (random.word() >> 1, 1 + random.skewed(bits));
        let is_half_closing = random.happens(500_000);
        Client {
            random,
            name,
            len,
            said: 0,
            heard: 0,
            left: transfers,
            is_half_closing,
            has_begun: false,
            is_strict: false,
            achieved: 0,
        }
    }

    /// The same, which no stream may fail.
    pub fn strict(self) -> Client {
        Client { is_strict: true, ..self }
    }
}

impl Conversation for Client {
    fn opened(&mut self) {}

    fn go_on(&mut self, _: u64, out: &mut Vec<u8>) -> Wish {
        if self.left == 0 {
            return Wish::Close;
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            out.extend_from_slice(&self.name.to_le_bytes());
            out.extend_from_slice(&self.len.to_le_bytes());
        }
        if self.said < self.len {
            let count = PIECE.min(self.len - self.said);
            out.extend_from_slice(&text(self.name + 1, self.said, count as usize));
            self.said += count;
            return Wish::Answer;
        }
        if self.is_half_closing || self.heard == self.len { Wish::Close } else { Wish::Answer }
    }

    fn received(&mut self, _: u64, bytes: &[u8]) {
        let expected = text(self.name, self.heard, bytes.len());
        assert!(bytes == expected, "a client got other bytes than were sent, {} in", self.heard);
        self.heard += bytes.len() as u64;
        assert!(self.heard <= self.len, "a client got more bytes than were sent");
        self.achieved += bytes.len() as u64;
    }

    fn ended(&mut self, _: u64, why: Closed) {
        assert!(!self.is_strict || why == Closed::Finished, "a client's stream failed: {why:?}");
        if why == Closed::Finished {
            assert!(self.heard == self.len, "ended in order after {} of {} bytes", self.heard, self.len);
            self.left -= 1;
        }
        let bits = self.random.within(0..18);
        (self.name, self.len) = (self.random.word() >> 1, 1 + self.random.skewed(bits));
        (self.said, self.heard, self.has_begun) = (0, 0, false);
        self.is_half_closing = self.random.happens(500_000);
    }

    fn is_over(&self) -> bool {
        self.left == 0
    }

    fn achieved(&self) -> u64 {
        self.achieved
    }
}
