//! What was measured at each point under one load, the old counting less.

use super::parameters::Parameters;
use crate::response::{CHANNELS, Logs, MEAN, THROUGHPUT};
use alloc::vec;
use alloc::vec::Vec;

/// Median of the square of a standard normal variable. Noise is what half of all errors are above, however
/// large these are, for an outlier is no noise.
const MEDIAN: f64 = 0.455;
/// The gain that finds a median soonest, of the logarithm of such a square: the inverse of twice the median
/// times the density there (Robbins and Monro, 1951).
const MEDIAN_STEP: f64 = 2.33;
/// No measurement is better, and nothing is divided by zero.
const NOISE_LEAST: f64 = 1e-3;
/// Loads of which one is twice the other, in logarithms, transfer nothing.
const TRANSFER_DISTANCE: f64 = core::f64::consts::LN_2;

/// Mean and weight of each point's observations, and the noise common to all.
#[derive(Clone, Debug)]
pub struct PointEstimates {
    pub(super) p: &'static Parameters,
    weights: Vec<f64>,
    means: Vec<Logs>,
    /// Variance of the means beyond that of their measurement.
    transferred: Vec<f64>,
    /// How far mean latency was from what was predicted when the point was first measured.
    surprises: Vec<f64>,
    /// Observations so far, and how many there were when each point was last observed.
    pub(super) now: u64,
    met: Vec<u64>,
    /// Mean squares of the errors, and how many these are the mean of.
    noise: Logs,
    noise_weight: f64,
    /// Mean square of the errors as they are, outliers included, of throughput or of latency.
    spread: f64,
    /// Correlation of an error of mean latency with the one before, and the last error over its deviation.
    persistence: f64,
    last_error: f64,
}

impl PointEstimates {
    pub(super) fn new(count: usize, p: &'static Parameters) -> Self {
        Self {
            p,
            weights: vec![0.0; count],
            means: vec![[0.0; CHANNELS]; count],
            transferred: vec![0.0; count],
            surprises: vec![0.0; count],
            now: 0,
            met: vec![0; count],
            noise: [p.noise * p.noise; CHANNELS],
            noise_weight: p.guess,
            spread: p.noise * p.noise,
            persistence: 0.0,
            last_error: 0.0,
        }
    }

    /// How many observations the point has, the old ones counting less.
    pub(super) fn weight(&self, point: usize) -> f64 {
        self.weights[point]
    }

    /// Mean of the point's observations.
    pub(super) fn mean(&self, point: usize) -> &Logs {
        &self.means[point]
    }

    /// Variance of the point's mean beyond that of its measurement: it is a transferred prior, or
    /// measured long ago.
    pub(super) fn staleness(&self, point: usize) -> f64 {
        self.transferred[point] + self.drift(point)
    }

    /// Deviation of the point's mean as far as a first measurement that surprised may have been an
    /// outlier. The
    /// mean is believed nevertheless, or what is bad would seem half as bad; but another trial may pay.
    pub(super) fn doubt(&self, point: usize) -> f64 {
        let weight = self.weights[point] + self.p.surface_doubt;
        self.p.doubt * self.surprises[point].abs() / (weight * weight * weight)
    }

    /// Variance that the point's mean has gained since it was measured.
    fn drift(&self, point: usize) -> f64 {
        let step = self.p.drift * self.trial_noise();
        step * step * self.unmet(point) as f64
    }

    /// Says what was predicted of a point that is measured now, if anything was. Of a point that is hardly
    /// known, what it seemed to do is forgotten if it is measured to be faster by more than noise: hiccups
    /// make later, never sooner, so that what was measured before was one.
    pub(super) fn predicted(&mut self, point: usize, predicted: Option<f64>, measured: f64) {
        let least = self.means[point][MEAN] - self.p.outlier * self.trial_noise().max(self.p.noise);
        if self.weights[point] <= 0.0 {
            self.surprises[point] = predicted.map_or(0.0, |predicted| measured - predicted);
        } else if self.weights[point] < self.p.few && measured < least {
            self.weights[point] = 0.0;
        }
    }

    /// Points of which something is known.
    pub(super) fn known(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.weights.len()).filter(|point| self.weights[*point] > 0.0)
    }

    /// Deviation of a single measurement of the channel.
    pub(super) fn noise(&self, channel: usize) -> f64 {
        libm::sqrt(self.noise[channel]).max(NOISE_LEAST)
    }

    /// The greater of those of throughput and mean latency.
    pub(super) fn main_noise(&self) -> f64 {
        self.noise(THROUGHPUT).max(self.noise(MEAN))
    }

    /// Deviation of a single measurement with all its outliers, which a trial may meet: more than
    /// [`Self::main_noise`], which most are within.
    pub(super) fn trial_noise(&self) -> f64 {
        libm::sqrt(self.spread).max(self.main_noise())
    }

    /// Says by how much an interval was off.
    pub(super) fn missed(&mut self, error: &Logs) {
        let most = (2.0 * self.p.outlier) * self.main_noise();
        let error = error[THROUGHPUT].abs().max(error[MEAN].abs()).min(most);
        self.spread += (error * error - self.spread) / self.p.memory;
    }

    /// How many times the variance of a mean is what it were if errors did not persist: for an autoregressive
    /// process of order one, (1 + r) / (1 - r).
    pub(super) fn inflation(&self) -> f64 {
        // It is a mean of so many products, and cannot tell more.
        let correlation = self.persistence.clamp(0.0, 1.0 - self.p.outlier / self.p.memory);
        (1.0 + correlation) / (1.0 - correlation)
    }

    /// Takes over what another knows: of noise all, for machine and load generator are the same; of the
    /// points that they moved as `point` did, which is now at `logs`. The farther the loads are from each
    /// other, in logarithms, the less that is sure; it is soon measured.
    pub(super) fn inherit(&mut self, other: &Self, point: usize, logs: &Logs, distance: f64) {
        (self.noise, self.noise_weight) = (other.noise, other.noise_weight);
        (self.persistence, self.spread) = (other.persistence, other.spread);
        if other.weights[point] <= 0.0 || distance > TRANSFER_DISTANCE {
            return;
        }
        let deviation = self.p.doubt * (self.p.amplitude + distance);
        for known in other.known() {
            let moved =
                |channel: usize| other.means[known][channel] + logs[channel] - other.means[point][channel];
            self.means[known] = core::array::from_fn(moved);
            self.weights[known] = other.weights[known].min(self.p.doubt);
            self.transferred[known] = other.transferred[known] + deviation * deviation;
        }
        self.weights[point] = 0.0;
    }

    /// Observations since the point was last observed.
    pub(super) fn unmet(&self, point: usize) -> u64 {
        self.now - self.met[point]
    }

    /// What was observed at a point counts as little as what is heard of it.
    pub(super) fn forget(&mut self, point: usize) {
        self.weights[point] = self.weights[point].min(self.p.doubt);
    }

    /// Adds an observation that counts `share` of a whole one.
    pub(super) fn learn(&mut self, point: usize, logs: &Logs, share: f64) {
        if core::mem::take(&mut self.transferred[point]) > 0.0 {
            self.weights[point] = 0.0;
        }
        self.learn_noise(point, logs);
        let (noise, drift) = (self.trial_noise(), self.drift(point));
        let variance = noise * noise * self.inflation();
        self.now += 1;
        self.met[point] = self.now;
        let weight = &mut self.weights[point];
        // As a Kalman filter has it: what has drifted meanwhile counts less.
        *weight = (*weight * variance / (variance + *weight * drift) + share).min(self.p.memory);
        let step = share / *weight;
        for (mean, log) in self.means[point].iter_mut().zip(logs) {
            *mean += (log - *mean) * step;
        }
    }

    fn learn_noise(&mut self, point: usize, logs: &Logs) {
        let weight = self.weights[point];
        if weight < 1.0 {
            return;
        }
        self.noise_weight = (self.noise_weight + 1.0).min(self.p.memory);
        let error = (logs[MEAN] - self.means[point][MEAN]) / self.noise(MEAN);
        let error = error.clamp(-3.0, 3.0);
        self.persistence += (error * self.last_error - self.persistence) / self.p.memory;
        self.last_error = error;
        // The error against the mean of w others is larger than the noise by 1 + 1/w.
        let unbiased = weight / (weight + 1.0);
        for (noise, (log, mean)) in self.noise.iter_mut().zip(logs.iter().zip(&self.means[point])) {
            let square = (log - mean) * (log - mean) * unbiased;
            let step = 1.0 + MEDIAN_STEP / self.noise_weight;
            *noise *= if square > MEDIAN * *noise { step } else { 1.0 / step };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What point 0 and point 1 did before a load came under which point 0 does `now`.
    fn heir(now: f64) -> PointEstimates {
        let mut before = PointEstimates::new(3, &Parameters::DEFAULT);
        before.learn(0, &[1.0; CHANNELS], 1.0);
        before.learn(1, &[2.0; CHANNELS], 1.0);
        let mut estimates = PointEstimates::new(3, &Parameters::DEFAULT);
        estimates.inherit(&before, 0, &[now; CHANNELS], now - 1.0);
        estimates.learn(0, &[now; CHANNELS], 1.0);
        estimates
    }

    #[test]
    fn what_slows_all_points_alike_leaves_their_order() {
        let mut estimates = heir(1.3);
        assert!((estimates.mean(1)[MEAN] - 2.3).abs() < 1e-9 && estimates.transferred[1] > 0.0);
        assert_eq!((estimates.transferred[0], estimates.mean(0)[MEAN]), (0.0, 1.3));
        assert_eq!(estimates.known().collect::<Vec<_>>(), [0, 1]);
        estimates.learn(1, &[5.0; CHANNELS], 1.0);
        assert_eq!(
            (estimates.transferred[1], estimates.mean(1)[MEAN]),
            (0.0, 5.0),
            "measuring replaces a transferred prior"
        );
    }

    #[test]
    fn what_was_measured_long_ago_is_less_sure_and_soon_replaced() {
        let mut estimates = PointEstimates::new(2, &Parameters::DEFAULT);
        (0..20).for_each(|_| estimates.learn(0, &[1.0; CHANNELS], 1.0));
        let (fresh, weight) = (estimates.staleness(0), estimates.weight(0));
        (0..1000).for_each(|_| estimates.learn(1, &[1.0; CHANNELS], 1.0));
        assert!(
            fresh < 1e-9 && estimates.staleness(0) > 0.1 * estimates.main_noise() * estimates.main_noise()
        );
        estimates.learn(0, &[2.0; CHANNELS], 1.0);
        assert!(estimates.weight(0) < 0.5 * weight && estimates.staleness(0) < 1e-9);
        assert!(estimates.mean(0)[MEAN] > 1.3, "{}", estimates.mean(0)[MEAN]);
    }

    #[test]
    fn a_first_measurement_that_surprises_is_doubted_until_another_agrees() {
        let mut estimates = PointEstimates::new(1, &Parameters::DEFAULT);
        estimates.predicted(0, Some(0.0), 1.0);
        estimates.learn(0, &[1.0; CHANNELS], 1.0);
        let first = estimates.doubt(0);
        estimates.predicted(0, Some(1.0), 1.0);
        (0..3).for_each(|_| estimates.learn(0, &[1.0; CHANNELS], 1.0));
        assert!(first > 0.2 && estimates.doubt(0) < first / 5.0, "{first} {}", estimates.doubt(0));
    }

    #[test]
    fn a_first_measurement_that_was_a_hiccup_is_forgotten_when_the_point_is_faster() {
        let mut estimates = PointEstimates::new(1, &Parameters::DEFAULT);
        let mut measure = |log: f64| {
            estimates.predicted(0, None, log);
            estimates.learn(0, &[log; CHANNELS], 0.8);
            estimates.mean(0)[MEAN]
        };
        assert_eq!(measure(1.0), 1.0, "it may be so");
        assert_eq!(measure(0.0), 0.0, "and was not");
        assert!((measure(-0.05) + 0.025).abs() < 1e-9, "noise is averaged");
        assert!(measure(1.0) > 0.3, "and slower is believed");
    }

    #[test]
    fn a_trial_may_meet_the_hiccups_that_noise_leaves_out() {
        let mut estimates = PointEstimates::new(1, &Parameters::DEFAULT);
        for interval in 0..300 {
            let outlier = if interval % 8 == 0 { 0.2 } else { 0.0 };
            let log = if interval % 2 == 0 { 0.02 } else { -0.02 } + outlier;
            estimates.learn(0, &[log; CHANNELS], 1.0);
            estimates.missed(&[log; CHANNELS]);
        }
        let (core, whole) = (estimates.main_noise(), estimates.trial_noise());
        assert!(core < 0.07 && (1.1 * core..2.0 * core).contains(&whole), "{core} {whole}");
    }

    #[test]
    fn a_quite_different_load_is_learned_from_nothing() {
        assert_eq!(heir(3.0).known().collect::<Vec<_>>(), [0]);
    }
}
