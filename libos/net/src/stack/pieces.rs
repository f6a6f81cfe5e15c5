//! Packets that come in fragments, over [`crate::fragments`], or with extension headers, over
//! [`crate::extensions`].

use super::{Application, Stack};
use crate::chain;
use crate::extensions::{self, Problem, Walk};
use crate::fragments::{Expired, Fragment};
use crate::frame::{self, Drop, ETHERNET, Ethernet, Marks, Packet, Path, protocol};
use nom_port::buffer::{Chain, Slice};
use nom_port::nic::{Checksum, Nic, Received, gather};

/// A packet that was put together, with its frame.
type Whole<B> = (Packet, Received<B>);

const MALFORMED: Drop = |counters| &mut counters.dropped_malformed;

impl<N: Nic> Stack<N> {
    /// Takes a frame whose IPv4 header is not that of a whole packet: a fragment, or nothing.
    #[cold]
    pub(super) fn fragment(
        &mut self,
        application: &mut impl Application<N>,
        ethernet: Ethernet,
        received: Received<N::Buffer>,
    ) -> Result<(), Drop> {
        let fragment = Fragment::parse_v4(received.frame.first().ok_or(MALFORMED)?)?;
        self.check_v4(&fragment.packet)?;
        let Some((packet, whole)) = self.piece(ethernet, &fragment, &received)? else { return Ok(()) };
        self.ip(application, &packet, whole)
    }

    /// Takes a frame whose IPv6 header is followed by others: they are skipped, or refused. What was put
    /// together from fragments (`is_whole`) holds no further ones: whoever looked inside would do so as deep
    /// as the packet says.
    #[cold]
    pub(super) fn extended(
        &mut self,
        application: &mut impl Application<N>,
        ethernet: Ethernet,
        received: Received<N::Buffer>,
        is_whole: bool,
    ) -> Result<(), Drop> {
        let first = received.frame.first().ok_or(MALFORMED)?;
        let packet = Packet::header_v6(first)?;
        self.check_v6(&packet)?;
        let fragment = match extensions::walk(first, packet)? {
            Walk::Upper(packet) => {
                // Who may speak without an address depends on the protocol, which is known only now.
                self.check_v6(&packet)?;
                return self.ip(application, &packet, received);
            }
            Walk::Problem(problem) => return self.refuse(&packet, problem, first.clone()),
            Walk::Cut => return Err(MALFORMED),
            Walk::Fragment(_) if is_whole => return Err(MALFORMED),
            Walk::Fragment(at) => Fragment::parse_v6(first, at)?,
        };
        if let Some(problem) = strange(first, &fragment) {
            return self.refuse(&packet, problem, first.clone());
        }
        let Some((packet, whole)) = self.piece(ethernet, &fragment, &received)? else { return Ok(()) };
        match packet.protocol {
            protocol::TCP | protocol::UDP | protocol::ICMPV6 => {
                self.check_v6(&packet)?;
                self.ip(application, &packet, whole)
            }
            _ => self.extended(application, ethernet, whole, true),
        }
    }

    /// Tells the sender of a packet what is wrong with it.
    fn refuse(&mut self, packet: &Packet, problem: Problem, frame: Slice<N::Buffer>) -> Result<(), Drop> {
        self.parameter_problem(packet, problem, frame.part(ETHERNET..usize::MAX));
        Err(if problem.code == 0 { MALFORMED } else { |counters| &mut counters.dropped_extension })
    }

    /// Keeps a fragment; the whole packet, with its frame, if it is the last that was missing.
    fn piece(
        &mut self,
        ethernet: Ethernet,
        fragment: &Fragment,
        received: &Received<N::Buffer>,
    ) -> Result<Option<Whole<N::Buffer>>, Drop> {
        let first = received.frame.first().ok_or(MALFORMED)?;
        let mut payload = received.frame.clone();
        if !chain::keep(&mut payload, fragment.packet.start, fragment.packet.len) {
            return Err(MALFORMED);
        }
        let (bytes, quote) = (gather(&payload), first.part(ETHERNET..usize::MAX));
        let quote = &quote[..quote.len().min(super::icmp::QUOTE_MAX)];
        let counters = &mut self.link.counters;
        let Some(whole) = self.fragments.take(self.now, fragment, bytes, quote, counters)? else {
            return Ok(None);
        };
        if whole.protocol == protocol::FRAGMENT {
            // A fragment within a fragment: an extension header comes once (RFC 8200 section 4.1).
            return Err(MALFORMED);
        }
        counters.packets_reassembled += 1;
        let path =
            Path { mac: ethernet.from, hop: ethernet.to, from: fragment.packet.from, to: fragment.packet.to };
        let (mut head, start) = frame::ip(&path, whole.protocol, 0, whole.payload.len());
        let mut marks = Marks::of(&fragment.packet, &first[ETHERNET..]);
        if whole.protocol == protocol::ICMPV6 {
            // Not the limit that neighbour discovery demands: it never comes in fragments (RFC 6980).
            marks.hops = Marks::USUAL.hops;
        }
        marks.put(&mut head);
        let (len, hops) = (whole.payload.len(), marks.hops);
        let packet = Packet { protocol: whole.protocol, start, len, hops, ..fragment.packet };
        let frame = self.link.nic.buffer(&[&head[..], &whole.payload].concat());
        let frame = frame.ok_or((|counters| &mut counters.dropped_fragment) as Drop)?;
        let frame = Chain::from_iter([frame]);
        Ok(Some((packet, Received { frame, checksum: Checksum::Unknown, at_ns: received.at_ns })))
    }

    /// Gives up packets whose fragments do not come, and tells their senders.
    pub(super) fn expire_fragments(&mut self) {
        while let Some(Expired { from, to, quote, fragments }) = self.fragments.expire(self.now) {
            self.link.counters.dropped_fragment_expired += fragments;
            if let Some(quote) = self.link.nic.buffer(&quote).filter(|quote| !quote.is_empty()) {
                self.reassembly_took_too_long(from, to, quote);
            }
        }
    }
}

/// What is wrong with an IPv6 fragment of itself (RFC 8200 section 4.5): one that is not the last has no
/// multiple of 8 bytes, it ends beyond the longest packet, or the first does not hold all headers.
fn strange(bytes: &[u8], fragment: &Fragment) -> Option<Problem> {
    let Fragment { packet, offset, is_last, .. } = fragment;
    if !is_last && packet.len % 8 != 0 {
        return Some(Problem { code: 0, pointer: extensions::PAYLOAD_LENGTH });
    }
    if offset + packet.len > usize::from(u16::MAX) {
        // The offset stands 6 bytes before the end of its header.
        return Some(Problem { code: 0, pointer: (packet.start - ETHERNET - 6) as u32 });
    }
    let is_cut = *offset == 0 && !is_last && !extensions::has_all_headers(bytes, *packet);
    is_cut.then_some(Problem { code: 3, pointer: 0 })
}
