//! Values: copied, or kept in the buffers that they were received in.
//!
//! **The rule.** A piece of a value stays in its buffer if it is longer than [`COPY_MAX`] and fills at
//! least half of the memory that keeping it pins, unless buffers are scarce; any other piece is copied. So
//! the store never pins more than twice what it holds, leaves the core something to receive into, and a
//! short value, which is cheaper to copy than to count and to gather, is copied both ways.

use alloc::vec::Vec;
use core::ops::Range;
use nom_port::buffer::{Buffer, Sink, Slice};

/// Pieces up to this many bytes are copied.
pub const COPY_MAX: usize = 256;

/// A piece of a value.
#[derive(Debug)]
pub enum Part<B> {
    Copied(Vec<u8>),
    Shared(Slice<B>),
}

/// A value on its way into the store.
#[derive(Debug)]
pub enum Incoming<'a, B> {
    /// To be copied into the item.
    Copy(&'a [u8]),
    /// To be kept as it lies.
    Share(Slice<B>),
    /// To be kept, piece by piece.
    Parts(Vec<Part<B>>),
    /// There was no memory to put it together.
    Lost,
}

impl<'a, B: Buffer> Incoming<'a, B> {
    /// The part `range` of one received slice, by the rule.
    pub fn of(input: &'a Slice<B>, range: Range<usize>) -> Incoming<'a, B> {
        if is_worth_keeping(range.len(), input) {
            Incoming::Share(input.part(range))
        } else {
            Incoming::Copy(&input[range])
        }
    }
}

impl<B: Buffer> Incoming<'_, B> {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        match self {
            Incoming::Copy(bytes) => bytes.len(),
            Incoming::Share(slice) => slice.len(),
            Incoming::Parts(parts) => parts.iter().map(Part::len).sum(),
            Incoming::Lost => 0,
        }
    }

    /// Bytes of memory it takes where it lies; none if it is to be copied into the item.
    pub fn pinned(&self) -> usize {
        match self {
            Incoming::Copy(_) | Incoming::Lost => 0,
            Incoming::Share(slice) => slice.pinned(),
            Incoming::Parts(parts) => parts.iter().map(Part::pinned).sum(),
        }
    }
}

impl<B: Buffer> Part<B> {
    /// The piece.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Part::Copied(bytes) => bytes,
            Part::Shared(slice) => slice,
        }
    }

    /// Bytes of the piece.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Bytes of memory it takes.
    pub fn pinned(&self) -> usize {
        match self {
            Part::Copied(bytes) => bytes.capacity(),
            Part::Shared(slice) => slice.pinned(),
        }
    }

    /// Sends the piece.
    pub fn send(&self, sink: &mut impl Sink<B>) {
        match self {
            Part::Copied(bytes) => sink.copy(bytes),
            Part::Shared(slice) => sink.share(slice.clone()),
        }
    }
}

/// Puts a value together from pieces, by the rule.
#[derive(Debug)]
pub struct Gather<B> {
    parts: Vec<Part<B>>,
    /// Memory was used up underway.
    is_lost: bool,
}

impl<B: Buffer> Gather<B> {
    /// Nothing yet.
    pub fn new() -> Gather<B> {
        Gather { parts: Vec::new(), is_lost: false }
    }

    /// The part `range` of a received slice.
    pub fn push(&mut self, input: &Slice<B>, range: Range<usize>) {
        if is_worth_keeping(range.len(), input) {
            self.share(input.part(range));
        } else {
            self.copy(&input[range]);
        }
    }

    /// Bytes that will not stay where they are.
    pub fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.is_lost {
            return;
        }
        if !matches!(self.parts.last(), Some(Part::Copied(_))) {
            self.add(Part::Copied(Vec::new()));
        }
        if let Some(Part::Copied(copied)) = self.parts.last_mut() {
            match copied.try_reserve(bytes.len()) {
                Ok(()) => copied.extend_from_slice(bytes),
                Err(_) => self.lose(),
            }
        }
    }

    /// A handle on bytes that are kept already.
    pub fn share(&mut self, slice: Slice<B>) {
        if !self.is_lost {
            self.add(Part::Shared(slice));
        }
    }

    fn add(&mut self, part: Part<B>) {
        match self.parts.try_reserve(1) {
            Ok(()) => self.parts.push(part),
            Err(_) => self.lose(),
        }
    }

    /// Forgets what was gathered, and what is yet to come.
    fn lose(&mut self) {
        self.parts = Vec::new();
        self.is_lost = true;
    }

    /// All of another value.
    pub fn append(&mut self, value: Incoming<'_, B>) {
        match value {
            Incoming::Copy(bytes) => self.copy(bytes),
            Incoming::Share(slice) => self.share(slice),
            Incoming::Parts(parts) => parts.into_iter().for_each(|part| match part {
                Part::Copied(bytes) => self.copy(&bytes),
                Part::Shared(slice) => self.share(slice),
            }),
            Incoming::Lost => self.lose(),
        }
    }

    /// The value, borrowed if all of it was copied.
    pub fn finish(&mut self) -> Incoming<'_, B> {
        if self.is_lost {
            return Incoming::Lost;
        }
        if self.parts.iter().any(|part| matches!(part, Part::Shared(_))) {
            return Incoming::Parts(core::mem::take(&mut self.parts));
        }
        match self.parts.first() {
            Some(Part::Copied(bytes)) => Incoming::Copy(bytes),
            _ => Incoming::Copy(&[]),
        }
    }
}

fn is_worth_keeping<B: Buffer>(len: usize, input: &Slice<B>) -> bool {
    len > COPY_MAX && len >= input.pinned() / 2 && !input.is_scarce()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn received(len: usize) -> Slice<Rc<[u8]>> {
        Slice::new(Rc::from(vec![7u8; len]))
    }

    #[test]
    fn a_value_is_kept_only_where_it_fills_its_buffer() {
        let input = received(2048);
        assert!(matches!(Incoming::of(&input, 100..1124), Incoming::Share(_)));
        assert!(matches!(Incoming::of(&input, 100..1123), Incoming::Copy(_)));
        assert!(matches!(Incoming::of(&received(200), 0..200), Incoming::Copy(_)));
    }

    /// A slot of 2 KiB that is not full.
    #[derive(Clone)]
    struct Slot(Rc<[u8]>);

    impl AsRef<[u8]> for Slot {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Buffer for Slot {
        fn pinned(&self) -> usize {
            2048
        }
    }

    #[test]
    fn what_a_buffer_pins_counts_and_not_what_it_shows() {
        let input = Slice::new(Slot(Rc::from(vec![7u8; 1100])));
        assert!(matches!(Incoming::of(&input, 0..1024), Incoming::Share(_)));
        assert!(matches!(Incoming::of(&input, 0..1000), Incoming::Copy(_)));
        assert_eq!(Incoming::of(&input, 0..1024).pinned(), 2048);
    }

    #[test]
    fn pieces_pin_at_most_twice_their_length() {
        let mut gather = Gather::new();
        gather.push(&received(2048), 48..2048);
        for _ in 0..1000 {
            gather.push(&received(2048), 5..6);
        }
        gather.push(&received(2048), 0..1024);
        let value = gather.finish();
        assert_eq!(value.len(), 4024);
        assert!(value.pinned() <= 2 * value.len());
    }
}
