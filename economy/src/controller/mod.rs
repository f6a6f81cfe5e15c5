//! Chooses the working point that makes the most profit.
//!
//! After every interval (10 to 50 ms) the application says what was measured ([`Controller::observe`]) and
//! sets the point that it is told. What is learned are responses, never profits: when a price changes,
//! profits follow from what is known already ([`Controller::reconsider`]). A change of load is noticed by
//! surprise; what was learned under each load is kept, and used again when it comes back.
//!
//! Time, prices and randomness are the caller's; the same observations lead to the same decisions.

mod bandit;
mod bayes;
mod climb;
mod loads;
mod model;
mod points;
mod space;
mod strategy;
mod tally;
mod watch;

pub use bandit::Bandit;
pub use bayes::Bayes;
pub use climb::Climb;
pub use points::{BatchingDelays, Knobs, NoValue, Notice, Setting, WorkingPoints};
pub use strategy::{Profit, Strategy};

use crate::response::{Measured, Observation, Response};
use loads::Loads;
use space::Space;
use watch::{Verdict, Watch, surprise};

/// What the first interval at a new point counts, for it begins with what the last point left behind.
const FIRST_SHARE: f64 = 0.5;
/// Where there is nothing to explore, so many intervals pass at most until the choice is reviewed.
const REST_MAX: u32 = 16;
/// What each row of a given table counts, in observations.
const TABLE_SHARE: f64 = 4.0;

/// A controller that searches by strategy `S`; [`Bayes`] won the comparison (`examples/compare`).
#[derive(Clone, Debug)]
pub struct Controller<S = Bayes> {
    space: Space,
    loads: Loads<S>,
    watch: Watch,
    point: usize,
    /// Whether the point was set for the interval before, too.
    is_settled: bool,
    /// Intervals until the choice is reviewed, and those of the next rest.
    rest: u32,
    next_rest: u32,
}

impl<S: Strategy> Controller<S> {
    /// Begins at point `start`, knowing nothing.
    ///
    /// # Panics
    /// If there is no such point.
    #[must_use]
    pub fn new(points: &impl WorkingPoints, start: usize) -> Self {
        assert!(start < points.count(), "a controller starts at one of its points");
        let space = Space::new(points);
        let loads = Loads::new(&space);
        let watch = Watch::default();
        Self { space, loads, watch, point: start, is_settled: false, rest: 0, next_rest: 1 }
    }

    /// Teaches the responses of a load that were measured beforehand, as pairs of a point and its response;
    /// points that do not exist are left out. The load is recognised when it comes.
    pub fn teach(&mut self, table: &[(usize, Response)]) {
        let mut strategy = S::new(&self.space);
        for (point, response) in table.iter().filter(|(point, _)| *point < self.space.count()) {
            strategy.learn(&self.space, *point, &response.logs(), TABLE_SHARE);
        }
        self.loads.teach(strategy);
    }

    /// The working point that should be set.
    #[must_use]
    pub fn point(&self) -> usize {
        self.point
    }

    /// How many loads have been told apart.
    #[must_use]
    pub fn loads(&self) -> usize {
        self.loads.count()
    }

    /// Learns from an interval that was spent at [`Self::point`], and returns the point to set next.
    pub fn observe(&mut self, observation: &Observation, profit: &Profit) -> usize {
        if observation.samples == 0 {
            return self.point;
        }
        self.loads.pass();
        let measured = observation.measured();
        self.loads.greet(&self.space, self.point, &measured);
        let is_settled = core::mem::replace(&mut self.is_settled, true);
        match self.judge(&measured) {
            Verdict::Suspicious => return self.point,
            Verdict::Same => {
                let share = if is_settled { measured.share } else { FIRST_SHARE * measured.share };
                self.loads.present().learn(&self.space, self.point, &measured.logs, share);
            }
            Verdict::Changed(logs) => {
                self.loads.change(&self.space, self.point, &Measured { logs, ..measured });
                (self.rest, self.next_rest) = (0, 1);
            }
        }
        if self.rest > 0 {
            self.rest -= 1;
            return self.point;
        }
        self.choose(profit)
    }

    /// Chooses anew at once, because prices have changed; nothing was measured.
    pub fn reconsider(&mut self, profit: &Profit) -> usize {
        self.choose(profit)
    }

    fn judge(&mut self, measured: &Measured) -> Verdict {
        let (space, point) = (&self.space, self.point);
        let strategy = self.loads.present();
        let surprise = match strategy.predict(space, point) {
            Some(prediction) => surprise(&prediction, strategy.tally(), point, measured),
            None => 0.0,
        };
        self.watch.consider(surprise, &measured.logs)
    }

    fn choose(&mut self, profit: &Profit) -> usize {
        let horizon = self.loads.horizon();
        let choice = self.loads.present().choose(&self.space, self.point, horizon, profit);
        if choice.explores || choice.point != self.point {
            (self.rest, self.next_rest) = (0, 1);
        } else {
            (self.rest, self.next_rest) = (self.next_rest, (self.next_rest * 2).min(REST_MAX));
        }
        self.is_settled &= choice.point == self.point;
        self.point = choice.point;
        self.point
    }
}

#[cfg(test)]
mod tests;
