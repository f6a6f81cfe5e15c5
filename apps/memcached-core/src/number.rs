//! Decimal numbers as the protocol has them: what C's `strtoull` reads up to the first blank.

/// An unsigned number; `None` for anything else, or if it does not fit.
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let (negative, digits) = split_sign(text);
    let value = magnitude(digits)?;
    (!negative || value == 0).then_some(value)
}

/// A signed number; `None` for anything else, or if it does not fit.
pub fn signed(text: &[u8]) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    let value = i64::try_from(magnitude(digits)?).ok()?;
    Some(if negative { -value } else { value })
}

/// An unsigned number of 32 bits. memcached takes larger ones modulo 2^32; here they are refused, because a
/// client that sends one would not find what it stored.
pub fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned(text).and_then(|value| u32::try_from(value).ok())
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    if text.first().is_some_and(u8::is_ascii_digit) {
        return (false, text);
    }
    match text.trim_ascii_start() {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    }
}

/// Digits of which any number fits.
const SAFE_DIGITS: usize = 19;

fn magnitude(digits: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    let mut count = 0;
    for &byte in &digits[..digits.len().min(SAFE_DIGITS)] {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value * 10 + u64::from(digit);
        count += 1;
    }
    if count == SAFE_DIGITS {
        for byte in digits[count..].iter().take_while(|byte| byte.is_ascii_digit()) {
            value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
            count += 1;
        }
    }
    let ends = digits.get(count).is_none_or(|&byte| is_blank(byte));
    (count > 0 && ends).then_some(value)
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_strtoull_reads_them() {
        let read = |text: &str| unsigned(text.as_bytes());
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        assert_eq!(read("18446744073709551616"), None);
        assert_eq!(read(" +12 rest"), Some(12));
        assert_eq!(read("12x"), None);
        assert_eq!(read(""), None);
        assert_eq!(read("-0"), Some(0));
        assert_eq!(read("-1"), None);
        assert_eq!(read("- 1"), None);
        assert_eq!(signed(b"-5"), Some(-5));
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(unsigned_32(b"4294967296"), None);
    }

    #[test]
    fn blanks_of_any_length_cost_no_stack() {
        let mut text = vec![b' '; 1 << 20];
        text.push(b'7');
        assert_eq!(unsigned(&text), Some(7));
    }
}
