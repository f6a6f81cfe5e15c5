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
