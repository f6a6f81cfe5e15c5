//! What is known of working points before anything is measured, computed once.

use super::parameters::Parameters;
use crate::knobs::WorkingPoints;
use alloc::vec::Vec;

const SQRT_3: f64 = 1.732_050_807_568_877_2;

/// Distances and expected latencies of all points.
#[derive(Clone, Debug)]
pub struct Space {
    pub(super) p: &'static Parameters,
    count: usize,
    added_latency: Vec<f64>,
    likeness: Vec<f64>,
}

impl Space {
    pub(super) fn new(points: &impl WorkingPoints, p: &'static Parameters) -> Self {
        let count = points.count();
        let pairs = (0..count * count).map(|pair| (pair / count, pair % count));
        let added_latency = (0..count).map(|point| points.added_latency(point).get()).collect();
        let likeness = pairs.map(|(a, b)| matern(points.distance(a, b) / p.length)).collect();
        Self { p, count, added_latency, likeness }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// In seconds.
    pub(super) fn added_latency(&self, point: usize) -> f64 {
        self.added_latency[point]
    }

    /// Correlation of two points' deviations from the trend.
    pub(super) fn likeness(&self, a: usize, b: usize) -> f64 {
        self.likeness[a * self.count + b]
    }
}

/// Matern covariance with smoothness 3/2: responses have kinks, where a queue or a ring fills up.
fn matern(distance: f64) -> f64 {
    let scaled = SQRT_3 * distance;
    (1.0 + scaled) * libm::exp(-scaled)
}
