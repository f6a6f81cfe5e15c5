//! The response surface of one load: a Gaussian process over working points.
//!
//! Rasmussen and Williams, *Gaussian Processes for Machine Learning* (2006), chapters 2 and 4. The mean
//! function is physical: a point adds the latency it is expected to add, and throughput falls with latency
//! between not at all (open loop) and in proportion (closed loop, Little's law). The covariance has three
//! terms: an unknown level, an unknown slope along that expected latency, and a Matern-3/2 deviation by
//! distance. All channels share one covariance, so that one factorisation serves all.

use super::estimate::PointEstimates;
use super::space::Space;
use crate::response::{Logs, MEAN};
use alloc::vec::Vec;

/// How much each channel follows expected latency, in logarithms.
const TREND: Logs = [-0.5, 1.0, 1.0, 1.0, -0.5, -0.5, -0.5];

/// What is predicted of a point.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    /// The likeliest logarithms.
    pub(super) mean: Logs,
    /// Deviation of the true logarithms from these.
    pub(super) deviation: f64,
}

/// The posterior, ready to predict.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseSurface {
    /// Points observed.
    points: Vec<usize>,
    /// The lower Cholesky factor of their covariance, row by row.
    factor: Vec<f64>,
    /// Covariance solved for each channel's residuals.
    solved: Vec<Logs>,
    /// Expected logarithm of latency of each point, over that of the least.
    expected: Vec<f64>,
    /// Predictions made since the last fit.
    predictions: Vec<Option<Prediction>>,
    scratch: Vec<f64>,
}

/// Least latency that explains the observations, were each point's expected addition exact.
fn base_latency(space: &Space, estimates: &PointEstimates) -> f64 {
    let bases = estimates.known().map(|point| {
        let latency = libm::exp(estimates.mean(point)[MEAN]);
        // Their difference where little is added, and never nothing, however wrong the expectation is.
        latency * latency / (latency + space.added_latency(point))
    });
    bases.fold(f64::INFINITY, f64::min)
}

impl ResponseSurface {
    /// Conditions predictions on all that was measured.
    pub fn fit(&mut self, space: &Space, estimates: &PointEstimates) {
        let base = base_latency(space, estimates);
        self.expected.clear();
        self.expected.extend((0..space.count()).map(|point| libm::log1p(space.added_latency(point) / base)));
        self.points.clear();
        self.points.extend(estimates.known());
        let noise = estimates.trial_noise() / space.p.amplitude;
        let inflated = noise * noise * estimates.inflation();
        let stale = |point| estimates.staleness(point) / (space.p.amplitude * space.p.amplitude);
        let doubt = |point| space.p.surface_doubt / libm::pow(estimates.weight(point) + 0.5, 3.0);
        self.factorise(space, |point: usize| {
            inflated / estimates.weight(point) + stale(point) + doubt(point)
        });
        self.solved.clear();
        let expected = &self.expected;
        let residual = |point: &usize| {
            let (mean, along) = (estimates.mean(*point), expected[*point]);
            core::array::from_fn(|channel| mean[channel] - TREND[channel] * along)
        };
        self.solved.extend(self.points.iter().map(residual));
        self.solve();
        self.predictions.clear();
        self.predictions.resize(space.count(), None);
    }

    /// What the point would do, as of the last fit.
    pub fn predict(&mut self, space: &Space, point: usize) -> Prediction {
        if let Some(prediction) = self.predictions[point] {
            return prediction;
        }
        let prediction = self.condition(space, point);
        self.predictions[point] = Some(prediction);
        prediction
    }

    fn condition(&mut self, space: &Space, point: usize) -> Prediction {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend(self.points.iter().map(|other| self.covariance(space, point, *other)));
        let along = self.expected[point];
        let mut mean = TREND.map(|trend| trend * along);
        for (covariance, solved) in scratch.iter().zip(&self.solved) {
            for (mean, solved) in mean.iter_mut().zip(solved) {
                *mean += covariance * solved;
            }
        }
        self.forward(&mut scratch);
        let explained: f64 = scratch.iter().map(|value| value * value).sum();
        let variance = (self.covariance(space, point, point) - explained).max(0.0);
        self.scratch = scratch;
        Prediction { mean, deviation: space.p.amplitude * libm::sqrt(variance) }
    }

    fn covariance(&self, space: &Space, a: usize, b: usize) -> f64 {
        space.p.trend_variance * (1.0 + self.expected[a] * self.expected[b]) + space.likeness(a, b)
    }

    /// Cholesky decomposition of the covariance of the observed points and their noise.
    fn factorise(&mut self, space: &Space, noise: impl Fn(usize) -> f64) {
        let count = self.points.len();
        let mut factor = core::mem::take(&mut self.factor);
        factor.clear();
        factor.resize(count * count, 0.0);
        for row in 0..count {
            for column in 0..=row {
                let (a, b) = (self.points[row], self.points[column]);
                let rows = (&factor[row * count..][..column], &factor[column * count..][..column]);
                let explained: f64 = rows.0.iter().zip(rows.1).map(|(x, y)| x * y).sum();
                let value = self.covariance(space, a, b) - explained;
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
            let factors = &self.factor[row * count..][..=row];
            let known: f64 = factors.iter().zip(&values[..row]).map(|(factor, value)| factor * value).sum();
            values[row] = (values[row] - known) / factors[row];
        }
    }

    /// Solves L L^T x = b for all channels, in place.
    fn solve(&mut self) {
        let count = self.points.len();
        for row in 0..count {
            let (above, below) = self.solved.split_at_mut(row);
            let factors = &self.factor[row * count..][..=row];
            for (factor, other) in factors.iter().zip(above) {
                subtract(&mut below[0], *factor, other);
            }
            below[0] = below[0].map(|value| value / factors[row]);
        }
        for row in (0..count).rev() {
            let (above, below) = self.solved.split_at_mut(row + 1);
            for (at, other) in (row + 1..count).zip(below) {
                subtract(&mut above[row], self.factor[at * count + row], other);
            }
            let diagonal = self.factor[row * count + row];
            above[row] = above[row].map(|value| value / diagonal);
        }
    }
}

fn subtract(from: &mut Logs, factor: f64, other: &Logs) {
    for (value, other) in from.iter_mut().zip(other) {
        *value -= factor * other;
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters::Parameters;
    use super::*;
    use crate::knobs::BatchingDelays;
    use crate::response::CHANNELS;

    fn learned(space: &Space, latency: impl Fn(f64) -> f64, points: &[usize]) -> ResponseSurface {
        let mut estimates = PointEstimates::new(space.count(), space.p);
        for point in points {
            let mut logs = [0.0; CHANNELS];
            logs[MEAN] = libm::log(latency(space.added_latency(*point)));
            (0..8).for_each(|_| estimates.learn(*point, &logs, 1.0));
        }
        let mut surface = ResponseSurface::default();
        surface.fit(space, &estimates);
        surface
    }

    #[test]
    fn one_point_and_physics_foretell_the_others() {
        let space = Space::new(&BatchingDelays::up_to(1000), &Parameters::DEFAULT);
        let mut surface = learned(&space, |added| 1e-4 + added, &[0]);
        let last = space.count() - 1;
        let far = surface.predict(&space, last);
        let truth = libm::log(1e-4 + space.added_latency(last));
        assert!((far.mean[MEAN] - truth).abs() < 0.1, "{far:?} {truth}");
        assert!(far.deviation > 0.3, "but nothing is sure of it");
        assert!(surface.predict(&space, 0).deviation < 0.05, "as of what was measured");
    }

    #[test]
    fn measurements_overrule_physics() {
        let space = Space::new(&BatchingDelays::up_to(1000), &Parameters::DEFAULT);
        let flat = |_| 1e-3;
        let all: Vec<usize> = (0..space.count()).step_by(2).collect();
        let mut surface = learned(&space, flat, &all);
        for point in 0..=all[all.len() - 1] {
            let prediction = surface.predict(&space, point);
            assert!((prediction.mean[MEAN] - libm::log(1e-3)).abs() < 0.03, "{point}: {prediction:?}");
        }
    }
}
