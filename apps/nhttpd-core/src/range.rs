//! The field `Range` (RFC 9110 section 14).

use alloc::vec::Vec;
use core::ops::Range;

/// Most ranges that are answered. More, which no honest client needs, would let a small request ask for a
/// very large reply (RFC 9110 section 17.15), so such a field is ignored.
const RANGES_MAX: usize = 16;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Everything: there is no range, or none that is understood.
    Everything,
    /// These parts, none of them empty.
    Parts(Vec<Range<usize>>),
    /// Only what is not there.
    Nothing,
}

/// Reads the field for a file of `len` bytes.
pub fn parse(field: &[u8], len: usize) -> Wanted {
    let Some(specs) = field.strip_prefix(b"bytes=") else { return Wanted::Everything };
    let mut parts = Vec::new();
    let mut count = 0;
    for spec in specs.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|spec| !spec.is_empty()) {
        count += 1;
        match parse_spec(spec, len) {
            None => return Wanted::Everything,
            Some(part) if part.is_empty() => {}
            Some(part) => parts.push(part),
        }
    }
    match (count, parts.len()) {
        (0, _) => Wanted::Everything,
        (_, 0) => Wanted::Nothing,
        (1..=RANGES_MAX, _) => Wanted::Parts(parts),
        _ => Wanted::Everything,
    }
}

/// One range, empty if it is beyond the end; `None` if it is malformed.
fn parse_spec(spec: &[u8], len: usize) -> Option<Range<usize>> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return Some(len.saturating_sub(position(last)?)..len);
    }
    let first = position(first)?;
    let last = if last.is_empty() { usize::MAX } else { position(last)? };
    if last < first {
        return None;
    }
    Some(first.min(len)..last.saturating_add(1).min(len))
}

/// A position; one that is too large to count is beyond any end.
fn position(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |value: usize, digit: &u8| value.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
    Some(digits.iter().fold(0, digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(field: &str, len: usize) -> Vec<(usize, usize)> {
        match parse(field.as_bytes(), len) {
            Wanted::Parts(parts) => parts.into_iter().map(|part| (part.start, part.end)).collect(),
            other => panic!("{field}: {other:?}"),
        }
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        assert_eq!(parts("bytes=0-0", 10), [(0, 1)]);
        assert_eq!(parts("bytes=2-", 10), [(2, 10)]);
        assert_eq!(parts("bytes=-3", 10), [(7, 10)]);
        assert_eq!(parts("bytes=-30", 10), [(0, 10)]);
        assert_eq!(parts("bytes=5-99999999999999999999999", 10), [(5, 10)]);
        assert_eq!(parts("bytes=0-1, ,8-20,50-60", 10), [(0, 2), (8, 10)]);
    }

    #[test]
    fn ranges_beyond_the_end_cannot_be_satisfied() {
        for field in ["bytes=10-", "bytes=10-20,30-", "bytes=-0"] {
            assert_eq!(parse(field.as_bytes(), 10), Wanted::Nothing, "{field}");
        }
        assert_eq!(parse(b"bytes=0-", 0), Wanted::Nothing);
        assert_eq!(parse(b"bytes=-1", 0), Wanted::Nothing);
    }

    #[test]
    fn what_is_not_understood_is_ignored() {
        let many = format!("bytes={}", "0-1,".repeat(17));
        let fields = [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "lines=0-1",
            "bytes=1-0",
            "bytes=a-b",
            "bytes=-",
            "bytes=1",
            &many,
        ];
        for field in fields {
            assert_eq!(parse(field.as_bytes(), 10), Wanted::Everything, "{field}");
        }
    }
}
