//! Buys knowledge when it is worth its price: a Gaussian process, and the knowledge gradient.
//!
//! Frazier, Powell and Dayanik, "The knowledge-gradient policy for correlated normal beliefs" (INFORMS Journal on
//! Computing 21, 2009), simplified to the gain at the measured point itself, and with both sides in dollars: an
//! interval spent at a point costs what the best known point would have earned more; what it is expected to
//! teach is earned in every interval to come.

use super::model::{Model, Prediction};
use super::space::Space;
use super::strategy::{Choice, Profit, Strategy, profit_of};
use super::tally::Tally;
use crate::response::{BETTER, Logs, MEAN, THROUGHPUT};

/// Gauss-Hermite quadrature of degree 5 for a standard normal variable: abscissae and weights (Abramowitz and
/// Stegun, *Handbook of Mathematical Functions*, table 25.10, scaled).
const NODES: [(f64, f64); 5] = [
    (-2.856_970_013_872_806, 0.011_257_411_327_720_69),
    (-1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (0.0, 0.533_333_333_333_333_3),
    (1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (2.856_970_013_872_806, 0.011_257_411_327_720_69),
];
/// A point is not explored if it may make a loss with a probability of one in twenty: so many deviations.
const SAFETY: f64 = 0.0;
/// What another point must earn more, as a share, to be worth leaving a known one.
const HYSTERESIS: f64 = 0.002;

/// The strategy.
#[derive(Clone, Debug)]
pub struct Bayes {
    tally: Tally,
    model: Model,
    is_fitted: bool,
    /// Where it earns; explorations set out from here and come back.
    home: Option<usize>,
}

/// A point's prospects.
struct Prospect {
    /// Expected profit.
    expected: f64,
    /// Expected improvement over what is worth leaving, were it measured once.
    gain: f64,
    /// Profit if things turn out badly.
    at_worst: f64,
}

fn shifted(prediction: &Prediction, deviation: f64) -> Logs {
    core::array::from_fn(|channel| prediction.mean[channel] + BETTER[channel] * deviation)
}

/// Profit that is worth leaving a point for that makes so much.
fn worth_leaving(profit: f64) -> f64 {
    profit + HYSTERESIS * profit.abs()
}

impl Bayes {
    fn refit(&mut self, space: &Space) {
        if !self.is_fitted {
            self.model.fit(space, &self.tally);
            self.is_fitted = true;
        }
    }

    /// The point of highest likely profit, and this profit; home unless another is clearly better.
    fn best(&mut self, space: &Space, present: usize, profit: &Profit) -> (usize, f64) {
        let mut at = |point| profit_of(profit, point, &self.model.predict(space, point).mean);
        let home = self.home.unwrap_or(present);
        let at_home = at(home);
        let least = worth_leaving(at_home);
        let points = (0..space.count()).filter(|point| *point != home);
        points
            .map(|point| (point, at(point)))
            .fold((home, at_home), |best, other| if other.1 > best.1.max(least) { other } else { best })
    }

    fn prospect(&self, prediction: &Prediction, point: usize, least: f64, profit: &Profit) -> Prospect {
        let (deviation, noise) = (prediction.deviation, self.measurement_noise());
        // What one measurement is expected to change.
        let change = deviation * deviation / libm::sqrt(deviation * deviation + noise * noise);
        let (mut expected, mut gain) = (0.0, 0.0);
        for (node, weight) in NODES {
            let value = profit_of(profit, point, &shifted(prediction, node * change));
            expected += weight * value;
            gain += weight * (value - least).max(0.0);
        }
        let at_worst = profit_of(profit, point, &shifted(prediction, SAFETY * deviation));
        Prospect { expected, gain, at_worst }
    }

    fn measurement_noise(&self) -> f64 {
        self.tally.noise(THROUGHPUT).max(self.tally.noise(MEAN))
    }

    /// The exploration most worth its price, if one is.
    fn exploration(
        &mut self,
        space: &Space,
        best: (usize, f64),
        horizon: f64,
        profit: &Profit,
    ) -> Option<usize> {
        // Who makes a loss already has nothing to be careful of.
        let floor = if best.1 > 0.0 { 0.0 } else { f64::NEG_INFINITY };
        let least = worth_leaving(best.1);
        let mut most = (None, 0.0);
        for point in (0..space.count()).filter(|point| *point != best.0) {
            let prediction = self.model.predict(space, point);
            let prospect = self.prospect(&prediction, point, least, profit);
            let worth = horizon * prospect.gain - (best.1 - prospect.expected);
            if worth > most.1 && prospect.at_worst >= floor {
                most = (Some(point), worth);
            }
        }
        most.0
    }
}

impl Strategy for Bayes {
    fn new(space: &Space) -> Self {
        Self { tally: Tally::new(space.count()), model: Model::default(), is_fitted: false, home: None }
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn learn(&mut self, _: &Space, point: usize, logs: &Logs, share: f64) {
        self.tally.learn(point, logs, share);
        self.is_fitted = false;
    }

    fn predict(&mut self, space: &Space, point: usize) -> Option<Prediction> {
        self.tally.known().next()?;
        self.refit(space);
        Some(self.model.predict(space, point))
    }

    fn choose(&mut self, space: &Space, present: usize, horizon: f64, profit: &Profit) -> Choice {
        if self.tally.known().next().is_none() {
            return Choice { point: present, explores: true };
        }
        self.refit(space);
        let best = self.best(space, present, profit);
        self.home = Some(best.0);
        let exploration = self.exploration(space, best, horizon, profit);
        Choice { point: exploration.unwrap_or(best.0), explores: exploration.is_some() }
    }
}
