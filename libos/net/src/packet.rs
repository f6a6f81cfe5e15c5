//! The packet API's help: datagrams for a filter that answers them without the stack.
//!
//! [`Stack::answer_in_place`](crate::Stack::answer_in_place) answers in the memory of the question; a
//! [`Datagram`] is answered by any chain, the question's own payload for one:
//!
//! ```
//! # use nom_net::{Application, FlowId, Nic, Slice, Stack, packet::Datagram};
//! # use nom_port::nic::Received;
//! struct Filter;
//!
//! impl<N: Nic> Application<N> for Filter {
//!     fn filter(
//!         &mut self,
//!         stack: &mut Stack<N>,
//!         frame: Received<N::Buffer>,
//!     ) -> Option<Received<N::Buffer>> {
//!         let Some(datagram) = Datagram::parse(&frame).filter(|found| found.to.port() == 9) else {
//!             return Some(frame);
//!         };
//!         // The answer is the question, out of the memory in which it came.
//!         let payload = datagram.payload(frame);
//!         stack.transmit_answer(&datagram, payload);
//!         None
//!     }
//! #   fn received(&mut self, _: &mut Stack<N>, _: FlowId, _: Slice<N::Buffer>) {}
//! }
//! ```

use crate::answer::Answer;
use crate::buffer::{Buffer, Chain, Slice, chain_len};
use crate::chain;
use crate::checksum;
use crate::frame::{self, ChecksumField, Ethernet, Mac, PLAIN_UDP4, Packet, Path, protocol};
use crate::tcp::segment::Ports;
use core::net::{IpAddr, SocketAddr};
use nom_port::nic::{Checksum, Head, Outgoing, PartialChecksum, Received};
use smoltcp::wire::{EthernetProtocol, UdpPacket};

/// Bytes of a UDP header.
pub const UDP_HEADER: usize = 8;

/// A sound UDP datagram as it stands in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where it comes from.
    pub from: SocketAddr,
    /// Where it goes to.
    pub to: SocketAddr,
    macs: (Mac, Mac),
    start: usize,
    len: usize,
    at_ns: u64,
}

impl Datagram {
    /// The datagram in a frame; `None` if the frame holds none, or an unsound one, which is then the stack's
    /// to count.
    pub fn parse<B: Buffer>(frame: &Received<B>) -> Option<Datagram> {
        let first = frame.frame.first()?;
        let ethernet = Ethernet::parse(first)?;
        // What is for many is not answered by one; and an answer goes out from where the question went to.
        if ethernet.to[0] & 1 == 1 {
            return None;
        }
        let packet = match ethernet.protocol {
            EthernetProtocol::Ipv4 => Packet::parse_v4(first).ok()?,
            EthernetProtocol::Ipv6 => Packet::parse_v6(first).ok()?,
            _ => return None,
        };
        let header = first.get(packet.start..packet.start + UDP_HEADER)?;
        if packet.protocol != protocol::UDP {
            return None;
        }
        let udp = UdpPacket::new_unchecked(header);
        let len = usize::from(udp.len()).checked_sub(UDP_HEADER)?;
        let is_there =
            usize::from(udp.len()) <= packet.len && chain_len(&frame.frame) >= packet.start + packet.len;
        let datagram = Datagram {
            from: SocketAddr::new(packet.from, udp.src_port()),
            to: SocketAddr::new(packet.to, udp.dst_port()),
            macs: (ethernet.from, ethernet.to),
            start: packet.start + UDP_HEADER,
            len,
            at_ns: frame.at_ns,
        };
        (is_there && is_sum_good(&packet, frame, udp.checksum())).then_some(datagram)
    }

    /// Its payload, in the memory in which it came.
    pub fn payload<B: Buffer>(&self, frame: Received<B>) -> Chain<B> {
        let mut chain = frame.frame;
        chain::keep(&mut chain, self.start, self.len);
        chain
    }

    /// An answer, to where it came from by the way it came.
    pub fn answer<B: Buffer>(&self, payload: Chain<B>, is_checksum_offloaded: bool) -> Outgoing<B> {
        let (hop, mac) = self.macs;
        let path = Path { mac, hop, from: self.to.ip(), to: self.from.ip() };
        let ports = Ports { from: self.to.port(), to: self.from.port() };
        let (head, checksum) = udp(&path, ports, &payload, is_checksum_offloaded);
        let answer = Answer::to_datagram(self.at_ns);
        Outgoing { head, payload, checksum, segmentation: None, tag: Some(answer.tag()) }
    }
}

pub(crate) fn is_sum_good<B: Buffer>(packet: &Packet, frame: &Received<B>, sum: u16) -> bool {
    // RFC 768: zero says that there is none; IPv6 has no such datagrams (RFC 8200 section 8.1).
    if frame.checksum == Checksum::Good || packet.from.is_ipv4() && sum == 0 {
        return true;
    }
    let mut chain = frame.frame.clone();
    let pseudo = checksum::pseudo_header(packet.from, packet.to, protocol::UDP, packet.len);
    chain::keep(&mut chain, packet.start, packet.len)
        && checksum::add(pseudo, checksum::sum_chain(&[], &chain)) == 0xffff
}

/// Ethernet, IP and UDP headers of a datagram.
pub fn udp<B: Buffer>(
    path: &Path,
    ports: Ports,
    payload: &[Slice<B>],
    is_offloaded: bool,
) -> (Head, Option<PartialChecksum>) {
    let len = chain_len(payload);
    let mut head = Head::zeroed(path.header_len() + UDP_HEADER);
    let checksum = put_udp(&mut head, path, ports, (payload, len), is_offloaded);
    (head, checksum)
}

/// Writes those headers in front of a packet's payload, and `front` between the two.
pub(crate) fn write_udp<B: Buffer>(
    packet: &mut Outgoing<B>,
    path: &Path,
    ports: Ports,
    front: &[u8],
    is_offloaded: bool,
) {
    let Outgoing { head, payload, checksum, segmentation, .. } = packet;
    let len = front.len() + chain_len(payload);
    *segmentation = None;
    if let (IpAddr::V4(from), IpAddr::V4(to), true) = (path.from, path.to, is_offloaded) {
        head.restart(PLAIN_UDP4);
        let plain = head.storage_mut().first_chunk_mut().expect("a head is longer than its headers");
        frame::put_plain_udp4(plain, (path.mac, path.hop), (from, to), ports, len);
        head.append(front);
        *checksum = Some(PartialChecksum { start: (PLAIN_UDP4 - UDP_HEADER) as u16, offset: 6 });
        return;
    }
    let headers = path.header_len() + UDP_HEADER;
    head.restart(headers);
    head.fill(0);
    head.append(front);
    *checksum = put_udp(head, path, ports, (payload, len), is_offloaded);
}

/// Writes the headers of a datagram of `len` bytes into a head in which they are still zero; its first bytes
/// may be in the head, too, and the others are `payload`.
fn put_udp<B: Buffer>(
    head: &mut Head,
    path: &Path,
    ports: Ports,
    (payload, len): (&[Slice<B>], usize),
    is_offloaded: bool,
) -> Option<PartialChecksum> {
    let start = path.header_len();
    frame::put_ip(&mut head[..start], path, protocol::UDP, UDP_HEADER + len);
    let mut packet = UdpPacket::new_unchecked(&mut head[start..]);
    packet.set_src_port(ports.from);
    packet.set_dst_port(ports.to);
    packet.set_len((UDP_HEADER + len) as u16);
    let field = ChecksumField { start, offset: 6, protocol: protocol::UDP };
    frame::put_checksum(head, field, path, payload, is_offloaded)
}
