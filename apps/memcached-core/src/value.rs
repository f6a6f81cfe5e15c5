//! Values: copied into the heap, kept in the buffers that they were received in, or settled in buffers of
//! their size.
//!
//! **The rule.** Values up to [`COPY_MAX`], which are cheaper to copy than to count and to gather, are copied
//! into the heap, and copied again when they are sent. Longer ones are to be sent without a copy:
//!
//! - One that fits a buffer of at most half of what it pins [settles](is_to_settle) there, by one copy, a
//!   little after it came: so that what it came in goes back to the device at once.
//! - Any other stays in the buffer that it came in if it fills at least half of it, unless buffers are
//!   scarce, and is copied into the heap if not. So is each piece of a value that came in pieces. What is
//!   copied into the heap settles from there if it [fills](fills_a_slot) a buffer.
//!
//! So the store never pins more than twice what it holds, a value that settled pins at most a third more than
//! it holds, and what a core receives into is left to it.

use alloc::vec::Vec;
use core::ops::Range;
use nom_port::buffer::{Buffer, Sink, Slice};

/// Pieces up to this many bytes are copied.
pub const COPY_MAX: usize = 256;

/// What is copied piece by piece is kept in parts of about so much: a long value finds room where little lies
/// in a row, and is not copied again as it grows.
const COPIED_MAX: usize = 16 << 10;

/// Longer values do not settle by themselves: most of what they are lies in buffers that it fills well, and a
/// copy would be a long time for those who wait.
const SETTLING_MAX: usize = 64 << 10;

/// Whether a value of `len` bytes that pins `pinned` is to be copied into a buffer of its size.
pub fn is_to_settle(len: usize, pinned: usize) -> bool {
    fills_a_slot(len) && slot_bytes(len) <= pinned / 2
}

/// Whether a value fills the buffer that it would settle in to three quarters at least: half of all
/// lengths do.
pub fn fills_a_slot(len: usize) -> bool {
    len > COPY_MAX && len <= SETTLING_MAX && len >= slot_bytes(len) / 4 * 3
}

/// Bytes of the buffer in which a value settles: drivers have them in powers of two.
pub fn slot_bytes(len: usize) -> usize {
    len.next_power_of_two()
}

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
    /// To be kept as it lies, or until it settles.
    Share(Slice<B>),
    /// To be kept, piece by piece.
    Parts(Vec<Part<B>>),
    /// There was no memory to put it together.
    Lost,
}

impl<'a, B: Buffer> Incoming<'a, B> {
    /// The part `range` of one received slice, by the rule.
    pub fn of(input: &'a Slice<B>, range: Range<usize>) -> Incoming<'a, B> {
        if is_to_settle(range.len(), input.pinned()) || is_worth_keeping(range.len(), input) {
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

    /// Bytes of memory it takes where it lies, or is to settle; none if it is to be copied into the item.
    pub fn pinned(&self) -> usize {
        match self {
            Incoming::Copy(_) | Incoming::Lost => 0,
            Incoming::Share(slice) if is_to_settle(slice.len(), slice.pinned()) => slot_bytes(slice.len()),
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

/// Puts bytes behind others, if there is memory for them; whether there was.
fn extend(copied: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let has_room = copied.try_reserve(bytes.len()).is_ok();
    if has_room {
        copied.extend_from_slice(bytes);
    }
    has_room
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
        self.share(input.part(range));
    }

    /// Bytes that will not stay where they are.
    pub fn copy(&mut self, bytes: &[u8]) {
        if !self.is_lost && !self.try_copy(bytes) {
            self.lose();
        }
    }

    /// All of a slice, which may have been kept already. It stays where it is if there is no memory for a
    /// copy: once too much is kept so, there is nothing to receive into, and whoever sends waits.
    pub fn share(&mut self, slice: Slice<B>) {
        if !self.is_lost && (is_worth_keeping(slice.len(), &slice) || !self.try_copy(&slice)) {
            self.add(Part::Shared(slice));
        }
    }

    /// Copies bytes behind what was copied last. Returns whether there was memory for them.
    fn try_copy(&mut self, bytes: &[u8]) -> bool {
        if let Some(Part::Copied(copied)) = self.parts.last_mut()
            && copied.len() < COPIED_MAX
        {
            return extend(copied, bytes);
        }
        let mut copied = Vec::new();
        let has_room = extend(&mut copied, bytes);
        if has_room && !bytes.is_empty() {
            self.add(Part::Copied(copied));
        }
        has_room
    }

    /// Bytes of memory that it takes so far.
    pub fn pinned(&self) -> usize {
        let parts: usize = self.parts.iter().map(Part::pinned).sum();
        self.parts.capacity() * size_of::<Part<B>>() + parts
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
        if self.parts.len() > 1 || matches!(self.parts.first(), Some(Part::Shared(_))) {
            return Incoming::Parts(core::mem::take(&mut self.parts));
        }
        match self.parts.first() {
            Some(Part::Copied(bytes)) => Incoming::Copy(bytes),
            _ => Incoming::Copy(&[]),
        }
    }
}

/// Whether that part of a slice is to stay where it is.
pub fn is_worth_keeping<B: Buffer>(len: usize, input: &Slice<B>) -> bool {
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
        assert!(matches!(Incoming::of(&input, 100..1600), Incoming::Share(_)));
        assert!(matches!(Incoming::of(&input, 100..800), Incoming::Copy(_)));
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
        for (len, pinned) in [(1100, Some(2048)), (1024, Some(1024)), (768, Some(1024)), (767, None)] {
            let value = Incoming::of(&input, 0..len);
            let shared = matches!(value, Incoming::Share(_)).then(|| value.pinned());
            assert_eq!(shared, pinned, "{len}");
        }
        let mut gather = Gather::new();
        gather.append(Incoming::of(&input, 0..1000));
        gather.append(Incoming::of(&input, 0..1050));
        assert_eq!(gather.finish().pinned(), 2048 + 1000, "a part of a value does not settle");
    }

    #[test]
    fn a_value_that_settled_pins_at_most_a_third_more() {
        for len in (1..100_000).filter(|len| fills_a_slot(*len)) {
            assert!(len > COPY_MAX && slot_bytes(len) * 3 <= len * 4, "{len}");
        }
        assert!([257, 383, 513, 767, SETTLING_MAX + 1].iter().all(|len| !fills_a_slot(*len)));
        assert!([384, 512, 768, 1024, SETTLING_MAX].iter().all(|len| fills_a_slot(*len)));
        assert!(is_to_settle(1024, 2048) && !is_to_settle(1024, 2047) && !is_to_settle(1025, 2048));
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
