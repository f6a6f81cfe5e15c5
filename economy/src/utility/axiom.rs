//! Checks a composed function against the utility function axiom.
//!
//! Revenue is `T * U + S`, where `U` and `S` are sums of functions of one quantity each, but for the penalty,
//! which falls with both latency and jitter. So a rise along one quantity shows while all others are at their
//! best, where a floor hides nothing, or with no jitter and a mean latency at which neither penalty nor bonus
//! hides it. Between kinks tables are linear, so comparing kinks is exact; the bonus is convex, so that it
//! falls least at the right end of a stretch, where it is looked at closely. More throughput must earn more
//! even when all else is at its worst.

use super::composed::{Quantity, State, Term, Unit, Utility};
use crate::prices::Resource;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Latencies considered, in seconds: from nothing to centuries.
const SOONEST: f64 = 1e-12;
const LATEST: f64 = 1e12;
/// How finely a stretch between kinks is looked at, and how closely its right end.
const PARTS: u32 = 32;
const CLOSE: f64 = 1e-6;
/// Relative error of sums of doubles.
const ROUNDING: f64 = 1e-9;

/// Two states that differ in one quantity, and break the axiom.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct Violation {
    /// What differs.
    pub quantity: Quantity,
    /// The state with less of it, and the revenue there in dollars for a second.
    pub less: (State, f64),
    /// The state with more of it, and the revenue there.
    pub more: (State, f64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, (less, low), (more, high)) = (self.quantity.name(), &self.less, &self.more);
        let (from, to) = (less.get(self.quantity), more.get(self.quantity));
        let (change, rule) = match self.quantity {
            Quantity::Throughput => ("falls", "must not fall"),
            _ => ("rises", "must not rise"),
        };
        write!(f, "utility function axiom broken: revenue {rule} with {name}, but {change} from {low} $/s ")?;
        write!(f, "at {name} {from} to {high} $/s at {name} {to}")?;
        let others = Quantity::all().filter(|other| *other != self.quantity && less.get(*other) != 0.0);
        f.write_str(" (both at")?;
        for (index, other) in others.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma} {} {}", other.name(), less.get(other))?;
        }
        f.write_str(")")
    }
}

impl Utility {
    /// Revenue is throughput times the sum of all terms for a unit, though not less than `floor` for each,
    /// plus the sum of all terms for a second.
    ///
    /// # Errors
    /// If this breaks the utility function axiom (nom, VEE'16, section 4), with two states that show it.
    pub fn new(unit: Unit, floor: Option<f64>, terms: Vec<Term>) -> Result<Self, Box<Violation>> {
        let utility = Self::unchecked(unit, floor, terms);
        check(&utility)?;
        Ok(utility)
    }
}

fn check(utility: &Utility) -> Result<(), Box<Violation>> {
    let mut falling = Quantity::all().filter(|quantity| *quantity != Quantity::Throughput);
    falling.try_for_each(|quantity| check_falling(utility, quantity))?;
    check_throughput(utility)
}

fn corner(latency: f64, price: f64) -> State {
    State {
        throughput: 0.0,
        mean_latency: latency,
        jitter: latency,
        p99: latency,
        prices: [price; Resource::COUNT],
    }
}

/// Values to compare: kinks, what lies between them, and what lies beyond.
fn candidates(utility: &Utility, quantity: Quantity) -> Vec<f64> {
    let least = if quantity == Quantity::MeanLatency { SOONEST } else { 0.0 };
    let mut ends = alloc::vec![least];
    ends.extend(utility.kinks(quantity).into_iter().filter(|kink| *kink > least));
    ends.push(2.0 * ends[ends.len() - 1] + 1.0);
    let stretch = |pair: &[f64]| {
        let (left, width) = (pair[0], pair[1] - pair[0]);
        let parts = (0..PARTS).map(move |part| left + width * f64::from(part) / f64::from(PARTS));
        // A step, as the penalty's without jitter, is on neither side of a kink itself.
        let near = [left + width * CLOSE, left + width * (1.0 - CLOSE)];
        parts.chain(near).collect::<Vec<_>>()
    };
    let mut values: Vec<f64> = ends.windows(2).flat_map(stretch).collect();
    values.push(ends[ends.len() - 1]);
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// Means at which to look along other quantities: on both sides of each kink.
fn mean_latencies(utility: &Utility) -> Vec<f64> {
    let kinks = utility.kinks(Quantity::MeanLatency).into_iter().filter(|kink| *kink > 0.0);
    let mut means: Vec<f64> = kinks.flat_map(|kink| [kink / 2.0, kink * 2.0]).collect();
    means.extend([SOONEST, 1e-3, 1.0]);
    means
}

fn is_above(high: f64, low: f64) -> bool {
    high > low + ROUNDING * low.abs().max(high.abs())
}

fn check_falling(utility: &Utility, quantity: Quantity) -> Result<(), Box<Violation>> {
    let best = State { jitter: 0.0, p99: 0.0, ..corner(SOONEST, 0.0) };
    let values = candidates(utility, quantity);
    for mean_latency in mean_latencies(utility) {
        let base = State { mean_latency, ..best };
        for pair in values.windows(2) {
            let (less, more) = (base.with(quantity, pair[0]), base.with(quantity, pair[1]));
            let (from, to) = (utility.per_unit(&less), utility.per_unit(&more));
            let (fixed, varied) = (utility.per_second(&less), utility.per_second(&more));
            if is_above(varied, fixed) {
                return Err(violation(utility, quantity, less, more));
            }
            if is_above(to, from) {
                // So much throughput that the rise is more than what terms for a second lose.
                let throughput = 1.0 + 2.0 * (fixed - varied) / (to - from);
                let at = |state: State| state.with(Quantity::Throughput, throughput);
                return Err(violation(utility, quantity, at(less), at(more)));
            }
        }
    }
    Ok(())
}

fn check_throughput(utility: &Utility) -> Result<(), Box<Violation>> {
    let worst = corner(LATEST, LATEST);
    let mut values = alloc::vec![0.0];
    values.extend(utility.kinks(Quantity::Throughput).into_iter().filter(|kink| *kink > 0.0));
    values.push(2.0 * values[values.len() - 1] + 1.0);
    for pair in values.windows(2) {
        let [less, more] = [pair[0], pair[1]].map(|value| worst.with(Quantity::Throughput, value));
        if is_above(utility.revenue_at(&less), utility.revenue_at(&more)) {
            return Err(violation(utility, Quantity::Throughput, less, more));
        }
    }
    Ok(())
}

fn violation(utility: &Utility, quantity: Quantity, less: State, more: State) -> Box<Violation> {
    let with_revenue = |state: State| (state, utility.revenue_at(&state));
    Box::new(Violation { quantity, less: with_revenue(less), more: with_revenue(more) })
}

#[cfg(test)]
mod tests;
