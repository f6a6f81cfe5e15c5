//! Frames that concern every core of a host, whichever of them received it: each has a stack of its own,
//! with its own neighbours and flows, but all have one address.

use crate::frame::{ETHERNET, IPV4, IPV6, protocol};

/// Ethernet types.
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_ARP: [u8; 2] = [0x08, 0x06];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// Whether the frame that begins with `bytes` is an answer to a neighbour's question that any core may have
/// asked, or an error about a flow that any core may have: ARP replies, neighbour advertisements, and
/// ICMP's unreachable and too big (RFC 826, RFC 4861, RFC 792, RFC 4443).
pub fn concerns_all(bytes: &[u8]) -> bool {
    let Some(kind) = bytes.get(ETHERNET - 2..ETHERNET) else { return false };
    let at = |at: usize| bytes.get(ETHERNET + at).copied();
    if kind == TYPE_IPV4 {
        // Nearly all frames end here.
        return at(9) == Some(protocol::ICMP) && at(IPV4) == Some(3);
    }
    if kind == TYPE_IPV6 {
        return at(6) == Some(protocol::ICMPV6) && matches!(at(IPV6), Some(1 | 2 | 136));
    }
    kind == TYPE_ARP && (at(6), at(7)) == (Some(0), Some(2))
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
        assert!(concerns_all(&arp(2)) && !concerns_all(&arp(1)));
        let icmp = |kind| frame(TYPE_IPV4, 40, &[(9, 1), (20, kind)]);
        assert!(concerns_all(&icmp(3)) && !concerns_all(&icmp(8)));
        let icmp6 = |kind| frame(TYPE_IPV6, 60, &[(6, 58), (40, kind)]);
        assert!([1, 2, 136].iter().all(|kind| concerns_all(&icmp6(*kind))));
        assert!(!concerns_all(&icmp6(135)) && !concerns_all(&icmp6(128)));
        assert!(!concerns_all(&frame(TYPE_IPV4, 40, &[(9, 6), (20, 3)])));
        assert!((0..ETHERNET + 8).all(|len| !concerns_all(&arp(2)[..len])), "what is cut off is nobody's");
    }
}
