//! The device and the transmit side of the batching delay.

use crate::batch::{Batch, Reason};
use crate::counters::Counters;
use crate::frame::{ETHERNET, HOPS};
use crate::time::Instant;
use core::net::IpAddr;
use nom_port::nic::{Nic, Outgoing, Properties};

/// Fewer free places than this threaten the ring to overflow before anybody looks again.
const RING_MARGIN: usize = 8;

/// A device with what was queued for it since it was last told.
#[derive(Debug)]
pub struct Link<N: Nic> {
    /// The device.
    pub nic: N,
    /// What it is.
    pub properties: Properties,
    /// Packets that it has not been told of.
    pub batch: Batch,
    /// What the stack did.
    pub counters: Counters,
    /// Longest IPv6 packets.
    pub mtu6: u16,
    /// Hop limit of IPv6 packets that need no other.
    pub hop_limit6: u8,
    /// Free places that are known of; there may be more.
    room: usize,
    /// The packet that is sent next, kept for its memory: it is too large to be made anew.
    pub outgoing: Outgoing<N::Buffer>,
}

impl<N: Nic> Link<N> {
    /// A device that nothing is queued for.
    pub fn new(nic: N) -> Link<N> {
        let properties = nic.properties();
        let (batch, counters) = (Batch::default(), Counters::default());
        let (mtu6, outgoing) = (properties.mtu, Outgoing::empty());
        Link { nic, properties, batch, counters, mtu6, hop_limit6: HOPS, room: 0, outgoing }
    }

    /// Longest packets to `address`, headers of IP included.
    #[inline]
    pub fn mtu_to(&self, address: IpAddr) -> u16 {
        if address.is_ipv4() { self.properties.mtu } else { self.mtu6 }
    }

    /// Whether a packet can be queued; tells the device to make room if not.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.has_room_for(1)
    }

    /// The same for several packets.
    #[inline]
    pub fn has_room_for(&mut self, count: usize) -> bool {
        self.room >= count || self.make_room(count)
    }

    #[inline(never)]
    fn make_room(&mut self, count: usize) -> bool {
        self.room = self.nic.room();
        if self.room < count {
            self.kick(Reason::Ring);
            self.room = self.nic.room();
        }
        self.room >= count
    }

    /// Queues a packet, or drops and counts it if the ring is full.
    pub fn transmit(&mut self, now: Instant, packet: Outgoing<N::Buffer>) {
        self.outgoing = packet;
        self.send_limited(now);
    }

    /// The same for a packet that was written to `outgoing`, with the limit of hops that routers ask for.
    #[inline]
    pub fn send_limited(&mut self, now: Instant) {
        if self.hop_limit6 != HOPS {
            limit_hops(&mut self.outgoing.head, self.hop_limit6);
        }
        self.send(now);
    }

    /// The same for the packet that was written to `outgoing`, whose payload is taken.
    #[inline]
    pub fn send(&mut self, now: Instant) {
        let is_queued = self.has_room() && self.nic.transmit(&mut self.outgoing).is_ok();
        self.note(now, is_queued);
    }

    /// The same with a short payload behind the headers, which is copied.
    #[inline]
    pub fn send_behind(&mut self, now: Instant, short: &[u8]) {
        let is_queued = self.has_room() && self.nic.transmit_behind(&mut self.outgoing, short).is_ok();
        self.note(now, is_queued);
    }

    #[inline]
    fn note(&mut self, now: Instant, is_queued: bool) {
        // Of a packet that the device refuses it is left.
        if !self.outgoing.payload.is_empty() {
            self.outgoing.payload.clear();
        }
        if is_queued {
            self.room -= 1;
            self.counters.packets_sent += 1;
            self.batch.push(now);
            if let Some(ns) = self.nic.held_at_most_ns() {
                self.batch.hurry(Instant::from_nanos(now.nanos().saturating_add(ns)));
            }
        } else {
            self.room = 0;
            self.counters.dropped_ring += 1;
        }
    }

    /// Tells the device about what is queued, if it is time.
    #[inline]
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

    #[inline]
    fn kick(&mut self, reason: Reason) {
        if self.batch.flush(reason) > 0 {
            self.nic.kick();
        }
    }
}

/// Sets the hop limit of an IPv6 packet that has the usual one: what needs another, as neighbour discovery
/// does, keeps it. An answer in place has its headers elsewhere, and the usual limit.
#[cold]
fn limit_hops(head: &mut [u8], hops: u8) {
    if let [_, _, .., 0x86, 0xdd] = head.get(..ETHERNET).unwrap_or_default()
        && let Some(limit) = head.get_mut(ETHERNET + 7).filter(|limit| **limit == HOPS)
    {
        *limit = hops;
    }
}
