//! The receiving half of a queue pair.

use super::counters::Counters;
use super::header::{self, Incoming};
use super::shared::Shared;
use super::{Lane, feature};
use crate::memory::{DmaBuffer, Slot};
use crate::pool::Pool;
use crate::queue::Descriptor;
use nom_port::buffer::{Chain, Slice, single};
use nom_port::device::{Dma, Registers};
use nom_port::nic::Received;
use nom_port::world::Clock;

/// Bytes of an Ethernet header, VLAN tag included: frames are at most that much longer than packets.
const ETHERNET_MAX: usize = 18;
const ETHERNET_MIN: usize = 14;
/// A buffer has room for an ordinary frame and for what the application may want to put around it later.
const BUFFER_BYTES: usize = 2048;
/// Buffers are made available that many at once: one barrier for all.
const REFILL_BATCH: usize = 16;

/// The receiving half: buffers that the device has, or has filled.
#[derive(Debug)]
pub(super) struct Receiver {
    lane: Lane<Slot>,
    /// Bytes of one buffer.
    buffer_bytes: usize,
    /// Whether a frame may fill several buffers.
    mergeable: bool,
    /// Buffers that the device does not have but should.
    missing: usize,
    /// Buffers that may be missing before they are made up for.
    tolerated: usize,
    /// Buffers that may be missing before the device may have too few for a frame, whose size is unknown.
    spared: usize,
    /// When the frames at hand were first seen.
    seen_ns: u64,
    /// Whether an interrupt was asked for and is not due yet.
    armed: bool,
}

impl Receiver {
    pub(super) fn new(mut lane: Lane<Slot>, features: u64, mtu: u16, buffers: u16) -> Receiver {
        let mergeable = features & feature::MERGEABLE != 0;
        let whole = header::BYTES + ETHERNET_MAX + usize::from(mtu);
        let missing = lane.queue.free().min(usize::from(buffers.max(1)));
        lane.queue.disarm();
        Receiver {
            lane,
            buffer_bytes: if mergeable { BUFFER_BYTES } else { whole.max(BUFFER_BYTES).next_power_of_two() },
            mergeable,
            missing,
            tolerated: REFILL_BATCH.min(missing.div_ceil(4)),
            spared: missing / 2,
            seen_ns: 0,
            armed: false,
        }
    }

    /// The next frame that makes sense.
    #[inline]
    pub(super) fn next(
        &mut self,
        clock: &impl Clock,
        counters: &mut Counters,
    ) -> Option<Received<DmaBuffer>> {
        // Each round takes a buffer from a ring that has as many as it has entries.
        loop {
            let first = self.pop(clock, counters)?;
            if let Some(frame) = self.assemble(first, counters) {
                counters.received_frames += 1;
                return Some(frame);
            }
        }
    }

    /// Whether the device has filled no buffer that was not taken.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        !self.lane.queue.is_ready()
    }

    /// The next filled buffer. The clock is read once for all that are found together.
    #[inline]
    fn pop(&mut self, clock: &impl Clock, counters: &mut Counters) -> Option<DmaBuffer> {
        if !self.lane.queue.has_seen() {
            if !self.lane.queue.is_ready() {
                return None;
            }
            self.seen_ns = clock.now_ns();
            counters.received_batches += 1;
            counters.interrupts += u64::from(core::mem::take(&mut self.armed));
        }
        self.take(counters)
    }

    #[inline]
    fn take(&mut self, counters: &mut Counters) -> Option<DmaBuffer> {
        let (slot, bytes) = self.lane.queue.pop()?;
        self.missing += 1;
        counters.cut_overlong += u64::from(bytes > slot.bytes());
        Some(slot.share(bytes))
    }

    /// The frame that begins with `first`.
    #[inline]
    fn assemble(&mut self, first: DmaBuffer, counters: &mut Counters) -> Option<Received<DmaBuffer>> {
        let bytes = first.as_ref();
        let Some(Incoming { checksum, buffers }) =
            header::incoming(bytes).filter(|_| bytes.len() >= header::BYTES + ETHERNET_MIN)
        else {
            counters.dropped_short += 1;
            return None;
        };
        counters.received_bytes += (bytes.len() - header::BYTES) as u64;
        let mut slice = Slice::new(first);
        slice.advance(header::BYTES);
        let buffers = if self.mergeable { usize::from(buffers) } else { 1 };
        let frame = if buffers == 1 { single(slice) } else { self.merge(slice, buffers, counters)? };
        Some(Received { frame, checksum, at_ns: self.seen_ns })
    }

    /// A frame of several buffers, which come one after another.
    #[cold]
    fn merge(
        &mut self,
        first: Slice<DmaBuffer>,
        buffers: usize,
        counters: &mut Counters,
    ) -> Option<Chain<DmaBuffer>> {
        let mut frame = Chain::from_iter([first]);
        while frame.len() < buffers {
            let Some(next) = self.take(counters) else { break };
            counters.received_bytes += next.as_ref().len() as u64;
            frame.push(Slice::new(next));
        }
        if frame.len() == buffers {
            return Some(frame);
        }
        counters.dropped_incomplete += 1;
        None
    }

    /// Makes up for missing buffers, if they are many.
    #[inline]
    pub(super) fn refill<R: Registers, D: Dma>(
        &mut self,
        pool: &mut Pool<D>,
        shared: &Shared<R>,
        counters: &mut Counters,
    ) {
        if self.missing >= self.tolerated {
            self.refill_now(pool, shared, counters);
        }
    }

    /// Whether the device has enough to receive into.
    pub(super) fn has_enough(&self) -> bool {
        self.missing <= self.spared
    }

    fn refill_now<R: Registers, D: Dma>(
        &mut self,
        pool: &mut Pool<D>,
        shared: &Shared<R>,
        counters: &mut Counters,
    ) {
        let before = self.missing;
        while self.missing > 0 && self.lend(pool) {
            self.missing -= 1;
        }
        counters.starved += u64::from(self.missing > 0);
        // Not what the last slot's fate says, nor what others take meanwhile: only a full ring is enough.
        pool.set_scarce(self.missing > 0);
        if self.missing == before {
            return;
        }
        counters.refills += 1;
        counters.refilled_buffers += (before - self.missing) as u64;
        if self.lane.queue.publish() {
            counters.refill_kicks += 1;
            shared.notify_receive(self.lane.doorbell);
        } else {
            counters.refill_kicks_suppressed += 1;
        }
    }

    /// Lends one more buffer to the device; `false` if there is no memory.
    #[inline]
    fn lend<D: Dma>(&mut self, pool: &mut Pool<D>) -> bool {
        let Some(slot) = pool.take_to_receive(self.buffer_bytes) else { return false };
        let descriptor = Descriptor::writable(slot.bus(), slot.bytes());
        self.lane.queue.push_one(descriptor, slot).is_ok()
    }

    /// Asks for an interrupt at the next frame; `false`, and nothing asked, if there is one already, or if
    /// the device has too little to receive it into: nobody says when buffers come back, so that is polled.
    pub(super) fn arm(&mut self, counters: &mut Counters) -> bool {
        self.settle(counters);
        self.armed = self.has_enough() && self.lane.queue.arm();
        if !self.armed {
            self.lane.queue.disarm();
        }
        self.armed
    }

    /// Asks for no more interrupts.
    pub(super) fn disarm(&mut self, counters: &mut Counters) {
        self.settle(counters);
        self.lane.queue.disarm();
        self.armed = false;
    }

    /// Counts the interrupt that was asked for if it is due.
    fn settle(&mut self, counters: &mut Counters) {
        if self.armed && self.lane.queue.is_ready() {
            self.armed = false;
            counters.interrupts += 1;
        }
    }

    /// Goes on with another queue, as the device that had the old one was reset. Returns how many buffers it
    /// had.
    pub(super) fn restart(&mut self, mut lane: Lane<Slot>) -> usize {
        lane.queue.disarm();
        let lent = core::mem::replace(&mut self.lane, lane).queue.lent();
        self.missing += lent;
        self.armed = false;
        lent
    }

    pub(super) fn errors(&self) -> crate::queue::Errors {
        self.lane.queue.errors()
    }
}
