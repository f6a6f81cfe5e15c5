//! Names of packets that are sent in fragments: the identification of RFC 791 and RFC 8200 section 4.5.
//!
//! Nobody who sees some of them is to foretell others', nor count what goes elsewhere (RFC 7739 section 5.3):
//! each peer's begin where a keyed hash says, and are counted together with few others'.

use crate::table::address_hash;
use core::net::IpAddr;

/// Counters. One that all peers shared would tell each of them how much goes to the others.
const COUNTERS: usize = 64;

/// The names that were given.
#[derive(Debug)]
pub(crate) struct Identifications {
    secret: [u64; 2],
    counters: [u16; COUNTERS],
}

impl Identifications {
    /// Names that nobody without `secret` can foretell.
    pub fn new(secret: [u64; 2]) -> Identifications {
        Identifications { secret, counters: [0; COUNTERS] }
    }

    /// A name for the next packet to `to`. It comes again after 65,536 others.
    pub fn next(&mut self, to: IpAddr) -> u32 {
        let hash = address_hash(self.secret, to);
        let counter = &mut self.counters[hash as usize % COUNTERS];
        *counter = counter.wrapping_add(1);
        ((hash >> 32) as u32).wrapping_add(u32::from(*counter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_to_one_peer_differ_and_those_to_others_begin_elsewhere() {
        let peer = |number: u8| IpAddr::from([10, 0, 0, number]);
        let secret = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
        let mut names = Identifications::new(secret);
        // IPv4 has room for the lower half.
        let first: BTreeSet<u16> = (0..=u16::MAX).map(|_| names.next(peer(1)) as u16).collect();
        assert_eq!(first.len(), 1 << 16);
        let begins: BTreeSet<u32> = (2..100).map(|number| names.next(peer(number))).collect();
        assert_eq!(begins.len(), 98);
        let near = begins.iter().zip(begins.iter().skip(1)).filter(|(one, next)| *next - *one < 1 << 12);
        assert!(near.count() < 3);
        let [one, other] =
            [secret, [secret[1], secret[0]]].map(|key| Identifications::new(key).next(peer(2)));
        assert_ne!(one, other);
    }
}
