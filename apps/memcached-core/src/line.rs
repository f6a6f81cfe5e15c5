//! A line of a reply, put together before it is sent: one copy costs less than several.

use crate::KEY_MAX;

/// Bytes of whatever is in a line but for its key.
const REST: usize = 70;

/// Room for a key and the numbers of any reply.
pub(crate) const LINE: usize = KEY_MAX + REST;

/// A key as most are, and room for it and the numbers of any reply: less to begin with.
pub(crate) const SHORT_KEY: usize = SHORT_LINE - REST;
pub(crate) const SHORT_LINE: usize = 112;

/// The beginning of a line.
pub(crate) struct Line<const ROOM: usize> {
    bytes: [u8; ROOM],
    len: usize,
}

impl<const ROOM: usize> Line<ROOM> {
    /// Nothing.
    #[inline]
    pub(crate) fn new() -> Self {
        Line { bytes: [0; ROOM], len: 0 }
    }

    /// Adds bytes. All that is ever added has room.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Adds a number behind one character.
    #[inline]
    pub(crate) fn push_number(&mut self, before: u8, number: u64) {
        let digit = |number: u64| b'0' + (number % 10) as u8;
        match number {
            0..=9 => self.push(&[before, digit(number)]),
            10..=99 => self.push(&[before, digit(number / 10), digit(number)]),
            100..=999 => self.push(&[before, digit(number / 100), digit(number / 10), digit(number)]),
            _ => {
                self.push(&[before]);
                self.push(itoa::Buffer::new().format(number).as_bytes());
            }
        }
    }

    /// What was added.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The flags and the length of a value as they stand in the line in front of it, with its end, and how many
/// bytes that is; none if they are larger than most are.
#[inline]
pub(crate) fn flags_and_len(flags: u32, len: usize) -> Option<([u8; 8], usize)> {
    if flags > 9 || len > 999 {
        return None;
    }
    let len = len as u64;
    let digits = 1 + usize::from(len > 9) + usize::from(len > 99);
    // The first character is the lowest byte. Of three digits those in front that say nothing are shifted
    // out.
    let three = 0x30_30_30 | (len / 100) | (len / 10 % 10) << 8 | (len % 10) << 16;
    let end = (0x0a_0d << 24 | three) >> (8 * (3 - digits));
    let start = 0x20_30_20 | u64::from(flags) << 8;
    Some(((end << 24 | start).to_le_bytes(), 5 + digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_are_written_as_long_ones() {
        for (flags, len) in (0..12).flat_map(|flags| (0..1200).map(move |len| (flags, len))) {
            let written = flags_and_len(flags, len);
            assert_eq!(written.is_some(), flags < 10 && len < 1000);
            if let Some((bytes, count)) = written {
                assert_eq!(bytes[..count], *format!(" {flags} {len}\r\n").as_bytes());
            }
        }
    }
}
