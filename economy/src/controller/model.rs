//! The response surface of one load: a Gaussian process over working points.
//!
//! Rasmussen and Williams, *Gaussian Processes for Machine Learning* (2006), chapters 2 and 4. The mean function
//! is physical: a point adds the latency it is expected to add, and throughput falls with latency between not at
//! all (open loop) and in proportion (closed loop, Little's law). The covariance has three terms: an unknown
//! level, an unknown slope along that expected latency, and a Matern-3/2 deviation by distance. All channels
//! share one covariance, so that one factorisation serves all.

use super::points::WorkingPoints;
use super::response::{CHANNELS, Logs, MEAN, THROUGHPUT};
use alloc::vec;
use alloc::vec::Vec;

/// Standard deviation of the Matern term, in logarithms: how far a response strays from its trend.
const AMPLITUDE: f64 = 0.25;
/// Distance over which deviations are alike.
const LENGTH: f64 = 3.0;
const SQRT_3: f64 = 1.732_050_807_568_877_2;
/// Variance of the level in units of the amplitude's square: large, for nothing is known about it.
const LEVEL: f64 = 100.0;
/// Variance of the slope in the same units: half a unit either way is one deviation.
const SLOPE: f64 = 4.0;
/// How much each channel follows expected latency, in logarithms.
const TREND: Logs = [-0.5, 1.0, 1.0, 1.0];
/// Beyond this a point's past counts for no more, so that the model follows a slow drift.
const WEIGHT_MAX: f64 = 60.0;
/// Intervals after which an observation counts 1/e.
const MEMORY: f64 = 4000.0;
/// Deviation of the measured logarithms before any is known, and the least that is believed.
const NOISE: f64 = 0.04;
const NOISE_MIN: f64 = 0.01;

/// What is predicted of a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    /// The likeliest logarithms.
    pub mean: Logs,
    /// Deviation of the true logarithms from these.
    pub deviation: f64,
}

/// What has been learned about one load.
#[derive(Clone, Debug)]
pub(super) struct Model {
    weights: Vec<f64>,
    means: Vec<Logs>,
    /// Mean squares of the error of throughput and mean latency.
    noise: Logs,
    /// Intervals learned.
    pub age: u32,
    fit: Fit,
}

/// The posterior, ready to predict.
#[derive(Clone, Debug, Default)]
struct Fit {
    /// Points observed.
    points: Vec<usize>,
    /// The lower Cholesky factor of their covariance, row by row.
    factor: Vec<f64>,
    /// Covariance solved for each channel's residuals.
    solved: Vec<Logs>,
    /// Expected logarithm of latency of each point.
    expected: Vec<f64>,
    scratch: Vec<f64>,
}

impl Model {
    pub fn new(count: usize) -> Self {
        Self {
            weights: vec![0.0; count],
            means: vec![[0.0; CHANNELS]; count],
            noise: [NOISE * NOISE; CHANNELS],
            age: 0,
            fit: Fit::default(),
        }
    }

    /// How many observations the point has, the old ones counting less.
    pub fn weight(&self, point: usize) -> f64 {
        self.weights[point]
    }

    /// Deviation of a single measurement of the channel.
    pub fn noise(&self, channel: usize) -> f64 {
        libm::sqrt(self.noise[channel]).max(NOISE_MIN)
    }

    /// Adds an observation.
    pub fn learn(&mut self, points: &impl WorkingPoints, point: usize, logs: &Logs) {
        self.age = self.age.saturating_add(1);
        for weight in &mut self.weights {
            *weight *= 1.0 - 1.0 / MEMORY;
        }
        let weight = &mut self.weights[point];
        if *weight >= 1.0 {
            // The error against the mean of w others is larger than the noise by 1 + 1/w.
            let unbiased = *weight / (*weight + 1.0);
            for (noise, (log, mean)) in self.noise.iter_mut().zip(logs.iter().zip(&self.means[point])) {
                let square = (log - mean) * (log - mean) * unbiased;
                *noise += (square.min(9.0 * *noise) - *noise) / 30.0;
            }
        }
        *weight = (*weight + 1.0).min(WEIGHT_MAX);
        let share = 1.0 / *weight;
        for (mean, log) in self.means[point].iter_mut().zip(logs) {
            *mean += (log - *mean) * share;
        }
        self.refit(points);
    }

    /// Least latency that explains the observations, were each point's expected addition exact.
    fn base_latency(&self, points: &impl WorkingPoints) -> f64 {
        let observed = (0..self.weights.len()).filter(|point| self.weights[*point] > 0.0);
        let bases = observed.map(|point| {
            let latency = libm::exp(self.means[point][MEAN]);
            (latency - points.added_latency(point).get()).max(0.3 * latency)
        });
        bases.fold(f64::INFINITY, f64::min)
    }

    fn refit(&mut self, points: &impl WorkingPoints) {
        let base = self.base_latency(points);
        let fit = &mut self.fit;
        let count = self.weights.len();
        fit.expected.clear();
        let expected = |point| libm::log1p(points.added_latency(point).get() / base);
        fit.expected.extend((0..count).map(expected));
        fit.points.clear();
        // What is all but forgotten would only cost time.
        fit.points.extend((0..count).filter(|point| self.weights[*point] > 0.05));
        let relative_noise = self.noise[THROUGHPUT].max(self.noise[MEAN]).max(NOISE_MIN * NOISE_MIN);
        let diagonal = relative_noise / (AMPLITUDE * AMPLITUDE);
        fit.factorise(points, |point| diagonal / self.weights[point]);
        fit.solved.clear();
        let expected = &fit.expected;
        let residual = |point: &usize| {
            let (mean, along) = (&self.means[*point], expected[*point]);
            core::array::from_fn(|channel| mean[channel] - TREND[channel] * along)
        };
        fit.solved.extend(fit.points.iter().map(residual));
        fit.solve();
    }

    /// What the point would do; needs at least one observation of any point.
    pub fn predict(&mut self, points: &impl WorkingPoints, point: usize) -> Prediction {
        let fit = &mut self.fit;
        let mut scratch = core::mem::take(&mut fit.scratch);
        scratch.clear();
        scratch.extend(fit.points.iter().map(|other| fit.covariance(points, point, *other)));
        let along = fit.expected[point];
        let mut mean = TREND.map(|trend| trend * along);
        for (covariance, solved) in scratch.iter().zip(&fit.solved) {
            for (mean, solved) in mean.iter_mut().zip(solved) {
                *mean += covariance * solved;
            }
        }
        fit.forward(&mut scratch);
        let explained: f64 = scratch.iter().map(|value| value * value).sum();
        let variance = (fit.covariance(points, point, point) - explained).max(0.0);
        fit.scratch = scratch;
        Prediction { mean, deviation: AMPLITUDE * libm::sqrt(variance) }
    }
}

impl Fit {
    fn covariance(&self, points: &impl WorkingPoints, a: usize, b: usize) -> f64 {
        let scaled = SQRT_3 * points.distance(a, b) / LENGTH;
        LEVEL + SLOPE * self.expected[a] * self.expected[b] + (1.0 + scaled) * libm::exp(-scaled)
    }

    /// Cholesky decomposition of the covariance of the observed points and their noise.
    fn factorise(&mut self, points: &impl WorkingPoints, noise: impl Fn(usize) -> f64) {
        let count = self.points.len();
        let mut factor = core::mem::take(&mut self.factor);
        factor.clear();
        factor.resize(count * count, 0.0);
        for row in 0..count {
            for column in 0..=row {
                let (a, b) = (self.points[row], self.points[column]);
                let mut value = self.covariance(points, a, b);
                for at in 0..column {
                    value -= factor[row * count + at] * factor[column * count + at];
                }
                factor[row * count + column] = if row == column {
                    // Noise keeps this well above zero; rounding must not make it less.
                    libm::sqrt((value + noise(a)).max(1e-9))
                } else {
                    value / factor[column * count + column]
                };
            }
        }
        self.factor = factor;
    }

    /// Solves L x = b in place.
    fn forward(&self, values: &mut [f64]) {
        let count = values.len();
        for row in 0..count {
            for at in 0..row {
                values[row] -= self.factor[row * count + at] * values[at];
            }
            values[row] /= self.factor[row * count + row];
        }
    }

    /// Solves L L^T x = b for every channel, in place.
    fn solve(&mut self) {
        let count = self.points.len();
        for channel in 0..CHANNELS {
            for row in 0..count {
                for at in 0..row {
                    let known = self.solved[at][channel];
                    self.solved[row][channel] -= self.factor[row * count + at] * known;
                }
                self.solved[row][channel] /= self.factor[row * count + row];
            }
            for row in (0..count).rev() {
                for at in row + 1..count {
                    let known = self.solved[at][channel];
                    self.solved[row][channel] -= self.factor[at * count + row] * known;
                }
                self.solved[row][channel] /= self.factor[row * count + row];
            }
        }
    }
}
