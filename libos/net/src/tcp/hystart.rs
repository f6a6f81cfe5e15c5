//! The end of slow start before it loses anything (HyStart++, RFC 9406): when round trips become longer, a
//! queue grows somewhere, and the window goes on more slowly until it is sure.

use super::congestion::Heard;
use super::sequence::Seq;
use core::num::NonZeroU32;

/// Bounds of what counts as longer, in microseconds, and the part of a round trip that does between them
/// (section 4.3, like all that follows).
const THRESHOLD_US: (u32, u32) = (4_000, 16_000);
const THRESHOLD_PART: u32 = 8;
/// Samples without which a round says nothing.
const SAMPLES: u8 = 8;
/// How much slower the window grows in doubt, and for how many rounds.
const SLOWER: u32 = 4;
const ROUNDS: u8 = 5;

/// What a sender in its first slow start knows of the path.
#[derive(Clone, Copy, Debug, Default)]
pub struct HyStart {
    /// The round is over when this is acknowledged.
    end: Seq,
    /// Shortest round trips of the last round and of this one, in microseconds; 0 if there is none.
    last_us: u32,
    now_us: u32,
    samples: u8,
    /// The round trip that raised doubt, if any did, in microseconds, and the rounds since.
    doubt: Option<NonZeroU32>,
    rounds: u8,
}

impl HyStart {
    /// By how much the window grows.
    pub fn growth(&mut self, heard: &Heard) -> u32 {
        if self.end.at_most(heard.ack) {
            self.end = heard.max;
            (self.last_us, self.now_us, self.samples) = (self.now_us, 0, 0);
            self.rounds += u8::from(self.doubt.is_some());
        }
        let rtt_us = u32::try_from(heard.rtt.as_micros()).unwrap_or(u32::MAX).max(1);
        self.now_us = if self.now_us == 0 { rtt_us } else { self.now_us.min(rtt_us) };
        self.samples = self.samples.saturating_add(1);
        if self.samples >= SAMPLES {
            self.judge();
        }
        if self.doubt.is_some() { heard.count / SLOWER } else { heard.count }
    }

    fn judge(&mut self) {
        match self.doubt {
            None if self.last_us > 0 => {
                let longer = (self.last_us / THRESHOLD_PART).clamp(THRESHOLD_US.0, THRESHOLD_US.1);
                if self.now_us >= self.last_us.saturating_add(longer) {
                    (self.doubt, self.rounds) = (NonZeroU32::new(self.now_us), 0);
                }
            }
            // It was something else.
            Some(baseline) if self.now_us < baseline.get() => self.doubt = None,
            _ => {}
        }
    }

    /// Whether slow start is over.
    pub fn is_over(&self) -> bool {
        self.doubt.is_some() && self.rounds >= ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    /// The growth by ten segments in each of the rounds whose round trips are these milliseconds.
    fn rounds(hystart: &mut HyStart, rtts: &[u64]) -> Vec<u32> {
        let start = hystart.end.0;
        let round = |(number, &rtt): (u32, &u64)| {
            let (ack, max) = (Seq(start + number), Seq(start + number + 1));
            let heard =
                Heard { count: 1000, ack, max, smoothed: Duration::ZERO, rtt: Duration::from_millis(rtt) };
            (0..10).map(|_| hystart.growth(&heard)).sum()
        };
        (0..).zip(rtts).map(round).collect()
    }

    #[test]
    fn a_queue_that_grows_ends_slow_start_slowly() {
        let mut hystart = HyStart::default();
        assert_eq!(rounds(&mut hystart, &[40, 41, 44]), [10_000; 3], "5 ms are not yet longer");
        // The last three of the round's acknowledgements are in doubt.
        assert_eq!(rounds(&mut hystart, &[50]), [7 * 1000 + 3 * 250]);
        assert_eq!(rounds(&mut hystart, &[52, 54, 56, 58]), [2500; 4]);
        assert!(!hystart.is_over());
        rounds(&mut hystart, &[60]);
        assert!(hystart.is_over());
    }

    #[test]
    fn a_doubt_that_was_wrong_is_forgotten() {
        let mut hystart = HyStart::default();
        rounds(&mut hystart, &[40, 40, 60, 40]);
        assert_eq!(rounds(&mut hystart, &[40, 40]), [10_000; 2]);
        assert!(!hystart.is_over());
    }

    #[test]
    fn short_round_trips_may_differ_by_4_ms() {
        let mut hystart = HyStart::default();
        assert_eq!(rounds(&mut hystart, &[1, 2, 3, 4]), [10_000; 4]);
        assert_eq!(rounds(&mut hystart, &[9]), [7 * 1000 + 3 * 250]);
    }
}
