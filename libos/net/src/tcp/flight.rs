//! What is in flight: when each part of it was sent, and what the peer has said of it (RFC 2018, RFC 8985).

use super::runs::{Fate, Run, Runs};
use super::sequence::Seq;
use crate::time::Instant;
use core::time::Duration;

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug, Default)]
pub struct News {
    /// Whether the peer has something that it was not known to have.
    pub is_any: bool,
    /// The youngest transmission that it has now, its end, and whether it was sent more than once.
    pub newest: Option<(Instant, Seq, bool)>,
    /// Whether something arrived, though sent only once, after what was sent behind it.
    pub is_reordered: bool,
}

/// Most runs: a peer that acknowledges in ever smaller pieces gets no more of our memory than this.
const RUNS_MAX: usize = 8192;

/// Runs in order of sequence, from the oldest byte not acknowledged on.
#[derive(Debug, Default)]
pub struct Flight {
    runs: Runs,
    arrived: u32,
    lost: u32,
    /// The end of what has arrived, holes not considered (RACK.fack).
    furthest: Option<Seq>,
}

impl Flight {
    /// Bytes that arrived out of order.
    #[inline]
    pub fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Bytes that have to be sent again.
    #[inline]
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Whether nothing is amiss: all that was sent is on its way, as far as is known.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.arrived == 0 && self.lost == 0
    }

    /// Bytes on their way, of those from `una` on.
    #[inline]
    pub fn flying(&self, una: Seq) -> u32 {
        let all = self.runs.back().map_or(0, |last| last.end.since(una));
        all.saturating_sub(self.arrived + self.lost)
    }

    /// Everything from `from` to `to` is sent now.
    #[inline]
    pub fn sent(&mut self, una: Seq, from: Seq, to: Seq, now: Instant) {
        let end = self.runs.back().map_or(una, |last| last.end);
        if from.before(end) {
            self.sent_again(una, from, to.min(end), now);
        }
        if !end.before(to) {
            return;
        }
        match self.runs.back_mut() {
            Some(last) if last.at == now && last.fate == Fate::Flying && !last.is_again => last.end = to,
            _ => self.runs.push_back(Run { end: to, at: now, fate: Fate::Flying, is_again: false }),
        }
    }

    fn sent_again(&mut self, una: Seq, from: Seq, to: Seq, now: Instant) {
        let (first, after) = self.cut(una, from, to);
        for index in first..after {
            self.set_fate(una, index, Fate::Flying);
            (self.runs[index].at, self.runs[index].is_again) = (now, true);
        }
        self.join(first, after);
    }

    /// Everything before `ack` has arrived.
    #[inline]
    pub fn acknowledged(&mut self, una: Seq, ack: Seq) -> News {
        let mut news = News::default();
        // Nearly always all that was sent at once arrives at once.
        if let Runs::One(run) = self.runs
            && run.end == ack
            && run.fate == Fate::Flying
        {
            self.note(&mut news, run, ack);
            self.runs.clear();
            self.furthest = Some(self.furthest.map_or(ack, |furthest| furthest.max(ack)));
            return news;
        }
        let mut start = una;
        while let Some(run) = self.runs.get(0).copied().filter(|_| start.before(ack)) {
            let end = run.end.min(ack);
            let len = end.since(start);
            match run.fate {
                Fate::Arrived => self.arrived -= len,
                Fate::Flying => self.note(&mut news, run, end),
                Fate::Lost => {
                    self.lost -= len;
                    self.note(&mut news, run, end);
                }
            }
            start = end;
            if end == run.end {
                self.runs.pop_front();
            }
        }
        self.furthest = Some(self.furthest.map_or(ack, |furthest| furthest.max(ack)));
        news
    }

    /// Everything from `from` to `to` has arrived; nonsense says nothing.
    pub fn arrive(&mut self, una: Seq, from: Seq, to: Seq, news: &mut News) {
        let end = self.runs.back().map_or(una, |last| last.end);
        // A range that begins below `una` reports a duplicate (RFC 2883).
        if from.before(una) || !from.before(to) || end.before(to) || self.runs.len() >= RUNS_MAX {
            return;
        }
        let (first, after) = self.cut(una, from, to);
        for index in first..after {
            let run = self.runs[index];
            if run.fate != Fate::Arrived {
                self.note(news, run, run.end);
                self.set_fate(una, index, Fate::Arrived);
            }
        }
        self.furthest = Some(self.furthest.map_or(to, |furthest| furthest.max(to)));
        self.join(first, after);
        // Neighbours that arrived, too.
        let next = first + 1;
        if self.runs.get(next).is_some_and(|run| run.fate == Fate::Arrived) {
            self.join(first, next + 1);
        }
        if first > 0 && self.runs[first - 1].fate == Fate::Arrived {
            self.join(first - 1, first + 1);
        }
    }

    #[inline]
    fn note(&self, news: &mut News, run: Run, end: Seq) {
        news.is_any = true;
        let is_newer = news.newest.is_none_or(|(at, last, _)| (at, 0) < (run.at, end.since(last)));
        if is_newer {
            news.newest = Some((run.at, end, run.is_again));
        }
        news.is_reordered |= !run.is_again && self.furthest.is_some_and(|furthest| end.before(furthest));
    }

    /// Gives up for lost what was sent well before what has arrived: before `newest`, and longer ago than
    /// `patience` (RFC 8985 section 6.2, step 5). Returns when there will be more of it.
    pub fn lose(
        &mut self,
        una: Seq,
        newest: (Instant, Seq),
        patience: Duration,
        now: Instant,
    ) -> Option<Instant> {
        let mut later = None;
        for index in 0..self.runs.len() {
            let run = self.runs[index];
            let is_before = run.at < newest.0 || run.at == newest.0 && run.end.before(newest.1);
            if !is_before && !run.is_again {
                // What was sent once stands in the order of time, and what was sent again was sent later.
                break;
            }
            if !is_before || run.fate != Fate::Flying {
                continue;
            }
            let due = run.at + patience;
            if due <= now {
                self.set_fate(una, index, Fate::Lost);
            } else {
                later = later.max(Some(due));
            }
        }
        later
    }

    /// Gives up for lost the first `len` bytes, if they have not arrived.
    pub fn lose_first(&mut self, una: Seq, len: u32) {
        let end = self.runs.back().map_or(una, |last| last.end);
        let (first, after) = self.cut(una, una, (una + len).min(end));
        for index in first..after {
            if self.runs[index].fate == Fate::Flying {
                self.set_fate(una, index, Fate::Lost);
            }
        }
    }

    /// Gives up for lost all that is not known to have arrived; with `forget`, what is, too, as a peer may
    /// forget it (RFC 2018 section 8).
    pub fn lose_all(&mut self, una: Seq, forget: bool) {
        for index in 0..self.runs.len() {
            if forget || self.runs[index].fate != Fate::Arrived {
                self.set_fate(una, index, Fate::Lost);
            }
        }
    }

    /// Whether something was sent again of which nobody knows whether it arrived.
    pub fn is_again_flying(&self) -> bool {
        self.runs.iter().any(|run| run.is_again && run.fate == Fate::Flying)
    }

    /// What was given up for lost was not: it is on its way.
    pub fn recant(&mut self, una: Seq) {
        for index in 0..self.runs.len() {
            if self.runs[index].fate == Fate::Lost {
                self.set_fate(una, index, Fate::Flying);
            }
        }
    }

    /// The first bytes at or after `from` that have to be sent again.
    pub fn first_lost(&self, una: Seq) -> Option<(Seq, Seq)> {
        if self.lost == 0 {
            return None;
        }
        let index = self.runs.iter().position(|run| run.fate == Fate::Lost)?;
        let after = self.runs.iter().skip(index).take_while(|run| run.fate == Fate::Lost).last()?;
        Some((self.start(una, index), after.end))
    }

    /// The first bytes at or after `from` that have not arrived, up to the next that have.
    pub fn hole(&self, una: Seq, from: Seq) -> Option<(Seq, Seq)> {
        let index = self.runs.partition_point(|run| run.end.at_most(from));
        let mut rest = (index..self.runs.len()).skip_while(|&index| self.runs[index].fate == Fate::Arrived);
        let first = rest.next()?;
        let to = rest.find(|&index| self.runs[index].fate == Fate::Arrived);
        let end = self.runs.back().map_or(una, |last| last.end);
        Some((self.start(una, first).max(from), to.map_or(end, |index| self.start(una, index))))
    }

    fn start(&self, una: Seq, index: usize) -> Seq {
        index.checked_sub(1).map_or(una, |before| self.runs[before].end)
    }

    fn set_fate(&mut self, una: Seq, index: usize, fate: Fate) {
        let len = self.runs[index].end.since(self.start(una, index));
        let count = |flight: &mut Flight, fate, up: bool| {
            let counter = match fate {
                Fate::Flying => return,
                Fate::Arrived => &mut flight.arrived,
                Fate::Lost => &mut flight.lost,
            };
            *counter = if up { *counter + len } else { *counter - len };
        };
        let before = core::mem::replace(&mut self.runs[index].fate, fate);
        count(self, before, false);
        count(self, fate, true);
    }

    /// Cuts runs so that `from` and `to` are ends; the first run between them, and the first behind them.
    fn cut(&mut self, una: Seq, from: Seq, to: Seq) -> (usize, usize) {
        let first = self.cut_at(una, from);
        (first, self.cut_at(una, to))
    }

    fn cut_at(&mut self, una: Seq, at: Seq) -> usize {
        let index = self.runs.partition_point(|run| run.end.at_most(at));
        match self.runs.get(index).copied() {
            Some(run) if self.start(una, index).before(at) => {
                self.runs.insert(index, Run { end: at, ..run });
                index + 1
            }
            _ => index,
        }
    }

    /// Makes one of the runs from `first` to before `after`, which are alike; the youngest counts.
    fn join(&mut self, first: usize, after: usize) {
        if first + 1 >= after {
            return;
        }
        let end = self.runs[after - 1].end;
        let at = (first..after).map(|index| self.runs[index].at).max().expect("there are two");
        self.runs.merge(first..after, Run { end, at, ..self.runs[first] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    #[test]
    fn what_was_sent_well_before_what_arrived_is_lost() {
        let (una, mut flight, mut news) = (Seq(0), Flight::default(), News::default());
        for number in 0..4 {
            flight.sent(una, Seq(number * 10), Seq(number * 10 + 10), at(u64::from(number)));
        }
        flight.arrive(una, Seq(20), Seq(30), &mut news);
        assert_eq!(news.newest, Some((at(2), Seq(30), false)));
        let patience = Duration::from_millis(10);
        assert_eq!(flight.lose(una, (at(2), Seq(30)), patience, at(9)), Some(at(11)));
        assert_eq!((flight.lost(), flight.first_lost(una)), (0, None));
        assert_eq!(flight.lose(una, (at(2), Seq(30)), patience, at(10)), Some(at(11)));
        assert_eq!(flight.first_lost(una), Some((Seq(0), Seq(10))));
        flight.sent(una, Seq(0), Seq(10), at(20));
        assert_eq!(flight.lose(una, (at(2), Seq(30)), patience, at(30)), None, "it was sent after that");
        assert_eq!((flight.lost(), flight.flying(una)), (10, 20));
    }

    #[test]
    fn who_arrives_behind_others_was_overtaken() {
        let (una, mut flight, mut news) = (Seq(0), Flight::default(), News::default());
        flight.sent(una, Seq(0), Seq(30), at(0));
        flight.arrive(una, Seq(20), Seq(30), &mut news);
        assert!(news.is_any && !news.is_reordered);
        assert!(flight.acknowledged(una, Seq(10)).is_reordered);
        flight.sent(Seq(10), Seq(10), Seq(20), at(5));
        let news = flight.acknowledged(Seq(10), Seq(30));
        assert!(news.is_any && !news.is_reordered, "it was sent twice: nobody knows which came");
        assert!(flight.is_plain() && flight.runs.len() == 0);
    }

    #[test]
    fn who_acknowledges_in_small_pieces_gets_no_more_memory() {
        let (una, mut flight) = (Seq(0), Flight::default());
        flight.sent(una, Seq(0), Seq(100_000), at(0));
        for number in 1..40_000 {
            flight.arrive(una, Seq(2 * number), Seq(2 * number + 1), &mut News::default());
        }
        assert!(flight.runs.len() <= RUNS_MAX + 2, "{} runs", flight.runs.len());
    }

    proptest! {
        #[test]
        fn it_is_a_list_of_bytes_with_their_fates(
            start in any::<u32>(),
            steps in proptest::collection::vec((0u8..6, 0usize..120, 1usize..40), 0..60),
        ) {
            let (base, mut una, mut flight) = (Seq(start), 0, Flight::default());
            let seq = |at: usize| base + at as u32;
            // Of each byte that was sent, by its number.
            let mut model: Vec<Fate> = vec![];
            for (now, (kind, from, len)) in steps.into_iter().enumerate() {
                let to = from + len;
                match kind {
                    0 => {
                        flight.sent(seq(una), seq(model.len()), seq(model.len() + len), at(now as u64));
                        model.resize(model.len() + len, Fate::Flying);
                    }
                    1 if una <= from && from < model.len() => {
                        let to = to.min(model.len());
                        flight.sent(seq(una), seq(from), seq(to), at(now as u64));
                        model[from..to].fill(Fate::Flying);
                    }
                    2 => {
                        flight.arrive(seq(una), seq(from), seq(to), &mut News::default());
                        if una <= from && to <= model.len() {
                            model[from..to].fill(Fate::Arrived);
                        }
                    }
                    3 if una < from && from <= model.len() => {
                        flight.acknowledged(seq(una), seq(from));
                        una = from;
                    }
                    4 => {
                        flight.lose_first(seq(una), len as u32);
                        let end = model.len().min(una + len);
                        let first = model[una.min(end)..end].iter_mut();
                        first.filter(|f| **f == Fate::Flying).for_each(|f| *f = Fate::Lost);
                    }
                    5 if from < 10 => {
                        flight.lose_all(seq(una), from < 2);
                        let all = model[una..].iter_mut();
                        all.filter(|f| from < 2 || **f != Fate::Arrived).for_each(|f| *f = Fate::Lost);
                    }
                    _ => {}
                }
                let count = |fate| model[una..].iter().filter(|other| **other == fate).count() as u32;
                prop_assert_eq!(
                    (flight.flying(seq(una)), flight.arrived(), flight.lost()),
                    (count(Fate::Flying), count(Fate::Arrived), count(Fate::Lost))
                );
                let lost = model[una..].iter().position(|f| *f == Fate::Lost).map(|at| seq(una + at));
                prop_assert_eq!(flight.first_lost(seq(una)).map(|(from, _)| from), lost);
                let hole = model[una..].iter().position(|f| *f != Fate::Arrived).map(|at| seq(una + at));
                prop_assert_eq!(flight.hole(seq(una), seq(una)).map(|(from, _)| from), hole);
            }
        }
    }
}
