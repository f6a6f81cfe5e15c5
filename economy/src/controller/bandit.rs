//! The candidate that knows of no neighbours: discounted UCB.
//!
//! Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems" (ALT 2011). It
//! shows what smoothness is worth.

use super::model::Prediction;
use super::space::Space;
use super::strategy::{Choice, Outlook, Profit, Strategy, profit_of};
use super::tally::Tally;
use crate::response::{BETTER, Logs, MEAN};

/// The strategy.
#[derive(Clone, Debug)]
pub struct Bandit {
    tally: Tally,
}

impl Strategy for Bandit {
    fn new(space: &Space) -> Self {
        Self { tally: Tally::new(space.count()) }
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn tally_mut(&mut self) -> &mut Tally {
        &mut self.tally
    }

    fn learn(&mut self, _: &Space, point: usize, logs: &Logs, share: f64) {
        self.tally.learn(point, logs, share);
    }

    fn predict(&mut self, _: &Space, point: usize) -> Option<Prediction> {
        let deviation = self.tally.noise(MEAN) / libm::sqrt(self.tally.weight(point));
        (self.tally.weight(point) >= 1.0).then(|| Prediction { mean: *self.tally.mean(point), deviation })
    }

    fn choose(&mut self, space: &Space, _: usize, outlook: &Outlook, profit: &Profit) -> Choice {
        let points = 0..space.count();
        if let Some(point) = points.clone().find(|point| self.tally.weight(*point) < 0.5) {
            return Choice { point, explores: true };
        }
        let total: f64 = points.clone().map(|point| self.tally.weight(point)).sum();
        let optimistic = |point: usize| {
            let width =
                self.tally.noise(MEAN) * libm::sqrt(2.0 * libm::log(total) / self.tally.weight(point));
            let mean = self.tally.mean(point);
            let logs: Logs = core::array::from_fn(|channel| mean[channel] + BETTER[channel] * width);
            profit_of(profit, point, &logs, outlook)
        };
        let best = points.fold((0, f64::NEG_INFINITY), |best, point| {
            let value = optimistic(point);
            if value > best.1 { (point, value) } else { best }
        });
        Choice { point: best.0, explores: false }
    }
}
