//! A host of well-behaved clients: each holds one conversation, over one stream after another.

use crate::memory::Bytes;
use crate::program::{HostStack, Program};
use crate::random::Random;
use nom_net::{Closed, FlowId};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// What one side of a conversation wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To hear an answer.
    Answer,
    /// To be left alone until then, in nanoseconds.
    Until(u64),
    /// To say no more, but to hear the rest.
    Close,
    /// To end the stream at once.
    Reset,
}

/// One client's side of a protocol.
pub trait Conversation {
    /// A stream is open.
    fn opened(&mut self);
    /// Says what is to be said now, and what it wants then.
    fn go_on(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Wish;
    /// Bytes came.
    fn received(&mut self, now_ns: u64, bytes: &[u8]);
    /// The stream is over.
    fn ended(&mut self, now_ns: u64, why: Closed);
    /// Whether it has nothing more to say.
    fn is_over(&self) -> bool;
    /// Answers that were right.
    fn achieved(&self) -> u64;
}

/// How long a client waits before it tries again.
const RETRY_NS: u64 = 50_000_000;

struct Lane {
    remote: SocketAddr,
    conversation: Box<dyn Conversation>,
    flow: Option<FlowId>,
    is_open: bool,
    is_closing: bool,
    unsent: VecDeque<Bytes>,
    /// When it goes on by itself.
    next_ns: Option<u64>,
    /// Since when it has heard nothing though it wanted to.
    since_ns: u64,
}

/// A host of clients.
pub struct Caller {
    lanes: Vec<Lane>,
    /// How long any of them may wait for the next byte, in nanoseconds.
    patience_ns: u64,
    random: Random,
}

impl Caller {
    /// Clients that each speak with a server, the first of them at once and all within a tenth of a second.
    pub fn new(
        start_ns: u64,
        patience_ns: u64,
        mut random: Random,
        talks: Vec<(SocketAddr, Box<dyn Conversation>)>,
    ) -> Caller {
        let lane = |(index, (remote, conversation)): (usize, _)| Lane {
            remote,
            conversation,
            flow: None,
            is_open: false,
            is_closing: false,
            unsent: VecDeque::new(),
            next_ns: Some(start_ns + if index == 0 { 0 } else { random.within(0..100_000_000) }),
            since_ns: start_ns,
        };
        let lanes = talks.into_iter().enumerate().map(lane).collect();
        Caller { lanes, patience_ns, random }
    }

    fn lane_of(&self, flow: FlowId) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.flow == Some(flow))
    }

    fn connect(&mut self, stack: &mut HostStack, index: usize, now_ns: u64) {
        let later_ns = now_ns + RETRY_NS + self.random.within(0..RETRY_NS);
        let lane = &mut self.lanes[index];
        lane.next_ns = None;
        match stack.connect(lane.remote) {
            Ok(flow) => lane.flow = Some(flow),
            Err(_) => lane.next_ns = Some(later_ns),
        }
    }

    /// Lets a conversation go on as far as it goes.
    fn go_on(&mut self, stack: &mut HostStack, index: usize) {
        let now_ns = stack.now().nanos();
        loop {
            let lane = &mut self.lanes[index];
            let Some(flow) = lane.flow.filter(|_| lane.is_open && !lane.is_closing) else { return };
            while let Some(bytes) = lane.unsent.pop_front() {
                if stack.send(flow, bytes.clone()).is_err() {
                    return lane.unsent.push_front(bytes);
                }
            }
            let mut out = Vec::new();
            let wish = lane.conversation.go_on(now_ns, &mut out);
            for piece in out.chunks(16_000) {
                let Some(bytes) = stack.buffer(piece) else { return self.reset(stack, index) };
                lane.unsent.push_back(bytes);
            }
            lane.next_ns = None;
            match wish {
                Wish::Until(next_ns) if next_ns > now_ns => {
                    // It does not want to hear anything, so nobody lets it wait.
                    (lane.next_ns, lane.since_ns) = (Some(next_ns), next_ns);
                }
                Wish::Close if lane.unsent.is_empty() => {
                    lane.is_closing = true;
                    return stack.close(flow);
                }
                Wish::Reset => return self.reset(stack, index),
                _ => {}
            }
            if out.is_empty() {
                return;
            }
        }
    }

    fn reset(&mut self, stack: &mut HostStack, index: usize) {
        if let Some(flow) = self.lanes[index].flow {
            stack.abort(flow);
            self.end(stack, index, Closed::Reset);
        }
    }

    fn end(&mut self, stack: &mut HostStack, index: usize, why: Closed) {
        let now_ns = stack.now().nanos();
        let later_ns = now_ns + RETRY_NS + self.random.within(0..RETRY_NS);
        let lane = &mut self.lanes[index];
        lane.conversation.ended(now_ns, why);
        (lane.flow, lane.is_open, lane.is_closing) = (None, false, false);
        lane.unsent.clear();
        lane.next_ns = (!lane.conversation.is_over()).then_some(later_ns);
    }

    fn check_patience(&self, now_ns: u64) {
        for lane in &self.lanes {
            let waited_ns = now_ns.saturating_sub(lane.since_ns);
            assert!(
                lane.is_over() || waited_ns <= self.patience_ns,
                "a client of {} starves: it has heard nothing for {} ms",
                lane.remote,
                waited_ns / 1_000_000
            );
        }
    }
}

impl Lane {
    fn is_over(&self) -> bool {
        self.flow.is_none() && self.conversation.is_over()
    }
}

impl Program for Caller {
    fn at(&mut self, stack: &mut HostStack, now_ns: u64) {
        self.check_patience(now_ns);
        for index in 0..self.lanes.len() {
            let lane = &self.lanes[index];
            if lane.next_ns.is_some_and(|next_ns| next_ns <= now_ns) {
                match lane.flow {
                    None => self.connect(stack, index, now_ns),
                    Some(_) => self.go_on(stack, index),
                }
            }
        }
    }

    fn due_ns(&self) -> Option<u64> {
        let busy = self.lanes.iter().filter(|lane| !lane.is_over());
        busy.map(|lane| lane.next_ns.unwrap_or(lane.since_ns + self.patience_ns + 1)).min()
    }

    fn connected(&mut self, stack: &mut HostStack, flow: FlowId) {
        let Some(index) = self.lane_of(flow) else { return };
        self.lanes[index].is_open = true;
        self.lanes[index].conversation.opened();
        self.go_on(stack, index);
    }

    fn received(&mut self, stack: &mut HostStack, flow: FlowId, bytes: Bytes) {
        let Some(index) = self.lane_of(flow) else { return };
        let now_ns = stack.now().nanos();
        self.lanes[index].since_ns = now_ns;
        self.lanes[index].conversation.received(now_ns, &bytes);
        self.go_on(stack, index);
    }

    fn sendable(&mut self, stack: &mut HostStack, flow: FlowId) {
        let Some(index) = self.lane_of(flow) else { return };
        self.go_on(stack, index);
    }

    fn finished(&mut self, stack: &mut HostStack, flow: FlowId) {
        stack.close(flow);
    }

    fn closed(&mut self, stack: &mut HostStack, flow: FlowId, why: Closed) {
        let Some(index) = self.lane_of(flow) else { return };
        self.end(stack, index, why);
    }

    fn is_over(&self) -> bool {
        self.lanes.iter().all(Lane::is_over)
    }

    fn achieved(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.conversation.achieved()).sum()
    }
}
