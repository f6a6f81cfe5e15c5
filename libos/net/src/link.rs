//! The device and the transmit side of the batching delay.

use crate::batch::{Batch, Reason};
use crate::counters::Counters;
use crate::time::Instant;
use nom_port::nic::{Nic, Outgoing, Properties};

/// Fewer free places than this threaten the ring to overflow before anybody looks again.
const RING_MARGIN: usize = 8;

/// A device with what was queued for it since it was last told.
#[derive(Debug)]
pub struct Link<N> {
    /// The device.
    pub nic: N,
    /// What it is.
    pub properties: Properties,
    /// Packets that it has not been told of.
    pub batch: Batch,
    /// What the stack did.
    pub counters: Counters,
    /// Free places that are known of; there may be more.
    room: usize,
}

impl<N: Nic> Link<N> {
    /// A device that nothing is queued for.
    pub fn new(nic: N) -> Link<N> {
        let properties = nic.properties();
        Link { nic, properties, batch: Batch::default(), counters: Counters::default(), room: 0 }
    }

    /// Whether a packet can be queued; tells the device to make room if not.
    pub fn has_room(&mut self) -> bool {
        if self.room == 0 {
            self.room = self.nic.room();
        }
        if self.room == 0 {
            self.kick(Reason::Ring);
            self.room = self.nic.room();
        }
        self.room > 0
    }

    /// Queues a packet, or drops and counts it if the ring is full.
    pub fn transmit(&mut self, now: Instant, packet: Outgoing<N::Buffer>) {
        if !self.has_room() || self.nic.transmit(packet).is_err() {
            self.room = 0;
            self.counters.dropped_ring += 1;
            return;
        }
        self.room -= 1;
        self.counters.packets_sent += 1;
        self.batch.push(now);
    }

    /// Tells the device about what is queued, if it is time.
    pub fn flush(&mut self, now: Instant) {
        if self.batch.is_empty() {
            return;
        }
        if self.room < RING_MARGIN {
            self.room = self.nic.room();
        }
        if let Some(reason) = self.batch.reason(now, self.room < RING_MARGIN) {
            self.kick(reason);
        }
    }

    fn kick(&mut self, reason: Reason) {
        if self.batch.flush(reason) > 0 {
            self.nic.kick();
        }
    }
}
