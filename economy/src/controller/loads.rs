//! The loads that were met, each with what was learned under it.

use super::space::Space;
use super::strategy::Strategy;
use super::watch::surprise;
use crate::response::Measured;
use alloc::vec::Vec;

/// Loads remembered; the one not met for longest gives way.
const LOADS_MAX: usize = 8;
/// Surprise up to which a measurement may belong to a load that was met before.
const FAMILIAR: f64 = 4.0;
/// Deviation up to which a prediction says anything about where a measurement belongs.
const TELLING: f64 = 0.3;
/// For how many intervals a load lasts, as long as nothing is known of it.
const LIFE: f64 = 500.0;
/// A load is not taken for shorter than this, or nothing would ever be learned.
const LIFE_MIN: f64 = 25.0;

#[derive(Clone, Debug)]
struct Load<S> {
    strategy: S,
    /// Interval in which it was last present.
    met: u64,
}

/// All loads; one of them is present.
#[derive(Clone, Debug)]
pub(super) struct Loads<S> {
    loads: Vec<Load<S>>,
    present: usize,
    /// Intervals so far, and since the present load came.
    now: u64,
    age: u64,
    /// How long loads lasted so far.
    life: f64,
}

impl<S: Strategy> Loads<S> {
    pub fn new(space: &Space) -> Self {
        let first = Load { strategy: S::new(space), met: 0 };
        Self { loads: alloc::vec![first], present: 0, now: 0, age: 0, life: LIFE }
    }

    pub fn present(&mut self) -> &mut S {
        &mut self.loads[self.present].strategy
    }

    /// How many are remembered.
    pub fn count(&self) -> usize {
        self.loads.len()
    }

    /// Another interval under the present load.
    pub fn pass(&mut self) {
        self.now += 1;
        self.age += 1;
        self.loads[self.present].met = self.now;
    }

    /// Intervals that the present load is expected to last on: as long as it has, or as others did. What has
    /// lasted is likely to last as long again (Lindy's law, for lives of unknown scale).
    pub fn horizon(&self) -> f64 {
        self.life.max(self.age as f64)
    }

    /// The load has changed: makes the one present under which the point is most likely to do this.
    pub fn change(&mut self, space: &Space, point: usize, measured: &Measured) {
        let age = self.age as f64;
        // The geometric mean: lives differ by orders of magnitude.
        self.life = libm::sqrt(self.life * age).max(LIFE_MIN);
        self.age = 0;
        self.present = match self.recognise(space, point, measured) {
            Some(load) => load,
            None => self.begin(space, point, measured),
        };
    }

    /// The first interval: a load that was taught may be the one that is met.
    pub fn greet(&mut self, space: &Space, point: usize, measured: &Measured) {
        if self.now == 1 {
            self.present = self.recognise(space, point, measured).unwrap_or(self.present);
        }
    }

    fn recognise(&mut self, space: &Space, point: usize, measured: &Measured) -> Option<usize> {
        let mut best = (None, FAMILIAR);
        for (index, load) in self.loads.iter_mut().enumerate() {
            let Some(prediction) = load.strategy.predict(space, point) else { continue };
            let surprise = surprise(&prediction, load.strategy.tally(), point, measured);
            if prediction.deviation < TELLING && surprise < best.1 {
                best = (Some(index), surprise);
            }
        }
        best.0
    }

    fn begin(&mut self, space: &Space, point: usize, measured: &Measured) -> usize {
        let mut strategy = S::new(space);
        strategy.tally_mut().inherit(self.loads[self.present].strategy.tally(), point, &measured.logs);
        strategy.learn(space, point, &measured.logs, 1.0);
        let load = Load { strategy, met: self.now };
        if self.loads.len() < LOADS_MAX {
            self.loads.push(load);
            return self.loads.len() - 1;
        }
        let stalest = (0..self.loads.len()).min_by_key(|index| self.loads[*index].met).unwrap_or(0);
        self.loads[stalest] = load;
        stalest
    }

    /// Adds a load learned elsewhere; it is recognised when it comes.
    pub fn teach(&mut self, strategy: S) {
        if self.loads.len() < LOADS_MAX {
            self.loads.push(Load { strategy, met: self.now });
        }
    }
}
