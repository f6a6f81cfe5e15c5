//! The other candidate: climbs the hill it stands on.
//!
//! Extremum seeking on numbered points (Ariyur and Krstic, *Real-Time Optimization by Extremum-Seeking
//! Control*, 2003, in its discrete form): probes a neighbour, moves there if it earns more, doubles its step
//! as long as that goes well, turns and halves it when it does not; at the top it rests, ever longer.

use super::strategy::Strategy;
use nom_economy::controller::Profit;
use nom_economy::response::{CHANNELS, Logs, Observation, Response};

/// Intervals that a probe takes, of which the first is left out.
const PROBE: u32 = 3;
/// The longest rest, in intervals.
const REST_MAX: u32 = 256;
/// The longest step, in points.
const STEP_MAX: isize = 8;
/// Intervals over which what the present point does is averaged.
const MEMORY: f64 = 8.0;

/// Mean of so many observations.
#[derive(Clone, Debug, Default)]
struct Mean {
    count: f64,
    logs: Logs,
}

impl Mean {
    fn learn(&mut self, logs: &Logs) {
        self.count = (self.count + 1.0).min(MEMORY);
        self.logs.iter_mut().zip(logs).for_each(|(mean, log)| *mean += (log - *mean) / self.count);
    }

    fn earns(&self, point: usize, profit: &Profit) -> f64 {
        profit(point, &Response::from_logs(&self.logs)).get()
    }
}

/// The strategy.
#[derive(Clone, Debug)]
pub struct Climb {
    count: usize,
    home: usize,
    at_home: Mean,
    /// The point that is probed, for how many intervals so far, and what it does.
    probe: Option<(usize, u32, Mean)>,
    step: isize,
    /// Steps of one that failed in a row: at 2, home is the top.
    failures: u32,
    rest: u32,
    next_rest: u32,
}

impl Climb {
    /// Knows nothing of so many points, and begins at the first.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let at_home = Mean { count: 0.0, logs: [0.0; CHANNELS] };
        Self { count, home: 0, at_home, probe: None, step: STEP_MAX, failures: 0, rest: 0, next_rest: 4 }
    }

    fn conclude(&mut self, probe: usize, mean: Mean, profit: &Profit) {
        if mean.earns(probe, profit) > self.at_home.earns(self.home, profit) {
            self.step = (self.step * 2).clamp(-STEP_MAX, STEP_MAX);
            (self.failures, self.next_rest, self.home, self.at_home) = (0, 4, probe, mean);
            return;
        }
        self.failures += u32::from(self.step.abs() == 1);
        self.step = if self.step.abs() == 1 { -self.step } else { -self.step / 2 };
        if self.failures >= 2 {
            (self.failures, self.rest) = (0, self.next_rest);
            self.next_rest = (self.next_rest * 2).min(REST_MAX);
        }
    }

    /// Goes on to probe the next neighbour, unless it rests.
    fn set_out(&mut self) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        let probe = self.home.saturating_add_signed(self.step).min(self.count - 1);
        if probe == self.home {
            // An end of the line is a failure without a probe.
            self.failures += 1;
            self.step = -self.step.signum();
            return;
        }
        self.probe = Some((probe, 0, Mean::default()));
    }
}

impl Strategy for Climb {
    fn point(&self) -> usize {
        self.probe.as_ref().map_or(self.home, |probe| probe.0)
    }

    fn observe(&mut self, observation: &Observation, profit: &Profit) -> usize {
        let logs = observation.response.logs();
        match self.probe.take() {
            None => {
                self.at_home.learn(&logs);
                self.set_out();
            }
            Some((point, intervals, mut mean)) => {
                if intervals > 0 {
                    mean.learn(&logs);
                }
                if intervals + 1 < PROBE {
                    self.probe = Some((point, intervals + 1, mean));
                } else {
                    self.conclude(point, mean, profit);
                }
            }
        }
        self.point()
    }

    fn reconsider(&mut self, _: &Profit) -> usize {
        (self.failures, self.rest, self.next_rest) = (0, 0, 4);
        self.point()
    }
}
