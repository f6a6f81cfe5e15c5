//! Tells a change of load from noise.
//!
//! Page's cumulative sum ("Continuous inspection schemes", Biometrika 41, 1954) of how much an interval
//! surprises. While it is suspicious, nothing is learned: an outlier passes without a trace, and the first
//! intervals under a new load do not spoil what is known of the old one.

use super::parameters::Parameters;
use crate::response::{Logs, RunningMean};

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
pub(super) struct ChangeDetector {
    sum: f64,
    held: RunningMean,
}

impl ChangeDetector {
    /// Considers an interval that surprised so much; `is_another` says that under a load that was met
    /// before it would not.
    pub fn consider(&mut self, p: &Parameters, surprise: f64, is_another: bool, logs: &Logs) -> Verdict {
        let alarm = 3.0 * p.surprise_max;
        let most = if is_another { alarm + p.allowance } else { p.surprise_max };
        self.sum = (self.sum + surprise.min(most) - p.allowance).max(0.0);
        if self.sum < p.suspicion {
            self.held = RunningMean::default();
            return Verdict::Same;
        }
        if surprise > p.allowance {
            self.held.add(logs, f64::INFINITY);
        }
        if self.sum < alarm {
            return Verdict::Suspicious;
        }
        Verdict::Changed(core::mem::take(self).held.logs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::CHANNELS;

    #[test]
    fn one_outlier_is_no_change_and_leaves_no_trace() {
        let mut watch = ChangeDetector::default();
        assert_eq!(watch.consider(&Parameters::DEFAULT, 1e9, false, &[9.0; CHANNELS]), Verdict::Suspicious);
        let mut verdicts =
            (0..20).map(|_| watch.consider(&Parameters::DEFAULT, 1.0, false, &[0.0; CHANNELS]));
        assert!(verdicts.any(|verdict| verdict == Verdict::Same));
    }

    #[test]
    fn four_great_surprises_are_a_change() {
        let mut watch = ChangeDetector::default();
        for log in [1.0, 2.0, 3.0] {
            assert_eq!(
                watch.consider(&Parameters::DEFAULT, 100.0, false, &[log; CHANNELS]),
                Verdict::Suspicious
            );
        }
        assert_eq!(
            watch.consider(&Parameters::DEFAULT, 100.0, false, &[2.0; CHANNELS]),
            Verdict::Changed([2.0; CHANNELS])
        );
        assert_eq!(
            watch.consider(&Parameters::DEFAULT, 1.0, false, &[2.0; CHANNELS]),
            Verdict::Same,
            "and starts afresh"
        );
    }

    #[test]
    fn small_surprises_add_up_only_if_they_stay() {
        let mut watch = ChangeDetector::default();
        let steady = (0..100)
            .find(|_| watch.consider(&Parameters::DEFAULT, 5.0, false, &[1.0; CHANNELS]) != Verdict::Same);
        assert!(steady.is_some());
        let mut watch = ChangeDetector::default();
        for _ in 0..1000 {
            assert_eq!(watch.consider(&Parameters::DEFAULT, 4.0, false, &[1.0; CHANNELS]), Verdict::Same);
            assert_eq!(watch.consider(&Parameters::DEFAULT, 0.2, false, &[1.0; CHANNELS]), Verdict::Same);
        }
    }
}
