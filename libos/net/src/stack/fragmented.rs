//! Datagrams and echoes that do not fit into one packet, sent in fragments (RFC 791 section 2.3, RFC 8200
//! section 4.5).

use super::Stack;
use super::datagrams::DatagramError;
use super::flows::headers_of_segment;
use crate::chain;
use crate::frame::{self, FragmentPlace, Mac, Marks, Path, protocol};
use crate::packet;
use crate::tcp::segment::Ports;
use core::net::IpAddr;
use nom_port::buffer::{Chain, chain_len};
use nom_port::nic::{Nic, Outgoing, Tag};

/// The longest that each router takes: what is no longer needs no look at what is known of its way.
const ANY_ROUTER_MAX: usize = 552;

/// The most bytes that the length in an IP header can say.
const PACKET_MAX: usize = u16::MAX as usize;

/// A ring that has room for so many is not waited for: what does not fit into it then is lost, as any may be.
const ROOM_MOST: usize = 32;

impl<N: Nic> Stack<N> {
    /// Whether a packet of `len` bytes, headers of IP included, reaches `to` whole, as far as is known.
    #[inline]
    pub(super) fn fits(&self, to: IpAddr, len: usize) -> bool {
        len <= ANY_ROUTER_MAX || len <= self.longest_to(to)
    }

    /// Longest packets to `to`, headers of IP included: those of the link, or what a router on the way said
    /// of a segment or a datagram.
    fn longest_to(&self, to: IpAddr) -> usize {
        let link = usize::from(self.link.mtu_to(to));
        let headers = usize::from(headers_of_segment(to));
        let of_segments = self.paths.mss(to, self.now).map(|mss| mss as usize + headers);
        let of_datagrams = self.paths.mtu(to, self.now).map(|mtu| mtu as usize);
        of_segments.into_iter().chain(of_datagrams).fold(link, usize::min)
    }

    /// Sends a datagram in as many fragments as it takes. Of the device's help with checksums a fragment has
    /// no use.
    ///
    /// # Errors
    /// [`DatagramError`]; nothing was sent.
    #[cold]
    pub(super) fn send_in_fragments(
        &mut self,
        path: &Path,
        mac: Option<Mac>,
        ports: Ports,
        payload: Chain<N::Buffer>,
        how: (Option<Tag>, Marks),
    ) -> Result<(), DatagramError> {
        let (head, _) = packet::udp(path, ports, &payload, false);
        let header = &head[path.header_len()..];
        self.transmit_in_fragments((path, mac), (protocol::UDP, header), payload, how)
    }

    /// Sends a packet of a protocol, whose payload is `header` and `rest`, in as many fragments as it takes,
    /// the last of which is tagged.
    ///
    /// # Errors
    /// [`DatagramError`]; nothing was sent.
    #[cold]
    pub(super) fn transmit_in_fragments(
        &mut self,
        (path, mac): (&Path, Option<Mac>),
        (protocol, header): (u8, &[u8]),
        rest: Chain<N::Buffer>,
        (tag, marks): (Option<Tag>, Marks),
    ) -> Result<(), DatagramError> {
        let total = header.len() + chain_len(&rest);
        let ip = if path.to.is_ipv4() { frame::IPV4 } else { 0 };
        if ip + total > PACKET_MAX {
            return Err(DatagramError::TooLong);
        }
        // All but the last have a multiple of 8 bytes.
        let step = (self.longest_to(path.to) - frame::fragment_header_len(path)) & !7;
        if !self.link.has_room_for(total.div_ceil(step).min(ROOM_MOST)) {
            return Err(DatagramError::Full);
        }
        let header = self.link.nic.buffer(header).ok_or(DatagramError::Full)?;
        let whole: Chain<N::Buffer> = core::iter::once(header).chain(rest).collect();
        let id = self.identifications.next(path.to);
        for offset in (0..total).step_by(step) {
            let len = step.min(total - offset);
            let is_last = offset + len == total;
            let place = FragmentPlace { id, offset, len, is_last };
            let mut head = frame::fragment_head(path, protocol, place);
            marks.put(&mut head);
            let mut payload = whole.clone();
            chain::keep(&mut payload, offset, len);
            let tag = tag.filter(|_| is_last);
            self.transmit_to(path.to, mac, Outgoing { head, payload, tag, ..Outgoing::empty() });
        }
        self.link.counters.packets_fragmented += 1;
        Ok(())
    }
}
