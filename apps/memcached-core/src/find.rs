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

/// Where a byte is first that is a blank or below it, if it is among the first [`SHORT_MAX`].
#[inline]
pub(crate) fn find_blank(bytes: &[u8]) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(SHORT_MAX)];
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest is marked exactly, whatever stands above it.
        let marks = word.wrapping_sub(ONES * (BLANK + 1)) & !word & (ONES << 7);
        if marks != 0 {
            return Some(8 * index + marks.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| u64::from(*byte) <= BLANK)?;
    Some(8 * words.len() + at)
}

/// A one in each byte of a word, and a blank.
const ONES: u64 = 0x0101_0101_0101_0101;
const BLANK: u64 = 0x20;

/// The lowest byte of the difference that is zero is marked exactly, whatever stands above it.
#[inline]
fn find_in_word(byte: u8, word: [u8; 8]) -> Option<usize> {
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
        fn a_blank_is_the_first_that_is_not_above_one(
            bytes in proptest::collection::vec(prop_oneof![0x1eu8..0x24, any::<u8>(), 0x61u8..0x7a], 0..80),
        ) {
            let expected = bytes.iter().take(SHORT_MAX).position(|byte| *byte <= b' ');
            prop_assert_eq!(find_blank(&bytes), expected);
        }

        #[test]
        fn neighbours_do_not_mislead(bytes in proptest::collection::vec(any::<u8>(), 0..40), byte: u8) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|other| *other == byte));
        }
    }
}
