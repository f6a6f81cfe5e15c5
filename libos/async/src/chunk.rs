//! Received bytes, and those that nobody has taken yet.
//!
//! **The rule.** A piece stays in the device's memory if a task waits for it, or if it fills at least half of
//! what it pins; smaller ones are copied together. So a peer that sends crumbs to a task that does not listen
//! cannot make it hold more than twice what the peer may send ahead.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use nom_port::buffer::{Buffer, Sink, Slice};

/// Bytes that came: a piece of the memory that the device filled, or small pieces that were copied together.
pub struct Chunk<B>(Piece<B>);

enum Piece<B> {
    Shared(Slice<B>),
    /// In a box, as few are: a task has several places for a chunk.
    Copied(Box<Crumbs>),
}

/// Small pieces that were copied together.
struct Crumbs {
    bytes: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
}

impl<B: Buffer> Chunk<B> {
    /// As a piece of the device's memory, to be kept; or the bytes, if they were copied.
    ///
    /// # Errors
    /// The bytes.
    pub fn into_slice(self) -> Result<Slice<B>, Vec<u8>> {
        match self.0 {
            Piece::Shared(slice) => Ok(slice),
            Piece::Copied(crumbs) => {
                let Crumbs { mut bytes, taken } = *crumbs;
                bytes.drain(..taken);
                Err(bytes)
            }
        }
    }

    /// Forgets the first `count` bytes, or all if there are fewer.
    pub fn advance(&mut self, count: usize) {
        match &mut self.0 {
            Piece::Shared(slice) => slice.advance(count),
            Piece::Copied(crumbs) => crumbs.taken = (crumbs.taken + count).min(crumbs.bytes.len()),
        }
    }

    /// Sends it, as it lies if it can.
    pub(crate) fn put(self, sink: &mut impl Sink<B>) {
        match self.0 {
            Piece::Shared(slice) => sink.share(slice),
            Piece::Copied(..) => sink.copy(&self),
        }
    }
}

impl<B: Buffer> From<Slice<B>> for Chunk<B> {
    fn from(slice: Slice<B>) -> Chunk<B> {
        Chunk(Piece::Shared(slice))
    }
}

impl<B: Buffer> Deref for Chunk<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Piece::Shared(slice) => slice,
            Piece::Copied(crumbs) => &crumbs.bytes[crumbs.taken..],
        }
    }
}

impl<B: Buffer> fmt::Debug for Chunk<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Chunk({} bytes)", self.len())
    }
}

/// A chunk, with when it arrived.
pub(crate) type Arrived<B> = (u64, Chunk<B>);

/// Chunks that nobody has taken yet.
pub(crate) struct Unread<B> {
    /// The first one, which is most often the only one: then nothing is allocated.
    first: Option<Arrived<B>>,
    /// Those behind it; none without it.
    #[expect(clippy::box_collection, reason = "few connections have any, and there is one in each")]
    chunks: Option<Box<VecDeque<Arrived<B>>>>,
    len: usize,
}

impl<B: Buffer> Unread<B> {
    /// A place for chunks.
    pub fn nothing() -> Box<Unread<B>> {
        Box::new(Unread { first: None, chunks: None, len: 0 })
    }

    /// Bytes held.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Puts a piece behind all others. `is_awaited` says whether somebody is about to take it.
    pub fn push(&mut self, arrived_ns: u64, slice: Slice<B>, is_awaited: Awaited) {
        self.len += slice.len();
        if is_awaited == Awaited::Yes || slice.len() >= slice.pinned() / 2 {
            return self.append(arrived_ns, slice.into());
        }
        let last = self.chunks.as_mut().and_then(|chunks| chunks.back_mut());
        match last.or(self.first.as_mut()) {
            Some((_, Chunk(Piece::Copied(crumbs)))) => crumbs.bytes.extend_from_slice(&slice),
            _ => {
                let crumbs = Crumbs { bytes: slice.to_vec(), taken: 0 };
                self.append(arrived_ns, Chunk(Piece::Copied(Box::new(crumbs))));
            }
        }
    }

    fn append(&mut self, arrived_ns: u64, chunk: Chunk<B>) {
        match self.first {
            None => self.first = Some((arrived_ns, chunk)),
            Some(_) => self.chunks.get_or_insert_default().push_back((arrived_ns, chunk)),
        }
    }

    /// Takes the first chunk, with when it arrived. A queue that is empty has no memory.
    pub fn take(&mut self) -> Option<Arrived<B>> {
        let (arrived_ns, chunk) = self.first.take()?;
        self.len -= chunk.len();
        if let Some(chunks) = &mut self.chunks {
            self.first = chunks.pop_front();
            if chunks.is_empty() {
                self.chunks = None;
            }
        }
        Some((arrived_ns, chunk))
    }

    /// Puts the rest of a chunk back that was just taken.
    pub fn put_back(&mut self, arrived_ns: u64, chunk: Chunk<B>) {
        self.len += chunk.len();
        if let Some(next) = self.first.replace((arrived_ns, chunk)) {
            self.chunks.get_or_insert_default().push_front(next);
        }
    }
}

/// Whether somebody waits for what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn crumbs_that_nobody_waits_for_are_copied_together() {
        let mut unread = Unread::<Rc<[u8]>>::nothing();
        let memory = Slice::new(Rc::from(&b"0123456789"[..]));
        for (at_ns, range) in (1..).zip([0..6, 6..7, 7..8, 8..10]) {
            unread.push(at_ns, memory.part(range), Awaited::No);
        }
        assert_eq!(
            (unread.len(), unread.chunks.as_ref().map_or(0, |chunks| chunks.len())),
            (10, 1),
            "three crumbs are one chunk"
        );
        let (at_ns, mut first) = unread.take().expect("a chunk");
        assert_eq!((at_ns, &first[..], unread.len()), (1, &b"012345"[..], 4));
        first.advance(4);
        unread.put_back(at_ns, first);
        assert_eq!(unread.len(), 6);
        let slice = unread.take().expect("its rest").1.into_slice().expect("it lies in the device's memory");
        assert!(&slice[..] == b"45" && Rc::ptr_eq(slice.buffer(), memory.buffer()));
        let (at_ns, rest) = unread.take().expect("the crumbs");
        assert_eq!((at_ns, rest.into_slice().expect_err("copied")), (2, b"6789".to_vec()));
        assert!(unread.take().is_none() && unread.is_empty());
    }

    #[test]
    fn a_crumb_that_is_awaited_stays_where_it_lies() {
        let mut unread = Unread::<Rc<[u8]>>::nothing();
        let memory = Slice::new(Rc::from(&b"0123456789"[..]));
        unread.push(1, memory.part(3..4), Awaited::Yes);
        let slice = unread.take().expect("a chunk").1.into_slice().expect("it lies in the device's memory");
        assert!(Rc::ptr_eq(slice.buffer(), memory.buffer()));
    }
}
