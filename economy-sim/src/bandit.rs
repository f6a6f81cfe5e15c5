//! The candidate that knows of no neighbours: discounted UCB.
//!
//! Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems" (ALT 2011). It
//! shows what smoothness is worth.

use super::strategy::{Strategy, best};
use nom_economy::controller::Profit;
use nom_economy::response::{BETTER, CHANNELS, Logs, MEAN, Observation, Response};

/// By how much all that was observed counts less after each interval.
const DISCOUNT: f64 = 0.998;
/// Deviation of a measured logarithm before any is known, and over how many intervals it is averaged.
const NOISE: f64 = 0.05;
const NOISE_MEMORY: f64 = 60.0;

/// The strategy.
#[derive(Clone, Debug)]
pub struct Bandit {
    /// Of each point, how many observations its mean is made of, discounted, and the mean.
    arms: Vec<(f64, Logs)>,
    variance: f64,
    point: usize,
}

impl Bandit {
    /// Knows nothing of so many points, and begins at the first.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { arms: vec![(0.0, [0.0; CHANNELS]); count], variance: NOISE * NOISE, point: 0 }
    }

    fn learn(&mut self, logs: &Logs) {
        self.arms.iter_mut().for_each(|(weight, _)| *weight *= DISCOUNT);
        let (weight, mean) = &mut self.arms[self.point];
        let error = logs[MEAN] - mean[MEAN];
        if *weight >= 1.0 {
            self.variance += (error * error - self.variance) / NOISE_MEMORY;
        }
        *weight += 1.0;
        mean.iter_mut().zip(logs).for_each(|(mean, log)| *mean += (log - *mean) / *weight);
    }

    /// Profit, were the point as good as may be.
    fn optimistic(&self, point: usize, total: f64, profit: &Profit) -> f64 {
        let (weight, mean) = &self.arms[point];
        let width = libm::sqrt(self.variance * 2.0 * libm::log(total).max(0.0) / weight);
        let logs = core::array::from_fn(|channel| mean[channel] + BETTER[channel] * width);
        profit(point, &Response::from_logs(&logs)).get()
    }
}

impl Strategy for Bandit {
    fn point(&self) -> usize {
        self.point
    }

    fn observe(&mut self, observation: &Observation, profit: &Profit) -> usize {
        self.learn(&observation.response.logs());
        self.reconsider(profit)
    }

    fn reconsider(&mut self, profit: &Profit) -> usize {
        let untried = self.arms.iter().position(|(weight, _)| *weight < 0.5);
        let total: f64 = self.arms.iter().map(|(weight, _)| weight).sum();
        let values = (0..self.arms.len()).map(|point| self.optimistic(point, total, profit));
        self.point = untried.unwrap_or_else(|| best(values).0);
        self.point
    }
}
