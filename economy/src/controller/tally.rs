//! What was measured at each point under one load, the old counting less.

use crate::response::{CHANNELS, Logs, MEAN};
use alloc::vec;
use alloc::vec::Vec;

/// Beyond this a point's past counts for no more, so that its mean follows a slow drift.
const WEIGHT_MAX: f64 = 60.0;
/// A point remembered less than this says nothing.
const WEIGHT_MIN: f64 = 0.05;
/// Intervals after which an observation counts 1/e.
const MEMORY: f64 = 4000.0;
/// Deviation of the measured logarithms before any is known, and the least that is believed.
const NOISE: f64 = 0.05;
const NOISE_MIN: f64 = 0.005;
/// Intervals over which noise is averaged, and how many the first guess counts.
const NOISE_MEMORY: f64 = 60.0;
const NOISE_GUESS: f64 = 5.0;
/// The most that errors are believed to persist.
const PERSISTENCE_MAX: f64 = 0.85;
/// How many times its own variance one error may count: a hiccup is no noise.
const NOISE_CLIP: f64 = 9.0;

/// Mean and weight of each point's observations, and the noise common to all.
#[derive(Clone, Debug)]
pub struct Tally {
    weights: Vec<f64>,
    means: Vec<Logs>,
    /// Mean squares of the errors, and how many these are the mean of.
    noise: Logs,
    noise_weight: f64,
    /// Correlation of an error of mean latency with the one before, and the last error over its deviation.
    persistence: f64,
    last_error: f64,
}

impl Tally {
    pub(super) fn new(count: usize) -> Self {
        Self {
            weights: vec![0.0; count],
            means: vec![[0.0; CHANNELS]; count],
            noise: [NOISE * NOISE; CHANNELS],
            noise_weight: NOISE_GUESS,
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

    /// Points of which something is known.
    pub(super) fn known(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.weights.len()).filter(|point| self.weights[*point] > WEIGHT_MIN)
    }

    /// Deviation of a single measurement of the channel.
    pub(super) fn noise(&self, channel: usize) -> f64 {
        libm::sqrt(self.noise[channel]).max(NOISE_MIN)
    }

    /// How many times the variance of a mean is what it were if errors did not persist: for an autoregressive
    /// process of order one, (1 + r) / (1 - r).
    pub(super) fn inflation(&self) -> f64 {
        let correlation = self.persistence.clamp(0.0, PERSISTENCE_MAX);
        (1.0 + correlation) / (1.0 - correlation)
    }

    /// Takes over what another knows of noise: machine and load generator are the same.
    pub(super) fn inherit(&mut self, other: &Self) {
        (self.noise, self.noise_weight) = (other.noise, other.noise_weight);
        self.persistence = other.persistence;
    }

    /// Adds an observation that counts `share` of a whole one.
    pub(super) fn learn(&mut self, point: usize, logs: &Logs, share: f64) {
        for weight in &mut self.weights {
            *weight *= 1.0 - 1.0 / MEMORY;
        }
        self.learn_noise(point, logs);
        let weight = &mut self.weights[point];
        *weight = (*weight + share).min(WEIGHT_MAX);
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
        self.noise_weight = (self.noise_weight + 1.0).min(NOISE_MEMORY);
        let error = (logs[MEAN] - self.means[point][MEAN]) / self.noise(MEAN);
        let error = error.clamp(-3.0, 3.0);
        self.persistence += (error * self.last_error - self.persistence) / NOISE_MEMORY;
        self.last_error = error;
        // The error against the mean of w others is larger than the noise by 1 + 1/w.
        let unbiased = weight / (weight + 1.0);
        for (noise, (log, mean)) in self.noise.iter_mut().zip(logs.iter().zip(&self.means[point])) {
            let square = (log - mean) * (log - mean) * unbiased;
            *noise += (square.min(NOISE_CLIP * *noise) - *noise) / self.noise_weight;
        }
    }
}
