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
mod level;
mod loads;
mod model;
mod points;
mod signature;
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
use loads::{Loads, Trial};
use space::Space;
use strategy::Outlook;
use watch::{Verdict, Watch};

/// What the first interval at a new point counts, for it begins with what the last point left behind.
const FIRST_SHARE: f64 = 0.8;
/// Where there is nothing to explore, so many intervals pass at most until the choice is reviewed.
const REST_MAX: u32 = 16;
/// What each row of a given table counts, in observations: it was measured on another day, of a machine that
/// was some percent faster or slower. With four it took too long to see that a row was wrong, and a table
/// earned less than none (`examples/compare`).
const TABLE_SHARE: f64 = 1.0;

/// Trials are paired: an interval at another point, between two at the point that earns. If these two tell of
/// different levels, the trial tells nothing. A point that earns less may have had a hiccup, which makes
/// nothing better: it gets a second interval, and the better of both counts.
#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// At the point that earns most.
    #[default]
    Earning,
    /// At another one.
    Trying(Excursion),
    /// Back from it, but with what that left behind.
    Settling(Trial),
    /// Back from it.
    Returning(Trial),
}

/// A trial that has not come back.
#[derive(Clone, Copy, Debug)]
struct Excursion {
    /// Where it came from.
    home: usize,
    /// What was earned there in the interval before.
    earned: f64,
    /// What was measured at first, and what that earned, if it disappointed.
    first: Option<(Measured, f64)>,
}

/// A controller that searches by strategy `S`; [`Bayes`] won the comparison (`examples/compare`).
#[derive(Clone, Debug)]
pub struct Controller<S = Bayes> {
    space: Space,
    loads: Loads<S>,
    watch: Watch,
    point: usize,
    /// Whether the point was set for the interval before, too.
    is_settled: bool,
    stage: Stage,
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
        Self {
            space,
            loads,
            watch,
            point: start,
            is_settled: false,
            stage: Stage::Earning,
            rest: 0,
            next_rest: 1,
        }
    }

    /// Teaches the responses of a load that were measured beforehand, as pairs of a point and its response;
    /// points that do not exist are left out. The load is recognised when it comes.
    pub fn teach(&mut self, table: &[(usize, Response)]) {
        let mut strategy = S::new(&self.space);
        let rows = table.iter().filter(|(point, _)| *point < self.space.count());
        for (point, response) in rows.clone() {
            strategy.learn(&self.space, *point, &response.logs(), TABLE_SHARE);
        }
        self.loads.teach(strategy, rows.map(|(_, response)| response.logs()));
    }

    /// The working point that should be set.
    #[must_use]
    pub fn point(&self) -> usize {
        self.point
    }

    /// How many working points there are.
    #[must_use]
    pub fn points(&self) -> usize {
        self.space.count()
    }

    /// Which of the loads that were told apart is present.
    #[must_use]
    pub fn load(&self) -> usize {
        self.loads.present_number()
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
        let measured = observation.measured();
        self.loads.pass(&measured);
        let is_settled = core::mem::replace(&mut self.is_settled, true);
        let share = if is_settled { measured.share } else { FIRST_SHARE * measured.share };
        let stage = core::mem::take(&mut self.stage);
        match stage {
            Stage::Trying(excursion) => {
                let earned = profit(self.point, &observation.response).get();
                return self.try_on(excursion, (Measured { share, ..measured }, earned));
            }
            Stage::Settling(trial) if !self.loads.foretells(&self.space, self.point, &measured) => {
                self.stage = Stage::Returning(trial);
                return self.point;
            }
            _ => {}
        }
        match (self.watch.consider(self.loads.surprise(&measured), &measured.logs), stage) {
            (Verdict::Suspicious, _) => return self.point,
            (Verdict::Same, stage) => {
                let is_calm = self.loads.learn(&self.space, self.point, &Measured { share, ..measured });
                if !is_calm {
                    return self.point;
                }
                if let Stage::Settling(trial) | Stage::Returning(trial) = stage {
                    self.loads.conclude(&self.space, &trial);
                }
            }
            (Verdict::Changed(logs), _) => {
                self.loads.change(&self.space, self.point, &Measured { logs, ..measured });
                (self.rest, self.next_rest) = (0, 1);
            }
        }
        if self.rest > 0 {
            self.rest -= 1;
            return self.point;
        }
        let earned = profit(self.point, &observation.response).get();
        self.choose(earned, profit)
    }

    /// Goes on with a trial after an interval at its point.
    fn try_on(&mut self, trial: Excursion, last: (Measured, f64)) -> usize {
        let disappoints = last.1 < trial.earned && self.loads.disappoints(&self.space, self.point, &last.0);
        if disappoints && trial.first.is_none() {
            self.stage = Stage::Trying(Excursion { first: Some(last), ..trial });
            return self.point;
        }
        let first = trial.first.unwrap_or(last);
        let (measured, _) = if first.1 > last.1 { first } else { last };
        let level = *self.loads.level();
        self.stage = Stage::Settling(Trial { point: self.point, measured, level });
        self.set(trial.home)
    }

    fn set(&mut self, point: usize) -> usize {
        self.is_settled &= point == self.point;
        self.point = point;
        point
    }

    /// Chooses anew at once, because prices have changed; nothing was measured.
    pub fn reconsider(&mut self, profit: &Profit) -> usize {
        self.choose(f64::NEG_INFINITY, profit)
    }

    /// Chooses, after an interval in which so much was earned.
    fn choose(&mut self, earned: f64, profit: &Profit) -> usize {
        let (horizon, level) = (self.loads.horizon(), self.loads.level());
        let outlook = Outlook { horizon, level: level.of_late(), deviation: level.deviation() };
        let choice = self.loads.present().choose(&self.space, self.point, &outlook, profit);
        if choice.explores || choice.point != self.point {
            (self.rest, self.next_rest) = (0, 1);
        } else {
            (self.rest, self.next_rest) = (self.next_rest, (self.next_rest * 2).min(REST_MAX));
        }
        let tries = choice.explores && choice.point != self.point;
        let trial = Excursion { home: self.point, earned, first: None };
        self.stage = if tries { Stage::Trying(trial) } else { Stage::Earning };
        self.set(choice.point)
    }
}

#[cfg(test)]
mod tests;
