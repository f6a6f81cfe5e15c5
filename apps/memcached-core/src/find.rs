//! The first place of a byte: commands are so short that a library's way to look at much at a time costs more
//! than the look.

use memchr::memchr;

/// From here on the library is faster.
const SHORT_MAX: usize = 64;

/// Where `byte` is in `bytes` first.
#[inline]
pub(crate) fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    if bytes.len() > SHORT_MAX {
        return memchr(byte, bytes);
    }
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        if let Some(at) = find_in_word(byte, *word) {
            return Some(8 * index + at);
        }
    }
    match bytes.last_chunk::<8>() {
        // What of it was looked at does not have the byte.
        Some(word) if !rest.is_empty() => find_in_word(byte, *word).map(|at| bytes.len() - 8 + at),
        Some(_) => None,
        None => rest.iter().position(|other| *other == byte),
    }
}

/// The lowest byte of the difference that is zero is marked exactly, whatever stands above it.
#[inline]
fn find_in_word(byte: u8, word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let difference = u64::from_le_bytes(word) ^ (ONES * u64::from(byte));
    let marks = difference.wrapping_sub(ONES) & !difference & (ONES << 7);
    (marks != 0).then(|| marks.trailing_zeros() as usize / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_first(bytes in proptest::collection::vec(0u8..4, 0..80), byte in 0u8..4) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|other| *other == byte));
        }

        #[test]
        fn neighbours_do_not_mislead(bytes in proptest::collection::vec(any::<u8>(), 0..40), byte: u8) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|other| *other == byte));
        }
    }
}
