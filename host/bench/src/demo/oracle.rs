//! What the best fixed batching delays earn, for one who did not know beforehand which run would be lucky.
//!
//! The same delay earns more or less from run to run, so that the best of several runs is good *and* lucky:
//! its value is too high on average, even if every value by itself is right (Smith and Winkler, "The
//! Optimizer's Curse", Management Science 52, 2006). Where runs are repeated, a delay is therefore chosen by
//! all other repetitions than that by which it is judged. That errs a little the other way, for the choice
//! may be wrong; an estimator without any bias does not exist (van Hasselt, "Estimating the Maximum Expected
//! Value", arXiv:1302.7175, 2013). A single run of each delay is judged together with its neighbours instead.

use super::analysis::{Account, Choice};
use super::contract::Contract;
use crate::statistics::fitted;

/// How luck was kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By turns within one machine, chosen by all other rounds than that by which it is judged.
    ByTurns,
    /// Chosen by the other repetitions than that by which it is judged.
    CrossValidated,
    /// Chosen and judged together with its neighbours of the sweep.
    Smoothed,
}

impl Method {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Method::ByTurns => "by_turns",
            Method::CrossValidated => "cross_validated",
            Method::Smoothed => "smoothed",
        }
    }

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Method::ByTurns => "by turns in one machine",
            Method::CrossValidated => "cross-validated",
            Method::Smoothed => "smoothed",
        }
    }
}

/// Which fixed batching delays are best, and what they earn.
#[derive(Clone, Debug, PartialEq)]
pub struct Oracle {
    /// How luck was kept out.
    pub method: Method,
    /// What was chosen for each repetition, at least one; a single one if smoothed.
    pub folds: Vec<Fold>,
}

/// What was chosen for one repetition, and what that earned in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fold {
    /// The repetition.
    pub repetition: u32,
    /// The best delay of each phase.
    pub phases: [Choice; 2],
    /// The best delay of all that stay the same.
    pub stays: Choice,
}

impl Fold {
    /// What the best delays of both phases earn.
    pub fn both(&self) -> f64 {
        self.phases.iter().map(|choice| choice.profit).sum()
    }
}

impl Oracle {
    /// Of runs whose phases take `seconds`; none unless a fixed delay served in both phases.
    pub fn of(accounts: &[Account], contract: &Contract, seconds: f64) -> Option<Oracle> {
        Oracle::among(
            &accounts.iter().filter_map(|account| Tried::of(account, contract, seconds)).collect::<Vec<_>>(),
        )
    }

    fn among(sweep: &[Tried]) -> Option<Oracle> {
        let mut repetitions: Vec<u32> = sweep.iter().flat_map(Tried::repetitions).collect();
        repetitions.sort_unstable();
        repetitions.dedup();
        let folds: Vec<Fold> =
            repetitions.into_iter().filter_map(|repetition| validated(sweep, repetition)).collect();
        match folds.len() {
            0 | 1 => Some(Oracle { method: Method::Smoothed, folds: vec![smoothed(sweep)?] }),
            _ => Some(Oracle { method: Method::CrossValidated, folds }),
        }
    }

    /// What `value` says of each repetition.
    pub fn by_repetition(&self, value: impl Fn(&Fold) -> f64) -> Vec<(u32, f64)> {
        self.folds.iter().map(|fold| (fold.repetition, value(fold))).collect()
    }

    /// The mean of what `value` says of all repetitions.
    pub fn mean(&self, value: impl Fn(&Fold) -> f64) -> f64 {
        self.folds.iter().map(value).sum::<f64>() / self.folds.len() as f64
    }

    /// The delays that were chosen, each once, in microseconds.
    pub fn delays_us(&self, choice: impl Fn(&Fold) -> Choice) -> Vec<u32> {
        let mut delays: Vec<u32> = self.folds.iter().map(|fold| choice(fold).delay_us).collect();
        delays.sort_unstable();
        delays.dedup();
        delays
    }
}

/// A fixed delay that was tried.
#[derive(Clone, Debug)]
struct Tried {
    delay_us: u32,
    /// What each run earned in each phase, in dollars, and which repetition it was of.
    runs: Vec<(u32, [f64; 2])>,
}

impl Tried {
    fn of(account: &Account, contract: &Contract, seconds: f64) -> Option<Tried> {
        let delay_us = account.system.delay_us()?;
        Some(Tried { delay_us, runs: account.phase_profits(contract, seconds) })
    }

    fn repetitions(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().map(|(repetition, _)| *repetition)
    }

    /// The mean of all runs but those of repetition `but`.
    fn mean(&self, but: Option<u32>) -> Option<[f64; 2]> {
        let others = self.runs.iter().filter(|(repetition, _)| Some(*repetition) != but);
        let count = others.clone().count();
        let sum = |phase: usize| others.clone().map(|(_, profits)| profits[phase]).sum::<f64>();
        (count > 0).then(|| [0, 1].map(|phase| sum(phase) / count as f64))
    }
}

/// A delay, what it seems to earn in each phase, and what it is found to earn.
struct Candidate {
    delay_us: u32,
    seems: [f64; 2],
    earns: [f64; 2],
}

/// The best by what they seem to earn, and what they earn.
fn choose(repetition: u32, candidates: &[Candidate]) -> Option<Fold> {
    let best = |value: fn(&[f64; 2]) -> f64| {
        let best =
            candidates.iter().max_by(|one, other| value(&one.seems).total_cmp(&value(&other.seems)))?;
        Some(Choice { delay_us: best.delay_us, profit: value(&best.earns) })
    };
    let phases = [best(|profits| profits[0])?, best(|profits| profits[1])?];
    Some(Fold { repetition, phases, stays: best(|profits| profits[0] + profits[1])? })
}

/// Chosen by all other repetitions, judged by this one.
fn validated(sweep: &[Tried], repetition: u32) -> Option<Fold> {
    let candidate = |tried: &Tried| {
        let (_, earns) = tried.runs.iter().find(|(of, _)| *of == repetition)?;
        Some(Candidate { delay_us: tried.delay_us, seems: tried.mean(Some(repetition))?, earns: *earns })
    };
    choose(repetition, &sweep.iter().filter_map(candidate).collect::<Vec<_>>())
}

/// Chosen and judged on a smooth curve through the means of all runs.
fn smoothed(sweep: &[Tried]) -> Option<Fold> {
    let means: Vec<(u32, [f64; 2])> =
        sweep.iter().filter_map(|tried| Some((tried.delay_us, tried.mean(None)?))).collect();
    let [many, single] = [0, 1].map(|phase| {
        smooth(&means.iter().map(|(us, profits)| (f64::from(*us), profits[phase])).collect::<Vec<_>>())
    });
    let curve = means.iter().zip(many.into_iter().zip(single));
    let candidate = |((us, _), (many, single)): (&(u32, _), _)| Candidate {
        delay_us: *us,
        seems: [many, single],
        earns: [many, single],
    };
    choose(0, &curve.map(candidate).collect::<Vec<_>>())
}

/// The curve through `points`, which are in order: at each the straight line through it and its two nearest
/// in order, by least squares. A mean of the three would be too low at the ends of a curve that falls
/// (Fan and Gijbels, "Local Polynomial Modelling and Its Applications", 1996, section 3.2).
/// At a delay of 0 nothing is batched at all, so that it says nothing about others.
fn smooth(points: &[(f64, f64)]) -> Vec<f64> {
    let (alone, curve) = points.split_at(points.iter().take_while(|(us, _)| *us == 0.0).count());
    let line = |at: usize| {
        let begin = at.saturating_sub(1).min(curve.len().saturating_sub(WINDOW));
        let window = &curve[begin..curve.len().min(begin + WINDOW)];
        fitted(window, curve[at].0)
    };
    alone.iter().map(|(_, value)| *value).chain((0..curve.len()).map(line)).collect()
}

/// How many delays are judged together.
const WINDOW: usize = 3;

#[cfg(test)]
mod tests;
