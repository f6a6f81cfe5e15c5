//! Datagrams answered in the memory in which they came, before the stack has looked at them.
//!
//! The answer is written behind the question, headers and all, into what the device's buffer has to spare:
//! the question can be read as long as the answer is written, nothing is allocated, and the very buffer goes
//! back.

use super::Stack;
use super::plain::FRAGMENT;
use crate::answer::Answer;
use crate::checksum;
use crate::frame::{self, ETHERNET, Ethernet, IPV4, IPV6, PLAIN_UDP4, Packet, Path, is_answerable, protocol};
use crate::packet::{UDP_HEADER, is_sum_good};
use crate::tcp::segment::Ports;
use core::net::{IpAddr, Ipv4Addr};
use core::ops::Range;
use nom_port::nic::{Checksum, Nic, PartialChecksum, Properties, Received};
use smoltcp::wire::{EthernetProtocol, UdpPacket};

/// Frames begin at multiples of this, as drivers place them, so that headers are written by whole words.
const ALIGNMENT: usize = 16;

/// Where in a UDP header its checksum lies.
const CHECKSUM: u16 = 6;

/// An ordinary datagram for us.
struct Question {
    /// The way of the answer.
    path: Path,
    ports: Ports,
    /// Bytes of headers in front of the payload, of the question as of the answer.
    headers: usize,
    /// Bytes of payload.
    len: usize,
}

impl<N: Nic> Stack<N> {
    /// Answers a datagram to UDP `port` in the memory in which it came: for [`super::Application::filter`].
    ///
    /// `answer` gets the payload and the room for another, which no packet of the link exceeds; it writes
    /// there and says how many bytes. Gives the frame back, as it was, for the stack if it holds no such
    /// datagram, if there is anything unusual about it (broadcast, fragment, IP options, several buffers, a
    /// wrong checksum), or if `answer` is `None`.
    pub fn answer_in_place(
        &mut self,
        mut received: Received<N::Buffer>,
        port: u16,
        answer: impl FnOnce(&[u8], &mut [u8]) -> Option<usize>,
    ) -> Option<Received<N::Buffer>> {
        let Some(question) = self.question(&received, port) else { return Some(received) };
        let Some(placed) = self.write_answer(&question, &mut received, answer) else { return Some(received) };
        let Properties { offloads, .. } = self.link.properties;
        let slice = &mut received.frame[0];
        slice.show(placed);
        let start = (question.headers - UDP_HEADER) as u16;
        let packet = &mut self.link.outgoing;
        packet.head.restart(0);
        packet.payload = received.frame;
        packet.checksum = offloads.checksum.then_some(PartialChecksum { start, offset: CHECKSUM });
        packet.segmentation = None;
        packet.tag = Some(Answer::to_datagram(received.at_ns).tag());
        self.link.send(self.now);
        None
    }

    fn question(&self, received: &Received<N::Buffer>, port: u16) -> Option<Question> {
        let [slice] = &received.frame[..] else { return None };
        let bytes: &[u8] = slice;
        if received.checksum == Checksum::Good
            && let Some(question) = self.plain_question(bytes, port)
        {
            return Some(question);
        }
        let ethernet = Ethernet::parse(bytes)?;
        let (packet, headers) = match ethernet.protocol {
            EthernetProtocol::Ipv4 if *bytes.get(ETHERNET + 9)? == protocol::UDP => {
                let packet = Packet::parse_v4(bytes).ok()?;
                self.check_v4(&packet).ok()?;
                (packet, ETHERNET + IPV4 + UDP_HEADER)
            }
            EthernetProtocol::Ipv6 if *bytes.get(ETHERNET + 6)? == protocol::UDP => {
                let packet = Packet::parse_v6(bytes).ok()?;
                self.check_v6(&packet).ok()?;
                (packet, ETHERNET + IPV6 + UDP_HEADER)
            }
            _ => return None,
        };
        // An answer has no room for options; who sends them wants the stack.
        if packet.start + UDP_HEADER != headers {
            return None;
        }
        let udp = UdpPacket::new_unchecked(bytes.get(packet.start..headers)?);
        let whole = usize::from(udp.len());
        let is_for_us = ethernet.to == self.link.properties.mac && self.config.is_ours(packet.to);
        let is_whole = whole <= packet.len && packet.start + packet.len <= bytes.len();
        let is_asked = udp.dst_port() == port && udp.src_port() != 0;
        if !is_for_us || !is_whole || !is_asked || !is_sum_good(&packet, received, udp.checksum()) {
            return None;
        }
        Some(Question {
            path: Path { mac: ethernet.to, hop: ethernet.from, from: packet.to, to: packet.from },
            ports: Ports { from: port, to: udp.src_port() },
            headers,
            len: whole.checked_sub(UDP_HEADER)?,
        })
    }

    /// A question over IPv4 whose checksum somebody has looked at, if nothing is unusual about it.
    #[inline]
    fn plain_question(&self, bytes: &[u8], port: u16) -> Option<Question> {
        let head: &[u8; PLAIN_UDP4] = bytes.first_chunk()?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let mac = self.link.properties.mac;
        let (total, whole) = (usize::from(half(16)), usize::from(half(38)));
        let is_plain = word(12) >> 8 == 0x0008_0045
            && word(20) & FRAGMENT == 0
            && head[23] == protocol::UDP
            && half(36) == port
            && half(34) != 0
            && head[..6] == mac
            && ETHERNET + total <= bytes.len()
            && IPV4 + whole <= total;
        let ip: &[u8; IPV4] = head[ETHERNET..].first_chunk()?;
        if !is_plain || !checksum::is_header_good(ip) {
            return None;
        }
        let (from, to) = (Ipv4Addr::from_bits(word(26)), Ipv4Addr::from_bits(word(30)));
        if !is_answerable(from) || !self.config.is_ours_v4(to) {
            return None;
        }
        let (_, rest) = head.split_first_chunk::<6>()?;
        Some(Question {
            path: Path { mac, hop: *rest.first_chunk()?, from: to.into(), to: from.into() },
            ports: Ports { from: port, to: half(34) },
            headers: PLAIN_UDP4,
            len: whole.checked_sub(UDP_HEADER)?,
        })
    }

    /// Writes the answer behind the question and says where in the buffer the frame lies.
    fn write_answer(
        &self,
        question: &Question,
        received: &mut Received<N::Buffer>,
        answer: impl FnOnce(&[u8], &mut [u8]) -> Option<usize>,
    ) -> Option<Range<usize>> {
        let Properties { mtu, offloads, .. } = self.link.properties;
        let slice = &mut received.frame[0];
        let asked = slice.range();
        let (before, after) = slice.memory()?.split_at_mut_checked(asked.end.next_multiple_of(ALIGNMENT))?;
        let start = before.len();
        let payload = before.get(asked.start + question.headers..)?.get(..question.len)?;
        let (head, room) = after.split_at_mut_checked(question.headers)?;
        let longest = (usize::from(mtu) + ETHERNET - question.headers).min(room.len());
        let len = answer(payload, &mut room[..longest])?.min(longest);
        question.write_headers(head, &room[..len], offloads.checksum);
        Some(start..start + question.headers + len)
    }
}

impl Question {
    /// Writes the headers of an answer in front of it.
    fn write_headers(&self, head: &mut [u8], payload: &[u8], is_checksum_offloaded: bool) {
        let Question { path, ports, headers, .. } = self;
        if let (IpAddr::V4(from), IpAddr::V4(to), true) = (path.from, path.to, is_checksum_offloaded)
            && let Some(head) = head.as_mut_array()
        {
            return frame::put_plain_udp4(head, (path.mac, path.hop), (from, to), *ports, payload.len());
        }
        let start = headers - UDP_HEADER;
        let len = UDP_HEADER + payload.len();
        head.fill(0);
        frame::put_ip(&mut head[..start], path, protocol::UDP, len);
        let mut udp = UdpPacket::new_unchecked(&mut head[start..]);
        udp.set_src_port(ports.from);
        udp.set_dst_port(ports.to);
        udp.set_len(len as u16);
        let sum = checksum::pseudo_header(path.from, path.to, protocol::UDP, len);
        let value = if is_checksum_offloaded {
            sum
        } else {
            let whole = checksum::add(checksum::sum(&head[start..]), checksum::sum(payload));
            frame::transmitted(checksum::add(sum, whole), protocol::UDP)
        };
        UdpPacket::new_unchecked(&mut head[start..]).set_checksum(value);
    }
}
