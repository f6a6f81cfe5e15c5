//! TCP that is not ours, at one end of the network: what both ends misread alike, nobody would see.
//!
//! [`library`] is smoltcp's TCP; [`model`] was written for this from the text of RFC 9293 alone. Either is a
//! client of our servers, or serves our clients, over raw frames.

pub mod library;
pub mod model;
mod scene;

pub(crate) use scene::run;

use crate::clients::caller::{Conversation, Wish};
use crate::machine::Machine;
use crate::nic::Device;
use crate::random::Random;
use crate::servers::StreamClient;
use nom_net::Closed;
use nom_net::batch::Tallies;
use nom_port::buffer::Buffers as _;
use nom_port::nic::{Head, Nic as _, Outgoing, gather};
use nom_rt::poller::{Poller, Progress};
use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its handshake is not over.
    Opening,
    /// Both sides may speak.
    Open,
    /// The peer has said all, and all of it was taken in order.
    Finished,
    /// It is no more.
    Gone,
}

/// An implementation of TCP, which reads and writes frames.
pub trait Endpoint {
    /// A frame came.
    fn frame(&mut self, now_ns: u64, frame: Vec<u8>);
    /// Does what is due, and hands over what is to be sent.
    fn poll(&mut self, now_ns: u64, sent: &mut Vec<Vec<u8>>);
    /// When something will be due.
    fn due_ns(&mut self, now_ns: u64) -> Option<u64>;
    /// Opens a connection; `None` if that cannot be done now.
    fn connect(&mut self, now_ns: u64, remote: SocketAddr) -> Option<usize>;
    /// The next connection that somebody has opened.
    fn accept(&mut self) -> Option<usize>;
    /// How far a connection is.
    fn state(&self, id: usize) -> State;
    /// Takes bytes to send; how many.
    fn send(&mut self, id: usize, bytes: &[u8]) -> usize;
    /// What came.
    fn take(&mut self, id: usize) -> Vec<u8>;
    /// Has nothing more to say.
    fn close(&mut self, id: usize);
    /// A connection that is over is of no interest any more.
    fn forget(&mut self, id: usize);
    /// Connections that are not over.
    fn count(&self) -> usize;
}

/// Between two attempts to connect, at least.
const RETRY_NS: u64 = 50_000_000;

/// Who speaks over a connection.
enum Speaker {
    /// A client of one of our servers.
    Client { remote: SocketAddr, conversation: Box<dyn Conversation> },
    /// What answers one of our clients.
    Server(StreamClient),
}

/// A connection, or what wants one.
struct Lane {
    speaker: Speaker,
    id: Option<usize>,
    is_open: bool,
    is_closing: bool,
    /// The peer has said all.
    is_finished: bool,
    unsent: Vec<u8>,
    /// When it connects.
    next_ns: u64,
}

impl Lane {
    fn new(speaker: Speaker, id: Option<usize>, next_ns: u64) -> Lane {
        let (is_open, is_closing, is_finished) = (false, false, false);
        Lane { speaker, id, is_open, is_closing, is_finished, unsent: Vec::new(), next_ns }
    }

    fn is_over(&self) -> bool {
        match &self.speaker {
            Speaker::Client { conversation, .. } => self.id.is_none() && conversation.is_over(),
            Speaker::Server(_) => true,
        }
    }

    /// Takes bytes, says what is to be said, and whether it has nothing more to say.
    fn speak(&mut self, now_ns: u64, bytes: &[u8]) -> bool {
        match &mut self.speaker {
            Speaker::Client { conversation, .. } => {
                if !bytes.is_empty() {
                    conversation.received(now_ns, bytes);
                }
                self.unsent.is_empty() && conversation.go_on(now_ns, &mut self.unsent) == Wish::Close
            }
            Speaker::Server(client) => {
                self.unsent.extend(client.answer(bytes));
                self.is_finished
            }
        }
    }
}

/// A host of such an implementation.
pub struct Foreign<E> {
    device: Device,
    endpoint: E,
    lanes: Vec<Lane>,
    random: Random,
}

impl<E: Endpoint> Foreign<E> {
    /// A host that serves all who come, and whose clients speak with servers of ours.
    pub fn new(
        device: Device,
        endpoint: E,
        start_ns: u64,
        mut random: Random,
        talks: Vec<(SocketAddr, Box<dyn Conversation>)>,
    ) -> Foreign<E> {
        let lane = |(remote, conversation)| {
            let speaker = Speaker::Client { remote, conversation };
            Lane::new(speaker, None, start_ns + random.within(0..100_000_000))
        };
        let lanes = talks.into_iter().map(lane).collect();
        Foreign { device, endpoint, lanes, random }
    }

    fn tend(&mut self, index: usize, now_ns: u64) {
        let lane = &mut self.lanes[index];
        let Some(id) = lane.id else {
            let Speaker::Client { remote, conversation } = &mut lane.speaker else { return };
            if conversation.is_over() || now_ns < lane.next_ns {
                return;
            }
            lane.id = self.endpoint.connect(now_ns, *remote);
            lane.next_ns = now_ns + RETRY_NS;
            return;
        };
        let state = self.endpoint.state(id);
        if state == State::Opening {
            return;
        }
        if !lane.is_open
            && state != State::Gone
            && let Speaker::Client { conversation, .. } = &mut lane.speaker
        {
            conversation.opened();
        }
        lane.is_open = true;
        let bytes = self.endpoint.take(id);
        lane.is_finished |= self.endpoint.state(id) == State::Finished;
        if state == State::Gone {
            self.endpoint.forget(id);
            return self.end(index, now_ns);
        }
        self.go_on(index, now_ns, bytes);
    }

    /// Hands bytes over, and says what there is to say, as far as there is room.
    fn go_on(&mut self, index: usize, now_ns: u64, mut bytes: Vec<u8>) {
        let lane = &mut self.lanes[index];
        let Some(id) = lane.id else { return };
        loop {
            let is_done = lane.speak(now_ns, &std::mem::take(&mut bytes));
            let sent = self.endpoint.send(id, &lane.unsent);
            lane.unsent.drain(..sent);
            if lane.unsent.is_empty() && is_done {
                if !std::mem::replace(&mut lane.is_closing, true) {
                    self.endpoint.close(id);
                }
                return;
            }
            if sent == 0 {
                return;
            }
        }
    }

    fn end(&mut self, index: usize, now_ns: u64) {
        let pause_ns = RETRY_NS + self.random.within(0..RETRY_NS);
        let lane = &mut self.lanes[index];
        let why = if lane.is_finished { Closed::Finished } else { Closed::Reset };
        let (is_open, is_finished) = (lane.is_open, lane.is_finished);
        (lane.id, lane.is_open, lane.is_closing, lane.is_finished) = (None, false, false, false);
        lane.unsent.clear();
        lane.next_ns = now_ns + pause_ns;
        match &mut lane.speaker {
            Speaker::Client { conversation, .. } if is_open => conversation.ended(now_ns, why),
            Speaker::Client { .. } => {}
            Speaker::Server(client) => assert!(!is_finished || client.is_whole(), "a client ended too soon"),
        }
    }

    fn transmit(&mut self, frame: &[u8]) {
        // What finds no memory or no room is lost, as on any network.
        let (head, rest) = frame.split_at(14);
        let Some(rest) = self.device.buffer(rest) else { return };
        let mut packet = Outgoing {
            head: Head::zeroed(head.len()),
            payload: [rest].into_iter().collect(),
            checksum: None,
            segmentation: None,
            tag: None,
        };
        packet.head.copy_from_slice(head);
        let _ = self.device.transmit(&mut packet);
    }
}

impl<E: Endpoint> Poller for Foreign<E> {
    fn poll(&mut self, now_ns: u64) -> Progress {
        let mut worked = 0;
        while let Some(received) = self.device.receive() {
            worked += 1;
            self.endpoint.frame(now_ns, gather(&received.frame));
        }
        let mut sent = Vec::new();
        self.endpoint.poll(now_ns, &mut sent);
        while let Some(id) = self.endpoint.accept() {
            self.lanes.push(Lane::new(Speaker::Server(StreamClient::default()), Some(id), 0));
        }
        (0..self.lanes.len()).for_each(|index| self.tend(index, now_ns));
        self.lanes.retain(|lane| lane.id.is_some() || matches!(lane.speaker, Speaker::Client { .. }));
        self.endpoint.poll(now_ns, &mut sent);
        sent.iter().for_each(|frame| self.transmit(frame));
        if !sent.is_empty() {
            self.device.kick();
        }
        let waiting = self.lanes.iter().filter(|lane| lane.id.is_none() && !lane.is_over());
        let lanes_ns = waiting.map(|lane| lane.next_ns).min();
        let deadline_ns = self.endpoint.due_ns(now_ns).into_iter().chain(lanes_ns).min();
        Progress { worked, deadline_ns }
    }

    fn arm(&mut self) -> bool {
        self.device.arm()
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }
}

impl<E: Endpoint + 'static> Machine for Foreign<E> {
    fn set_delay(&mut self, _: Duration) {}

    fn flow_count(&self) -> usize {
        self.endpoint.count()
    }

    fn tallies(&self) -> (Tallies, Tallies) {
        Default::default()
    }

    fn is_over(&self) -> bool {
        self.lanes.iter().all(Lane::is_over)
    }

    fn achieved(&self) -> u64 {
        let achieved = |lane: &Lane| match &lane.speaker {
            Speaker::Client { conversation, .. } => conversation.achieved(),
            Speaker::Server(_) => 0,
        };
        self.lanes.iter().map(achieved).sum()
    }

    fn end(self: Box<Self>) -> Box<dyn Any> {
        Box::new(())
    }
}
