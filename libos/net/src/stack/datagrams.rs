//! UDP (RFC 768).

use super::segments::transport;
use super::{Application, Stack};
use crate::answer::Answer;
use crate::chain;
use crate::frame::{self, Drop, ETHERNET, Packet, Path, protocol};
use crate::packet;
use crate::tcp::segment::Ports;
use core::net::SocketAddr;
use nom_port::buffer::{Chain, chain_len};
use nom_port::nic::{Checksum, Nic, Outgoing, Received};
use smoltcp::wire::UdpPacket;

/// Bytes of a UDP header.
const HEADER: usize = 8;
const MALFORMED: Drop = |counters| &mut counters.dropped_malformed;

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramError {
    /// It does not fit into one packet of the link.
    TooLong,
    /// The ring is full.
    Full,
    /// Its source is of another family than its destination, or no router reaches that.
    NoRoute,
}

impl core::fmt::Display for DatagramError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            DatagramError::TooLong => "the datagram does not fit into one packet of the link",
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

    /// Sends a datagram without a copy. From an address that many have, as that of everybody to whom a
    /// question was broadcast, it goes from our own (RFC 1122 section 4.1.3.5).
    ///
    /// # Errors
    /// [`DatagramError`]; nothing was sent.
    pub fn send_datagram(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        payload: Chain<N::Buffer>,
    ) -> Result<(), DatagramError> {
        self.send_in_answer(from, to, payload, None)
    }

    /// The same as (a part of) the answer to the frame that is being handled.
    ///
    /// # Errors
    /// [`DatagramError`]; nothing was sent.
    pub fn answer_datagram(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        payload: Chain<N::Buffer>,
    ) -> Result<(), DatagramError> {
        let answer = Answer::to_datagram(self.arrived_ns);
        self.send_in_answer(from, to, payload, Some(answer))
    }

    /// The same as the answer that `answers` says, if it is one.
    ///
    /// # Errors
    /// [`DatagramError`]; nothing was sent.
    pub fn send_in_answer(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        payload: Chain<N::Buffer>,
        answers: Option<Answer>,
    ) -> Result<(), DatagramError> {
        let len = HEADER + chain_len(&payload);
        let headers = if to.is_ipv4() { frame::IPV4 } else { frame::IPV6 };
        if headers + len > usize::from(self.link.mtu_to(to.ip())) {
            return Err(DatagramError::TooLong);
        }
        let own = || self.config.source_for(to.ip());
        let is_own = from.ip().is_unspecified() || self.config.is_ours(from.ip());
        let from = if is_own { from } else { SocketAddr::new(own().unwrap_or(from.ip()), from.port()) };
        let mac = self.mac_to(to.ip());
        if from.is_ipv4() != to.is_ipv4() || mac.is_none() && self.config.next_hop(to.ip()).is_none() {
            return Err(DatagramError::NoRoute);
        }
        if !self.link.has_room() {
            return Err(DatagramError::Full);
        }
        let path = Path { mac: self.link.properties.mac, hop: [0; 6], from: from.ip(), to: to.ip() };
        let ports = Ports { from: from.port(), to: to.port() };
        let is_offloaded = self.link.properties.offloads.checksum;
        let (head, checksum) = packet::udp(&path, ports, &payload, is_offloaded);
        let tag = answers.map(Answer::tag);
        self.transmit_to(to.ip(), mac, Outgoing { head, payload, checksum, segmentation: None, tag });
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
        let mut payload = transport(packet, received, protocol::UDP)?;
        let first = payload.first().filter(|first| first.len() >= HEADER).ok_or(MALFORMED)?;
        let udp = UdpPacket::new_unchecked(&first[..]);
        let len = usize::from(udp.len());
        let from = SocketAddr::new(packet.from, udp.src_port());
        let to = SocketAddr::new(packet.to, udp.dst_port());
        if len < HEADER || !chain::keep(&mut payload, HEADER, len - HEADER) {
            return Err(MALFORMED);
        }
        if self.services.takes(to.port()) {
            self.take_message(application, to.port(), from, &payload);
            return Ok(());
        }
        if !self.bound.contains(to.port()) {
            self.port_unreachable(packet, quote);
            return Err(|counters| &mut counters.dropped_udp_port);
        }
        application.datagram(self, to, from, payload);
        Ok(())
    }
}
