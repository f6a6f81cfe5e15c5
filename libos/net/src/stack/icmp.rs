//! ICMP (RFC 792) and ICMPv6 (RFC 4443): echo, and the news that something cannot be reached.

use super::flows::{Flow, headers_of_segment};
use super::segments::transport;
use super::{Application, Stack};
use crate::checksum;
use crate::extensions::Problem;
use crate::frame::{self, Drop, Ethernet, Marks, Packet, Path, protocol};
use crate::multicast::QUERY;
use crate::router::ADVERTISEMENT;
use crate::table::FourTuple;
use crate::tcp::connection::Context;
use crate::tcp::sequence::Seq;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use nom_port::buffer::{Chain, Slice};
use nom_port::nic::{Nic, Outgoing, Received, gather};
use smoltcp::wire::{Icmpv6Packet, Icmpv6Repr, Ipv4Packet, Ipv6Packet};

/// Bytes of an echo header, and of the header of an error.
const HEADER: usize = 8;
/// Errors sent in a second (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)).
const ERRORS_MAX: u32 = 100;
/// How much of the offending packet an error quotes: as much as fits into the least that IPv4 must carry.
pub(super) const QUOTE_MAX: usize = 576 - 20 - HEADER;

/// What became of a packet of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It is longer than so many bytes, which is the most that pass.
    TooBig(u32),
    /// It came where nobody takes it.
    NobodyThere,
    /// There is no way for it.
    NoWay,
}

const MALFORMED: Drop = |counters| &mut counters.dropped_malformed;
const UNANSWERED: Drop = |counters| &mut counters.dropped_icmp;

impl<N: Nic> Stack<N> {
    /// Takes an ICMP packet.
    pub(super) fn icmp(
        &mut self,
        application: &mut impl Application<N>,
        packet: &Packet,
        received: Received<N::Buffer>,
    ) -> Result<(), Drop> {
        let mut chain = received.frame;
        if !crate::chain::keep(&mut chain, packet.start, packet.len) {
            return Err(MALFORMED);
        }
        if checksum::sum_chain(&[], &chain) != 0xffff {
            return Err(|counters| &mut counters.dropped_checksum);
        }
        let header = header(&chain)?;
        match (header[0], header[1]) {
            (8, _) => {
                self.echo(packet, header, chain, 0);
                Ok(())
            }
            (3, 4) => {
                let mtu = u16::from_be_bytes([header[6], header[7]]).into();
                self.trouble(application, &chain, Trouble::TooBig(mtu))
            }
            (3, 3) => self.trouble(application, &chain, Trouble::NobodyThere),
            (3, _) => self.trouble(application, &chain, Trouble::NoWay),
            _ => Err(UNANSWERED),
        }
    }

    /// Takes an ICMPv6 packet.
    pub(super) fn icmpv6(
        &mut self,
        application: &mut impl Application<N>,
        packet: &Packet,
        received: Received<N::Buffer>,
    ) -> Result<(), Drop> {
        let by = received.frame.first().and_then(|first| Ethernet::parse(first)).ok_or(MALFORMED)?.from;
        let chain = transport(packet, received, protocol::ICMPV6)?;
        let header = header(&chain)?;
        match header[0] {
            1 if header[1] == 4 => return self.trouble(application, &chain, Trouble::NobodyThere),
            1 => return self.trouble(application, &chain, Trouble::NoWay),
            2 => {
                let mtu = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                return self.trouble(application, &chain, Trouble::TooBig(mtu));
            }
            128 => {
                self.echo(packet, header, chain, 129);
                return Ok(());
            }
            QUERY => return self.group_query(packet, &gather(&chain)),
            ADVERTISEMENT => return self.advertisement(application, packet, &gather(&chain)),
            _ => {}
        }
        let (IpAddr::V6(from), IpAddr::V6(to)) = (packet.from, packet.to) else { return Err(MALFORMED) };
        let first = &chain[0];
        let icmp = Icmpv6Packet::new_checked(&first[..]).map_err(|_| MALFORMED)?;
        match Icmpv6Repr::parse(&from, &to, &icmp, &smoltcp::phy::ChecksumCapabilities::ignored()) {
            Ok(Icmpv6Repr::Ndisc(message)) => self.neighbour(application, (packet, by), message),
            _ => Err(UNANSWERED),
        }
    }

    /// Takes what a router, or the host that it was for, says about a packet of ours. Whose it was is told.
    fn trouble(
        &mut self,
        application: &mut impl Application<N>,
        chain: &Chain<N::Buffer>,
        trouble: Trouble,
    ) -> Result<(), Drop> {
        let quote = chain.first().and_then(|first| first.get(HEADER..)).ok_or(MALFORMED)?;
        let (tuple, seq) = match quoted(quote).ok_or(UNANSWERED)? {
            Quoted::Segment(tuple, seq) => (tuple, seq),
            Quoted::Datagram(tuple) => return self.datagram_trouble(application, &tuple, trouble),
        };
        let id = self.flows.find(&tuple).ok_or(UNANSWERED)?;
        let Some((_, Flow::Open(open))) = self.flows.get_mut(id) else { return Err(UNANSWERED) };
        let (counters, held) = (&mut self.link.counters, &mut self.held);
        let mut context = Context { now: self.now, settings: &self.config.tcp, counters, held };
        let mut effects = core::mem::take(&mut self.effects);
        match trouble {
            Trouble::NobodyThere | Trouble::NoWay => open.connection.unreachable(seq, &mut effects),
            Trouble::TooBig(mtu) => {
                let remote = tuple.remote.ip();
                let mss = mtu.max(least_mtu(remote)) - u32::from(headers_of_segment(remote));
                let before = open.connection.send.mss;
                open.connection.too_big(&mut context, seq, mss);
                if open.connection.send.mss < before {
                    self.paths.narrow(remote, mss, self.now);
                }
            }
        }
        self.mark(id);
        self.apply(application, id, effects);
        Ok(())
    }

    /// Later datagrams to where one was too big go in fragments that are not. Anybody could say so who knows
    /// a port of ours: so connections, which know their own by its sequence numbers, do not go by it. That
    /// nobody takes them is said to who sent them (RFC 1122 section 4.1.3.3).
    fn datagram_trouble(
        &mut self,
        application: &mut impl Application<N>,
        tuple: &FourTuple,
        trouble: Trouble,
    ) -> Result<(), Drop> {
        let (own, remote) = (tuple.local, tuple.remote.ip());
        let is_ours = self.config.is_ours(own.ip()) && self.bound.contains(own.port());
        let mtu = match trouble {
            Trouble::TooBig(mtu) if is_ours => mtu.max(least_mtu(remote)),
            Trouble::NobodyThere if is_ours => {
                application.nobody_there(self, own, tuple.remote);
                return Ok(());
            }
            _ => return Err(UNANSWERED),
        };
        if self.fits(remote, mtu as usize + 1) {
            self.paths.narrow_datagrams(remote, mtu, self.now);
        }
        Ok(())
    }

    /// Sends back what came, out of the memory in which it came.
    fn echo(&mut self, packet: &Packet, header: [u8; HEADER], mut chain: Chain<N::Buffer>, reply: u8) {
        let Some(from) = self.answering_address(packet) else { return };
        let is_v4 = packet.from.is_ipv4();
        let protocol = if is_v4 { protocol::ICMP } else { protocol::ICMPV6 };
        crate::chain::advance(&mut chain, HEADER);
        let mut answer = header;
        (answer[0], answer[1], answer[2], answer[3]) = (reply, 0, 0, 0);
        self.transmit_icmp(protocol, from, packet.from, answer, chain);
    }

    fn answering_address(&self, packet: &Packet) -> Option<IpAddr> {
        if self.config.is_ours(packet.to) { Some(packet.to) } else { self.config.source_for(packet.from) }
    }

    /// Says that nobody takes datagrams at the port that `packet` was for; `quote` is that packet from its IP
    /// header.
    pub(super) fn port_unreachable(&mut self, packet: &Packet, mut quote: Slice<N::Buffer>) {
        if !self.config.is_ours(packet.to) || !self.may_send_error() {
            return;
        }
        quote.truncate(QUOTE_MAX);
        let (protocol, kind, code) =
            if packet.from.is_ipv4() { (protocol::ICMP, 3, 3) } else { (protocol::ICMPV6, 1, 4) };
        let header = [kind, code, 0, 0, 0, 0, 0, 0];
        self.transmit_icmp(protocol, packet.to, packet.from, header, Chain::from_iter([quote]));
    }

    /// Says that a packet that `from` sent to our address `to` was not whole in time; `quote` is its first
    /// fragment from its IP header.
    pub(super) fn reassembly_took_too_long(&mut self, from: IpAddr, to: IpAddr, quote: Slice<N::Buffer>) {
        if !self.config.is_ours(to) || !self.may_send_error() {
            return;
        }
        let (protocol, kind) = if from.is_ipv4() { (protocol::ICMP, 11) } else { (protocol::ICMPV6, 3) };
        let header = [kind, 1, 0, 0, 0, 0, 0, 0];
        self.transmit_icmp(protocol, to, from, header, Chain::from_iter([quote]));
    }

    /// Says what is wrong with the headers of `packet`; `quote` is that packet from its IP header. An option
    /// that many are asked to refuse is refused by each of them (RFC 4443 section 2.4 (e.3)).
    pub(super) fn parameter_problem(
        &mut self,
        packet: &Packet,
        problem: Problem,
        mut quote: Slice<N::Buffer>,
    ) {
        let is_for_one = self.config.is_ours(packet.to);
        if !is_for_one && problem.code != 2 || packet.from.is_unspecified() || !self.may_send_error() {
            return;
        }
        let Some(from) = self.answering_address(packet) else { return };
        quote.truncate(QUOTE_MAX);
        let [a, b, c, d] = problem.pointer.to_be_bytes();
        let header = [4, problem.code, 0, 0, a, b, c, d];
        self.transmit_icmp(protocol::ICMPV6, from, packet.from, header, Chain::from_iter([quote]));
    }

    fn may_send_error(&mut self) -> bool {
        if self.now >= self.errors_until {
            self.errors_until = self.now + Duration::from_secs(1);
            self.errors_left = ERRORS_MAX;
        }
        let may = self.errors_left > 0;
        self.errors_left = self.errors_left.saturating_sub(1);
        may
    }

    fn transmit_icmp(
        &mut self,
        protocol: u8,
        from: IpAddr,
        to: IpAddr,
        mut header: [u8; HEADER],
        payload: Chain<N::Buffer>,
    ) {
        let mac = self.mac_to(to);
        let path = Path { mac: self.link.properties.mac, hop: [0; 6], from, to };
        let len = nom_port::buffer::chain_len(&payload);
        let mut sum = checksum::sum_chain(&header, &payload);
        if protocol == protocol::ICMPV6 {
            sum = checksum::add(sum, checksum::pseudo_header(from, to, protocol, HEADER + len));
        }
        header[2..4].copy_from_slice(&(!sum).to_be_bytes());
        if !self.fits(to, path.header_len() - frame::ETHERNET + HEADER + len) {
            // An echo is as long as what it answers, which may have come in fragments.
            let how = (None, Marks::USUAL);
            if self.transmit_in_fragments((&path, mac), (protocol, &header), payload, how).is_err() {
                self.link.counters.dropped_ring += 1;
            }
            return;
        }
        let (mut head, start) = frame::ip(&path, protocol, HEADER, len);
        head[start..].copy_from_slice(&header);
        let packet = Outgoing { head, payload, checksum: None, segmentation: None, tag: None };
        self.transmit_to(to, mac, packet);
    }
}

/// No path is believed to be narrower: IPv6 has none (RFC 8200 section 5), and Linux takes this for IPv4
/// (`ip_rt_min_pmtu`).
fn least_mtu(remote: IpAddr) -> u32 {
    if remote.is_ipv4() { 552 } else { 1280 }
}

/// What we sent, of which an error quotes the beginning.
enum Quoted {
    /// A segment of these addresses, with its sequence number.
    Segment(FourTuple, Seq),
    /// A datagram.
    Datagram(FourTuple),
}

fn quoted(bytes: &[u8]) -> Option<Quoted> {
    let (local, remote, protocol, upper): (IpAddr, IpAddr, u8, &[u8]) = match bytes.first()? >> 4 {
        4 => {
            let header =
                bytes.get(..usize::from(bytes[0] & 15) * 4).filter(|header| header.len() >= frame::IPV4)?;
            let packet = Ipv4Packet::new_unchecked(header);
            let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
            (from, to, packet.next_header().into(), &bytes[header.len()..])
        }
        6 => {
            let packet = Ipv6Packet::new_unchecked(bytes.get(..frame::IPV6)?);
            let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
            (from, to, packet.next_header().into(), &bytes[frame::IPV6..])
        }
        _ => return None,
    };
    let [a, b, c, d, seq @ ..] = *upper.first_chunk::<8>()?;
    let port = |high, low| u16::from_be_bytes([high, low]);
    let tuple =
        FourTuple { local: SocketAddr::new(local, port(a, b)), remote: SocketAddr::new(remote, port(c, d)) };
    match protocol {
        protocol::TCP => Some(Quoted::Segment(tuple, Seq(u32::from_be_bytes(seq)))),
        protocol::UDP => Some(Quoted::Datagram(tuple)),
        _ => None,
    }
}

fn header<B: nom_port::buffer::Buffer>(chain: &Chain<B>) -> Result<[u8; HEADER], Drop> {
    chain.first().and_then(|first| first.first_chunk()).copied().ok_or(MALFORMED)
}
