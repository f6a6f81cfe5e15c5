//! Numbers and texts of messages, little-endian.

use crate::message::Kind;
use crate::{Answered, Error};
use alloc::vec::Vec;

/// Bytes in front of each message: its length, its kind and its tag.
pub(crate) const HEAD: usize = 7;

/// A message that is being written.
#[derive(Debug)]
pub struct Writer<'b> {
    bytes: &'b mut Vec<u8>,
}

impl<'b> Writer<'b> {
    /// A request in `bytes`, whatever they were before.
    pub fn request(bytes: &'b mut Vec<u8>, kind: Kind, tag: u16) -> Writer<'b> {
        Writer::message(bytes, kind as u8, tag)
    }

    /// A message of this number, for servers.
    pub fn message(bytes: &'b mut Vec<u8>, number: u8, tag: u16) -> Writer<'b> {
        bytes.clear();
        Writer { bytes }.number(0_u32.to_le_bytes()).number([number]).number(tag.to_le_bytes())
    }

    /// A number, or other bytes of a known length.
    #[must_use]
    pub fn number<const BYTES: usize>(self, bytes: [u8; BYTES]) -> Writer<'b> {
        self.bytes.extend_from_slice(&bytes);
        self
    }

    /// A text with its length, or the beginning of one that is longer than any may be.
    #[must_use]
    pub fn text(self, text: &[u8]) -> Writer<'b> {
        let text = &text[..text.len().min(u16::MAX.into())];
        self.bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        self.raw(text)
    }

    /// Bytes as they are.
    #[must_use]
    pub fn raw(self, bytes: &[u8]) -> Writer<'b> {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Says how long it is, now that that is known.
    pub fn finish(self) {
        let length = (self.bytes.len() as u32).to_le_bytes();
        self.bytes[..4].copy_from_slice(&length);
    }
}

/// A message that is being read: what it is too short for is an error.
#[derive(Clone, Debug)]
pub struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    /// The rest of a message.
    pub fn new(rest: &'b [u8]) -> Reader<'b> {
        Reader { rest }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// [`Error::Broken`] if there are not so many.
    pub fn bytes(&mut self, count: usize) -> Answered<&'b [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Error::Broken)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const BYTES: usize>(&mut self) -> Answered<[u8; BYTES]> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Error::Broken)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// A number of 8 bits.
    ///
    /// # Errors
    /// As [`Reader::bytes`]; so have the others.
    pub fn u8(&mut self) -> Answered<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// A number of 16 bits.
    ///
    /// # Errors
    /// As [`Reader::bytes`].
    pub fn u16(&mut self) -> Answered<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    /// As [`Reader::bytes`].
    pub fn u32(&mut self) -> Answered<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of 64 bits.
    ///
    /// # Errors
    /// As [`Reader::bytes`].
    pub fn u64(&mut self) -> Answered<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A text.
    ///
    /// # Errors
    /// As [`Reader::bytes`].
    pub fn text(&mut self) -> Answered<&'b [u8]> {
        let length = self.u16()?;
        self.bytes(length.into())
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
