//! Choices that are read from a fuzzer's bytes.

/// The rest of an input. At its end everything is zero.
pub(crate) struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}

/// Pieces of `stream`, of lengths that `cut` chooses: all at once if it is 0.
pub(crate) fn pieces(stream: &[u8], cut: u8) -> impl Iterator<Item = &[u8]> {
    let len = if cut == 0 { stream.len() } else { usize::from(cut) };
    stream.chunks(len.max(1))
}
