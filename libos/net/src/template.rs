//! The headers of a flow's plain segments over IPv4, written once but for what differs from one to the next.

use crate::checksum;
use crate::frame::{ETHERNET, IPV4, Mac, protocol};
use crate::tcp::plain::Plain;
use crate::tcp::segment::Ports;
use core::net::Ipv4Addr;
use core::num::NonZeroU32;
use nom_port::nic::Head;

/// From the Ethernet addresses to the ports.
const START: usize = ETHERNET + IPV4 + 4;

/// Those headers, to the peer of one flow.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// As they stand in every segment, length and checksum of the packet left out.
    start: [u8; START],
    /// What the other words of the IP header add up to, and those of the pseudo-header.
    ip: u32,
    pseudo: u32,
    /// As what the neighbours were known when the peer's Ethernet address was.
    version: NonZeroU32,
}

impl Template {
    /// From our Ethernet address to the next hop's, which was known in the neighbours' `version`; addresses
    /// and ports are ours first. A packet is not to be fragmented and has 64 hops to go.
    pub fn new(
        (mac, hop): (Mac, Mac),
        (from, to): (Ipv4Addr, Ipv4Addr),
        ports: Ports,
        version: NonZeroU32,
    ) -> Template {
        let mut start = [0; START];
        start[..6].copy_from_slice(&hop);
        start[6..12].copy_from_slice(&mac);
        let fixed = [8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol::TCP, 0, 0];
        start[12..26].copy_from_slice(&fixed);
        start[26..30].copy_from_slice(&from.octets());
        start[30..34].copy_from_slice(&to.octets());
        start[34..36].copy_from_slice(&ports.from.to_be_bytes());
        start[36..38].copy_from_slice(&ports.to.to_be_bytes());
        let (from, to) = (from.to_bits(), to.to_bits());
        let addresses = (from >> 16) + (from & 0xffff) + (to >> 16) + (to & 0xffff);
        let ip = 0x4500 + 0x4000 + (0x4000 | u32::from(protocol::TCP)) + addresses;
        Template { start, ip, pseudo: addresses + u32::from(protocol::TCP), version }
    }

    /// In which version of the neighbours it holds.
    #[inline]
    pub fn version(&self) -> NonZeroU32 {
        self.version
    }

    /// Writes the headers of a segment with PSH set into `head`, which is as long as they are. The checksum
    /// is that of the pseudo-header; timestamps are the only options.
    #[inline]
    pub fn write(&self, head: &mut Head, plain: &Plain) {
        let options = plain.options_len() as u32;
        let tcp_len = 20 + options + plain.len;
        let total = IPV4 as u32 + tcp_len;
        let bytes = head.storage_mut();
        bytes[..START].copy_from_slice(&self.start);
        bytes[16..18].copy_from_slice(&(total as u16).to_be_bytes());
        bytes[24..26].copy_from_slice(&(!checksum::fold_short(self.ip + total)).to_be_bytes());
        bytes[38..42].copy_from_slice(&plain.seq.0.to_be_bytes());
        bytes[42..46].copy_from_slice(&plain.ack.0.to_be_bytes());
        let start = ((20 + options) / 4) << 28 | 0x18 << 16 | u32::from(plain.window);
        bytes[46..50].copy_from_slice(&start.to_be_bytes());
        // No urgent pointer.
        let sums = u32::from(checksum::fold_short(self.pseudo + tcp_len)) << 16;
        bytes[50..54].copy_from_slice(&sums.to_be_bytes());
        if let Some(stamps) = plain.stamps {
            // Two no-operations in front of them (RFC 7323 appendix A).
            bytes[54..58].copy_from_slice(&0x0101_080a_u32.to_be_bytes());
            bytes[58..62].copy_from_slice(&stamps.value.to_be_bytes());
            bytes[62..66].copy_from_slice(&stamps.echo.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Slice;
    use crate::frame::{ChecksumField, PLAIN_TCP4, Path, ip, put_checksum};
    use crate::tcp::segment::{Flags, Segment, Timestamps};
    use crate::tcp::sequence::Seq;
    use alloc::rc::Rc;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_of_a_template_are_those_written_one_by_one(
            (from, to) in (any::<u32>(), any::<u32>()),
            (seq, ack, window, len) in (any::<u32>(), any::<u32>(), any::<u16>(), 0u32..1400),
            stamps in proptest::option::of((any::<u32>(), any::<u32>())),
            (here, there, stale) in (any::<u16>(), any::<u16>(), any::<u8>()),
        ) {
            let ends = (Ipv4Addr::from(from), Ipv4Addr::from(to));
            let ports = Ports { from: here, to: there };
            let macs = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
            let path = Path { mac: macs.0, hop: macs.1, from: ends.0.into(), to: ends.1.into() };
            let payload = [Slice::new(Rc::<[u8]>::from(alloc::vec![0; len as usize]))];
            let stamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            let plain = Plain { seq: Seq(seq), ack: Seq(ack), window, len, stamps };
            let segment = Segment { flags: Flags::ACK | Flags::PSH, ..plain.whole() };
            let (mut long, start) = ip(&path, protocol::TCP, segment.header_len(), len as usize);
            segment.emit(ports, &mut long[start..]);
            let field = ChecksumField { start, offset: 16, protocol: protocol::TCP };
            put_checksum(&mut long, field, &path, &payload, true);
            let mut short = Head::zeroed(PLAIN_TCP4 + plain.options_len());
            short.fill(stale);
            Template::new(macs, ends, ports, NonZeroU32::MIN).write(&mut short, &plain);
            prop_assert_eq!(&short[..], &long[..]);
        }
    }
}
