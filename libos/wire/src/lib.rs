//! A network device for tests: what it receives is put into a queue, and what is sent is taken from one.
//!
//! Tests of the stack and of sockets, and the fuzzers, put a wire of their own between such devices.
#![forbid(unsafe_code)]

mod cut;

pub use cut::frames;
use nom_net::{Answer, Observed};
use nom_port::buffer::{Buffers, Chain, Slice};
use nom_port::nic::{Checksum, Nic, Offloads, Outgoing, Properties, Received, RingFull};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Memory of frames.
pub type Memory = Rc<[u8]>;

/// Numbers that look random and replay from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// So many of them.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// One end's device: two queues that the link empties and fills.
#[derive(Debug, Default)]
pub struct Port {
    /// To be received, with the times at which they came.
    pub received: VecDeque<(u64, Vec<u8>)>,
    /// Queued with the time of the queueing, and not yet shown to the link.
    pub queued: Vec<(u64, Outgoing<Memory>)>,
    /// Shown to the link.
    pub sent: Vec<Outgoing<Memory>>,
    /// How often it was told to look.
    pub kicks: u64,
    /// What each frame answered, as it was queued.
    pub answers: Vec<Option<Answer>>,
    /// Bytes of answers, as they were queued.
    pub answered_bytes: usize,
    /// Frames by how long they were held before the kick, the longest.
    pub held_max_ns: u64,
    /// The present time, for `held_max_ns`.
    pub now_ns: u64,
    /// Says that it has looked at checksums, although it has not.
    pub is_sum_good: bool,
    /// Has no memory for copies.
    pub is_memory_short: bool,
    /// Leaves what is queued where it is, whatever it is told.
    pub is_stalled: bool,
}

/// A device of a simulated machine.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its queues; clones have the same.
    pub port: Rc<RefCell<Port>>,
    /// What it says that it is.
    pub properties: Properties,
    /// Frames that it takes before a kick.
    pub room: usize,
    /// Received frames come in pieces of this many bytes, after the headers.
    pub piece: usize,
    /// Bytes that the memory of a received frame has to spare.
    pub spare: usize,
}

impl Device {
    /// The device of machine `number`.
    pub fn new(number: u8, offloads: Offloads) -> Device {
        let properties = Properties { mac: [2, 0, 0, 0, 0, number], mtu: 1500, offloads };
        Device { port: Rc::default(), properties, room: 256, piece: 2048, spare: 0 }
    }
}

impl Device {
    /// Has it receive a frame.
    pub fn deliver(&self, at_ns: u64, frame: Vec<u8>) {
        self.port.borrow_mut().received.push_back((at_ns, frame));
    }

    /// Frames that were sent since the last call.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        let sent = std::mem::take(&mut self.port.borrow_mut().sent);
        sent.iter().flat_map(frames).collect()
    }
}

impl Buffers for Device {
    type Buffer = Memory;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Memory>> {
        let is_short = self.port.borrow().is_memory_short;
        (!is_short).then(|| Slice::new(bytes.into()))
    }
}

impl Observed for Device {
    fn answered(&mut self, bytes: usize) {
        self.port.borrow_mut().answered_bytes += bytes;
    }
}

impl Nic for Device {
    fn properties(&self) -> Properties {
        self.properties
    }

    fn receive(&mut self) -> Option<Received<Memory>> {
        let (at_ns, bytes) = self.port.borrow_mut().received.pop_front()?;
        let len = bytes.len();
        let mut memory = bytes;
        memory.resize(len + self.spare, 0);
        let whole = Slice::new(Memory::from(memory)).part(0..len);
        let first = self.piece.max(128);
        let mut frame: Chain<Memory> = Chain::from_iter([whole.part(0..first)]);
        let rest = (first..whole.len()).step_by(self.piece).map(|at| whole.part(at..at + self.piece));
        frame.extend(rest);
        let checksum = if self.port.borrow().is_sum_good { Checksum::Good } else { Checksum::Unknown };
        Some(Received { frame, checksum, at_ns })
    }

    fn room(&mut self) -> usize {
        self.room - self.port.borrow().queued.len()
    }

    fn transmit(&mut self, frame: &mut Outgoing<Memory>) -> Result<(), RingFull> {
        if self.room() == 0 {
            return Err(RingFull);
        }
        let mut port = self.port.borrow_mut();
        let now = port.now_ns;
        port.answers.push(frame.tag.map(Answer::of));
        port.queued.push((now, Outgoing { payload: std::mem::take(&mut frame.payload), ..*frame }));
        Ok(())
    }

    fn kick(&mut self) {
        let port = &mut *self.port.borrow_mut();
        port.kicks += 1;
        if port.is_stalled {
            return;
        }
        for (at, frame) in port.queued.drain(..) {
            port.held_max_ns = port.held_max_ns.max(port.now_ns - at);
            port.sent.push(frame);
        }
    }

    fn now_ns(&self, _: u64) -> u64 {
        self.port.borrow().now_ns
    }

    fn arm(&mut self) -> bool {
        self.port.borrow().received.is_empty()
    }

    fn disarm(&mut self) {}
}
