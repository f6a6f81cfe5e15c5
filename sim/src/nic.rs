//! A simulated network device: one queue pair between a stack and the network.

use crate::card::{Card, Tally};
use crate::cut;
use crate::memory::{Bytes, Memory, Pool};
use nom_port::buffer::{Buffers, Chain, Slice, chain_len};
use nom_port::nic::{Checksum, Nic, Outgoing, Properties, Received, RingFull};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What a device is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What the stack is told.
    pub properties: Properties,
    /// Frames that each of its rings can hold.
    pub ring: usize,
    /// Received frames come in pieces of this many bytes; all headers are in the first.
    pub piece: usize,
}

/// What the device shares with the world.
#[derive(Debug)]
pub struct Port {
    shape: Shape,
    pool: Rc<Pool>,
    /// Received, with the local time of arrival.
    received: VecDeque<Received<Memory>>,
    /// Queued, with the local time of that; the device was not told yet.
    queued: Vec<(u64, Outgoing<Memory>)>,
    /// On its way out.
    sent: Vec<Vec<u8>>,
    /// The host's time.
    pub now_ns: u64,
    /// Whether a frame that comes interrupts.
    is_armed: bool,
    has_interrupted: bool,
    /// Until then it is broken, by the host's time.
    broken_until_ns: u64,
    /// Packets and bytes that went to and from the stack since somebody asked.
    work: (u64, u64),
    /// What happened.
    pub tally: Tally,
}

impl Port {
    /// A port through which nothing has gone.
    pub fn new(shape: Shape, pool: Rc<Pool>) -> Rc<RefCell<Port>> {
        Rc::new(RefCell::new(Port {
            shape,
            pool,
            received: VecDeque::new(),
            queued: Vec::new(),
            sent: Vec::new(),
            now_ns: 0,
            is_armed: false,
            has_interrupted: false,
            broken_until_ns: 0,
            work: (0, 0),
            tally: Tally::default(),
        }))
    }

    /// Packets that wait for a kick.
    pub fn held(&self) -> usize {
        self.queued.len()
    }
}

impl Card for Port {
    fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    fn deliver(&mut self, frame: Vec<u8>, at_ns: u64) -> bool {
        let has_room = self.received.len() < self.shape.ring && at_ns >= self.broken_until_ns;
        let Some(memory) = has_room.then(|| self.pool.take(frame)).flatten() else {
            self.tally.overruns += 1;
            return false;
        };
        let whole = Slice::new(memory);
        let first = self.shape.piece.max(128);
        let mut frame: Chain<Memory> = Chain::from_iter([whole.part(0..first)]);
        frame.extend(
            (first..whole.len()).step_by(self.shape.piece).map(|at| whole.part(at..at + self.shape.piece)),
        );
        self.received.push_back(Received { frame, checksum: Checksum::Unknown, at_ns });
        self.has_interrupted |= self.is_armed;
        true
    }

    fn come_back(&mut self) {
        let now_ns = self.now_ns;
        self.received.iter_mut().for_each(|frame| frame.at_ns = now_ns);
    }

    fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.has_interrupted)
    }

    fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    fn take_sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent)
    }

    fn take_work(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.work)
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn ring(&self) -> usize {
        self.shape.ring
    }

    /// What is in its rings is lost; it needs no reset.
    fn break_down(&mut self, until_ns: u64) -> bool {
        self.broken_until_ns = until_ns;
        self.received.clear();
        self.queued.clear();
        self.tally.resets += 1;
        false
    }

    fn memory_live(&self) -> usize {
        self.pool.live()
    }
}

/// The stack's side of a [`Port`].
#[derive(Clone, Debug)]
pub struct Device(pub Rc<RefCell<Port>>);

impl Buffers for Device {
    type Buffer = Memory;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Bytes> {
        self.0.borrow().pool.take(bytes.to_vec()).map(Slice::new)
    }
}

impl Nic for Device {
    fn properties(&self) -> Properties {
        self.0.borrow().shape.properties
    }

    fn receive(&mut self) -> Option<Received<Memory>> {
        let port = &mut *self.0.borrow_mut();
        let frame = port.received.pop_front()?;
        port.work.0 += 1;
        port.work.1 += chain_len(&frame.frame) as u64;
        port.tally.lay_max_ns = port.tally.lay_max_ns.max(port.now_ns.saturating_sub(frame.at_ns));
        Some(frame)
    }

    fn room(&mut self) -> usize {
        let port = self.0.borrow();
        port.shape.ring - port.queued.len()
    }

    fn transmit(&mut self, frame: &mut Outgoing<Memory>) -> Result<(), RingFull> {
        if self.room() == 0 {
            return Err(RingFull);
        }
        let port = &mut *self.0.borrow_mut();
        port.work.0 += 1;
        port.work.1 += frame.len() as u64;
        if port.now_ns < port.broken_until_ns {
            // As into a device that was reset: nobody will ever send it.
            return Ok(());
        }
        port.queued.push((port.now_ns, Outgoing { payload: std::mem::take(&mut frame.payload), ..*frame }));
        port.tally.packets += 1;
        Ok(())
    }

    fn kick(&mut self) {
        let port = &mut *self.0.borrow_mut();
        port.tally.kicks += 1;
        port.tally.kicked_ns = port.now_ns;
        for (at_ns, frame) in port.queued.drain(..) {
            port.tally.held_max_ns = port.tally.held_max_ns.max(port.now_ns - at_ns);
            cut::frames(&frame, &port.shape.properties, &mut port.sent);
        }
    }

    fn arm(&mut self) -> bool {
        let port = &mut *self.0.borrow_mut();
        port.is_armed = port.received.is_empty();
        port.is_armed
    }

    fn disarm(&mut self) {
        let port = &mut *self.0.borrow_mut();
        (port.is_armed, port.has_interrupted) = (false, false);
    }
}
