//! A client of memcached over UDP: an answer may be missing, late or doubled, but never wrong.

use crate::memory::Bytes;
use crate::program::{HostStack, Program};
use crate::random::{Random, text};
use nom_net::{Chain, Closed, FlowId};
use std::net::SocketAddr;

/// How long it waits for an answer before it asks anew.
const PATIENCE_NS: u64 = 100_000_000;
/// Bytes of memcached's frame.
const FRAME: usize = 8;
/// Its port.
pub const PORT: u16 = 40_000;

/// One client, which stores a value once and then asks for it.
pub struct Client {
    remote: SocketAddr,
    random: Random,
    key: u64,
    len: usize,
    is_stored: bool,
    /// Number of the request that is out, and when to give it up.
    asked: Option<(u16, u64)>,
    number: u16,
    left: u64,
    achieved: u64,
}

impl Client {
    /// A client that wants `answers`.
    pub fn new(remote: SocketAddr, mut random: Random, answers: u64) -> Client {
        let (key, len) = (random.word(), random.within(0..1000) as usize);
        Client {
            remote,
            random,
            key,
            len,
            is_stored: false,
            asked: None,
            number: 0,
            left: answers,
            achieved: 0,
        }
    }

    fn value(&self) -> Vec<u8> {
        text(self.key, 0, self.len)
    }

    fn ask(&mut self, stack: &mut HostStack, now_ns: u64) {
        self.number = self.number.wrapping_add(1);
        let [high, low] = self.number.to_be_bytes();
        let mut request = vec![high, low, 0, 0, 0, 1, 0, 0];
        if self.is_stored {
            request.extend_from_slice(format!("get {:x}\r\n", self.key).as_bytes());
        } else {
            request.extend_from_slice(format!("set {:x} 0 0 {}\r\n", self.key, self.len).as_bytes());
            request.extend_from_slice(&self.value());
            request.extend_from_slice(b"\r\n");
        }
        self.asked = Some((self.number, now_ns + PATIENCE_NS + self.random.within(0..PATIENCE_NS)));
        let Some(from) = stack.config().source_for(self.remote.ip()) else { return };
        if let Some(bytes) = stack.buffer(&request) {
            // A datagram that cannot be sent is asked for again, as a lost one.
            let _ = stack.send_datagram(SocketAddr::new(from, PORT), self.remote, Chain::from_iter([bytes]));
        }
    }
}

impl Program for Client {
    fn at(&mut self, stack: &mut HostStack, now_ns: u64) {
        if self.left == 0 {
            return;
        }
        if self.asked.is_none_or(|(_, until_ns)| until_ns <= now_ns) {
            self.ask(stack, now_ns);
        }
    }

    fn due_ns(&self) -> Option<u64> {
        let give_up_ns = self.asked.map_or(0, |(_, until_ns)| until_ns);
        (self.left > 0).then_some(give_up_ns)
    }

    fn connected(&mut self, _: &mut HostStack, _: FlowId) {}

    fn received(&mut self, _: &mut HostStack, _: FlowId, _: Bytes) {}

    fn sendable(&mut self, _: &mut HostStack, _: FlowId) {}

    fn finished(&mut self, _: &mut HostStack, _: FlowId) {}

    fn closed(&mut self, _: &mut HostStack, _: FlowId, _: Closed) {}

    fn datagram(&mut self, _: &mut HostStack, _: SocketAddr, from: SocketAddr, bytes: Bytes) {
        assert!(bytes.len() > FRAME && from == self.remote, "a datagram that no server sends");
        let number = u16::from_be_bytes([bytes[0], bytes[1]]);
        if self.asked.is_none_or(|(asked, _)| asked != number) {
            return;
        }
        let expected = if self.is_stored {
            let head = format!("VALUE {:x} 0 {}\r\n", self.key, self.len);
            [head.as_bytes(), &self.value(), b"\r\nEND\r\n"].concat()
        } else {
            b"STORED\r\n".to_vec()
        };
        assert!(bytes[FRAME..] == expected[..], "memcached: a wrong answer over UDP");
        (self.is_stored, self.asked) = (true, None);
        (self.left, self.achieved) = (self.left - 1, self.achieved + 1);
    }

    fn is_over(&self) -> bool {
        self.left == 0
    }

    fn achieved(&self) -> u64 {
        self.achieved
    }
}
