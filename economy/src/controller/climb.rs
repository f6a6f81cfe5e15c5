//! The other candidate: climbs the hill it stands on.
//!
//! Extremum seeking on numbered points (Ariyur and Krstic, *Real-Time Optimization by Extremum-Seeking
//! Control*, 2003, in its discrete form): probes a neighbour, moves there if it earns more, doubles its step
//! as long as that goes well, turns and halves it when it does not; at the top it rests, ever longer.

use super::model::Prediction;
use super::space::Space;
use super::strategy::{Choice, Outlook, Profit, Strategy, profit_of};
use super::tally::Tally;
use crate::response::Logs;

/// Intervals that a probe takes.
const PROBE: f64 = 2.0;
/// The longest rest, in intervals.
const REST_MAX: u32 = 256;
/// The longest step, in points.
const STEP_MAX: isize = 8;

/// The strategy.
#[derive(Clone, Debug)]
pub struct Climb {
    tally: Tally,
    home: Option<usize>,
    step: isize,
    /// Steps of one that failed in a row: at 2, home is the top.
    failures: u32,
    rest: u32,
    next_rest: u32,
    /// Weight that the probed point had before.
    probed_from: Option<(usize, f64)>,
}

impl Climb {
    fn neighbour(&self, space: &Space, home: usize) -> usize {
        home.saturating_add_signed(self.step).min(space.count() - 1)
    }

    fn conclude(&mut self, home: usize, probe: usize, outlook: &Outlook, profit: &Profit) -> usize {
        let at = |point| profit_of(profit, point, self.tally.mean(point), outlook);
        if at(probe) > at(home) {
            self.step = (self.step * 2).clamp(-STEP_MAX, STEP_MAX);
            (self.failures, self.next_rest) = (0, 4);
            return probe;
        }
        self.failures += u32::from(self.step.abs() == 1);
        self.step = if self.step.abs() == 1 { -self.step } else { -self.step / 2 };
        if self.failures >= 2 {
            (self.failures, self.rest) = (0, self.next_rest);
            self.next_rest = (self.next_rest * 2).min(REST_MAX);
        }
        home
    }
}

impl Strategy for Climb {
    fn new(space: &Space) -> Self {
        let tally = Tally::new(space.count());
        Self { tally, home: None, step: STEP_MAX, failures: 0, rest: 0, next_rest: 4, probed_from: None }
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
        let deviation = self.tally.noise(crate::response::MEAN) / libm::sqrt(self.tally.weight(point));
        (self.tally.weight(point) >= 1.0).then(|| Prediction { mean: *self.tally.mean(point), deviation })
    }

    fn choose(&mut self, space: &Space, present: usize, outlook: &Outlook, profit: &Profit) -> Choice {
        let mut home = *self.home.get_or_insert(present);
        if self.tally.weight(home) < 1.0 {
            return Choice { point: home, explores: true };
        }
        if let Some((probe, before)) = self.probed_from {
            if self.tally.weight(probe) < before + PROBE - 0.6 {
                return Choice { point: probe, explores: true };
            }
            home = self.conclude(home, probe, outlook, profit);
            (self.home, self.probed_from) = (Some(home), None);
        }
        if self.rest > 0 {
            self.rest -= 1;
            return Choice { point: home, explores: false };
        }
        let probe = self.neighbour(space, home);
        if probe == home {
            // An end of the line is a failure without a probe.
            self.failures += 1;
            self.step = -self.step.signum();
            return Choice { point: home, explores: true };
        }
        self.probed_from = Some((probe, self.tally.weight(probe).min(50.0)));
        Choice { point: probe, explores: true }
    }
}
