//! Tells a change of load from noise.
//!
//! Page's cumulative sum ("Continuous inspection schemes", Biometrika 41, 1954) of how much an interval
//! surprises. While it is suspicious, nothing is learned: an outlier passes without a trace, and the first
//! intervals under a new load do not spoil what is known of the old one.

use crate::response::{CHANNELS, Logs};

/// The surprise above which the sum grows; under an unchanged load the mean surprise is 1.
const ALLOWANCE: f64 = 3.0;
/// The most that one interval counts, so that a single outlier is no change.
const SURPRISE_MAX: f64 = 15.0;
/// The sum that is suspicious, and the one that is a change: at least four intervals.
const SUSPICION: f64 = 5.0;
const ALARM: f64 = 45.0;

/// What an interval says about the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is the same.
    Same,
    /// It may have changed; another interval at the same point will tell.
    Suspicious,
    /// It has changed; this is the mean of what was measured since.
    Changed(Logs),
}

/// The sum, and what was measured since it became suspicious.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    sum: f64,
    held: u32,
    mean: Logs,
}

impl Watch {
    /// Considers an interval that surprised so much.
    pub fn consider(&mut self, surprise: f64, logs: &Logs) -> Verdict {
        self.sum = (self.sum + surprise.min(SURPRISE_MAX) - ALLOWANCE).max(0.0);
        if self.sum < SUSPICION {
            self.held = 0;
            return Verdict::Same;
        }
        if surprise > ALLOWANCE {
            self.hold(logs);
        }
        if self.sum < ALARM {
            return Verdict::Suspicious;
        }
        let mean = self.mean;
        *self = Self::default();
        Verdict::Changed(mean)
    }

    fn hold(&mut self, logs: &Logs) {
        if self.held == 0 {
            self.mean = [0.0; CHANNELS];
        }
        self.held += 1;
        for (mean, log) in self.mean.iter_mut().zip(logs) {
            *mean += (log - *mean) / f64::from(self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_is_no_change_and_leaves_no_trace() {
        let mut watch = Watch::default();
        assert_eq!(watch.consider(1e9, &[9.0; CHANNELS]), Verdict::Suspicious);
        let mut verdicts = (0..20).map(|_| watch.consider(1.0, &[0.0; CHANNELS]));
        assert!(verdicts.any(|verdict| verdict == Verdict::Same));
    }

    #[test]
    fn four_great_surprises_are_a_change() {
        let mut watch = Watch::default();
        for log in [1.0, 2.0, 3.0] {
            assert_eq!(watch.consider(100.0, &[log; CHANNELS]), Verdict::Suspicious);
        }
        assert_eq!(watch.consider(100.0, &[2.0; CHANNELS]), Verdict::Changed([2.0; CHANNELS]));
        assert_eq!(watch.consider(1.0, &[2.0; CHANNELS]), Verdict::Same, "and starts afresh");
    }

    #[test]
    fn small_surprises_add_up_only_if_they_stay() {
        let mut watch = Watch::default();
        let steady = (0..100).find(|_| watch.consider(5.0, &[1.0; CHANNELS]) != Verdict::Same);
        assert!(steady.is_some());
        let mut watch = Watch::default();
        for _ in 0..1000 {
            assert_eq!(watch.consider(4.0, &[1.0; CHANNELS]), Verdict::Same);
            assert_eq!(watch.consider(0.2, &[1.0; CHANNELS]), Verdict::Same);
        }
    }
}
