//! What of a connection is a request and what an answer, as far as whoever carries the bytes can tell.
//!
//! **The rule.** Sockets do not know what bytes mean. An *exchange* is what a peer sent and the program read,
//! until the program sends something: it begins when the first of those bytes arrived, and its answer begins
//! with the first byte sent after one of them was read. So:
//! - What arrives in pieces, and is read in pieces, is one request.
//! - Requests that a client sends at once, and that the program reads before it answers any of them, are one
//!   exchange: where one ends and the next begins, only their protocol says. A program that reads and answers
//!   them one by one has as many.
//! - An answer that goes in pieces is one, and so is what a server pushes after it.
//! - What a server says before it has read anything (a greeting) answers nothing, and is not paid for.
//! - What was asked and never answered is no exchange; who closes his side after he asked is answered all the
//!   same.
//!
//! What the network sent again, or out of order, does not come here twice: bytes are counted in the order of
//! their stream. A connection that the program opened itself has no [`Exchanges`]: its peer serves.

use smallvec::SmallVec;

/// So many arrivals of unread bytes are told apart. Bytes that come later while all of them are unread count
/// as if they had come with the last of them: no request seems to take less time than it does.
const ARRIVALS_MAX: usize = 16;

/// When bytes arrived that nobody has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    /// Where the last of them ends in the stream.
    end: u64,
    at_ns: u64,
}

/// What bytes that were sent are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// When the oldest byte of the request arrived whose answer begins with them; nothing, if they go on with
    /// an answer, or answer nothing.
    pub asked_ns: Option<u64>,
    /// How many of them are of an answer.
    pub answered: usize,
}

/// The exchanges of one connection, which its peer opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchanges {
    /// Bytes that came, and that were read of them, so far.
    received: u64,
    read: u64,
    /// Oldest first.
    unread: SmallVec<[Arrival; 2]>,
    /// When the oldest byte came that was read since the last answer.
    asked_ns: Option<u64>,
    has_asked: bool,
}

impl Exchanges {
    /// So many bytes came, in a frame that was seen at `at_ns`.
    pub fn arrived(&mut self, bytes: usize, at_ns: u64) {
        if bytes == 0 {
            return;
        }
        self.received += bytes as u64;
        let end = self.received;
        let is_full = self.unread.len() >= ARRIVALS_MAX;
        match self.unread.last_mut() {
            Some(last) if is_full || last.at_ns == at_ns => last.end = end,
            _ => self.unread.push(Arrival { end, at_ns }),
        }
    }

    /// The program has taken the next `bytes` of what came.
    pub fn read(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.read = (self.read + bytes as u64).min(self.received);
        if let Some(oldest) = self.unread.first() {
            self.asked_ns.get_or_insert(oldest.at_ns);
            self.has_asked = true;
        }
        let read = self.read;
        let done = self.unread.iter().take_while(|arrival| arrival.end <= read).count();
        self.unread.drain(..done);
    }

    /// Whether all that was asked, which was something, has an answer, as far as that was read.
    pub fn is_answered(&self) -> bool {
        self.has_asked && self.asked_ns.is_none() && self.unread.is_empty()
    }

    /// What is unread is thrown away: nobody will answer it.
    pub fn forget_unread(&mut self) {
        self.read = self.received;
        self.unread.clear();
    }

    /// The program sends `bytes`.
    pub fn sent(&mut self, bytes: usize) -> Sent {
        if bytes == 0 || !self.has_asked {
            return Sent::default();
        }
        Sent { asked_ns: self.asked_ns.take(), answered: bytes }
    }
}

#[cfg(test)]
mod tests;
