//! A line of a reply, put together before it is sent: one copy costs less than several.

use crate::KEY_MAX;

/// Room for a key and the numbers of any reply.
const ROOM: usize = KEY_MAX + 70;

/// The beginning of a line.
pub(crate) struct Line {
    bytes: [u8; ROOM],
    len: usize,
}

impl Line {
    /// Nothing.
    #[inline]
    pub(crate) fn new() -> Line {
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
        self.push(&[before]);
        match number {
            0..=9 => self.push(&[b'0' + number as u8]),
            _ => self.push(itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    /// What was added.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
