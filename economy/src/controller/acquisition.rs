//! Buys knowledge when it is worth its price: a Gaussian process, and the knowledge gradient.
//!
//! Frazier, Powell and Dayanik, "The knowledge-gradient policy for correlated normal beliefs" (INFORMS
//! Journal on Computing 21, 2009), simplified to the gain at the measured point itself, and with both sides
//! in dollars: an interval spent at a point costs what the best known point would have earned more; what it
//! is expected to teach is earned in every interval to come.

use super::estimate::PointEstimates;
use super::space::Space;
use super::surface::{Prediction, ResponseSurface};
use crate::response::{JITTER, Likely, Logs};
use alloc::vec::Vec;

use crate::decision::Worth;
use crate::response::Response;
use crate::units::DollarsPerSecond;

/// Profit at a working point that responds like this, at present prices.
pub type Profit<'a> = dyn Fn(usize, &Response) -> DollarsPerSecond + 'a;

/// Where to go next, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    /// The point.
    pub point: usize,
    /// Whether to learn of it rather than to earn by it.
    pub explores: bool,
    /// Whether the best that is known makes a loss.
    pub loses: bool,
    pub worth: Worth,
}

/// A trial takes as many intervals: there, and back.
const TRIAL: f64 = 3.0;
/// Of which so many are observed: that there, and one back.
const OBSERVED: u64 = 2;
/// Rounds after which trials of what may earn more grow no rarer: then as many observations are between two
/// as what is known is averaged over.
const TRIAL_ROUNDS: u32 = 6;

/// Whether a profit is searched for where a loss is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// It is.
    #[default]
    Everywhere,
    /// No point would make one.
    Nowhere,
}

/// What is expected of the time to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// Intervals to go under this load, as far as can be guessed.
    pub horizon: f64,
    /// What is to be added to the logarithms that were learned.
    pub level: Logs,
    /// Deviation of logarithms by which everything will be better at times and worse at others.
    pub deviation: f64,
    /// Whether a profit is searched for where a loss is made.
    pub search: Search,
    /// What the present point earns by what was measured since it was set; none if nothing was.
    pub realised: Option<f64>,
}

impl Outlook {
    /// Logarithms as they were learned, as they are expected to be.
    fn present(&self, logs: &Logs) -> Logs {
        core::array::from_fn(|channel| logs[channel] + self.level[channel])
    }
}

/// Gauss-Hermite quadrature of degree 5 for a standard normal variable: abscissae and weights (Abramowitz and
/// Stegun, *Handbook of Mathematical Functions*, table 25.10, scaled).
const NODES: [(f64, f64); 5] = [
    (-2.856_970_013_872_806, 0.011_257_411_327_720_69),
    (-1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (0.0, 0.533_333_333_333_333_3),
    (1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (2.856_970_013_872_806, 0.011_257_411_327_720_69),
];
/// How many measurements in a row an exploration may be planned for: one alone may be worth nothing where
/// noise is large, though several are (Frazier and Powell, "Paradoxes in learning and the marginal value of
/// information", Decision Analysis 7, 2010).
const REPETITIONS: [f64; 3] = [1.0, 4.0, 16.0];

/// A profit that is farther than a factor of e² is as far as any.
const FAR: f64 = 2.0;
/// Halvings of an interval that find it within a percent.
const BISECTIONS: u32 = 8;

/// The strategy.
#[derive(Clone, Debug)]
pub struct Estimator {
    pub(super) estimates: PointEstimates,
    surface: ResponseSurface,
    /// Observations that the model does not know of.
    unfitted: u32,
    /// Where it earns; explorations set out from here and come back.
    pub(super) incumbent: Option<usize>,
    /// Trials since a profit was made, where a loss is.
    search: Tries,
    /// Trials of what may earn more, at the present prices.
    pub(super) trials: Tries,
}

/// Trials that become rarer, since most of what can be learned was, and never end, since all drifts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    count: u32,
    /// The observation from which on the next may be.
    next: u64,
}

impl Tries {
    /// Counts another one if it is time for it. The pause between two is 0, 1, 3, 7 ... observations in each
    /// next round of so many, and as often twice as long.
    fn another(&mut self, now: u64, round: usize, doublings: u32) -> bool {
        if now < self.next {
            return false;
        }
        let rounds = (self.count / round as u32).min(doublings);
        self.count = self.count.wrapping_add(1);
        self.next = now + OBSERVED + (1 << rounds) - 1;
        true
    }
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

    /// By how much all logarithms would have to be better for a profit.
    fn until_profit(&self) -> f64 {
        let (mut low, mut high) = (0.0, FAR);
        for _ in 0..BISECTIONS {
            let middle = 0.5 * (low + high);
            if self.shifted(middle) > 0.0 { high = middle } else { low = middle }
        }
        high
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
fn worth_leaving(space: &Space, profit: f64) -> f64 {
    profit + space.p.hysteresis * profit.abs()
}

impl Estimator {
    fn refit(&mut self, space: &Space) {
        if self.unfitted > 0 {
            self.surface.fit(space, &self.estimates);
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
        // The level follows the noise of each measurement, which nobody pays for.
        let noise = self.estimates.main_noise();
        let variance = outlook.deviation * outlook.deviation - noise * noise;
        let variation = libm::sqrt(variance.max(0.0));
        let points = (0..space.count()).map(|point| {
            let prospect = Prospect::new(point, &self.surface.predict(space, point), outlook, profit);
            let expected = prospect.expected(variation);
            (prospect, expected)
        });
        points.collect()
    }

    /// What the incumbent earns, if it makes a profit where its estimate expects a loss: it is kept
    /// ("win-stay": Robbins, "Some aspects of the sequential design of experiments", 1952). Near a promise an
    /// error of a percent, much of it the level's, decides between the two.
    fn kept(&self, prospects: &[(Prospect, f64)], present: usize, outlook: &Outlook) -> Option<f64> {
        let expects_loss = self.incumbent == Some(present) && prospects[present].1 <= 0.0;
        outlook.realised.filter(|realised| expects_loss && *realised > 0.0)
    }

    /// The point of highest likely profit, and this profit; incumbent unless another is clearly better.
    fn best(&self, space: &Space, prospects: &[(Prospect, f64)], present: usize) -> (usize, f64) {
        let incumbent = self.incumbent.unwrap_or(present);
        let at_incumbent = prospects[incumbent].1;
        let least = worth_leaving(space, at_incumbent);
        let others = prospects.iter().filter(|(prospect, _)| prospect.point != incumbent);
        others.fold((incumbent, at_incumbent), |best, (prospect, expected)| {
            if *expected > best.1.max(least) { (prospect.point, *expected) } else { best }
        })
    }

    /// Expected improvement over the profit `least`, were the point measured so many times.
    fn gain(&self, prospect: &Prospect, least: f64, times: f64) -> f64 {
        let deviation = libm::hypot(prospect.deviation, self.estimates.doubt(prospect.point));
        let noise = self.estimates.trial_noise() * libm::sqrt(self.estimates.inflation() / times);
        // What the measurements are expected to change.
        let change = deviation * deviation / libm::hypot(deviation, noise);
        prospect.mean(change, |profit| (profit - least).max(0.0))
    }

    /// Where a loss is made, and beyond a cliff no slope tells the way: by turns the point most likely to
    /// make a profit (Kushner, Journal of Basic Engineering 86, 1964), and the one not measured for longest.
    /// So each is tried again and again, though every round takes twice as long as the one before.
    fn way_out(&mut self, space: &Space, prospects: &[(Prospect, f64)], present: usize) -> Option<usize> {
        // In a round each is tried once for each of the two reasons.
        let (now, round) = (self.estimates.now, 2 * prospects.len());
        if space.p.search_rounds < 1.0 || !self.search.another(now, round, space.p.search_rounds as u32) {
            return None;
        }
        let is_hopeful = self.search.count % 2 == 1;
        let merit = |prospect: &Prospect| match is_hopeful {
            true => -prospect.until_profit() / self.doubt_of(prospect),
            false => self.estimates.unmet(prospect.point) as f64,
        };
        let others =
            prospects.iter().map(|(prospect, _)| prospect).filter(|prospect| prospect.point != present);
        let merits = others.map(|prospect| (prospect.point, merit(prospect)));
        let (point, _) = merits.max_by(|one, other| one.1.total_cmp(&other.1))?;
        // What is known led to a loss: what is measured now counts more than all before.
        if !is_hopeful {
            self.estimates.forget(point);
        }
        Some(point)
    }

    /// Deviation of what decides on which side of a cliff a point is: jitter is least known.
    fn doubt_of(&self, prospect: &Prospect) -> f64 {
        let jitter = self.estimates.noise(JITTER) / libm::sqrt(self.estimates.weight(prospect.point) + 1.0);
        libm::hypot(prospect.deviation, jitter)
    }

    /// The exploration most worth its price, if one is. None that is expected to make a loss, unless a loss
    /// is made already: there is a way to most points over others that are safe.
    fn exploration(
        &self,
        space: &Space,
        prospects: &[(Prospect, f64)],
        best: (usize, f64),
        horizon: f64,
    ) -> Option<(usize, Worth)> {
        let least = worth_leaving(space, best.1);
        let mut most = (None, space.p.disturbance * best.1.abs());
        for (prospect, expected) in prospects.iter().filter(|(prospect, _)| prospect.point != best.0) {
            let is_safe = *expected >= 0.0 || best.1 <= 0.0;
            let caution = if is_safe { 1.0 } else { space.p.caution };
            let worth = |times| Worth {
                gain: self.gain(prospect, least, times),
                cost: caution * times * (best.1 - expected),
                horizon,
                settling: TRIAL * times,
            };
            let net = |worth: &Worth| horizon * worth.gain - worth.cost;
            // Of a point measured before, the next measurement alone is weighed: else there is no rest.
            let is_new = self.estimates.weight(prospect.point) < space.p.few;
            let plans = &REPETITIONS[..if is_new { REPETITIONS.len() } else { 1 }];
            let plans = plans.iter().copied().map(worth);
            let Some(worth) = plans.max_by(|one, other| net(one).total_cmp(&net(other))) else { continue };
            if net(&worth) > most.1 {
                most = (Some((prospect.point, worth)), net(&worth));
            }
        }
        most.0
    }
}

impl Estimator {
    pub(super) fn new(space: &Space) -> Self {
        Self {
            estimates: PointEstimates::new(space.count(), space.p),
            surface: ResponseSurface::default(),
            unfitted: 0,
            incumbent: None,
            search: Tries::default(),
            trials: Tries::default(),
        }
    }

    pub(super) fn learn(&mut self, point: usize, logs: &Logs, share: f64) {
        self.estimates.learn(point, logs, share);
        self.unfitted += 1;
    }

    pub(super) fn predict(&mut self, space: &Space, point: usize) -> Option<Prediction> {
        self.estimates.known().next()?;
        // A point known well moves little by one more observation; fitting is what costs time.
        if self.estimates.weight(point) < space.p.rest_max || f64::from(self.unfitted) >= space.p.rest_max {
            self.refit(space);
        }
        Some(self.surface.predict(space, point))
    }

    pub(super) fn choose(
        &mut self,
        space: &Space,
        present: usize,
        outlook: &Outlook,
        profit: &Profit,
    ) -> Choice {
        // The first request may be slow: of who is hardly known it is not known, either, whether it loses.
        if self.incumbent.is_none() && self.estimates.weight(present) < space.p.doubt {
            let worth = Worth::default();
            return Choice { point: present, explores: true, loses: false, worth };
        }
        self.refit(space);
        let prospects = self.prospects(space, outlook, profit);
        let best = match self.kept(&prospects, present, outlook) {
            Some(realised) => (present, realised),
            None => self.best(space, &prospects, present),
        };
        if best.0 != present {
            // Only who is known well can be a incumbent, for errors there are taken for the host's.
            let explores = self.estimates.weight(best.0) < space.p.proven;
            if !explores {
                self.incumbent = Some(best.0);
            }
            let (gain, horizon) = (best.1 - prospects[present].1, outlook.horizon);
            let worth = Worth { gain, cost: 0.0, horizon, settling: 1.0 };
            return Choice { point: best.0, explores, loses: false, worth };
        }
        self.incumbent = Some(best.0);
        let loses = best.1 <= 0.0;
        let way_out = if loses && outlook.search == Search::Everywhere {
            self.way_out(space, &prospects, present)
        } else {
            None
        };
        if !loses {
            self.search = Tries::default();
        }
        let searched = way_out.map(|point| {
            let (prospect, expected) = &prospects[point];
            let (gain, cost) = (self.gain(prospect, best.1, 1.0), 2.0 * (best.1 - expected));
            (point, Worth { gain, cost, horizon: outlook.horizon, settling: TRIAL })
        });
        let exploration = searched.or_else(|| {
            let (most, now) =
                (self.exploration(space, &prospects, best, outlook.horizon), self.estimates.now);
            let noise = self.estimates.trial_noise() / space.p.noise;
            let round = prospects.len() as f64 * (1.0 + noise * noise * self.estimates.inflation());
            most.filter(|_| loses || self.trials.another(now, round as usize, TRIAL_ROUNDS))
        });
        let (point, worth) = exploration.unwrap_or((best.0, Worth::default()));
        Choice { point, explores: exploration.is_some(), loses, worth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_become_rarer_round_by_round_and_never_end() {
        let mut tries = Tries::default();
        let due: Vec<u64> = (0..200).filter(|now| tries.another(*now, 3, 4)).collect();
        let steps: Vec<u64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let pauses: Vec<u64> = steps.iter().map(|step| step - OBSERVED).collect();
        assert_eq!(pauses[..15], [0, 0, 0, 1, 1, 1, 3, 3, 3, 7, 7, 7, 15, 15, 15]);
        assert!(pauses.len() > 15 && pauses[15..].iter().all(|pause| *pause == 15), "{pauses:?}");
    }
}
