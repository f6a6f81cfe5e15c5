//! Lets a controller run a scenario.

use super::random::Random;
use super::scenario::{Phase, Scenario};
use super::strategy::Strategy;
use core::ops::Range;
use nom_economy::controller::Controller;
use nom_economy::response::{Logs, Response};

/// Time constant with which a server follows a new setting, in seconds.
const SETTLING: f64 = 2e-3;
/// A point within this share of the best has found it.
const FOUND: f64 = 0.03;

/// So long after a change of load or price things are early.
pub const EARLY_SECONDS: f64 = 1.0;

/// What a controller made of a scenario. Only what clients were truly served counts.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Profit, in dollars.
    pub profit: f64,
    /// Profit of the best point of each phase, known beforehand.
    pub oracle: f64,
    /// Profit of the best single point.
    pub best_static: f64,
    /// Profit in the first [`EARLY_SECONDS`] of each phase, and what its best point makes in them.
    pub early: [f64; 2],
    /// Seconds from the beginning of each phase until a point within 3% of its best was first set.
    pub found_seconds: Vec<f64>,
    /// Changes of the point per second in the second half of each phase.
    pub restless: Vec<f64>,
    /// Share of all intervals in which a loss was made where a profit could be.
    pub losses: f64,
    /// Loads that it told apart.
    pub loads: usize,
}

struct Runner<'a, S> {
    scenario: &'a Scenario,
    controller: S,
    random: Random,
    noise: super::Noise,
    state: Option<Logs>,
    intervals: u64,
    losses: u64,
}

/// Runs the scenario with a controller that knows nothing; `seed` decides the noise.
#[must_use]
pub fn run(scenario: &Scenario, seed: u64) -> Outcome {
    run_taught(scenario, seed, &[])
}

/// The same with one that was taught responses under these loads, as [`Controller::teach`] takes them.
#[must_use]
pub fn run_taught(scenario: &Scenario, seed: u64, table: &[Vec<(usize, Response)>]) -> Outcome {
    let mut controller = Controller::new(&scenario.points, 0);
    table.iter().for_each(|load| controller.teach(load));
    run_with(scenario, seed, controller)
}

/// The same with what chooses as given.
#[must_use]
pub fn run_with<S: Strategy>(scenario: &Scenario, seed: u64, controller: S) -> Outcome {
    let (random, noise) = (Random::new(seed), scenario.noise.clone());
    let mut runner = Runner { scenario, controller, random, noise, state: None, intervals: 0, losses: 0 };
    let oracles = scenario.oracles();
    let (mut found_seconds, mut restless, mut profit, mut early) = (Vec::new(), Vec::new(), 0.0, [0.0; 2]);
    for (span, (best, _)) in scenario.spans().zip(&oracles) {
        let lived = runner.live(span, *best);
        profit += lived.profit;
        early.iter_mut().zip(lived.early).for_each(|(sum, profit)| *sum += profit);
        found_seconds.push(lived.found);
        restless.push(lived.restless);
    }
    Outcome {
        profit,
        oracle: oracles.iter().map(|(_, profit)| profit).sum(),
        best_static: scenario.best_static(),
        early,
        found_seconds,
        restless,
        losses: runner.losses as f64 / runner.intervals as f64,
        loads: runner.controller.loads(),
    }
}

struct Lived {
    profit: f64,
    early: [f64; 2],
    found: f64,
    restless: f64,
}

impl<S: Strategy> Runner<'_, S> {
    fn live(&mut self, (span, phase): (Range<usize>, Phase), best: usize) -> Lived {
        let (scenario, length) = (self.scenario, span.len() as f64 * self.scenario.interval);
        let value = |_: usize, response: &Response| scenario.contract.profit(response, phase.price);
        // As priced does: a new price is announced at once.
        self.controller.reconsider(&value);
        let mut lived = Lived { profit: 0.0, early: [0.0; 2], found: length, restless: 0.0 };
        for interval in span.clone() {
            let at = (interval - span.start) as f64 * scenario.interval;
            let point = self.controller.point();
            let truth = scenario.truth(interval, point);
            let best_profit = value(best, &scenario.truth(interval, best)).get();
            if value(point, &truth).get() >= best_profit * (1.0 - FOUND) {
                lived.found = lived.found.min(at);
            }
            let response = self.follow(scenario.quiet(interval, point));
            let response = scenario.moment(interval).slow(&response);
            let earned = value(point, &response).get();
            self.losses += u64::from(earned < 0.0 && best_profit > 0.0);
            lived.profit += earned * scenario.interval;
            if at < EARLY_SECONDS {
                lived.early[0] += earned * scenario.interval;
                lived.early[1] += best_profit * scenario.interval;
            }
            let observation = self.noise.observe(&response, scenario.interval, &mut self.random);
            let next = self.controller.observe(&observation, &value);
            lived.restless += f64::from(u8::from(next != point && at > length / 2.0)) * 2.0 / length;
        }
        self.intervals += span.len() as u64;
        lived
    }

    /// Mean response over an interval in which the server goes from what it did to what it now shall do.
    fn follow(&mut self, target: &Response) -> Response {
        let target = target.logs();
        let before = self.state.replace(target).unwrap_or(target);
        let ratio = self.scenario.interval / SETTLING;
        let left = (1.0 - libm::exp(-ratio)) / ratio;
        let mean: Logs =
            core::array::from_fn(|channel| target[channel] + (before[channel] - target[channel]) * left);
        Response::from_logs(&mean)
    }
}
