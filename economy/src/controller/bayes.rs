//! Buys knowledge when it is worth its price: a Gaussian process, and the knowledge gradient.
//!
//! Frazier, Powell and Dayanik, "The knowledge-gradient policy for correlated normal beliefs" (INFORMS
//! Journal on Computing 21, 2009), simplified to the gain at the measured point itself, and with both sides
//! in dollars: an interval spent at a point costs what the best known point would have earned more; what it
//! is expected to teach is earned in every interval to come.

use super::model::{Model, Prediction};
use super::space::Space;
use super::strategy::{Choice, Outlook, Profit, Strategy};
use super::tally::Tally;
use crate::response::{JITTER, Likely, Logs};
use alloc::vec::Vec;

/// Gauss-Hermite quadrature of degree 5 for a standard normal variable: abscissae and weights (Abramowitz and
/// Stegun, *Handbook of Mathematical Functions*, table 25.10, scaled).
const NODES: [(f64, f64); 5] = [
    (-2.856_970_013_872_806, 0.011_257_411_327_720_69),
    (-1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (0.0, 0.533_333_333_333_333_3),
    (1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (2.856_970_013_872_806, 0.011_257_411_327_720_69),
];
/// What another point must earn more, as a share, to be worth leaving a known one.
const HYSTERESIS: f64 = 0.002;
/// Observations after which a point is known well, and those that a model may lack while it is at one.
const WELL_KNOWN: f64 = 8.0;
const STALE: u32 = 8;
/// Below this deviation of logarithms a prediction is as good as certain.
const CERTAIN: f64 = 1e-3;
/// So many measurements, of which few count whole, may have been unlucky.
const FEW: f64 = 3.0;
/// How many measurements in a row an exploration may be planned for: one alone may be worth nothing where
/// noise is large, though several are (Frazier and Powell, "Paradoxes in learning and the marginal value of
/// information", Decision Analysis 7, 2010).
const REPETITIONS: [f64; 3] = [1.0, 4.0, 16.0];
/// Weight of what was measured at a point to be a home.
const PROVEN: f64 = 0.9;
/// How many times what it costs a trial must be worth that is expected to make a loss.
const CAUTION: f64 = 3.0;
/// What going to another point and back disturbs, as a share of an interval's profit.
const DISTURBANCE: f64 = 0.2;

/// The strategy.
#[derive(Clone, Debug)]
pub struct Bayes {
    tally: Tally,
    model: Model,
    /// Observations that the model does not know of.
    unfitted: u32,
    /// Where it earns; explorations set out from here and come back.
    home: Option<usize>,
}

/// A prediction, and what it would earn.
struct Prospect<'p> {
    point: usize,
    deviation: f64,
    likely: Likely,
    profit: &'p Profit<'p>,
}

impl<'p> Prospect<'p> {
    fn new(point: usize, prediction: &Prediction, outlook: &Outlook, profit: &'p Profit<'p>) -> Self {
        Self {
            point,
            deviation: prediction.deviation,
            likely: Likely::new(&outlook.present(&prediction.mean)),
            profit,
        }
    }

    /// Profit, were all better by this deviation of logarithms.
    fn shifted(&self, deviation: f64) -> f64 {
        (self.profit)(self.point, &self.likely.better(libm::exp(deviation)).response()).get()
    }

    /// Expected value of what depends on profit, if logarithms deviate so much.
    fn mean(&self, deviation: f64, value: impl Fn(f64) -> f64) -> f64 {
        NODES.into_iter().map(|(node, weight)| weight * value(self.shifted(node * deviation))).sum()
    }

    /// Expected profit, if everything varies by such a deviation: where a cliff is near, what may go wrong
    /// counts.
    fn expected(&self, variation: f64) -> f64 {
        self.mean(libm::hypot(self.deviation, variation), |profit| profit)
    }
}

/// Profit that is worth leaving a point for that makes so much.
fn worth_leaving(profit: f64) -> f64 {
    profit + HYSTERESIS * profit.abs()
}

impl Bayes {
    fn refit(&mut self, space: &Space) {
        if self.unfitted > 0 {
            self.model.fit(space, &self.tally);
            self.unfitted = 0;
        }
    }

    /// Expected profit of each point.
    fn prospects<'p>(
        &mut self,
        space: &Space,
        outlook: &Outlook,
        profit: &'p Profit<'p>,
    ) -> Vec<(Prospect<'p>, f64)> {
        let points = (0..space.count()).map(|point| {
            let prospect = Prospect::new(point, &self.model.predict(space, point), outlook, profit);
            let expected = prospect.expected(outlook.deviation);
            (prospect, expected)
        });
        points.collect()
    }

    /// The point of highest likely profit, and this profit; home unless another is clearly better.
    fn best(&self, prospects: &[(Prospect, f64)], present: usize) -> (usize, f64) {
        let home = self.home.unwrap_or(present);
        let at_home = prospects[home].1;
        let least = worth_leaving(at_home);
        let others = prospects.iter().filter(|(prospect, _)| prospect.point != home);
        others.fold((home, at_home), |best, (prospect, expected)| {
            if *expected > best.1.max(least) { (prospect.point, *expected) } else { best }
        })
    }

    /// Expected improvement over the profit `least`, were the point measured so many times.
    fn gain(&self, prospect: &Prospect, least: f64, times: f64) -> f64 {
        let deviation = libm::hypot(prospect.deviation, self.tally.doubt(prospect.point));
        let noise = self.measurement_noise() / libm::sqrt(times);
        // What the measurements are expected to change.
        let change = deviation * deviation / libm::hypot(deviation, noise);
        prospect.mean(change, |profit| (profit - least).max(0.0))
    }

    fn measurement_noise(&self) -> f64 {
        self.tally.trial_noise() * libm::sqrt(self.tally.inflation())
    }

    /// Where a loss is made, and beyond a cliff no slope tells the way: the most hopeful point that was not
    /// yet measured a few times. Its jitter, which decides on which side of the cliff it is, is what is least
    /// known.
    fn way_out(&self, prospects: &[(Prospect, f64)]) -> Option<usize> {
        let hope = NODES[NODES.len() - 1].0;
        let mut most = (None, f64::NEG_INFINITY);
        for (prospect, _) in prospects.iter().filter(|(prospect, _)| self.tally.weight(prospect.point) < FEW)
        {
            let unsure = self.tally.noise(JITTER) / libm::sqrt(self.tally.weight(prospect.point) + 1.0);
            let value = prospect.shifted(hope * libm::hypot(prospect.deviation, unsure));
            if value > most.1 {
                most = (Some(prospect.point), value);
            }
        }
        most.0
    }

    /// The exploration most worth its price, if one is. None that is expected to make a loss, unless a loss
    /// is made already: there is a way to most points over others that are safe.
    fn exploration(&self, prospects: &[(Prospect, f64)], best: (usize, f64), horizon: f64) -> Option<usize> {
        let least = worth_leaving(best.1);
        let mut most = (None, DISTURBANCE * best.1.abs());
        for (prospect, expected) in prospects.iter().filter(|(prospect, _)| prospect.point != best.0) {
            let is_safe = *expected >= 0.0 || best.1 <= 0.0;
            if prospect.deviation < CERTAIN {
                continue;
            }
            let caution = if is_safe { 1.0 } else { CAUTION };
            let worth =
                |times| horizon * self.gain(prospect, least, times) - caution * times * (best.1 - expected);
            // Of a point measured before, the next measurement alone is weighed: else there is no rest.
            let is_new = self.tally.weight(prospect.point) < FEW;
            let plans = &REPETITIONS[..if is_new { REPETITIONS.len() } else { 1 }];
            let worth = plans.iter().copied().map(worth).fold(f64::NEG_INFINITY, f64::max);
            if worth > most.1 {
                most = (Some(prospect.point), worth);
            }
        }
        most.0
    }
}

impl Strategy for Bayes {
    fn new(space: &Space) -> Self {
        Self { tally: Tally::new(space.count()), model: Model::default(), unfitted: 0, home: None }
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn tally_mut(&mut self) -> &mut Tally {
        &mut self.tally
    }

    fn learn(&mut self, _: &Space, point: usize, logs: &Logs, share: f64) {
        self.tally.learn(point, logs, share);
        self.unfitted += 1;
    }

    fn predict(&mut self, space: &Space, point: usize) -> Option<Prediction> {
        self.tally.known().next()?;
        // A point known well moves little by one more observation; fitting is what costs time.
        if self.tally.weight(point) < WELL_KNOWN || self.unfitted >= STALE {
            self.refit(space);
        }
        Some(self.model.predict(space, point))
    }

    fn choose(&mut self, space: &Space, present: usize, outlook: &Outlook, profit: &Profit) -> Choice {
        if self.tally.known().next().is_none() {
            return Choice { point: present, explores: true };
        }
        self.refit(space);
        let prospects = self.prospects(space, outlook, profit);
        let best = self.best(&prospects, present);
        if best.0 != present {
            // Only who is known well can be a home, for errors there are taken for the host's.
            let explores = self.tally.weight(best.0) < PROVEN;
            if !explores {
                self.home = Some(best.0);
            }
            return Choice { point: best.0, explores };
        }
        self.home = Some(best.0);
        let way_out = if best.1 <= 0.0 { self.way_out(&prospects) } else { None };
        let exploration = way_out.or_else(|| self.exploration(&prospects, best, outlook.horizon));
        Choice { point: exploration.unwrap_or(best.0), explores: exploration.is_some() }
    }
}
