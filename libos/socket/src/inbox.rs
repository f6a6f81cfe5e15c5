//! Received bytes that nobody has read yet.
//!
//! **The rule.** A piece stays in the device's memory if it fills at least half of what it pins; smaller ones
//! are copied together. So a peer that sends crumbs cannot make a socket hold more than twice what it may.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nom_port::buffer::{Buffer, Slice};

#[derive(Debug)]
enum Piece<B> {
    Shared(Slice<B>),
    /// Bytes, and how many of them were read.
    Copied(Vec<u8>, usize),
}

/// Bytes in order.
#[derive(Debug)]
pub(crate) struct Inbox<B> {
    pieces: VecDeque<Piece<B>>,
    len: usize,
}

impl<B: Buffer> Inbox<B> {
    pub fn new() -> Inbox<B> {
        Inbox { pieces: VecDeque::new(), len: 0 }
    }

    /// Bytes held.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn clear(&mut self) {
        *self = Inbox::new();
    }

    /// Puts a piece behind all others.
    pub fn push(&mut self, slice: Slice<B>) {
        self.len += slice.len();
        if slice.len() >= slice.pinned() / 2 {
            return self.pieces.push_back(Piece::Shared(slice));
        }
        match self.pieces.back_mut() {
            Some(Piece::Copied(bytes, _)) => bytes.extend_from_slice(&slice),
            _ => self.pieces.push_back(Piece::Copied(slice.to_vec(), 0)),
        }
    }

    /// Takes the first piece where it lies, or as `place` has put it into memory of the device; `None` if
    /// there is none, or `place` has no memory.
    pub fn take(&mut self, place: impl FnOnce(&[u8]) -> Option<Slice<B>>) -> Option<Slice<B>> {
        let slice = match self.pieces.front()? {
            Piece::Shared(slice) => slice.clone(),
            Piece::Copied(bytes, read) => place(&bytes[*read..])?,
        };
        self.pieces.pop_front();
        self.len -= slice.len();
        Some(slice)
    }

    /// Moves as many bytes as there are, and at most `most`, by `put`, which copies them from where they lie,
    /// piece by piece; says how many.
    pub fn read(&mut self, most: usize, mut put: impl FnMut(&[u8])) -> usize {
        let mut done = 0;
        while done < most
            && let Some(piece) = self.pieces.front_mut()
        {
            let bytes = piece.bytes();
            let count = bytes.len().min(most - done);
            put(&bytes[..count]);
            done += count;
            if count == bytes.len() {
                self.pieces.pop_front();
            } else {
                piece.advance(count);
            }
        }
        self.len -= done;
        done
    }
}

impl<B: Buffer> Piece<B> {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Shared(slice) => slice,
            Piece::Copied(bytes, read) => &bytes[*read..],
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Piece::Shared(slice) => slice.advance(count),
            Piece::Copied(_, read) => *read += count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn crumbs_are_copied_together_and_all_is_read_in_order() {
        let mut inbox = Inbox::<Rc<[u8]>>::new();
        let memory = Slice::new(Rc::from(&b"0123456789"[..]));
        for range in [0..6, 6..7, 7..8, 8..10] {
            inbox.push(memory.part(range));
        }
        assert_eq!((inbox.len(), inbox.pieces.len()), (10, 2), "three crumbs are one piece");
        let mut whole = Vec::new();
        let mut counts = Vec::new();
        while !inbox.is_empty() {
            counts.push(inbox.read(4, |bytes| whole.extend_from_slice(bytes)));
        }
        assert_eq!((&whole[..], &counts[..]), (&b"0123456789"[..], &[4, 4, 2][..]));
        assert_eq!(inbox.read(4, |_| panic!("there is nothing")), 0);
    }

    #[test]
    fn pieces_are_taken_where_they_lie_and_crumbs_from_where_there_is_memory() {
        let mut inbox = Inbox::<Rc<[u8]>>::new();
        let memory = Slice::new(Rc::from(&b"0123456789"[..]));
        for range in [0..6, 6..7, 7..8, 8..10] {
            inbox.push(memory.part(range));
        }
        inbox.read(1, |_| {});
        let first = inbox.take(|_| panic!("it lies in the device's memory")).unwrap();
        assert_eq!((&first[..], Rc::ptr_eq(first.buffer(), memory.buffer())), (&b"12345"[..], true));
        inbox.read(1, |_| {});
        assert!(inbox.take(|_| None).is_none(), "no memory");
        assert_eq!(inbox.len(), 3, "nothing is lost by that");
        let rest = inbox.take(|bytes| Some(Slice::new(Rc::from(bytes)))).unwrap();
        assert_eq!((&rest[..], inbox.len()), (&b"789"[..], 0));
        assert!(inbox.take(|_| panic!("there is nothing")).is_none());
    }
}
