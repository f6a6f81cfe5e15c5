//! Frames that concern every core of a host, whichever of them received it: each has a stack of its own,
//! with its own neighbours and flows, but all have one address.

use crate::dhcp::CLIENT_PORT;
use crate::frame::{ETHERNET, IPV4, IPV6, protocol};
use crate::multicast::QUERY;
use crate::router::ADVERTISEMENT;

/// Ethernet types.
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_ARP: [u8; 2] = [0x08, 0x06];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// Whether the frame that begins with `bytes` is an answer to a neighbour's question that any core may have
/// asked, or an error about a flow that any core may have: ARP replies, neighbour advertisements, and
/// ICMP's unreachable and too big (RFC 826, RFC 4861, RFC 792, RFC 4443). Or it is for the one that finds out
/// the host's addresses: DHCP, advertisements of routers, questions about groups, and probes for an address
/// and announcements of one, which show that it is in use twice.
pub fn concerns_all(bytes: &[u8]) -> bool {
    let Some(kind) = bytes.get(ETHERNET - 2..ETHERNET) else { return false };
    let at = |at: usize| bytes.get(ETHERNET + at).copied();
    if kind == TYPE_IPV4 {
        // Nearly all frames end here.
        return match at(9) {
            Some(protocol::ICMP) => at(IPV4) == Some(3),
            Some(protocol::UDP) => {
                bytes.get(ETHERNET + 22..ETHERNET + 24) == Some(&CLIENT_PORT.to_be_bytes())
            }
            _ => false,
        };
    }
    if kind == TYPE_IPV6 {
        let is_nobody = || bytes.get(ETHERNET + 8..ETHERNET + 24) == Some(&[0; 16]);
        return match (at(6), at(IPV6)) {
            (Some(protocol::ICMPV6), Some(1 | 2 | ADVERTISEMENT | 136)) => true,
            (Some(protocol::ICMPV6), Some(135)) => is_nobody(),
            // Behind a router's alert.
            (Some(0), _) => at(IPV6 + 8) == Some(QUERY),
            _ => false,
        };
    }
    if kind != TYPE_ARP {
        return false;
    }
    let (from, to) = (bytes.get(ETHERNET + 14..ETHERNET + 18), bytes.get(ETHERNET + 24..ETHERNET + 28));
    match (at(6), at(7)) {
        (Some(0), Some(2)) => true,
        (Some(0), Some(1)) => to.is_some() && (from == to || from == Some(&[0; 4])),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn frame(kind: [u8; 2], len: usize, fields: &[(usize, u8)]) -> Vec<u8> {
        let mut bytes = vec![0; ETHERNET + len];
        bytes[ETHERNET - 2..ETHERNET].copy_from_slice(&kind);
        fields.iter().for_each(|(at, byte)| bytes[ETHERNET + at] = *byte);
        bytes
    }

    #[test]
    fn answers_and_errors_concern_all_and_questions_and_segments_do_not() {
        let arp = |operation| frame(TYPE_ARP, 28, &[(7, operation)]);
        let question = |from, to| frame(TYPE_ARP, 28, &[(7, 1), (17, from), (27, to)]);
        assert!(concerns_all(&arp(2)) && !concerns_all(&question(1, 2)));
        assert!(concerns_all(&question(0, 2)) && concerns_all(&question(1, 1)), "a probe, an announcement");
        let udp = |port| frame(TYPE_IPV4, 40, &[(9, 17), (23, port)]);
        assert!(concerns_all(&udp(68)) && !concerns_all(&udp(67)));
        let icmp = |kind| frame(TYPE_IPV4, 40, &[(9, 1), (20, kind)]);
        assert!(concerns_all(&icmp(3)) && !concerns_all(&icmp(8)));
        let icmp6 = |kind| frame(TYPE_IPV6, 60, &[(6, 58), (40, kind)]);
        assert!([1, 2, 134, 135, 136].iter().all(|kind| concerns_all(&icmp6(*kind))));
        let question = frame(TYPE_IPV6, 60, &[(6, 58), (23, 1), (40, 135)]);
        assert!(!concerns_all(&question) && !concerns_all(&icmp6(128)));
        assert!(concerns_all(&frame(TYPE_IPV6, 60, &[(6, 0), (40, 58), (48, 130)])));
        assert!(!concerns_all(&frame(TYPE_IPV4, 40, &[(9, 6), (20, 3)])));
        assert!((0..ETHERNET + 8).all(|len| !concerns_all(&arp(2)[..len])), "what is cut off is nobody's");
    }
}
