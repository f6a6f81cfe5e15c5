//! The Internet checksum (RFC 1071) over bytes that need not lie in one piece.

use crate::buffer::{Buffer, Slice};
use core::net::IpAddr;

/// The one's complement sum of `bytes` as big-endian words, not complemented.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    // The sum does not depend on the byte order in which it is taken (RFC 1071 section 2), so 4 bytes go at a
    // time.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    if !rest.is_empty() {
        let mut last = [0; 4];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        total += u64::from(u32::from_ne_bytes(last));
    }
    u16::from_be(fold(total))
}

/// Whether the checksum in an IPv4 header without options is right.
#[inline]
pub fn is_header_good(header: &[u8; 20]) -> bool {
    let (words, _) = header.as_chunks::<4>();
    let total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    // Carries come back in either half, so that all ones are left if they are what it adds up to, in either
    // byte order. A header is not all zeros.
    let sum = total + (total >> 32);
    let sum = sum as u32;
    let sum = u64::from(sum & 0xffff) + u64::from(sum >> 16);
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// The sum of `head` and then `chain`, as if they were one piece; `head` has an even length.
pub fn sum_chain<B: Buffer>(head: &[u8], chain: &[Slice<B>]) -> u16 {
    let mut is_odd = false;
    chain.iter().fold(sum(head), |total, slice| {
        let part = if is_odd { sum(slice).swap_bytes() } else { sum(slice) };
        is_odd ^= slice.len() % 2 == 1;
        add(total, part)
    })
}

/// The sum of a TCP, UDP or ICMPv6 pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
pub fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> u16 {
    let address = |address| match address {
        IpAddr::V4(address) => fold(address.to_bits().into()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    fold(u64::from(address(from)) + u64::from(address(to)) + u64::from(protocol) + len as u64)
}

/// The one's complement sum of two sums.
pub fn add(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

/// The sum of the words of `sum`, as one word. Each step has the carry of the one before.
#[inline]
pub(crate) fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The sum of the words of `sum`, which is that of 16 words at most, as one word.
#[inline]
pub(crate) fn fold_short(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    proptest! {
        #[test]
        fn pieces_sum_to_what_the_whole_sums_to(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            cuts in proptest::collection::vec(0usize..300, 0..6),
        ) {
            let whole = Slice::new(Rc::<[u8]>::from(bytes.as_slice()));
            let mut cuts: Vec<usize> = cuts.into_iter().chain([0, 300]).collect();
            cuts.sort_unstable();
            let chain: Vec<_> = cuts.windows(2).map(|two| whole.part(two[0]..two[1])).collect();
            prop_assert_eq!(sum_chain(&[1, 2], &chain), add(sum(&[1, 2]), sum(&bytes)));
            let low = |two: &[u8]| two.get(1).map_or(0, |&byte| u64::from(byte));
            let slow = bytes.chunks(2).map(|two| u64::from(two[0]) << 8 | low(two));
            prop_assert_eq!(sum(&bytes), fold(slow.sum()));
        }
    }
}
