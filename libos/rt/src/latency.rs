//! What users feel: latency, jitter and throughput, from one record, readable while it is being written.
//!
//! A [`Recorder`] belongs to one core. Who wants to read hands it an event that takes the window; windows of
//! several cores are merged. So recording needs neither lock nor atomic.

use crate::histogram::Histogram;
use core::mem;

const NANOSECONDS_PER_SECOND: f64 = 1e9;

/// Records the latency of each answer of one core.
#[derive(Debug)]
pub struct Recorder {
    from_ns: u64,
    histogram: Histogram,
}

impl Recorder {
    /// A recorder whose first window begins at `now_ns`.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self { from_ns: now_ns, histogram: Histogram::new() }
    }

    /// Counts one answer that took `latency_ns`.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.histogram.record(latency_ns);
    }

    /// Counts `count` answers that took as long.
    #[inline]
    pub fn record_many(&mut self, latency_ns: u64, count: u64) {
        self.histogram.record_many(latency_ns, count);
    }

    /// What was recorded since the last call; the next window begins now. No answer is in two windows or in
    /// none.
    pub fn window(&mut self, now_ns: u64) -> Recording {
        let mut window = Recording { from_ns: now_ns, to_ns: now_ns, histogram: Histogram::new() };
        self.window_into(now_ns, &mut window);
        window
    }

    /// The same in place of `window`, whose memory serves the next one: nothing is allocated.
    pub fn window_into(&mut self, now_ns: u64, window: &mut Recording) {
        window.from_ns = mem::replace(&mut self.from_ns, now_ns);
        window.to_ns = now_ns;
        window.histogram.clear();
        mem::swap(&mut window.histogram, &mut self.histogram);
    }

    /// What was recorded since the last window.
    #[must_use]
    pub fn histogram(&self) -> &Histogram {
        &self.histogram
    }
}

/// The answers of a stretch of time.
#[derive(Clone, Debug)]
pub struct Recording {
    /// When it began.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Latencies in nanoseconds.
    pub histogram: Histogram,
}

impl Recording {
    /// Answers per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        let seconds = self.to_ns.saturating_sub(self.from_ns) as f64 / NANOSECONDS_PER_SECOND;
        if seconds > 0.0 { self.histogram.count() as f64 / seconds } else { 0.0 }
    }

    /// Mean latency in nanoseconds; nothing if there was no answer.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        self.histogram.mean()
    }

    /// Jitter, the standard deviation of latency (nom, section 4), in nanoseconds; nothing if there was no
    /// answer.
    #[must_use]
    pub fn jitter_ns(&self) -> Option<f64> {
        self.histogram.standard_deviation()
    }

    /// Adds a window of another core, or the next one of the same: it spans both.
    pub fn merge(&mut self, other: &Self) {
        self.from_ns = self.from_ns.min(other.from_ns);
        self.to_ns = self.to_ns.max(other.to_ns);
        self.histogram.merge(&other.histogram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_is_in_one_window() {
        let mut recorder = Recorder::new(1_000_000_000);
        [100, 300].into_iter().for_each(|latency| recorder.record(latency));
        let mut first = recorder.window(1_500_000_000);
        assert_eq!((first.throughput(), first.mean_ns(), first.jitter_ns()), (4.0, Some(200.0), Some(100.0)));
        recorder.record(500);
        let second = recorder.window(2_000_000_000);
        assert_eq!((second.from_ns, second.throughput()), (first.to_ns, 2.0));
        first.merge(&second);
        assert_eq!((first.throughput(), first.mean_ns()), (3.0, Some(300.0)));
    }

    #[test]
    fn a_window_in_place_of_another_keeps_nothing_of_it() {
        let mut recorder = Recorder::new(0);
        recorder.record(100);
        let mut window = recorder.window(10);
        recorder.record(300);
        recorder.window_into(20, &mut window);
        assert_eq!((window.from_ns, window.to_ns, window.mean_ns()), (10, 20, Some(300.0)));
        assert_eq!(recorder.histogram().count(), 0);
    }

    #[test]
    fn a_window_of_no_time_has_no_throughput() {
        let window = Recorder::new(7).window(7);
        assert_eq!((window.throughput(), window.mean_ns(), window.jitter_ns()), (0.0, None, None));
    }
}
