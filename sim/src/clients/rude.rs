//! A host of clients without manners: half requests, nonsense, no reading, resets and ends at any time.

use crate::clients::pace::Pace;
use crate::memory::Bytes;
use crate::program::{HostStack, Program};
use crate::random::{Random, text};
use crate::servers::{HTTP_PORT, MEMCACHED_PORT};
use nom_net::{Closed, FlowId};
use std::net::SocketAddr;

/// A host of them.
pub struct Rude {
    remotes: Vec<SocketAddr>,
    random: Random,
    flows: Vec<(FlowId, SocketAddr)>,
    flows_max: usize,
    pace: Pace,
    acts: u64,
}

impl Rude {
    /// Clients that bother `remotes` by up to `flows_max` connections at a time, one of them at each beat of
    /// `pace`.
    pub fn new(pace: Pace, flows_max: usize, random: Random, remotes: Vec<SocketAddr>) -> Rude {
        Rude { remotes, random, flows: Vec::new(), flows_max, pace, acts: 0 }
    }

    fn act(&mut self, stack: &mut HostStack) {
        self.acts += 1;
        if self.flows.is_empty() || self.flows.len() < self.flows_max && self.random.happens(400_000) {
            let remote = self.random.choose(&self.remotes);
            if let Ok(flow) = stack.connect(remote) {
                self.flows.push((flow, remote));
            }
            return;
        }
        let index = self.random.within(0..self.flows.len() as u64) as usize;
        let (flow, remote) = self.flows[index];
        match self.random.within(0..10) {
            0..4 => self.say(stack, flow, remote),
            4 => stack.window(flow, 0),
            5 => stack.window(flow, self.random.within(1..20_000) as u32),
            6 | 7 => stack.close(flow),
            _ => {
                self.flows.remove(index);
                stack.abort(flow);
            }
        }
    }

    fn say(&mut self, stack: &mut HostStack, flow: FlowId, remote: SocketAddr) {
        let mut words: Vec<u8> = match (remote.port(), self.random.within(0..4)) {
            (HTTP_PORT, 0) => b"GET /4 HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20),
            (HTTP_PORT, 1) => b"GET /3 HTTP/1.1\r\nHost: x\r\n".to_vec(),
            (MEMCACHED_PORT, 0) => b"stats\r\n".repeat(50),
            (MEMCACHED_PORT, 1) => b"set rude 0 0 100000\r\nno more than this".to_vec(),
            _ => {
                let len = self.random.skewed(12) as usize;
                text(self.random.word(), 0, len)
            }
        };
        if self.random.happens(300_000) {
            let len = self.random.within(0..words.len() as u64 + 1) as usize;
            words.truncate(len);
        }
        if let Some(bytes) = stack.buffer(&words) {
            // Whether it can be sent is not for such a client to care about.
            let _ = stack.send(flow, bytes);
        }
    }
}

impl Program for Rude {
    fn at(&mut self, stack: &mut HostStack, now_ns: u64) {
        if self.pace.has_ended(now_ns) {
            self.flows.drain(..).for_each(|(flow, _)| stack.abort(flow));
            return;
        }
        while self.pace.is_due(now_ns) {
            self.act(stack);
            self.pace.rest(&mut self.random);
        }
    }

    fn due_ns(&self) -> Option<u64> {
        (!self.is_over()).then(|| self.pace.due_ns())
    }

    fn connected(&mut self, _: &mut HostStack, _: FlowId) {}

    fn received(&mut self, _: &mut HostStack, _: FlowId, _: Bytes) {}

    fn sendable(&mut self, _: &mut HostStack, _: FlowId) {}

    /// Lets the server wait.
    fn finished(&mut self, _: &mut HostStack, _: FlowId) {}

    fn closed(&mut self, _: &mut HostStack, flow: FlowId, _: Closed) {
        self.flows.retain(|(other, _)| *other != flow);
    }

    fn is_over(&self) -> bool {
        self.flows.is_empty() && self.pace.is_over()
    }

    fn achieved(&self) -> u64 {
        self.acts
    }
}
