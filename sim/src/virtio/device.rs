//! The device of a host with the real driver: what it does with its rings, and how it breaks.
//!
//! It does what the specification allows: looks for frames without being told, keeps what it has read for a
//! while, gives chains back in any order. Where it has said that it wants to be told it looks at nothing
//! until it is; a frame that it was not told of is a hang that no retransmission may hide.

use super::pair::Counts;
use crate::card::{Card, Tally};
use crate::cut;
use crate::memory::{Memory, Pool};
use crate::random::Random;
use nom_port::buffer::Slice;
use nom_port::nic::{Head, Outgoing, PartialChecksum, Properties, Segmentation};
use nom_virtio::net::feature;
use nom_virtio_fake::{FakeFunction, Lent};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Bytes of the header in front of a frame (section 5.1.6).
const HEADER: usize = 12;
const ETHERNET: usize = 14;

/// How a device breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It says that only a reset helps (section 2.1.2).
    NeedsReset,
    /// It gives back what it was not lent.
    Nonsense {
        /// In the queue of this number.
        queue: u16,
    },
    /// It does nothing for a while, and says nothing.
    Stuck,
    /// It is wrong about the lengths of what it receives, for a while.
    Lengths,
}

/// Of each queue pair.
#[derive(Debug, Default)]
struct State {
    /// Chains to receive into that it has looked at.
    lent: VecDeque<Lent>,
    /// Notifications about receive buffers when it found none, since when it waits for another one.
    starved: Option<u64>,
    /// Notifications about frames to send when it looked last.
    kicks: u64,
    /// Until then it looks for frames to send without being told.
    looks_until_ns: Option<u64>,
    /// Chains that it has read, to be given back at a time.
    read: Vec<Lent>,
    back_ns: u64,
    sent: Vec<Vec<u8>>,
    has_interrupted: bool,
    overruns: u64,
}

/// A device with all its queue pairs.
pub struct Machinery {
    function: FakeFunction,
    properties: Properties,
    random: Random,
    now_ns: u64,
    /// Resets that it has seen.
    resets: u64,
    stuck_until_ns: u64,
    wrong_until_ns: u64,
    broken: u64,
    pairs: Vec<State>,
    pool: Rc<Pool>,
}

impl Machinery {
    /// What works behind `function`, with so many queue pairs.
    pub fn new(
        function: FakeFunction,
        properties: Properties,
        pairs: u16,
        random: Random,
    ) -> Rc<RefCell<Machinery>> {
        let resets = function.resets();
        Rc::new(RefCell::new(Machinery {
            function,
            properties,
            random,
            now_ns: 0,
            resets,
            stuck_until_ns: 0,
            wrong_until_ns: 0,
            broken: 0,
            pairs: (0..pairs).map(|_| State::default()).collect(),
            pool: Pool::new(usize::MAX),
        }))
    }

    /// How often the driver has reset it.
    pub fn resets(&self) -> u64 {
        self.function.resets()
    }

    /// Queue pairs that it receives into.
    pub fn pairs_in_use(&self) -> usize {
        self.function.pairs_in_use().into()
    }

    fn is_live(&mut self, queue: u16) -> bool {
        if std::mem::replace(&mut self.resets, self.function.resets()) != self.resets {
            // It has forgotten everything but what is on its way.
            for state in &mut self.pairs {
                let (sent, has_interrupted) = (std::mem::take(&mut state.sent), state.has_interrupted);
                *state = State { sent, has_interrupted, overruns: state.overruns, ..State::default() };
            }
        }
        self.function.is_live(queue) && self.now_ns >= self.stuck_until_ns
    }

    fn has(&self, feature: u64) -> bool {
        self.function.driver_features() & feature != 0
    }

    /// Notes who was interrupted.
    fn collect(&mut self) {
        let bits = self.function.interrupts();
        for (index, state) in self.pairs.iter_mut().enumerate() {
            state.has_interrupted |= bits >> index & 1 == 1;
        }
    }

    /// Receives a frame; `false` if it finds no room.
    fn deliver(&mut self, pair: usize, frame: &[u8]) -> bool {
        let queue = 2 * pair as u16;
        if !self.is_live(queue) || pair >= self.pairs_in_use() || !self.borrow(pair, HEADER + frame.len()) {
            self.pairs[pair].overruns += 1;
            return false;
        }
        let mut bytes = vec![0; HEADER];
        bytes.extend_from_slice(frame);
        let mut rest = &bytes[..];
        let mut filled = Vec::new();
        while !rest.is_empty() {
            let lent = self.pairs[pair].lent.pop_front().expect("there was room");
            filled.push((lent, rest));
            let room =
                filled[filled.len() - 1].0.pieces.iter().map(|piece| piece.bytes as usize).sum::<usize>();
            rest = &rest[room.min(rest.len())..];
        }
        let count = (filled.len() as u16).to_le_bytes();
        for (index, (lent, part)) in filled.iter().enumerate() {
            let mut part = part.to_vec();
            if index == 0 {
                part[10..12].copy_from_slice(&count);
            }
            let written = self.function.queue(queue, |_, memory| lent.write(memory, &part)) as u32;
            let told = if self.now_ns < self.wrong_until_ns { self.wrong(written) } else { written };
            self.function.put(queue, lent, told);
        }
        self.collect();
        true
    }

    /// What it says that it has written.
    fn wrong(&mut self, written: u32) -> u32 {
        let any = self.random.word() as u32;
        self.random.choose(&[written, 0, 11, 12, written / 2, written + 1, 4096, any])
    }

    /// Has chains at hand with room for so many bytes.
    fn borrow(&mut self, pair: usize, bytes: usize) -> bool {
        let queue = 2 * pair as u16;
        let state = &mut self.pairs[pair];
        let kicks = self.function.kicks(queue);
        if state.starved == Some(kicks) {
            return false;
        }
        let is_mergeable = self.function.driver_features() & feature::MERGEABLE != 0;
        let room = |lent: &VecDeque<Lent>| -> usize {
            let chains = lent.iter().take(if is_mergeable { usize::MAX } else { 1 });
            chains.flat_map(|lent| &lent.pieces).map(|piece| piece.bytes as usize).sum()
        };
        while room(&state.lent) < bytes {
            let next = self.function.queue(queue, |queue, _| {
                queue.take().or_else(|| {
                    // Whoever asks to be told looks once more, for what came before it asked.
                    queue.want_kicks();
                    queue.take()
                })
            });
            match next {
                Some(lent) if is_mergeable || state.lent.is_empty() => state.lent.push_back(lent),
                // A frame that is too long for a buffer.
                Some(lent) => {
                    state.lent.push_back(lent);
                    return false;
                }
                None => {
                    state.starved = Some(kicks);
                    return false;
                }
            }
        }
        state.starved = None;
        true
    }

    /// Sends what it was told of, or finds; gives back what it has read. Frames that the stack still holds
    /// may be in the ring already.
    fn work(&mut self, pair: usize, holds: bool) {
        let queue = 2 * pair as u16 + 1;
        if !self.is_live(queue) {
            return self.collect();
        }
        self.give_back(pair);
        let (kicks, now_ns) = (self.function.kicks(queue), self.now_ns);
        let is_told = std::mem::replace(&mut self.pairs[pair].kicks, kicks) != kicks;
        if self.pairs[pair].looks_until_ns.is_none() && !is_told {
            let unseen = self.function.queue(queue, |queue, _| (!holds).then(|| queue.take()).flatten());
            assert!(unseen.is_none(), "the driver has queued a frame of which it did not tell the device");
            return self.collect();
        }
        self.send(pair);
        if self.pairs[pair].looks_until_ns.is_some_and(|until_ns| now_ns < until_ns) {
            return self.collect();
        }
        if is_told && self.random.happens(200_000) {
            self.function.queue(queue, |queue, _| queue.refuse_kicks());
            self.pairs[pair].looks_until_ns = Some(now_ns + self.random.within(1..100_000));
        } else {
            self.function.queue(queue, |queue, _| queue.want_kicks());
            self.pairs[pair].looks_until_ns = None;
        }
        // What came between the look and the wish.
        self.send(pair);
        self.collect();
    }

    /// Takes all frames that are there to be sent.
    fn send(&mut self, pair: usize) {
        let queue = 2 * pair as u16 + 1;
        let take = |function: &FakeFunction| {
            function.queue(queue, |queue, memory| {
                let lent = queue.take()?;
                let bytes = lent.read(memory);
                Some((lent, bytes))
            })
        };
        while let Some((lent, bytes)) = take(&self.function) {
            self.emit(pair, &bytes);
            self.pairs[pair].read.push(lent);
        }
        if self.pairs[pair].back_ns <= self.now_ns && self.random.happens(100_000) {
            self.pairs[pair].back_ns = self.now_ns + self.random.within(1..200_000);
        }
        self.give_back(pair);
    }

    /// Gives back what it has read, in any order, if it is time to.
    fn give_back(&mut self, pair: usize) {
        while self.pairs[pair].back_ns <= self.now_ns && !self.pairs[pair].read.is_empty() {
            let at = self.random.within(0..self.pairs[pair].read.len() as u64) as usize;
            let lent = self.pairs[pair].read.swap_remove(at);
            self.function.put(2 * pair as u16 + 1, &lent, 0);
        }
    }

    /// Makes frames of what the driver has lent: a header, and a packet that may have to be finished.
    fn emit(&mut self, pair: usize, bytes: &[u8]) {
        assert!(bytes.len() >= HEADER + ETHERNET, "{} bytes to send", bytes.len());
        let (header, packet) = bytes.split_at(HEADER);
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let checksum = (header[0] & 1 != 0).then(|| PartialChecksum { start: word(6), offset: word(8) });
        let segmentation = (header[1] != 0).then(|| {
            let (is_ipv6, needed) = match header[1] {
                1 => (false, feature::HOST_TSO4),
                4 => (true, feature::HOST_TSO6),
                other => panic!("segmentation of kind {other}"),
            };
            assert!(self.has(needed), "a segmentation that was not negotiated");
            Segmentation { payload_max: word(4), is_ipv6 }
        });
        assert!(checksum.is_none() || self.has(feature::CHECKSUM), "a checksum that was not negotiated");
        let head_bytes = if segmentation.is_some() { usize::from(word(2)) } else { ETHERNET };
        let mut head = Head::zeroed(head_bytes);
        head.copy_from_slice(&packet[..head_bytes]);
        let payload = self.pool.take(packet[head_bytes..].to_vec()).expect("it has no bound");
        let payload = [Slice::<Memory>::new(payload)].into_iter().collect();
        let packet = Outgoing { head, payload, checksum, segmentation, tag: None };
        cut::frames(&packet, &self.properties, &mut self.pairs[pair].sent);
    }

    /// Breaks in one way or another, until `until_ns` if it does not say so.
    fn break_down(&mut self, until_ns: u64) {
        let queue = self.random.choose(&[0, 1]);
        let damages = [Damage::NeedsReset, Damage::Nonsense { queue }, Damage::Stuck, Damage::Lengths];
        let damage = self.random.choose(&damages);
        self.suffer(damage, until_ns);
    }

    /// Breaks in this way.
    pub fn suffer(&mut self, damage: Damage, until_ns: u64) {
        self.broken += 1;
        match damage {
            Damage::NeedsReset => self.function.break_down(),
            Damage::Nonsense { queue } => {
                if self.is_live(queue) {
                    self.function.queue(queue, |queue, _| queue.put_raw(0xfff, 1, 60));
                    self.function.interrupt(queue);
                }
            }
            Damage::Stuck => self.stuck_until_ns = until_ns,
            Damage::Lengths => self.wrong_until_ns = until_ns,
        }
        self.collect();
    }
}

/// A queue pair of such a device, as the world sees it.
pub struct VirtioCard {
    machinery: Rc<RefCell<Machinery>>,
    index: usize,
    counts: Rc<Counts>,
    ring: usize,
}

impl VirtioCard {
    /// Queue pair number `index`, of rings with so many entries.
    pub fn new(
        machinery: Rc<RefCell<Machinery>>,
        index: usize,
        counts: Rc<Counts>,
        ring: usize,
    ) -> Rc<RefCell<VirtioCard>> {
        Rc::new(RefCell::new(VirtioCard { machinery, index, counts, ring }))
    }
}

impl Card for VirtioCard {
    fn set_time(&mut self, now_ns: u64) {
        // Cores of one machine have one time, but one may be behind.
        let machinery = &mut *self.machinery.borrow_mut();
        machinery.now_ns = machinery.now_ns.max(now_ns);
    }

    fn deliver(&mut self, frame: Vec<u8>, at_ns: u64) -> bool {
        self.set_time(at_ns);
        self.machinery.borrow_mut().deliver(self.index, &frame)
    }

    fn work(&mut self) {
        self.machinery.borrow_mut().work(self.index, self.counts.holds());
    }

    fn due_ns(&self) -> Option<u64> {
        let machinery = self.machinery.borrow();
        let (state, now_ns) = (&machinery.pairs[self.index], machinery.now_ns);
        let back_ns = (!state.read.is_empty()).then_some(state.back_ns);
        let stuck_ns = Some(machinery.stuck_until_ns).filter(|until_ns| now_ns < *until_ns);
        match stuck_ns {
            Some(_) => stuck_ns,
            None => state.looks_until_ns.into_iter().chain(back_ns).min(),
        }
        .filter(|_| machinery.function.is_live(2 * self.index as u16))
    }

    fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.machinery.borrow_mut().pairs[self.index].has_interrupted)
    }

    fn has_received(&self) -> bool {
        false
    }

    fn take_sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.machinery.borrow_mut().pairs[self.index].sent)
    }

    fn take_work(&mut self) -> (u64, u64) {
        self.counts.work.take()
    }

    fn tally(&self) -> Tally {
        let machinery = self.machinery.borrow();
        let overruns = machinery.pairs[self.index].overruns;
        Tally { overruns, resets: machinery.broken, ..self.counts.tally.get() }
    }

    fn ring(&self) -> usize {
        self.ring
    }

    fn break_down(&mut self, until_ns: u64) -> bool {
        self.machinery.borrow_mut().break_down(until_ns);
        true
    }

    fn memory_live(&self) -> usize {
        self.counts.live.get()
    }
}
