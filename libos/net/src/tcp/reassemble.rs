//! Segments out of order, kept until the hole before them is filled.

use super::ranges::Ranges;
use super::sequence::Seq;
use crate::buffer::{Buffer, Slice};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Pieces kept for one connection, so that there is an end to the work that one more of them makes.
pub const PIECES_MAX: usize = 16 << 10;

/// What came too early: nearly always nothing, which then takes no memory.
#[derive(Debug)]
pub struct Reassembly<B>(Option<Box<Pieces<B>>>);

impl<B: Buffer> Reassembly<B> {
    /// Nothing kept.
    pub fn new() -> Reassembly<B> {
        Reassembly(None)
    }

    /// Bytes of memory that the pieces keep in use.
    pub fn pinned(&self) -> usize {
        self.0.as_ref().map_or(0, |pieces| pieces.pinned)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether everything from `from` to `to` is kept.
    pub fn has(&self, from: Seq, to: Seq) -> bool {
        let all = self.0.as_ref().map_or(&[][..], |pieces| pieces.ranges.as_slice());
        let index = all.partition_point(|range| range.1.before(to));
        all.get(index).is_some_and(|range| range.0.at_most(from))
    }

    /// Keeps what of `piece` is new; `false` if it was refused for want of room.
    pub fn insert(&mut self, at: Seq, piece: Slice<B>) -> bool {
        piece.is_empty() || self.0.get_or_insert_with(|| Box::new(Pieces::new())).insert(at, piece)
    }

    /// Takes the first piece if it begins at or before `next`, without what stands before it.
    pub fn take(&mut self, next: Seq) -> Option<Slice<B>> {
        let pieces = self.0.as_mut()?;
        let piece = pieces.take(next);
        if pieces.pieces.is_empty() {
            self.0 = None;
        }
        piece
    }

    /// Up to `limit` ranges held, first the one that arrived last.
    pub fn ranges(&self, limit: usize) -> Vec<(Seq, Seq)> {
        self.0.as_ref().map_or_else(Vec::new, |pieces| pieces.ranges(limit))
    }
}

/// Pieces in order of sequence that neither overlap nor begin at or before the next byte expected.
#[derive(Debug)]
struct Pieces<B> {
    pieces: VecDeque<(Seq, Slice<B>)>,
    /// What they make together.
    ranges: Ranges,
    /// Bytes of memory that they keep: each a whole buffer, however small it is.
    pinned: usize,
    /// The range that arrived last: the first block of a selective acknowledgement (RFC 2018 section 4).
    latest: Seq,
}

impl<B: Buffer> Pieces<B> {
    fn new() -> Pieces<B> {
        Pieces { pieces: VecDeque::new(), ranges: Ranges::default(), pinned: 0, latest: Seq(0) }
    }

    fn insert(&mut self, mut at: Seq, mut piece: Slice<B>) -> bool {
        self.latest = at;
        let mut index = self.pieces.partition_point(|(other, _)| other.at_most(at));
        if let Some((other, held)) = index.checked_sub(1).and_then(|previous| self.pieces.get(previous)) {
            let covered = (*other + held.len() as u32).since(at);
            piece.advance(covered as usize);
            at = at + covered;
        }
        while !piece.is_empty() {
            let gap = self.pieces.get(index).map_or(usize::MAX, |(next, _)| next.since(at) as usize);
            if gap > 0 {
                if self.pieces.len() >= PIECES_MAX {
                    return false;
                }
                let part = piece.part(0..gap);
                self.pinned += part.pinned();
                self.ranges.insert(at, at + part.len() as u32);
                self.pieces.insert(index, (at, part));
                index += 1;
            }
            let Some((next, held)) = self.pieces.get(index) else { break };
            let covered = (*next + held.len() as u32).since(at);
            piece.advance(covered as usize);
            at = at + covered;
            index += 1;
        }
        true
    }

    fn take(&mut self, next: Seq) -> Option<Slice<B>> {
        while let Some((at, mut piece)) = self.pieces.pop_front_if(|(at, _)| at.at_most(next)) {
            self.pinned -= piece.pinned();
            self.ranges.forget_before((at + piece.len() as u32).max(next));
            piece.advance(next.since(at) as usize);
            if !piece.is_empty() {
                return Some(piece);
            }
        }
        None
    }

    fn ranges(&self, limit: usize) -> Vec<(Seq, Seq)> {
        let all = self.ranges.as_slice();
        let newest = all.partition_point(|range| range.1.at_most(self.latest));
        let newest = all.get(newest).filter(|range| range.0.at_most(self.latest));
        let others = all.iter().filter(|range| Some(*range) != newest);
        newest.into_iter().chain(others).take(limit).copied().collect()
    }
}

impl<B: Buffer> Default for Reassembly<B> {
    fn default() -> Reassembly<B> {
        Reassembly::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use proptest::prelude::*;

    fn piece(from: u8, to: u8) -> Slice<Rc<[u8]>> {
        Slice::new((from..to).collect::<Vec<_>>().into())
    }

    fn bytes(reassembly: &mut Reassembly<Rc<[u8]>>, mut next: Seq) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(piece) = reassembly.take(next) {
            next = next + piece.len() as u32;
            bytes.extend_from_slice(&piece);
        }
        bytes
    }

    #[test]
    fn ranges_name_the_latest_first() {
        let mut reassembly = Reassembly::new();
        for (from, to) in [(10, 20), (40, 50), (20, 25), (60, 61)] {
            assert!(reassembly.insert(Seq(u32::from(from)), piece(from, to)));
        }
        let ranges = [(60, 61), (10, 25), (40, 50)].map(|(from, to)| (Seq(from), Seq(to)));
        assert_eq!(reassembly.ranges(4), ranges);
        assert_eq!(reassembly.ranges(1), ranges[..1]);
    }

    #[test]
    fn too_many_pieces_are_refused() {
        let mut reassembly = Reassembly::new();
        let kept = (0..20_000).filter(|&n| reassembly.insert(Seq(10 + 2 * n), piece(0, 1))).count();
        assert_eq!((kept, reassembly.pinned()), (PIECES_MAX, PIECES_MAX));
    }

    proptest! {
        #[test]
        fn whatever_the_overlaps_every_byte_comes_once_and_in_order(
            cuts in proptest::collection::vec((0u8..200, 1u8..40), 1..40),
            start in any::<u32>(),
        ) {
            let mut reassembly = Reassembly::new();
            let base = Seq(start);
            for &(from, len) in cuts.iter().chain([&(200, 1)]) {
                prop_assert!(reassembly.insert(base + u32::from(from), piece(from, from + len)));
            }
            let inner = reassembly.0.as_mut().expect("something is kept");
            let apart = inner
                .pieces
                .make_contiguous()
                .windows(2)
                .all(|two| (two[0].0 + two[0].1.len() as u32).at_most(two[1].0));
            let pinned: usize = inner.pieces.iter().map(|(_, piece)| piece.pinned()).sum();
            prop_assert_eq!(inner.pinned, pinned);
            prop_assert!(apart);
            let hole = (0..=255).find(|&byte| {
                !cuts.iter().chain([&(200, 1)]).any(|&(from, len)| (from..from + len).contains(&byte))
            });
            let expected: Vec<u8> = (0..hole.expect("no piece reaches 255")).collect();
            prop_assert_eq!(bytes(&mut reassembly, base), expected);
        }
    }
}
