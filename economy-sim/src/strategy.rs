//! What chooses working points.

use nom_economy::controller::{Controller, Profit};
use nom_economy::response::Observation;

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
