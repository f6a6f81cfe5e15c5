//! Chooses the working point that makes the most profit.
//!
//! After every interval (10 to 50 ms) the application says what was measured ([`Controller::observe`]) and
//! sets the point that it is told. What is learned are responses, never profits: when a price changes,
//! profits follow from what is known already ([`Controller::reconsider`]). A change of load is noticed by
//! surprise; what was learned under each load is kept, and used again when it comes back.
//!
//! Time, prices and randomness are the caller's; the same observations lead to the same decisions.

mod acquisition;
mod change;
mod drift;
mod estimate;
mod loads;
mod parameters;
mod signature;
mod space;
mod surface;

pub use crate::knobs::{BatchingDelays, KnobGrid, KnobValues, NoValue, Notice, WorkingPoints};
pub use acquisition::{Profit, Search};
pub use parameters::Parameters;

use crate::decision::Worth;
use crate::response::{Measured, Observation, Response, RunningMean};
use acquisition::{Choice, Estimator, Outlook};
use change::{ChangeDetector, Verdict};
use loads::{Loads, Trial};
use space::Space;

/// Trials are paired: an interval at another point, between two at the point that earns. If these two tell of
/// different levels, the trial tells nothing. A point that earns less may have had an outlier, which makes
/// nothing better: it gets a second interval, and the better of both counts.
#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// At the point that earns most.
    #[default]
    Earning,
    /// At another one.
    Trying(Departure),
    /// Back from it, but with what that left behind.
    Settling(Trial),
    /// Back from it.
    Returning(Trial),
}

/// A trial that has not come back.
#[derive(Clone, Copy, Debug)]
struct Departure {
    /// Where it came from.
    incumbent: usize,
    /// What was earned there in the interval before.
    earned: f64,
    /// What was measured at first, and what that earned, if it disappointed.
    first: Option<(Measured, f64)>,
    /// Whether it searches for a profit, from where a loss is made.
    searches: bool,
}

/// The controller of one set of knobs.
#[derive(Clone, Debug)]
pub struct Controller {
    space: Space,
    loads: Loads,
    changes: ChangeDetector,
    point: usize,
    /// Whether the point was set for the interval before, too.
    is_settled: bool,
    stage: Stage,
    /// What was measured since the point was set: what it does, whatever its estimate says.
    realised: RunningMean,
    /// Intervals until the choice is reviewed, and those of the next rest.
    rest: u32,
    next_rest: u32,
    /// What was chosen last and is not done yet, and what was earned then.
    chosen: Option<(Choice, f64)>,
    /// Whether nothing was measured yet where it is now.
    is_elsewhere: bool,
    /// Whether a profit is searched for where a loss is made.
    pub search: Search,
}

impl Controller {
    /// Begins at point `start`, knowing nothing.
    ///
    /// # Panics
    /// If there is no such point.
    #[must_use]
    pub fn new(points: &impl WorkingPoints, start: usize) -> Self {
        Self::with_parameters(points, start, &Parameters::DEFAULT)
    }

    /// The same with other parameters than the default ones.
    ///
    /// # Panics
    /// See [`Self::new`].
    #[must_use]
    pub fn with_parameters(points: &impl WorkingPoints, start: usize, p: &'static Parameters) -> Self {
        assert!(start < points.count(), "a controller starts at one of its points");
        let space = Space::new(points, p);
        let loads = Loads::new(&space);
        let changes = ChangeDetector::default();
        Self {
            space,
            loads,
            changes,
            point: start,
            is_settled: false,
            stage: Stage::Earning,
            realised: RunningMean::default(),
            rest: 0,
            next_rest: 1,
            chosen: None,
            is_elsewhere: false,
            search: Search::default(),
        }
    }

    /// Teaches the responses of a load that were measured beforehand, as pairs of a point and its response;
    /// points that do not exist are left out. The load is recognised when it comes.
    pub fn teach(&mut self, table: &[(usize, Response)]) {
        let mut strategy = Estimator::new(&self.space);
        let rows = table.iter().filter(|(point, _)| *point < self.space.count());
        for (point, response) in rows.clone() {
            strategy.learn(*point, &response.logs(), 1.0);
        }
        self.loads.teach(strategy, rows.map(|(_, response)| response.logs()));
    }

    /// What it knows was measured elsewhere, where much is alike: from the next observation on it is a prior
    /// that is moved as the point that is set moves, and doubted.
    pub fn transfer(&mut self) {
        (self.is_elsewhere, self.stage, self.chosen) = (true, Stage::Earning, None);
        (self.rest, self.next_rest) = (0, 1);
    }

    /// Goes to the best point that it knows of a load which explains this observation, wherever that was
    /// made. Returns whether it has met one.
    pub fn recall(&mut self, observation: &Observation) -> bool {
        let is_known = self.loads.recall(&observation.measured());
        if is_known {
            (self.stage, self.chosen, self.rest, self.next_rest) = (Stage::Earning, None, 0, 1);
            self.changes = ChangeDetector::default();
            let incumbent = self.loads.present().incumbent;
            self.set(incumbent.unwrap_or(self.point));
        }
        is_known
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

    /// Whether a trial has not come back: what is measured meanwhile says nothing about anything else.
    #[must_use]
    pub fn is_trying(&self) -> bool {
        matches!(self.stage, Stage::Trying(_) | Stage::Settling(_))
    }

    /// Learns from an interval that was spent at [`Self::point`], and returns the point to set next.
    pub fn observe(&mut self, observation: &Observation, profit: &Profit) -> usize {
        self.propose(observation, profit);
        self.accept()
    }

    /// The same, but leaves to [`Self::accept`] to leave the incumbent. Returns what that is worth, if it is
    /// to be left.
    pub fn propose(&mut self, observation: &Observation, profit: &Profit) -> Option<Worth> {
        self.chosen = None;
        if self.learn(observation, profit) {
            let earned = profit(self.point, &observation.response).get();
            self.choose(earned, profit);
        }
        self.chosen.map(|(choice, _)| choice.worth)
    }

    /// Learns from an interval; a trial that is on its way goes on. Returns whether it is time to choose.
    pub fn learn(&mut self, observation: &Observation, profit: &Profit) -> bool {
        if observation.samples == 0 {
            return false;
        }
        let measured = observation.measured();
        self.loads.pass(&measured);
        let is_settled = core::mem::replace(&mut self.is_settled, true);
        let share = if is_settled { measured.share } else { self.space.p.first_share * measured.share };
        let stage = core::mem::take(&mut self.stage);
        match stage {
            Stage::Trying(excursion) => {
                let earned = profit(self.point, &observation.response).get();
                self.try_on(excursion, (Measured { share, ..measured }, earned));
                return false;
            }
            Stage::Settling(trial) if !self.loads.foretells(&self.space, self.point, &measured) => {
                self.stage = Stage::Returning(trial);
                return false;
            }
            _ => {}
        }
        if core::mem::take(&mut self.is_elsewhere) {
            self.loads.transfer(&self.space, self.point, &measured);
            (self.changes, self.realised) = (ChangeDetector::default(), RunningMean::default());
            return true;
        }
        let (surprise, is_another) = (self.loads.surprise(&measured), self.loads.knows_another(&measured));
        match (self.changes.consider(self.space.p, surprise, is_another, &measured.logs), stage) {
            (Verdict::Suspicious, _) => return false,
            (Verdict::Same, stage) => {
                let is_calm = self.loads.learn(&self.space, self.point, &Measured { share, ..measured });
                if !is_calm {
                    return false;
                }
                if let Stage::Settling(trial) | Stage::Returning(trial) = stage {
                    self.loads.conclude(&self.space, &trial);
                }
            }
            (Verdict::Changed(logs), _) => {
                self.loads.change(&self.space, self.point, &Measured { logs, ..measured });
                (self.rest, self.next_rest) = (0, 1);
                self.realised = RunningMean::default();
            }
        }
        self.realised.add(&measured.logs, self.space.p.memory);
        let is_resting = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        !is_resting
    }

    /// Goes on with a trial after an interval at its point.
    fn try_on(&mut self, trial: Departure, last: (Measured, f64)) {
        if trial.searches {
            return self.search_on(trial, last);
        }
        let disappoints = last.1 < trial.earned && self.loads.disappoints(&self.space, self.point, &last.0);
        if disappoints && trial.first.is_none() {
            self.stage = Stage::Trying(Departure { first: Some(last), ..trial });
            return;
        }
        let first = trial.first.unwrap_or(last);
        let (measured, _) = if first.1 > last.1 { first } else { last };
        let level = *self.loads.level();
        self.stage = Stage::Settling(Trial { point: self.point, measured, level });
        self.set(trial.incumbent);
    }

    /// Goes on with a trial that searches for a profit. Its first interval begins with what a point that
    /// loses left behind, by which one near the promise would seem to break it: only the second counts. Where
    /// that makes a profit, it stays.
    fn search_on(&mut self, trial: Departure, last: (Measured, f64)) {
        if trial.first.is_none() {
            self.stage = Stage::Trying(Departure { first: Some(last), ..trial });
            return;
        }
        let (measured, earned) = last;
        let level = *self.loads.level();
        if earned > 0.0 {
            self.loads.conclude(&self.space, &Trial { point: self.point, measured, level });
            self.loads.present().incumbent = Some(self.point);
            self.realised.add(&measured.logs, self.space.p.memory);
            return;
        }
        self.stage = Stage::Settling(Trial { point: self.point, measured, level });
        self.set(trial.incumbent);
    }

    fn set(&mut self, point: usize) {
        self.is_settled &= point == self.point;
        if point != self.point {
            self.realised = RunningMean::default();
        }
        self.point = point;
    }

    /// Chooses anew at once, because prices have changed; nothing was measured.
    pub fn reconsider(&mut self, profit: &Profit) -> usize {
        self.loads.present().trials = acquisition::Tries::default();
        self.choose(f64::NEG_INFINITY, profit);
        self.accept()
    }

    /// Chooses, after an interval in which so much was earned.
    fn choose(&mut self, earned: f64, profit: &Profit) {
        let (horizon, level) = (self.loads.horizon(), self.loads.level());
        let (level, deviation) = (level.of_late(), level.deviation());
        let RunningMean { logs, count } = &self.realised;
        let realised = (*count > 0.0).then(|| profit(self.point, &Response::from_logs(logs)).get());
        let outlook = Outlook { horizon, level, deviation, search: self.search, realised };
        let choice = self.loads.present().choose(&self.space, self.point, &outlook, profit);
        if choice.explores || choice.loses || choice.point != self.point {
            (self.rest, self.next_rest) = (0, 1);
        } else {
            (self.rest, self.next_rest) =
                (self.next_rest, (self.next_rest * 2).min(self.space.p.rest_max as u32));
        }
        self.stage = Stage::Earning;
        self.chosen = (choice.point != self.point).then_some((choice, earned));
    }

    /// Does what was chosen last, if it is not done yet, and returns the point to set.
    pub fn accept(&mut self) -> usize {
        if let Some((choice, earned)) = self.chosen.take() {
            let trial = Departure { incumbent: self.point, earned, first: None, searches: choice.loses };
            self.stage = if choice.explores { Stage::Trying(trial) } else { Stage::Earning };
            self.set(choice.point);
        }
        self.point
    }
}
