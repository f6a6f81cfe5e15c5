//! Packets that come in fragments, over [`crate::fragments`].

use super::{Application, Stack};
use crate::chain;
use crate::fragments::{Expired, Fragment};
use crate::frame::{self, Drop, ETHERNET, Ethernet, Path, protocol};
use nom_port::buffer::Chain;
use nom_port::nic::{Checksum, Nic, Received, gather};
use smoltcp::wire::EthernetProtocol;

const MALFORMED: Drop = |counters| &mut counters.dropped_malformed;

impl<N: Nic> Stack<N> {
    /// Takes a frame whose IP header is not that of a whole packet: a fragment, or nothing.
    #[cold]
    pub(super) fn fragment(
        &mut self,
        application: &mut impl Application<N>,
        ethernet: Ethernet,
        received: Received<N::Buffer>,
    ) -> Result<(), Drop> {
        let first = received.frame.first().ok_or(MALFORMED)?;
        let fragment = if ethernet.protocol == EthernetProtocol::Ipv4 {
            let fragment = Fragment::parse_v4(first)?;
            self.check_v4(&fragment.packet)?;
            fragment
        } else {
            let fragment = Fragment::parse_v6(first)?;
            self.check_v6(&fragment.packet)?;
            fragment
        };
        let mut payload = received.frame.clone();
        if !chain::keep(&mut payload, fragment.packet.start, fragment.packet.len) {
            return Err(MALFORMED);
        }
        let (bytes, quote) = (gather(&payload), first.part(ETHERNET..usize::MAX));
        let quote = &quote[..quote.len().min(super::icmp::QUOTE_MAX)];
        let counters = &mut self.link.counters;
        let Some(whole) = self.fragments.take(self.now, &fragment, bytes, quote, counters)? else {
            return Ok(());
        };
        if whole.protocol == protocol::FRAGMENT {
            // A fragment within a fragment: an extension header comes once (RFC 8200 section 4.1), and
            // whoever looked inside would do so as deep as the packet says.
            return Err(MALFORMED);
        }
        counters.packets_reassembled += 1;
        let path =
            Path { mac: ethernet.from, hop: ethernet.to, from: fragment.packet.from, to: fragment.packet.to };
        let (mut head, _) = frame::ip(&path, whole.protocol, 0, whole.payload.len());
        if whole.protocol == protocol::ICMPV6 {
            // Not the limit that neighbour discovery demands: it never comes in fragments (RFC 6980).
            head[ETHERNET + 7] = 64;
        }
        let frame = self.link.nic.buffer(&[&head[..], &whole.payload].concat());
        let frame = frame.ok_or((|counters| &mut counters.dropped_fragment) as Drop)?;
        let frame = Chain::from_iter([frame]);
        self.demultiplex(application, Received { frame, checksum: Checksum::Unknown, at_ns: received.at_ns })
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
