//! The candidate that is told: what every point truly did in the interval before, without noise.
//!
//! It shows what not knowing costs: no controller that measures can be expected to earn more.

use super::scenario::Scenario;
use super::strategy::{Strategy, best};
use nom_economy::controller::Profit;
use nom_economy::response::Observation;

/// The strategy.
#[derive(Clone, Debug)]
pub struct Informed<'a> {
    scenario: &'a Scenario,
    /// The interval that was measured last.
    interval: usize,
    point: usize,
}

impl<'a> Informed<'a> {
    /// Begins at the first point of the scenario, of which it is told the truth.
    #[must_use]
    pub fn new(scenario: &'a Scenario) -> Self {
        Self { scenario, interval: 0, point: 0 }
    }
}

impl Strategy for Informed<'_> {
    fn point(&self) -> usize {
        self.point
    }

    fn observe(&mut self, _: &Observation, profit: &Profit) -> usize {
        let next = self.reconsider(profit);
        self.interval += 1;
        next
    }

    fn reconsider(&mut self, profit: &Profit) -> usize {
        let interval = self.interval.min(self.scenario.moments() - 1);
        let earned = |point| profit(point, &self.scenario.truth(interval, point)).get();
        self.point = best((0..self.scenario.count()).map(earned)).0;
        self.point
    }
}
