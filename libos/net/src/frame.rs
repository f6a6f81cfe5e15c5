//! Ethernet and IP headers, read and written.

use crate::buffer::{Buffer, Slice, chain_len};
use crate::checksum;
use crate::counters::Counters;
use crate::fragments::Fragment;
use crate::tcp::segment::Ports;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nom_port::nic::{Head, PartialChecksum};
use smoltcp::wire::{EthernetProtocol, Ipv4Packet, Ipv6Packet};

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Bytes of an IPv4 header without options.
pub const IPV4: usize = 20;
/// Bytes of an IPv6 header without extensions.
pub const IPV6: usize = 40;

/// Hop limit of what is sent, unless it must be another.
pub const HOPS: u8 = 64;

/// Bytes of the extension header of an IPv6 fragment.
const FRAGMENT_HEADER: usize = 8;

/// An Ethernet address.
pub type Mac = [u8; 6];
/// The Ethernet address of everybody.
pub const BROADCAST: Mac = [0xff; 6];
/// Protocol numbers of IP.
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// A fragment of an IPv6 packet.
    pub const FRAGMENT: u8 = 44;
}

/// The counter that a dropped frame raises.
pub type Drop = fn(&mut Counters) -> &mut u64;

/// What an Ethernet header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Where the frame comes from.
    pub from: Mac,
    /// Where it goes to.
    pub to: Mac,
    /// What it carries.
    pub protocol: EthernetProtocol,
}

impl Ethernet {
    /// The header at the start of `bytes`; `None` if they are too few.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Ethernet> {
        let (to, rest) = bytes.split_first_chunk::<6>()?;
        let (from, rest) = rest.split_first_chunk::<6>()?;
        let protocol = u16::from_be_bytes(*rest.first_chunk()?).into();
        Some(Ethernet { from: *from, to: *to, protocol })
    }
}

/// What an IP header says, and where in the frame its payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its source.
    pub from: IpAddr,
    /// Its destination.
    pub to: IpAddr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Where in the frame the payload begins.
    pub start: usize,
    /// Its length.
    pub len: usize,
    /// Hop limit, which neighbour discovery looks at.
    pub hops: u8,
}

impl Packet {
    /// The IPv4 header behind the Ethernet header of a frame whose first slice is `bytes`.
    ///
    /// # Errors
    /// Why the frame is to be dropped, unless it is a [`Fragment`].
    #[inline]
    pub fn parse_v4(bytes: &[u8]) -> Result<Packet, Drop> {
        match v4(bytes)? {
            (packet, header) if !header.more_frags() && header.frag_offset() == 0 => Ok(packet),
            _ => Err(fragment),
        }
    }

    /// The IPv6 header of a packet without extension headers, as [`Packet::parse_v4`].
    ///
    /// # Errors
    /// Why the frame is to be dropped, unless there is more to it ([`crate::extensions::walk`]).
    #[inline]
    pub fn parse_v6(bytes: &[u8]) -> Result<Packet, Drop> {
        let packet = v6(bytes)?;
        match packet.protocol {
            protocol::TCP | protocol::UDP | protocol::ICMPV6 => Ok(packet),
            _ => Err(|counters| &mut counters.dropped_extension),
        }
    }

    /// The IPv6 header alone, whatever follows it.
    ///
    /// # Errors
    /// Why the frame is to be dropped.
    pub fn header_v6(bytes: &[u8]) -> Result<Packet, Drop> {
        v6(bytes)
    }
}

#[inline]
fn v4(bytes: &[u8]) -> Result<(Packet, Ipv4Packet<&[u8]>), Drop> {
    let bytes = bytes.get(ETHERNET..).filter(|rest| rest.len() >= IPV4).ok_or(malformed as Drop)?;
    let packet = Ipv4Packet::new_unchecked(bytes);
    let (header, total) = (usize::from(packet.header_len()), usize::from(packet.total_len()));
    if packet.version() != 4 || header < IPV4 || header > bytes.len() || header > total {
        return Err(malformed);
    }
    if checksum::sum(&bytes[..header]) != 0xffff {
        return Err(|counters| &mut counters.dropped_checksum);
    }
    let parsed = Packet {
        from: packet.src_addr().into(),
        to: packet.dst_addr().into(),
        protocol: bytes[9],
        start: ETHERNET + header,
        len: total - header,
        hops: packet.hop_limit(),
    };
    Ok((parsed, packet))
}

#[inline]
fn v6(bytes: &[u8]) -> Result<Packet, Drop> {
    let bytes = bytes.get(ETHERNET..).filter(|rest| rest.len() >= IPV6).ok_or(malformed as Drop)?;
    let packet = Ipv6Packet::new_unchecked(bytes);
    if packet.version() != 6 {
        return Err(malformed);
    }
    Ok(Packet {
        from: packet.src_addr().into(),
        to: packet.dst_addr().into(),
        protocol: packet.next_header().into(),
        start: ETHERNET + IPV6,
        len: usize::from(packet.payload_len()),
        hops: packet.hop_limit(),
    })
}

impl Fragment {
    /// The headers of an IPv4 fragment.
    ///
    /// # Errors
    /// Why the frame is to be dropped.
    pub fn parse_v4(bytes: &[u8]) -> Result<Fragment, Drop> {
        let (packet, header) = v4(bytes)?;
        Ok(Fragment {
            packet,
            id: header.ident().into(),
            offset: header.frag_offset().into(),
            is_last: !header.more_frags(),
        })
    }

    /// The headers of an IPv6 fragment: that of fragments (RFC 8200 section 4.5) begins `packet`.
    ///
    /// # Errors
    /// Why the frame is to be dropped.
    pub fn parse_v6(bytes: &[u8], packet: Packet) -> Result<Fragment, Drop> {
        let extension = bytes.get(packet.start..).and_then(|rest| rest.first_chunk::<FRAGMENT_HEADER>());
        let extension = extension.filter(|_| packet.len >= FRAGMENT_HEADER).ok_or(malformed as Drop)?;
        let [next, _, high, low, id @ ..] = *extension;
        let offset = u16::from_be_bytes([high, low]);
        let (start, len) = (packet.start + FRAGMENT_HEADER, packet.len - FRAGMENT_HEADER);
        Ok(Fragment {
            packet: Packet { protocol: next, start, len, ..packet },
            id: u32::from_be_bytes(id),
            offset: usize::from(offset & !7),
            is_last: offset & 1 == 0,
        })
    }
}

/// Whether an IPv4 packet may come from `from` (RFC 1122 section 3.2.1.3).
#[inline]
pub(crate) fn is_answerable(from: Ipv4Addr) -> bool {
    !(from.is_broadcast() || from.is_multicast() || from.is_loopback() || from.is_unspecified())
}

fn fragment(counters: &mut Counters) -> &mut u64 {
    &mut counters.dropped_fragment
}

fn malformed(counters: &mut Counters) -> &mut u64 {
    &mut counters.dropped_malformed
}

/// An Ethernet header with `rest` zero bytes behind it.
pub fn ethernet(from: Mac, to: Mac, protocol: EthernetProtocol, rest: usize) -> Head {
    let mut head = Head::zeroed(ETHERNET + rest);
    put_ethernet(&mut head, from, to, protocol);
    head
}

fn put_ethernet(head: &mut [u8], from: Mac, to: Mac, protocol: EthernetProtocol) {
    let head: &mut [u8; ETHERNET] = head.first_chunk_mut().expect("an Ethernet header has 14 bytes");
    head[..6].copy_from_slice(&to);
    head[6..12].copy_from_slice(&from);
    head[12..].copy_from_slice(&u16::from(protocol).to_be_bytes());
}

/// What an IP header says of how a packet is to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// How many routers it may pass: IPv4's time to live, IPv6's hop limit.
    pub hops: u8,
    /// DSCP and ECN (RFC 2474, RFC 3168): IPv4's type of service, IPv6's traffic class.
    pub class: u8,
}

impl Marks {
    /// Those of what is sent, unless it is to have others.
    pub const USUAL: Marks = Marks { hops: HOPS, class: 0 };

    /// Those of the packet that begins with `bytes`, which are its IP header at least.
    pub(crate) fn of(packet: &Packet, bytes: &[u8]) -> Marks {
        let class = match (packet.from, bytes) {
            (IpAddr::V4(_), [_, class, ..]) => *class,
            (IpAddr::V6(_), [first, second, ..]) => first << 4 | second >> 4,
            _ => 0,
        };
        Marks { hops: packet.hops, class }
    }

    /// Writes them into a frame's headers.
    pub(crate) fn put(self, head: &mut [u8]) {
        let Marks { hops, class } = self;
        let header = &mut head[ETHERNET..];
        if header[0] >> 4 == 4 {
            (header[1], header[8]) = (class, hops);
            sum_v4(header);
        } else {
            (header[0], header[1], header[7]) = (0x60 | class >> 4, class << 4, hops);
        }
    }
}

/// A part of a packet that is sent in fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentPlace {
    /// The packet's name, of which IPv4 has room for the lower half.
    pub id: u32,
    /// Where in the packet's payload it begins: a multiple of 8.
    pub offset: usize,
    /// Its bytes.
    pub len: usize,
    /// Whether it is the packet's last.
    pub is_last: bool,
}

/// Bytes of the headers of a fragment from IP on.
pub fn fragment_header_len(path: &Path) -> usize {
    path.header_len() - ETHERNET + if path.to.is_ipv4() { 0 } else { FRAGMENT_HEADER }
}

/// Ethernet and IP headers in front of a piece of a packet of `protocol`. Routers may cut it once more where
/// IP lets them, which is in IPv4.
pub fn fragment_head(path: &Path, protocol: u8, piece: FragmentPlace) -> Head {
    let FragmentPlace { id, offset, len, is_last } = piece;
    if path.to.is_ipv4() {
        let (mut head, _) = ip(path, protocol, 0, len);
        let place = (offset / 8) as u16 | u16::from(!is_last) << 13;
        head[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&(id as u16).to_be_bytes());
        head[ETHERNET + 6..ETHERNET + 8].copy_from_slice(&place.to_be_bytes());
        sum_v4(&mut head[ETHERNET..]);
        return head;
    }
    let (mut head, start) = ip(path, protocol::FRAGMENT, FRAGMENT_HEADER, len);
    let place = offset as u16 | u16::from(!is_last);
    head[start] = protocol;
    head[start + 2..start + 4].copy_from_slice(&place.to_be_bytes());
    head[start + 4..].copy_from_slice(&id.to_be_bytes());
    head
}

/// Where an IP packet goes, in both layers.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Our Ethernet address.
    pub mac: Mac,
    /// That of the next hop.
    pub hop: Mac,
    /// Our address.
    pub from: IpAddr,
    /// The peer's, of the same family.
    pub to: IpAddr,
}

impl Path {
    /// Bytes of both layers' headers.
    pub fn header_len(&self) -> usize {
        ETHERNET + if self.from.is_ipv4() && self.to.is_ipv4() { IPV4 } else { IPV6 }
    }
}

/// Ethernet and IP headers of a packet with `header` bytes of transport header and `payload` bytes behind;
/// and where the transport header, still zero, begins.
pub fn ip(path: &Path, protocol: u8, header: usize, payload: usize) -> (Head, usize) {
    let start = path.header_len();
    let mut head = Head::zeroed(start + header);
    put_ip(&mut head[..start], path, protocol, header + payload);
    (head, start)
}

/// Writes Ethernet and IP headers into `head`, which is zero and as long as they are; `len` bytes follow.
pub fn put_ip(head: &mut [u8], path: &Path, protocol: u8, len: usize) {
    match (path.from, path.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            put_ethernet(head, path.mac, path.hop, EthernetProtocol::Ipv4);
            put_v4(&mut head[ETHERNET..], from, to, protocol, len);
        }
        (from, to) => {
            put_ethernet(head, path.mac, path.hop, EthernetProtocol::Ipv6);
            put_v6(&mut head[ETHERNET..], as_v6(from), as_v6(to), protocol, len);
        }
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Where the header of a TCP segment over IPv4 without IP options begins.
pub const PLAIN_TCP4_AT: u16 = (ETHERNET + IPV4) as u16;
/// Bytes of the headers of such a segment without TCP options.
pub const PLAIN_TCP4: usize = ETHERNET + IPV4 + 20;

/// Bytes of the headers of a datagram over IPv4 without IP options.
pub const PLAIN_UDP4: usize = ETHERNET + IPV4 + 8;

/// Those headers as words, in front of `len` bytes; the checksum is that of the pseudo-header.
#[inline]
pub fn put_plain_udp4(
    head: &mut [u8; PLAIN_UDP4],
    (mac, hop): (Mac, Mac),
    ends: (Ipv4Addr, Ipv4Addr),
    ports: Ports,
    len: usize,
) {
    let udp_len = (8 + len) as u32;
    let mut put = |at: usize, word: u32| head[at..at + 4].copy_from_slice(&word.to_be_bytes());
    let pseudo = put_plain_ip4(&mut put, protocol::UDP, ends, ports.from, udp_len);
    put(36, u32::from(ports.to) << 16 | udp_len);
    head[40..].copy_from_slice(&pseudo.to_be_bytes());
    head[..6].copy_from_slice(&hop);
    head[6..12].copy_from_slice(&mac);
}

/// The words from the type of the Ethernet frame to the port that sends: those of an IPv4 header that is not
/// to be fragmented and has 64 hops to go, in front of `len` bytes. Returns the pseudo-header's checksum.
#[inline]
fn put_plain_ip4(
    put: &mut impl FnMut(usize, u32),
    protocol: u8,
    ends: (Ipv4Addr, Ipv4Addr),
    port: u16,
    len: u32,
) -> u16 {
    let (from, to, total) = (ends.0.to_bits(), ends.1.to_bits(), IPV4 as u32 + len);
    let addresses = (from >> 16) + (from & 0xffff) + (to >> 16) + (to & 0xffff);
    let hops = 0x4000 | u32::from(protocol);
    let sum = !checksum::fold_short(0x4500 + 0x4000 + hops + total + addresses);
    put(12, 0x0800_4500);
    put(16, total << 16);
    put(20, 0x4000_0000 | hops);
    put(24, u32::from(sum) << 16 | from >> 16);
    put(28, from << 16 | to >> 16);
    put(32, to << 16 | u32::from(port));
    checksum::fold_short(addresses + u32::from(protocol) + len)
}

/// The identification stays zero: a packet that must not be fragmented needs none (RFC 6864 section 4.1).
fn put_v4(bytes: &mut [u8], from: Ipv4Addr, to: Ipv4Addr, protocol: u8, len: usize) {
    let header: &mut [u8; IPV4] = bytes.first_chunk_mut().expect("an IPv4 header has 20 bytes");
    let [len_high, len_low] = ((IPV4 + len) as u16).to_be_bytes();
    let ([a, b, c, d], [e, f, g, h]) = (from.octets(), to.octets());
    // Version and length; not to be fragmented; 64 hops.
    *header = [0x45, 0, len_high, len_low, 0, 0, 0x40, 0, 64, protocol, 0, 0, a, b, c, d, e, f, g, h];
    sum_v4(header);
}

/// Writes the checksum of the IPv4 header at the start of `bytes`, which is without options.
fn sum_v4(bytes: &mut [u8]) {
    bytes[10..12].fill(0);
    let checksum = !checksum::sum(&bytes[..IPV4]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Neighbour discovery demands the largest hop limit (RFC 4861 section 7.1); nothing else minds it.
fn put_v6(bytes: &mut [u8], from: Ipv6Addr, to: Ipv6Addr, protocol: u8, len: usize) {
    let mut packet = Ipv6Packet::new_unchecked(bytes);
    packet.set_version(6);
    packet.set_payload_len(len as u16);
    packet.set_next_header(protocol.into());
    packet.set_hop_limit(if protocol == protocol::ICMPV6 { 255 } else { HOPS });
    packet.set_src_addr(from);
    packet.set_dst_addr(to);
}

/// Which checksum a header has where.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumField {
    /// Where the transport header begins.
    pub start: usize,
    /// Where in it the checksum is.
    pub offset: usize,
    /// Its protocol.
    pub protocol: u8,
}

/// Puts a transport checksum into `head`; or, if the device finishes it, the sum of the pseudo-header.
pub fn put_checksum<B: Buffer>(
    head: &mut Head,
    field: ChecksumField,
    path: &Path,
    payload: &[Slice<B>],
    is_offloaded: bool,
) -> Option<PartialChecksum> {
    let ChecksumField { start, offset, protocol } = field;
    let len = head.len() - start + chain_len(payload);
    let pseudo = checksum::pseudo_header(path.from, path.to, protocol, len);
    let value = if is_offloaded {
        pseudo
    } else {
        transmitted(checksum::add(pseudo, checksum::sum_chain(&head[start..], payload)), protocol)
    };
    head[start + offset..start + offset + 2].copy_from_slice(&value.to_be_bytes());
    is_offloaded.then_some(PartialChecksum { start: start as u16, offset: offset as u16 })
}

/// How a sum over everything is sent.
pub fn transmitted(sum: u16, protocol: u8) -> u16 {
    match !sum {
        // RFC 768: a sum of zero goes as its other form, as zero says that there is none.
        0 if protocol == protocol::UDP => 0xffff,
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(from: IpAddr, to: IpAddr) -> Path {
        Path { mac: [2, 0, 0, 0, 0, 1], hop: [2, 0, 0, 0, 0, 2], from, to }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (four, six) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]));
        let (head, start) = ip(&path(four, [10, 0, 0, 2].into()), protocol::UDP, 8, 100);
        let packet = Packet::parse_v4(&head).unwrap_or_else(|_| panic!("dropped"));
        assert_eq!(
            (packet.from, packet.protocol, packet.start, packet.len),
            (four, protocol::UDP, start, 108)
        );
        let (head, start) = ip(&path(six, six), protocol::TCP, 20, 7);
        let packet = Packet::parse_v6(&head).unwrap_or_else(|_| panic!("dropped"));
        assert_eq!((packet.to, packet.protocol, packet.start, packet.len), (six, protocol::TCP, start, 27));
        assert_eq!(Ethernet::parse(&head).unwrap().to, [2, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn marks_are_written_and_read_and_nothing_else_changes() {
        let (four, six) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]));
        for address in [four, six] {
            let (head, _) = ip(&path(address, address), protocol::UDP, 0, 100);
            let parse = if address == four { Packet::parse_v4 } else { Packet::parse_v6 };
            let parse = |bytes: &[u8]| parse(bytes).unwrap_or_else(|_| panic!("dropped"));
            assert_eq!(Marks::of(&parse(&head), &head[ETHERNET..]), Marks::USUAL);
            let mut marked = head.to_vec();
            let marks = Marks { hops: 1, class: 0xe7 };
            marks.put(&mut marked);
            let packet = parse(&marked);
            assert_eq!(Marks::of(&packet, &marked[ETHERNET..]), marks);
            assert_eq!(Packet { hops: HOPS, ..packet }, parse(&head));
            Marks::USUAL.put(&mut marked);
            assert_eq!(marked[..], head[..]);
        }
    }

    #[test]
    fn what_is_wrong_with_a_header_is_named() {
        let (head, _) = ip(&path([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), protocol::UDP, 8, 0);
        let dropped = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = head.to_vec();
            change(&mut bytes[ETHERNET..]);
            let mut counters = Counters::default();
            *Packet::parse_v4(&bytes).expect_err("dropped")(&mut counters) += 1;
            counters.iter().find(|(_, count)| *count == 1).unwrap().0
        };
        assert_eq!(dropped(&|ip| ip[0] = 0x55), "dropped_malformed");
        assert_eq!(dropped(&|ip| ip[0] = 0x4f), "dropped_malformed");
        assert_eq!(dropped(&|ip| ip[3] = 19), "dropped_malformed");
        assert_eq!(dropped(&|ip| ip[19] = 99), "dropped_checksum");
        assert_eq!(dropped(&|ip| (ip[6], ip[10]) = (0x20, ip[10] + 0x20)), "dropped_fragment");
    }

    proptest! {
        #[test]
        fn headers_written_by_words_are_those_written_one_by_one(
            (from, to) in (any::<u32>(), any::<u32>()),
            (here, there, len) in (any::<u16>(), any::<u16>(), 0usize..1400),
        ) {
            let (from, to) = (Ipv4Addr::from(from), Ipv4Addr::from(to));
            let ports = Ports { from: here, to: there };
            let path = path(from.into(), to.into());
            let payload = [Slice::new(alloc::rc::Rc::<[u8]>::from(alloc::vec![0; len]))];
            let (long, _) = crate::packet::udp(&path, ports, &payload, true);
            let mut short = [0; PLAIN_UDP4];
            put_plain_udp4(&mut short, (path.mac, path.hop), (from, to), ports, len);
            prop_assert_eq!(&short[..], &long[..]);
        }

        #[test]
        fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Ethernet::parse(&bytes);
            let _ = (Packet::parse_v4(&bytes), Packet::parse_v6(&bytes));
        }
    }
}
