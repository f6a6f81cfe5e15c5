//! The loads that were met, each with what was learned under it.

use super::acquisition::Estimator;
use super::drift::CommonDrift;
use super::estimate::PointEstimates;
use super::parameters::Parameters;
use super::signature::Signature;
use super::space::Space;
use super::surface::Prediction;
use crate::response::{JITTER, Logs, MEAN, Measured, P99, THROUGHPUT};
use alloc::vec::Vec;

/// Loads remembered; the one not met for longest gives way.
const LOADS_MAX: usize = crate::table::LOADS_MAX + 1;

/// What was measured of a point that is not yet returned from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub point: usize,
    pub measured: Measured,
    /// The level before.
    pub level: CommonDrift,
}

/// How far an interval was from what was foretold, and how far it may be.
struct Surprise {
    p: &'static Parameters,
    error: Logs,
    deviation: Logs,
}

impl Surprise {
    fn new(
        relative: &Logs,
        prediction: &Prediction,
        estimates: &PointEstimates,
        measured: &Measured,
    ) -> Self {
        let Prediction { mean, deviation } = prediction;
        let may_be =
            |channel| libm::hypot(libm::hypot(estimates.noise(channel), measured.sampling), *deviation);
        Self {
            p: estimates.p,
            error: core::array::from_fn(|channel| relative[channel] - mean[channel]),
            deviation: core::array::from_fn(may_be),
        }
    }

    fn is_calm(&self) -> bool {
        [THROUGHPUT, MEAN]
            .into_iter()
            .all(|channel| self.error[channel].abs() < self.p.outlier * self.deviation[channel])
    }

    /// What a point may learn: beyond noise, an error is the level's.
    fn credible(&self) -> Logs {
        core::array::from_fn(|channel| {
            let most = self.p.credible * self.deviation[channel];
            self.error[channel].clamp(-most, most)
        })
    }
}

#[derive(Clone, Debug)]
struct Load {
    strategy: Estimator,
    level: CommonDrift,
    /// Nothing as long as nothing was measured.
    signature: Option<Signature>,
    /// Interval in which it was last present.
    met: u64,
}

/// All loads; one of them is present.
#[derive(Clone, Debug)]
pub(super) struct Loads {
    p: &'static Parameters,
    loads: Vec<Load>,
    present: usize,
    /// Intervals so far, and since the present load came.
    now: u64,
    age: u64,
    /// How long loads lasted so far.
    life: f64,
}

impl Loads {
    pub fn new(space: &Space) -> Self {
        let first =
            Load { strategy: Estimator::new(space), level: CommonDrift::default(), signature: None, met: 0 };
        Self { loads: alloc::vec![first], present: 0, now: 0, age: 0, life: space.p.life, p: space.p }
    }

    pub fn present(&mut self) -> &mut Estimator {
        &mut self.loads[self.present].strategy
    }

    /// What was learned under the present load is relative to this.
    pub fn level(&self) -> &CommonDrift {
        &self.loads[self.present].level
    }

    /// The number of the present one.
    pub fn present_number(&self) -> usize {
        self.present
    }

    /// How many are remembered.
    pub fn count(&self) -> usize {
        self.loads.len()
    }

    /// Another interval, under the present load as far as is known; the first may be under one that was
    /// taught.
    pub fn pass(&mut self, measured: &Measured) {
        self.now += 1;
        self.age += 1;
        if self.now == 1 {
            self.present = self.recognise(measured).unwrap_or(self.present);
        }
        self.loads[self.present].met = self.now;
    }

    /// How much an interval surprises under the present load.
    pub fn surprise(&self, measured: &Measured) -> f64 {
        let signature = &self.loads[self.present].signature;
        signature.as_ref().map_or(0.0, |known| known.surprise(&measured.logs, measured.sampling))
    }

    /// Whether an interval is as foretold, as far as noise goes.
    pub fn foretells(&mut self, space: &Space, point: usize, measured: &Measured) -> bool {
        self.miss(space, point, measured).is_none_or(|miss| miss.is_calm())
    }

    /// Whether an interval at a point is worse than foretold by more than noise.
    pub fn disappoints(&mut self, space: &Space, point: usize, measured: &Measured) -> bool {
        let miss = self.miss(space, point, measured);
        miss.is_some_and(|miss| miss.error[MEAN] > self.p.credible * self.present().estimates.main_noise())
    }

    /// How far an interval at a point was from what was foretold; nothing if there was no ground to foretell.
    fn miss(&mut self, space: &Space, point: usize, measured: &Measured) -> Option<Surprise> {
        let Load { strategy, level, .. } = &mut self.loads[self.present];
        let prediction = strategy.predict(space, point)?;
        Some(Surprise::new(&level.relative(&measured.logs), &prediction, &strategy.estimates, measured))
    }

    /// Learns from an interval under the present load: what the point does, and the level. Returns whether it
    /// was as foretold.
    pub fn learn(&mut self, space: &Space, point: usize, measured: &Measured) -> bool {
        let Load { strategy, level, signature, .. } = &mut self.loads[self.present];
        signature.get_or_insert_with(|| Signature::new(self.p, &measured.logs)).learn(&measured.logs);
        let relative = level.relative(&measured.logs);
        let Some(prediction) = strategy.predict(space, point) else {
            strategy.learn(point, &relative, measured.share);
            return true;
        };
        let surprise = Surprise::new(&relative, &prediction, &strategy.estimates, measured);
        let credible = surprise.credible();
        strategy.estimates.missed(&surprise.error);
        strategy.learn(
            point,
            &core::array::from_fn(|channel| prediction.mean[channel] + credible[channel]),
            measured.share,
        );
        level.follow(self.p, &surprise.error, prediction.deviation);
        surprise.is_calm()
    }

    /// Learns from a trial of a point, between two intervals at another: the level was as it was in the mean
    /// of these.
    pub fn conclude(&mut self, space: &Space, trial: &Trial) {
        let Load { strategy, level, signature, .. } = &mut self.loads[self.present];
        signature.iter_mut().for_each(|signature| signature.learn(&trial.measured.logs));
        let [before, after] = [trial.level, *level].map(|level| level.relative(&trial.measured.logs));
        let mut relative: Logs = core::array::from_fn(|channel| 0.5 * (before[channel] + after[channel]));
        let prediction = strategy.predict(space, trial.point);
        let predicted = prediction.map(|prediction| prediction.mean[MEAN]);
        strategy.estimates.predicted(trial.point, predicted, relative[MEAN]);
        if let Some(prediction) = prediction {
            let surprise = Surprise::new(&relative, &prediction, &strategy.estimates, &trial.measured);
            let credible = surprise.credible();
            // A few late packets make much jitter; only neighbours tell whether the point is to blame.
            [JITTER, P99].into_iter().for_each(|at| relative[at] = prediction.mean[at] + credible[at]);
        }
        strategy.learn(trial.point, &relative, trial.measured.share);
    }

    /// Intervals that the present load is expected to last on: as long as it has, or as others did. What has
    /// lasted is likely to last as long again (Lindy's law, for lives of unknown scale). But what is learned
    /// drifts, and is worth nothing for longer than the square of the inverse of [`Parameters::drift`].
    pub fn horizon(&self) -> f64 {
        self.life.max(self.age as f64).min(1.0 / (self.p.drift * self.p.drift))
    }

    /// The load has changed: makes the one present under which the point is most likely to do this.
    pub fn change(&mut self, space: &Space, point: usize, measured: &Measured) {
        if self.age as f64 > self.p.rest_max {
            // The geometric mean: lives differ by orders of magnitude.
            self.life = libm::sqrt(self.life * self.age as f64).max(self.p.rest_max);
        }
        self.age = 0;
        self.present = match self.recognise(measured) {
            Some(load) => load,
            None => self.begin(space, point, measured),
        };
    }

    /// Whether another load than the present one was met before that explains an interval.
    pub fn knows_another(&self, measured: &Measured) -> bool {
        self.recognise(measured).is_some_and(|load| load != self.present)
    }

    /// What was learned elsewhere is a transferred prior of the only load there is, of which this is
    /// measured.
    pub fn transfer(&mut self, space: &Space, point: usize, measured: &Measured) {
        let heir = self.begin(space, point, measured);
        let heir = self.loads.swap_remove(heir);
        (self.loads, self.present, self.age) = (alloc::vec![heir], 0, 0);
    }

    /// Makes the load present that explains an interval, if one does that was met before.
    pub fn recall(&mut self, measured: &Measured) -> bool {
        let known = self.recognise(measured);
        self.present = known.unwrap_or(self.present);
        known.is_some()
    }

    fn recognise(&self, measured: &Measured) -> Option<usize> {
        let mut best = (None, self.p.allowance);
        for (index, load) in self.loads.iter().enumerate() {
            let Some(signature) = &load.signature else { continue };
            let surprise = signature.surprise(&measured.logs, measured.sampling);
            if surprise < best.1 {
                best = (Some(index), surprise);
            }
        }
        best.0
    }

    fn begin(&mut self, space: &Space, point: usize, measured: &Measured) -> usize {
        let mut strategy = Estimator::new(space);
        let before = &self.loads[self.present];
        let distance =
            before.signature.as_ref().map_or(f64::INFINITY, |known| known.distance(&measured.logs));
        strategy.estimates.inherit(&before.strategy.estimates, point, &measured.logs, distance);
        strategy.learn(point, &measured.logs, 1.0);
        let signature = Some(Signature::new(self.p, &measured.logs));
        self.add(Load { strategy, level: CommonDrift::default(), signature, met: self.now })
    }

    /// Adds a load, where there is no room in place of the one not met for longest.
    fn add(&mut self, load: Load) -> usize {
        if self.loads.len() < LOADS_MAX {
            self.loads.push(load);
            return self.loads.len() - 1;
        }
        let stalest = (0..self.loads.len()).min_by_key(|index| self.loads[*index].met).unwrap_or(0);
        self.loads[stalest] = load;
        stalest
    }

    /// Adds a load learned elsewhere, of which this was measured; it is recognised when it comes.
    pub fn teach(&mut self, strategy: Estimator, mut measured: impl Iterator<Item = Logs>) {
        let mut signature = measured.next().map(|first| Signature::new(self.p, &first));
        if let Some(signature) = &mut signature {
            measured.for_each(|logs| signature.learn(&logs));
        }
        self.add(Load { strategy, level: CommonDrift::default(), signature, met: self.now });
    }
}
