//! Reassembly of IP packets from fragments (RFC 791 section 3.2, RFC 8200 section 4.5), bounded in memory, in
//! packets and in time.
//!
//! Fragments are rare where paths are discovered, so they are copied: what waits for its rest never holds
//! the memory that the device receives into. When there is no room, the packet that has waited longest
//! goes, so that nobody can keep others out by beginning packets that he does not finish.
//!
//! Fragments that overlap are sent by nobody in good faith: the packet is dropped with all that still comes
//! of it (RFC 5722; RFC 8200 for IPv6; for IPv4, too). One that comes twice is dropped alone.

use crate::counters::Counters;
use crate::frame::{Drop, Packet};
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

/// For how long the fragments of a packet are waited for, from the first that comes (RFC 1122 section 3.3.2,
/// RFC 8200 section 4.5).
pub const LIFETIME: Duration = Duration::from_secs(60);
/// Packets that may wait for fragments at a time.
pub const PACKETS_MAX: usize = 64;
/// Bytes that they may have together: four of the longest.
pub const BYTES_MAX: usize = 256 << 10;
/// Fragments of one packet: the longest packet over the smallest link of IPv4 in use (576) has 119.
pub const PIECES_MAX: usize = 128;
/// Bytes of the longest IP packet.
const PACKET_MAX: usize = 65_535;
/// Bytes that an IPv4 header has in front of a payload at least; those of IPv6 do not count as its packet's.
const IPV4_HEADER: usize = crate::frame::IPV4;

/// Says that a fragment was of no use.
const USELESS: Drop = |counters: &mut Counters| &mut counters.dropped_fragment;
const MALFORMED: Drop = |counters: &mut Counters| &mut counters.dropped_malformed;

/// What a fragment's headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Addresses and protocol, and where in the frame the fragment's bytes are.
    pub packet: Packet,
    /// The sender's name for the packet.
    pub id: u32,
    /// Where in the packet's payload the fragment begins.
    pub offset: usize,
    /// Whether it is the packet's last.
    pub is_last: bool,
}

/// Whose fragments belong together. Those of IPv6 need not say the same protocol: that of the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    from: IpAddr,
    to: IpAddr,
    /// None for IPv6.
    protocol: Option<u8>,
    id: u32,
}

/// A packet that waits for fragments.
#[derive(Debug)]
struct Waiting {
    key: Key,
    until: Instant,
    /// By their offsets; none overlaps another.
    pieces: Vec<(usize, Vec<u8>)>,
    /// Length of the payload, once the last fragment has said it.
    len: Option<usize>,
    /// What the first fragment says it is.
    protocol: u8,
    /// The begin of the first fragment's packet, to quote it; empty before it has come.
    quote: Vec<u8>,
    /// Fragments overlapped, or were too many: nothing is kept, nothing more is taken.
    is_refused: bool,
}

/// A packet that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Protocol of its payload.
    pub protocol: u8,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// A packet that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Who sent it.
    pub from: IpAddr,
    /// To whom.
    pub to: IpAddr,
    /// The begin of its first fragment; empty if that never came, and then nobody is to be told (RFC 792).
    pub quote: Vec<u8>,
    /// How many fragments are lost with it.
    pub fragments: u64,
}

/// Packets that wait for fragments, in the order in which they began.
#[derive(Debug, Default)]
pub struct Fragments {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

impl Fragments {
    /// When the first packet is given up.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|packet| packet.until)
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives up a packet that has waited for too long at `now`.
    pub fn expire(&mut self, now: Instant) -> Option<Expired> {
        self.waiting.front().filter(|packet| packet.until <= now)?;
        self.evict()
    }

    /// Takes a fragment with its `bytes`, and its packet from the IP header on as `quote` if it is the first;
    /// returns the packet if it is whole now. What is given up to make room raises `counters`.
    ///
    /// # Errors
    /// Why the fragment is to be dropped.
    pub fn take(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        bytes: Vec<u8>,
        quote: &[u8],
        counters: &mut Counters,
    ) -> Result<Option<Whole>, Drop> {
        let (end, is_v4) = (fragment.offset + bytes.len(), fragment.packet.from.is_ipv4());
        let longest = if is_v4 { PACKET_MAX - IPV4_HEADER } else { PACKET_MAX };
        if bytes.is_empty() || end > longest || !fragment.is_last && !bytes.len().is_multiple_of(8) {
            return Err(MALFORMED);
        }
        // RFC 6946: one that is a whole packet has to do with no other.
        if fragment.offset == 0 && fragment.is_last {
            return Ok(Some(Whole { protocol: fragment.packet.protocol, payload: bytes }));
        }
        while self.bytes + bytes.len() + quote.len() > BYTES_MAX {
            let Some(lost) = self.evict() else { break };
            counters.dropped_fragment += lost.fragments;
        }
        let index = self.find(now, fragment, counters);
        let packet = &mut self.waiting[index];
        let before = packet.bytes();
        let taken = packet.take(fragment, bytes, quote, counters);
        self.bytes = self.bytes - before + packet.bytes();
        taken?;
        if !packet.is_whole() {
            return Ok(None);
        }
        let packet = self.waiting.remove(index).expect("it was there");
        self.bytes -= packet.bytes();
        let payload = packet.pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
        Ok(Some(Whole { protocol: packet.protocol, payload }))
    }

    /// The packet that a fragment belongs to, which may begin with it.
    fn find(&mut self, now: Instant, fragment: &Fragment, counters: &mut Counters) -> usize {
        let key = Key::of(fragment);
        if let Some(index) = self.waiting.iter().position(|packet| packet.key == key) {
            return index;
        }
        if self.waiting.len() >= PACKETS_MAX
            && let Some(lost) = self.evict()
        {
            counters.dropped_fragment += lost.fragments;
        }
        self.waiting.push_back(Waiting {
            key,
            until: now + LIFETIME,
            pieces: Vec::new(),
            len: None,
            protocol: fragment.packet.protocol,
            quote: Vec::new(),
            is_refused: false,
        });
        self.waiting.len() - 1
    }

    /// Gives up the packet that has waited longest.
    fn evict(&mut self) -> Option<Expired> {
        let packet = self.waiting.pop_front()?;
        self.bytes -= packet.bytes();
        let Key { from, to, .. } = packet.key;
        Some(Expired { from, to, quote: packet.quote, fragments: packet.pieces.len() as u64 })
    }
}

impl Key {
    fn of(fragment: &Fragment) -> Key {
        let Packet { from, to, protocol, .. } = fragment.packet;
        Key { from, to, protocol: from.is_ipv4().then_some(protocol), id: fragment.id }
    }
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.quote.len() + self.received()
    }

    fn received(&self) -> usize {
        self.pieces.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// As no pieces overlap, and none ends behind the last, they are all when they are long enough.
    fn is_whole(&self) -> bool {
        self.len.is_some_and(|len| len == self.received())
    }

    fn take(
        &mut self,
        fragment: &Fragment,
        bytes: Vec<u8>,
        quote: &[u8],
        counters: &mut Counters,
    ) -> Result<(), Drop> {
        let (start, end) = (fragment.offset, fragment.offset + bytes.len());
        if self.is_refused || self.pieces.iter().any(|(at, piece)| (*at, piece.len()) == (start, bytes.len()))
        {
            return Err(USELESS);
        }
        let place = self.pieces.partition_point(|(at, _)| *at < start);
        let overlaps_last = place > 0 && {
            let (at, piece) = &self.pieces[place - 1];
            at + piece.len() > start
        };
        let overlaps_next = self.pieces.get(place).is_some_and(|(at, _)| *at < end);
        let furthest = self.pieces.last().map_or(0, |(at, piece)| at + piece.len());
        let is_beyond = self.len.is_some_and(|len| end > len || fragment.is_last);
        let is_short = fragment.is_last && end < furthest;
        if overlaps_last || overlaps_next || is_beyond || is_short || self.pieces.len() >= PIECES_MAX {
            counters.dropped_fragment += self.pieces.len() as u64;
            (self.pieces, self.quote, self.is_refused) = (Vec::new(), Vec::new(), true);
            return Err(USELESS);
        }
        if fragment.is_last {
            self.len = Some(end);
        }
        if start == 0 {
            self.protocol = fragment.packet.protocol;
            self.quote = quote.to_vec();
        }
        self.pieces.insert(place, (start, bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
