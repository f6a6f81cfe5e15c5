//! UDP (RFC 768).

use super::segments::transport;
use super::{Application, Stack};
use crate::answer::Answer;
use crate::chain;
use crate::frame::{Drop, ETHERNET, Marks, Packet, Path, protocol};
use crate::packet;
use crate::tcp::segment::Ports;
use core::net::SocketAddr;
use nom_port::buffer::{Chain, chain_len};
use nom_port::nic::{Checksum, Nic, Outgoing, Received};
use smoltcp::wire::UdpPacket;

/// Bytes of a UDP header.
const HEADER: usize = 8;
/// Most bytes of what is sent that are copied behind it.
const FRONT_MAX: usize = 64;
const MALFORMED: Drop = |counters| &mut counters.dropped_malformed;

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramError {
    /// It is longer than any packet of IP.
    TooLong,
    /// The ring is full.
    Full,
    /// Its source is of another family than its destination, or no router reaches that.
    NoRoute,
}

impl core::fmt::Display for DatagramError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            DatagramError::TooLong => "the datagram is longer than any packet of IP",
            DatagramError::Full => "the transmit ring is full",
            DatagramError::NoRoute => "no address or router of ours reaches the destination",
        })
    }
}

impl core::error::Error for DatagramError {}

impl<N: Nic> Stack<N> {
    /// Takes datagrams to UDP `port`, told by [`Application::datagram`].
    pub fn bind(&mut self, port: u16) {
        self.bound.insert(port);
    }

    /// Takes no more datagrams to `port`.
    pub fn unbind(&mut self, port: u16) {
        self.bound.remove(port);
    }

    /// Sends a datagram without a copy, in fragments if it is longer than a packet may be on its way. From an
    /// address that many have, as that of everybody to whom a question was broadcast, it goes from our own
    /// (RFC 1122 section 4.1.3.5).
    ///
    /// # Errors
    /// [`DatagramError`]; nothing was sent.
    pub fn send_datagram(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        payload: Chain<N::Buffer>,
    ) -> Result<(), DatagramError> {
        self.send_in_answer(from, to, payload, None, Marks::USUAL)
    }

    /// The same as (a part of) the answer to the frame that is being handled, with a copy of `front` before
    /// the payload: behind the headers if that is short, else in a buffer of its own.
    ///
    /// # Errors
    /// [`DatagramError`]; nothing was sent.
    pub fn answer_datagram(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        front: &[u8],
        payload: Chain<N::Buffer>,
    ) -> Result<(), DatagramError> {
        let answer = Answer::to_datagram(self.arrived_ns);
        if front.len() <= FRONT_MAX {
            return self.send_behind(front, (from, to), payload, Some(answer), Marks::USUAL);
        }
        let whole = self.behind(front, payload)?;
        self.send_behind(&[], (from, to), whole, Some(answer), Marks::USUAL)
    }

    /// A payload with a copy of `front` before it.
    fn behind(&mut self, front: &[u8], payload: Chain<N::Buffer>) -> Result<Chain<N::Buffer>, DatagramError> {
        if front.is_empty() {
            return Ok(payload);
        }
        let front = self.buffer(front).ok_or(DatagramError::Full)?;
        Ok(core::iter::once(front).chain(payload).collect())
    }

    /// The same with these `marks`, as the answer that `answers` says, if it is one.
    ///
    /// # Errors
    /// [`DatagramError`]; nothing was sent.
    pub fn send_in_answer(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        payload: Chain<N::Buffer>,
        answers: Option<Answer>,
        marks: Marks,
    ) -> Result<(), DatagramError> {
        self.send_behind(&[], (from, to), payload, answers, marks)
    }

    fn send_behind(
        &mut self,
        front: &[u8],
        (from, to): (SocketAddr, SocketAddr),
        payload: Chain<N::Buffer>,
        answers: Option<Answer>,
        marks: Marks,
    ) -> Result<(), DatagramError> {
        let own = || self.config.source_for(to.ip());
        let is_own = from.ip().is_unspecified() || self.config.is_ours(from.ip());
        let from = if is_own { from } else { SocketAddr::new(own().unwrap_or(from.ip()), from.port()) };
        let mac = self.mac_to(to.ip());
        if from.is_ipv4() != to.is_ipv4() || mac.is_none() && self.config.next_hop(to.ip()).is_none() {
            return Err(DatagramError::NoRoute);
        }
        let hop = mac.unwrap_or_default();
        let path = Path { mac: self.link.properties.mac, hop, from: from.ip(), to: to.ip() };
        let ports = Ports { from: from.port(), to: to.port() };
        let is_offloaded = self.link.properties.offloads.checksum;
        let tag = answers.map(Answer::tag);
        let len = path.header_len() - ETHERNET + HEADER + front.len() + chain_len(&payload);
        if !self.fits(to.ip(), len) {
            let whole = self.behind(front, payload)?;
            return self.send_in_fragments(&path, mac, ports, whole, (tag, marks));
        }
        if !self.link.has_room() {
            return Err(DatagramError::Full);
        }
        if mac.is_none() {
            let mut packet = Outgoing { payload, tag, ..Outgoing::empty() };
            packet::write_udp(&mut packet, &path, ports, front, is_offloaded);
            marks.put(&mut packet.head);
            self.transmit_to(to.ip(), None, packet);
            return Ok(());
        }
        let packet = &mut self.link.outgoing;
        (packet.payload, packet.tag) = (payload, tag);
        packet::write_udp(packet, &path, ports, front, is_offloaded);
        if marks != Marks::USUAL {
            marks.put(&mut packet.head);
        }
        self.link.send_limited(self.now);
        Ok(())
    }

    /// Takes the datagram in a packet for us.
    pub(super) fn datagram(
        &mut self,
        application: &mut impl Application<N>,
        packet: &Packet,
        mut received: Received<N::Buffer>,
    ) -> Result<(), Drop> {
        let quote = received.frame.first().ok_or(MALFORMED)?.part(ETHERNET..usize::MAX);
        // RFC 768: a sum of zero says that there is none; IPv6 has no such datagrams (RFC 8200 section 8.1).
        let sum = quote.get(packet.start - ETHERNET + 6..packet.start - ETHERNET + 8).ok_or(MALFORMED)?;
        if packet.from.is_ipv4() && *sum == [0, 0] {
            received.checksum = Checksum::Good;
        }
        let marks = Marks::of(packet, &quote);
        let mut payload = transport(packet, received, protocol::UDP)?;
        let first = payload.first().filter(|first| first.len() >= HEADER).ok_or(MALFORMED)?;
        let udp = UdpPacket::new_unchecked(&first[..]);
        let len = usize::from(udp.len());
        let from = SocketAddr::new(packet.from, udp.src_port());
        let to = SocketAddr::new(packet.to, udp.dst_port());
        if len < HEADER || !chain::keep(&mut payload, HEADER, len - HEADER) {
            return Err(MALFORMED);
        }
        let is_bound = self.bound.contains(to.port());
        if self.services.takes(to.port()) {
            let is_taken = self.take_message(application, to.port(), from, &payload);
            if is_taken || !is_bound {
                return Ok(());
            }
        }
        if !is_bound {
            self.port_unreachable(packet, quote);
            return Err(|counters| &mut counters.dropped_udp_port);
        }
        self.arrived_marks = marks;
        application.datagram(self, to, from, payload);
        Ok(())
    }
}
