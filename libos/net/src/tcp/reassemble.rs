//! Segments out of order, kept until the hole before them is filled.

use super::sequence::Seq;
use crate::buffer::{Buffer, Slice};
use alloc::vec::Vec;

/// Pieces kept for one connection. Each keeps a whole receive buffer alive, however small it is.
pub const PIECES_MAX: usize = 256;

/// Pieces in order of sequence that neither overlap nor begin at or before the next byte expected.
#[derive(Debug)]
pub struct Reassembly<B> {
    pieces: Vec<(Seq, Slice<B>)>,
    /// The range that arrived last: the first block of a selective acknowledgement (RFC 2018 section 4).
    latest: Seq,
}

impl<B: Buffer> Reassembly<B> {
    /// Nothing kept.
    pub fn new() -> Reassembly<B> {
        Reassembly { pieces: Vec::new(), latest: Seq(0) }
    }

    /// Pieces kept.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Keeps what of `piece` is new; `false` if it was refused for want of room.
    pub fn insert(&mut self, mut at: Seq, mut piece: Slice<B>) -> bool {
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
                self.pieces.insert(index, (at, piece.part(0..gap)));
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

    /// Takes the first piece if it begins at or before `next`, without what stands before it.
    pub fn take(&mut self, next: Seq) -> Option<Slice<B>> {
        while self.pieces.first().is_some_and(|(at, _)| at.at_most(next)) {
            let (at, mut piece) = self.pieces.remove(0);
            piece.advance(next.since(at) as usize);
            if !piece.is_empty() {
                return Some(piece);
            }
        }
        None
    }

    /// Up to `limit` ranges held, first the one that arrived last.
    pub fn ranges(&self, limit: usize) -> Vec<(Seq, Seq)> {
        let mut ranges: Vec<(Seq, Seq)> = Vec::new();
        for (at, piece) in &self.pieces {
            let end = *at + piece.len() as u32;
            match ranges.last_mut() {
                Some((_, last)) if *last == *at => *last = end,
                _ => ranges.push((*at, end)),
            }
        }
        let newest =
            ranges.iter().position(|&(from, to)| from.at_most(self.latest) && self.latest.before(to));
        if let Some(newest) = newest {
            ranges[..=newest].rotate_right(1);
        }
        ranges.truncate(limit);
        ranges
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
        let kept = (0..1000).filter(|&n| reassembly.insert(Seq(10 + 2 * n), piece(0, 1))).count();
        assert_eq!(kept, PIECES_MAX);
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
            let apart = reassembly
                .pieces
                .windows(2)
                .all(|two| (two[0].0 + two[0].1.len() as u32).at_most(two[1].0));
            prop_assert!(apart);
            let hole = (0..=255).find(|&byte| {
                !cuts.iter().chain([&(200, 1)]).any(|&(from, len)| (from..from + len).contains(&byte))
            });
            let expected: Vec<u8> = (0..hole.expect("no piece reaches 255")).collect();
            prop_assert_eq!(bytes(&mut reassembly, base), expected);
        }
    }
}
