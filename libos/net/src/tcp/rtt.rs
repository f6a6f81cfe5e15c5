//! The round-trip time and the retransmission timeout that follows from it (RFC 6298).

use core::num::NonZeroU64;
use core::time::Duration;

/// Before the first sample (RFC 6298 rule 2.1), in nanoseconds like all that follows.
const INITIAL: u64 = 1_000_000_000;
/// The longest timeout, however often it doubles (rule 2.5).
const MAX: u64 = 60_000_000_000;

/// Smoothed round-trip time, its variation, and the backed-off timeout.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    /// Smoothed round-trip time and variation; none before the first sample.
    estimate: Option<(NonZeroU64, u64)>,
    /// No timeout is shorter, in microseconds.
    min_us: u32,
    /// How often the timeout has doubled since a round trip was last measured.
    backoff: u8,
}

impl Rtt {
    /// No sample yet; no timeout will be shorter than `min`.
    pub fn new(min: Duration) -> Rtt {
        Rtt { estimate: None, backoff: 0, min_us: (nanos(min) / 1000) as u32 }
    }

    /// Takes one measurement (rules 2.2 and 2.3), in nanoseconds. It, and nothing else, ends the doubling
    /// (section 5, at the end): what merely arrived may be the answer to the first of several attempts, all
    /// of them too early.
    #[inline]
    pub fn sample_ns(&mut self, rtt: u64) {
        self.backoff = 0;
        let rtt = rtt.min(MAX);
        self.estimate = Some(match self.estimate {
            None => first(rtt),
            Some((smooth, variation)) => {
                let smooth = smooth.get();
                (some((smooth * 7 + rtt) / 8), (variation * 3 + smooth.abs_diff(rtt)) / 4)
            }
        });
    }

    /// The same, as tests say it.
    #[cfg(test)]
    pub fn sample(&mut self, rtt: Duration) {
        self.sample_ns(nanos(rtt));
    }

    /// An earlier connection measured `rtt` (RFC 9040): as good as a first sample.
    pub fn suppose(&mut self, rtt: Duration) {
        self.estimate.get_or_insert(first(nanos(rtt)));
    }

    /// The timeout expired (rule 5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// The smoothed round-trip time in nanoseconds, once there is a sample.
    #[inline]
    pub fn smoothed_ns(&self) -> Option<u64> {
        self.estimate.map(|(smooth, _)| smooth.get())
    }

    /// The smoothed round-trip time and its variation, once there is a sample.
    pub fn estimate(&self) -> Option<(Duration, Duration)> {
        let (smooth, variation) = self.estimate?;
        Some((Duration::from_nanos(smooth.get()), Duration::from_nanos(variation)))
    }

    /// The timeout to wait now. Where round trips hardly vary, the next may yet be longer by what a peer
    /// delays an acknowledgement, however long they are: half of the shortest timeout is left for that
    /// (rule 2.3's G).
    #[inline]
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout_ns())
    }

    /// The same in nanoseconds.
    #[inline]
    pub fn timeout_ns(&self) -> u64 {
        let base = match self.estimate {
            None => INITIAL,
            Some((smooth, variation)) => smooth.get() + (variation * 4).max(self.min() / 2),
        };
        (base.max(self.min()).min(MAX) << self.backoff).min(MAX)
    }

    /// Whether so many nanoseconds may be longer than the timeout: cheaper than to ask how long that is.
    #[inline]
    pub fn may_be_over(&self, nanos: u64) -> bool {
        nanos > self.min()
    }

    #[inline]
    fn min(&self) -> u64 {
        u64::from(self.min_us) * 1000
    }

    /// The smoothed round-trip time, once there is a sample.
    #[inline]
    pub fn smoothed(&self) -> Option<Duration> {
        self.estimate.map(|(smooth, _)| Duration::from_nanos(smooth.get()))
    }
}

/// The estimate after one sample (rule 2.2).
fn first(rtt: u64) -> (NonZeroU64, u64) {
    (some(rtt), rtt / 2)
}

/// No path is so short that it takes no time.
#[inline]
fn some(rtt: u64) -> NonZeroU64 {
    NonZeroU64::new(rtt).unwrap_or(NonZeroU64::MIN)
}

/// No round trip or timeout is longer than [`MAX`], so that no sum overflows.
#[inline]
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(MAX).min(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_samples_follow_the_rules() {
        let mut rtt = Rtt::new(MS);
        assert_eq!(rtt.timeout(), MS * 1000);
        rtt.sample(MS * 100);
        assert_eq!(rtt.timeout(), MS * 300, "R + 4 * R/2");
        rtt.sample(MS * 100);
        assert_eq!(rtt.timeout(), MS * 250, "the variation shrinks by a quarter");
        assert_eq!(rtt.smoothed(), Some(MS * 100));
    }

    #[test]
    fn a_long_path_that_does_not_vary_leaves_time_for_a_delayed_acknowledgement() {
        let mut rtt = Rtt::new(MS * 200);
        (0..100).for_each(|_| rtt.sample(MS * 200));
        assert_eq!(rtt.timeout(), MS * 300);
    }

    #[test]
    fn every_expiry_doubles_up_to_a_minute() {
        let mut rtt = Rtt::new(MS * 200);
        rtt.sample(MS);
        assert_eq!(rtt.timeout(), MS * 200, "the minimum holds");
        rtt.back_off();
        assert_eq!(rtt.timeout(), MS * 400);
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), MS * 60_000);
        rtt.sample(MS);
        assert_eq!(rtt.timeout(), MS * 200, "a measurement ends it");
    }
}
