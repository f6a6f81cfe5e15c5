//! What slows or quickens all points alike.
//!
//! A host that is busy elsewhere, or a few more clients, change what every point does by about the same
//! factor. What is learned of points is therefore relative to a level that follows from one interval to the
//! next (a local level model: Durbin and Koopman, *Time Series Analysis by State Space Methods*, 2012,
//! chapter 2): a point is compared with those that were set just before and after, so that an outlier says
//! nothing about it. Decisions outlast outliers, and are made for what the level was of late.

use super::parameters::Parameters;
use crate::response::{CHANNELS, JITTER, Logs, MEAN, P99, THROUGHPUT};

/// Logarithms by which responses exceed what was learned: at present, and of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CommonDrift {
    present: Slowness,
    late: Slowness,
    /// How many intervals the level of late is the mean of, and the variance about it.
    weight: f64,
    variance: f64,
}

/// How much less is served, and how much later.
#[derive(Clone, Copy, Debug, Default)]
struct Slowness {
    throughput: f64,
    latency: f64,
}

impl Slowness {
    /// Of each channel. What is late at times makes jitter in one interval and none in the next, which says
    /// nothing of the level.
    fn logs(&self) -> Logs {
        let mut logs = [self.throughput; CHANNELS];
        [MEAN, JITTER, P99].into_iter().for_each(|channel| logs[channel] = self.latency);
        logs
    }
}

impl CommonDrift {
    /// What was measured, relative to the level.
    pub fn relative(&self, logs: &Logs) -> Logs {
        let level = self.present.logs();
        core::array::from_fn(|channel| logs[channel] - level[channel])
    }

    /// Follows the error of a relative prediction, as far as not the prediction is to blame, which has such a
    /// deviation.
    pub fn follow(&mut self, p: &Parameters, error: &Logs, deviation: f64) {
        let gain = p.level_gain * p.level_deviation * p.level_deviation
            / (p.level_deviation * p.level_deviation + deviation * deviation);
        self.present.throughput += gain * error[THROUGHPUT];
        self.present.latency += gain * error[MEAN];
        self.weight = (self.weight + 1.0).clamp(2.0 * p.guess, p.memory);
        let Slowness { throughput, latency } = self.present;
        let change = latency - self.late.latency;
        self.late.latency += change / self.weight;
        self.late.throughput += (throughput - self.late.throughput) / self.weight;
        self.variance += (change * change - self.variance) / self.weight;
    }

    /// Deviation of the level from what it was of late.
    pub fn deviation(&self) -> f64 {
        libm::sqrt(self.variance)
    }

    /// By how much responses of late exceed relative ones.
    pub fn of_late(&self) -> Logs {
        self.late.logs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(throughput: f64, latency: f64) -> Logs {
        let mut error = [0.0; CHANNELS];
        (error[THROUGHPUT], error[MEAN]) = (throughput, latency);
        error
    }

    #[test]
    fn a_hiccup_is_followed_and_forgotten() {
        let mut level = CommonDrift::default();
        let measured = error(-0.5, 0.5);
        for _ in 0..3 {
            let relative = level.relative(&measured);
            level.follow(&Parameters::DEFAULT, &relative, 0.01);
        }
        let relative = level.relative(&measured);
        assert!(relative[MEAN].abs() < 0.01 && relative[THROUGHPUT].abs() < 0.01, "{relative:?}");
        assert_eq!(relative[JITTER], relative[P99], "these follow latency");
        assert!(level.late.latency < 0.2, "decisions are for longer: {level:?}");
        for _ in 0..3 {
            let relative = level.relative(&error(0.0, 0.0));
            level.follow(&Parameters::DEFAULT, &relative, 0.01);
        }
        assert!(level.present.latency.abs() < 0.01);
    }

    #[test]
    fn an_unknown_point_is_to_blame_itself() {
        let mut level = CommonDrift::default();
        level.follow(&Parameters::DEFAULT, &error(-0.5, 0.5), 1.0);
        assert!(level.present.latency < 0.01, "{level:?}");
    }
}
