//! What chooses working points.

use nom_economy::controller::{Controller, Profit};
use nom_economy::response::Observation;

/// Which of the points, given in order with what they are worth, is worth most, and how much: the first of
/// those that are.
pub(crate) fn best(worth: impl IntoIterator<Item = f64>) -> (usize, f64) {
    let ordered = worth.into_iter().enumerate();
    ordered.fold((0, f64::NEG_INFINITY), |best, other| if other.1 > best.1 { other } else { best })
}

/// A way to choose the working point.
pub trait Strategy {
    /// The working point that should be set.
    fn point(&self) -> usize;

    /// Learns from an interval at [`Self::point`], and returns the next.
    fn observe(&mut self, observation: &Observation, profit: &Profit) -> usize;

    /// Chooses anew, because the price has changed.
    fn reconsider(&mut self, profit: &Profit) -> usize;

    /// Loads that it told apart.
    fn loads(&self) -> usize {
        1
    }
}

impl Strategy for Controller {
    fn point(&self) -> usize {
        self.point()
    }

    fn observe(&mut self, observation: &Observation, profit: &Profit) -> usize {
        self.observe(observation, profit)
    }

    fn reconsider(&mut self, profit: &Profit) -> usize {
        self.reconsider(profit)
    }

    fn loads(&self) -> usize {
        self.loads()
    }
}
