//! What the peer has acknowledged selectively (RFC 2018), and what follows about the rest (RFC 6675).

use super::segment::SackRanges;
use super::sequence::Seq;
use alloc::vec::Vec;

/// Ranges remembered. More holes than this are found by the retransmission timer.
const RANGES_MAX: usize = 64;

/// Ranges in order that neither touch nor overlap.
#[derive(Debug, Default)]
pub struct Scoreboard {
    ranges: Vec<(Seq, Seq)>,
}

impl Scoreboard {
    /// Takes the ranges of one acknowledgement, as far as they lie between `una` and `max`; whether any of it
    /// is news.
    pub fn note(&mut self, ranges: &SackRanges, una: Seq, max: Seq) -> bool {
        let before = self.bytes();
        for &(from, to) in ranges.iter().flatten() {
            // A range that begins below `una` reports a duplicate (RFC 2883), which is no news.
            if una.at_most(from) && from.before(to) && to.at_most(max) {
                self.insert(from, to);
            }
        }
        self.bytes() != before
    }

    fn insert(&mut self, mut from: Seq, mut to: Seq) {
        let first = self.ranges.partition_point(|range| range.1.before(from));
        let after = self.ranges.partition_point(|range| range.0.at_most(to));
        if first == after && self.ranges.len() >= RANGES_MAX {
            return;
        }
        for range in self.ranges.drain(first..after) {
            from = from.min(range.0);
            to = to.max(range.1);
        }
        self.ranges.insert(first, (from, to));
    }

    /// Forgets what stands before `una`.
    pub fn acknowledged(&mut self, una: Seq) {
        self.ranges.retain(|range| una.before(range.1));
    }

    /// Forgets everything: the peer may have, too (RFC 2018 section 8).
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Whether nothing is acknowledged selectively.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes acknowledged selectively.
    pub fn bytes(&self) -> u32 {
        self.ranges.iter().map(|range| range.1.since(range.0)).sum()
    }

    /// Everything unacknowledged before this is lost: more than `limit` bytes after it have arrived (`IsLost`
    /// of RFC 6675 section 4).
    pub fn lost_before(&self, limit: u32) -> Option<Seq> {
        let mut above = 0;
        let found = self.ranges.iter().rev().find(|range| {
            above += range.1.since(range.0);
            above > limit
        });
        found.map(|range| range.0)
    }

    /// The first unacknowledged range at or after `from` and before `end`.
    pub fn hole(&self, from: Seq, end: Seq) -> Option<(Seq, Seq)> {
        let index = self.ranges.partition_point(|range| range.1.at_most(from));
        let mut at = from;
        let mut rest = &self.ranges[index..];
        if let Some((first, after)) = rest.split_first()
            && first.0.at_most(at)
        {
            at = first.1;
            rest = after;
        }
        let to = rest.first().map_or(end, |range| range.0.min(end));
        at.before(to).then_some((at, to))
    }

    /// Unacknowledged bytes between `from` and `end`.
    pub fn missing(&self, mut from: Seq, end: Seq) -> u32 {
        let mut sum = 0;
        while let Some((at, to)) = self.hole(from, end) {
            sum += to.since(at);
            from = to;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn board(ranges: &[(u32, u32)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        for &(from, to) in ranges {
            board.note(&[Some((Seq(from), Seq(to))), None, None], Seq(0), Seq(1000));
        }
        board
    }

    #[test]
    fn holes_lie_between_the_ranges() {
        let board = board(&[(100, 200), (300, 400), (200, 220)]);
        let hole = |from, end| board.hole(Seq(from), Seq(end)).map(|(from, to)| (from.0, to.0));
        assert_eq!(hole(0, 1000), Some((0, 100)));
        assert_eq!(hole(100, 1000), Some((220, 300)));
        assert_eq!(hole(250, 1000), Some((250, 300)));
        assert_eq!(hole(150, 220), None);
        assert_eq!(hole(350, 1000), Some((400, 1000)));
        assert_eq!(board.missing(Seq(0), Seq(400)), 180);
    }

    #[test]
    fn lost_is_what_enough_has_overtaken() {
        let board = board(&[(100, 200), (300, 400), (500, 600)]);
        assert_eq!(board.lost_before(50), Some(Seq(500)));
        assert_eq!(board.lost_before(100), Some(Seq(300)));
        assert_eq!(board.lost_before(300), None);
    }

    #[test]
    fn nonsense_and_old_news_are_no_news() {
        let mut board = board(&[(100, 200)]);
        for (from, to) in [(100, 200), (200, 100), (900, 1001), (5, 5)] {
            assert!(
                !board.note(&[Some((Seq(from), Seq(to))), None, None], Seq(10), Seq(1000)),
                "{from}..{to}"
            );
        }
        assert!(
            !board.note(&[Some((Seq(0), Seq(50))), None, None], Seq(10), Seq(1000)),
            "a duplicate's report"
        );
        board.acknowledged(Seq(200));
        assert!(board.is_empty());
    }

    proptest! {
        #[test]
        fn holes_and_ranges_make_the_whole(cuts in proptest::collection::vec((0u32..500, 1u32..60), 0..30)) {
            let ranges: Vec<_> = cuts.iter().map(|&(from, len)| (from, from + len)).collect();
            let board = board(&ranges);
            let is_covered = |at: &u32| ranges.iter().any(|range| (range.0..range.1).contains(at));
            let covered = (0..1000).filter(is_covered).count();
            prop_assert_eq!(board.bytes() as usize, covered);
            prop_assert_eq!(board.missing(Seq(0), Seq(1000)) as usize, 1000 - covered);
        }
    }
}
