//! The candidate that sees every point measured in every interval, with the same noise as anybody.
//!
//! It shows what noise alone costs: a controller sees one point in an interval and must leave what earns to
//! see another. No bound that holds for any learner, but a generous measure: some twenty times the data, no
//! price for looking, and both of its numbers chosen in hindsight, for each scenario anew.

use super::noise::Noise;
use super::random::Random;
use super::run::{Outcome, run_with};
use super::scenario::Scenario;
use super::strategy::{Strategy, best};
use nom_economy::controller::Profit;
use nom_economy::response::{Logs, Observation, Response};

/// Intervals that a mean may be over.
const MEMORIES: [f64; 6] = [8.0, 16.0, 32.0, 64.0, 128.0, 512.0];
/// On so many points to each side a mean may rest, for what is smooth along the batching delay.
const REACHES: [usize; 3] = [0, 1, 2];
/// A logarithm that is farther from its mean is an outlier, and counts as if it were so far.
const OUTLIER: f64 = 0.15;
/// From so many intervals on a mean can tell an outlier.
const KNOWN: f64 = 4.0;

/// The strategy.
#[derive(Clone, Debug)]
pub struct Spectator<'a> {
    scenario: &'a Scenario,
    interval: usize,
    point: usize,
    random: Random,
    /// Of each point how it is measured, and the mean of what was.
    seen: Vec<(Noise, Logs)>,
    memory: f64,
    reach: usize,
}

impl<'a> Spectator<'a> {
    /// What the best of them made of the scenario, in hindsight.
    ///
    /// # Panics
    /// Never: there is more than one.
    #[must_use]
    pub fn run(scenario: &'a Scenario, seed: u64) -> Outcome {
        let pairs = MEMORIES.into_iter().flat_map(|memory| REACHES.map(|reach| (memory, reach)));
        let outcomes = pairs.map(|(memory, reach)| {
            let seen = vec![(scenario.noise.clone(), Logs::default()); scenario.count()];
            let random = Random::new(!seed);
            run_with(scenario, seed, Self { scenario, interval: 0, point: 0, random, seen, memory, reach })
        });
        outcomes.max_by(|one, other| one.profit.total_cmp(&other.profit)).expect("there is more than one")
    }

    /// What a point and those beside it were seen to do.
    fn smoothed(&self, point: usize) -> Response {
        // Not to hold packets at all is another path, and no neighbour of any delay.
        let first = point.saturating_sub(self.reach).max(usize::from(point > 0));
        let last = if point == 0 { 0 } else { (point + self.reach).min(self.seen.len() - 1) };
        let beside = &self.seen[first..=last];
        let count = beside.len() as f64;
        Response::from_logs(&core::array::from_fn(|channel| {
            beside.iter().map(|(_, mean)| mean[channel]).sum::<f64>() / count
        }))
    }
}

impl Strategy for Spectator<'_> {
    fn point(&self) -> usize {
        self.point
    }

    fn observe(&mut self, _: &Observation, profit: &Profit) -> usize {
        let count = (self.interval as f64 + 1.0).min(self.memory);
        for (point, (noise, mean)) in self.seen.iter_mut().enumerate() {
            let truth = self.scenario.truth(self.interval, point);
            let logs = noise.observe(&truth, self.scenario.interval, &mut self.random).response.logs();
            for (mean, log) in mean.iter_mut().zip(logs) {
                let error = log - *mean;
                *mean += if count > KNOWN { error.clamp(-OUTLIER, OUTLIER) } else { error } / count;
            }
        }
        self.interval += 1;
        self.reconsider(profit)
    }

    fn reconsider(&mut self, profit: &Profit) -> usize {
        if self.interval > 0 {
            let earned = |point| profit(point, &self.smoothed(point)).get();
            self.point = best((0..self.seen.len()).map(earned)).0;
        }
        self.point
    }
}
