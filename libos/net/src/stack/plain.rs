//! The short way of a frame with a segment that nothing is unusual about, from its first byte to the
//! application.

use super::flows::Flow;
use super::stages::Located;
use super::{Application, Stack};
use crate::checksum;
use crate::frame::{ETHERNET, IPV4, Mac, PLAIN_TCP4, protocol};
use crate::tcp::connection::Context;
use crate::tcp::plain::Plain;
use crate::tcp::segment::{STAMPS, Timestamps};
use crate::tcp::sequence::Seq;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;
use nom_port::nic::{Checksum, Nic, Received};

/// Control bits that a plain segment may have or not: URG, which nobody heeds, and PSH.
const INDIFFERENT: u8 = 0x28;
/// ACK, which it has.
const ACK: u8 = 0x10;
/// More fragments, and where a fragment belongs.
pub(super) const FRAGMENT: u32 = 0x3fff_0000;

impl<N: Nic> Stack<N> {
    /// Where the segment in a frame belongs, if nothing is unusual about it.
    #[inline(always)]
    pub(super) fn locate(&mut self, received: &Received<N::Buffer>) -> Option<Located> {
        let [slice] = &received.frame[..] else { return None };
        if received.checksum != Checksum::Good {
            return None;
        }
        let ((local, remote), plain, payload) = glance(slice, self.link.properties.mac)?;
        if !self.config.is_ours_v4(*local.ip()) {
            return None;
        }
        let flow = self.flows.find_v4(local, remote)?;
        Some(Located { flow, plain, payload })
    }

    /// Takes a segment, which belongs there, if it is the one that its connection expects next; whether it
    /// did.
    #[inline(always)]
    pub(super) fn input_plain(
        &mut self,
        application: &mut impl Application<N>,
        located: &Located,
        received: &mut Received<N::Buffer>,
    ) -> bool {
        let Located { flow: id, plain, payload } = located;
        let Some((_, Flow::Open(open))) = self.flows.get_mut(*id) else { return false };
        let (counters, held) = (&mut self.link.counters, &mut self.held);
        let mut context = Context { now: self.now, settings: &self.config.tcp, counters, held };
        // Of what could happen, only this does to a segment that is taken here.
        if !open.connection.input_plain(&mut context, plain, &mut self.effects) {
            return false;
        }
        let is_sendable = core::mem::take(&mut self.effects.sendable);
        self.probes += 1;
        self.link.nic.attribute(open.label);
        open.mark(*id, &mut self.dirty);
        if !payload.is_empty()
            && let Some(mut bytes) = received.frame.pop()
        {
            bytes.truncate(payload.end);
            bytes.advance(payload.start);
            application.received(self, *id, bytes);
        }
        if is_sendable {
            application.sendable(self, *id);
        }
        true
    }
}

/// The addresses, ours first, of a segment with no IP options, no TCP options but timestamps as nearly all
/// stacks send them, and no control bits but ACK and PSH; what it says, and where its payload is. All but the
/// transport checksum was looked at.
#[inline(always)]
fn glance(bytes: &[u8], mac: Mac) -> Option<((SocketAddrV4, SocketAddrV4), Plain, Range<usize>)> {
    let head: &[u8; PLAIN_TCP4] = bytes.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let is_plain_ip = word(12) >> 8 == 0x0008_0045
        && word(20) & FRAGMENT == 0
        && head[23] == protocol::TCP
        && head[..6] == mac;
    if !is_plain_ip || head[47] & !INDIFFERENT != ACK {
        return None;
    }
    let end = ETHERNET + usize::from(half(16));
    let (start, stamps) = match head[46] >> 4 {
        5 => (PLAIN_TCP4, None),
        8 => (PLAIN_TCP4 + STAMPS, Some(stamps(bytes)?)),
        _ => return None,
    };
    let ip: &[u8; IPV4] = head[ETHERNET..].first_chunk()?;
    if start > end || end > bytes.len() || !checksum::is_header_good(ip) {
        return None;
    }
    let local = SocketAddrV4::new(Ipv4Addr::from_bits(word(30)), half(36));
    let remote = SocketAddrV4::new(Ipv4Addr::from_bits(word(26)), half(34));
    let (seq, ack, window) = (Seq(word(38)), Seq(word(42)), half(48));
    Some(((local, remote), Plain { seq, ack, window, len: (end - start) as u32, stamps }, start..end))
}

/// The timestamps of a header that has nothing else, as RFC 7323 appendix A has them.
#[inline]
fn stamps(bytes: &[u8]) -> Option<Timestamps> {
    let head: &[u8; PLAIN_TCP4 + STAMPS] = bytes.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    (word(54) == 0x0101_080a).then(|| Timestamps { value: word(58), echo: word(62) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Ethernet, Packet};
    use crate::tcp::segment::{Flags, Ports, Segment};
    use crate::template::Template;
    use alloc::vec::Vec;
    use core::net::SocketAddr;
    use core::num::NonZeroU32;
    use nom_port::nic::Head;
    use proptest::prelude::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];

    /// A frame to us of so many bytes of payload.
    fn frame(plain: &Plain) -> Vec<u8> {
        let options = plain.options_len();
        let mut head = Head::zeroed(PLAIN_TCP4 + options);
        let ends = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 1));
        Template::new(([2, 0, 0, 0, 0, 9], MAC), ends, Ports { from: 4000, to: 80 }, NonZeroU32::MIN)
            .write(&mut head, plain);
        let mut frame = head.to_vec();
        frame.resize(frame.len() + plain.len as usize, 7);
        frame
    }

    fn value() -> impl Strategy<Value = u8> {
        prop_oneof![any::<u8>(), (0u32..8).prop_map(|bit| 1 << bit)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Whatever is taken for plain is so by the parsers that look at everything, and says the same.
        #[test]
        fn what_is_plain_is_what_the_parsers_read(
            (seq, ack, window, len) in (any::<u32>(), any::<u32>(), any::<u16>(), 0u32..40),
            stamps in proptest::option::of((any::<u32>(), any::<u32>())),
            change in proptest::option::of((0usize..70, value())),
            padding in 0usize..8,
        ) {
            let stamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            let plain = Plain { seq: Seq(seq), ack: Seq(ack), window, len, stamps };
            let mut bytes = frame(&plain);
            bytes.resize(bytes.len() + padding, 0);
            if let Some((at, value)) = change
                && let Some(byte) = bytes.get_mut(at)
            {
                *byte = value;
                // Else its checksum would tell of every change of the IP header.
                bytes[24..26].fill(0);
                let sum = !checksum::sum(&bytes[ETHERNET..ETHERNET + IPV4]);
                bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            let Some(((local, remote), found, payload)) = glance(&bytes, MAC) else {
                prop_assert!(change.is_some(), "what nobody changed is plain");
                return Ok(());
            };
            let ethernet = Ethernet::parse(&bytes).unwrap();
            let packet = Packet::parse_v4(&bytes).unwrap_or_else(|_| panic!("dropped"));
            let (ports, segment, header) = Segment::parse(&bytes[packet.start..], packet.len).unwrap();
            prop_assert_eq!(ethernet.to, MAC);
            prop_assert_eq!(SocketAddr::V4(local), (packet.to, ports.to).into());
            prop_assert_eq!(SocketAddr::V4(remote), (packet.from, ports.from).into());
            prop_assert_eq!(Segment { flags: Flags::ACK, ..segment }, found.whole());
            prop_assert!(segment.flags.is_plain_ack());
            prop_assert_eq!(payload, packet.start + header..packet.start + packet.len);
        }
    }
}
