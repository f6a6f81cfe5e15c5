//! A utility function put together from terms: the published forms and piecewise linear tables.

use super::{Bonus, Latency, Penalty, Refund};
use crate::prices::{Prices, Resource, Usage};
use crate::response::Response;
use crate::units::{DollarsPerSecond, Seconds};
use alloc::vec::Vec;

/// What a contract pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A Gbit of answers, as users read it.
    Gbit,
    /// A request answered.
    Operation,
}

/// What a table is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// In units for a second.
    Throughput,
    /// In seconds.
    MeanLatency,
    /// In seconds.
    Jitter,
    /// In seconds.
    P99,
    /// In the resource's unit.
    Price(Resource),
}

impl Quantity {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Throughput, Self::MeanLatency, Self::Jitter, Self::P99];
        others.into_iter().chain(Resource::ALL.into_iter().map(Self::Price))
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|quantity| quantity.name() == name)
    }

    /// Its name in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::MeanLatency => "mean-latency",
            Self::Jitter => "jitter",
            Self::P99 => "p99",
            Self::Price(Resource::Core) => "price-core",
            Self::Price(Resource::Memory) => "price-memory",
            Self::Price(Resource::NetworkOut) => "price-network-out",
            Self::Price(Resource::NetworkIn) => "price-network-in",
            Self::Price(Resource::Storage) => "price-storage",
            Self::Price(Resource::Energy) => "price-energy",
        }
    }
}

/// What a term's money is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Each unit of throughput.
    Unit,
    /// Each second, whatever the throughput.
    Second,
}

/// Why a list of points is no table.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadTable {
    /// Nothing to interpolate.
    #[error("points: expected at least one")]
    Empty,
    /// Not a number, or a negative quantity.
    #[error("points[{index}] is ({x}, {y}): expected finite numbers, the first at least 0")]
    NotFinite {
        /// Of the point.
        index: usize,
        /// The quantity.
        x: f64,
        /// The dollars.
        y: f64,
    },
    /// The quantity does not grow from one to the next.
    #[error("points[{index}] is at {x}, after {before}: expected a greater quantity than the one before")]
    NotSorted {
        /// Of the point.
        index: usize,
        /// Its quantity.
        x: f64,
        /// The quantity of the point before.
        before: f64,
    },
    /// Volume discounts have to be given as totals, for only these show whether they grow.
    #[error("per: expected \"second\" over throughput: what so many units bring together in a second")]
    ThroughputPerUnit,
}

/// A piecewise linear function, constant beyond its first and last point.
#[derive(Clone, Debug, PartialEq)]
pub struct Table(Vec<(f64, f64)>);

impl Table {
    /// Through these points of (quantity, dollars).
    ///
    /// # Errors
    /// If there is none, one is not finite or has a negative quantity, or the quantities do not increase.
    pub fn new(points: Vec<(f64, f64)>) -> Result<Self, BadTable> {
        if points.is_empty() {
            return Err(BadTable::Empty);
        }
        let is_good = |(x, y): &(f64, f64)| x.is_finite() && *x >= 0.0 && y.is_finite();
        if let Some(index) = points.iter().position(|point| !is_good(point)) {
            return Err(BadTable::NotFinite { index, x: points[index].0, y: points[index].1 });
        }
        if let Some(at) = points.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
            return Err(BadTable::NotSorted { index: at + 1, x: points[at + 1].0, before: points[at].0 });
        }
        Ok(Self(points))
    }

    /// The value at a quantity.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        let after = self.0.partition_point(|point| point.0 <= x);
        match (after.checked_sub(1).map(|before| self.0[before]), self.0.get(after)) {
            (Some((x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * ((x - x0) / (x1 - x0)),
            (Some((_, y)), None) | (None, Some(&(_, y))) => y,
            (None, None) => 0.0,
        }
    }

    /// The points.
    #[must_use]
    pub fn points(&self) -> &[(f64, f64)] {
        &self.0
    }

    fn stretched(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|(x, y)| (x * factor, *y)).collect())
    }
}

/// One summand of a utility function.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// So many dollars for each unit.
    Value(f64),
    /// `alpha` for each unit, less the published penalty.
    Penalty {
        /// Dollars for each unit.
        alpha: f64,
        /// See there.
        penalty: Penalty,
    },
    /// `alpha` for each unit, less the published refund.
    Refund {
        /// Dollars for each unit.
        alpha: f64,
        /// See there.
        refund: Refund,
    },
    /// `alpha` for each unit, and the published bonus.
    Bonus {
        /// Dollars for each unit.
        alpha: f64,
        /// See there.
        bonus: Bonus,
    },
    /// What a table says.
    Table {
        /// Of this.
        over: Quantity,
        /// For this.
        per: Per,
        /// In dollars.
        table: Table,
    },
}

/// Everything that revenue depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// In units for a second.
    pub throughput: f64,
    /// In seconds, above 0.
    pub mean_latency: f64,
    /// In seconds.
    pub jitter: f64,
    /// In seconds.
    pub p99: f64,
    /// By resource, each in its unit.
    pub prices: [f64; Resource::COUNT],
}

impl State {
    /// One of its quantities.
    #[must_use]
    pub fn get(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Throughput => self.throughput,
            Quantity::MeanLatency => self.mean_latency,
            Quantity::Jitter => self.jitter,
            Quantity::P99 => self.p99,
            Quantity::Price(resource) => self.prices[resource as usize],
        }
    }

    pub(super) fn with(mut self, quantity: Quantity, value: f64) -> Self {
        match quantity {
            Quantity::Throughput => self.throughput = value,
            Quantity::MeanLatency => self.mean_latency = value,
            Quantity::Jitter => self.jitter = value,
            Quantity::P99 => self.p99 = value,
            Quantity::Price(resource) => self.prices[resource as usize] = value,
        }
        self
    }

    fn latency(&self) -> Option<Latency> {
        let seconds = |value| Seconds::new(value).ok();
        Latency::new(seconds(self.mean_latency)?, seconds(self.jitter)?, seconds(self.p99)?).ok()
    }
}

/// A utility function: what the owner is paid. What she pays is always metered use times price
/// ([`Prices::cost`]), and no part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Utility {
    pub(super) unit: Unit,
    pub(super) floor: Option<f64>,
    pub(super) terms: Vec<Term>,
}

/// What a server is paid by: a utility function, or several for whom it serves.
pub trait Contract: core::fmt::Debug {
    /// What comes in; a resource without a price counts as free.
    fn revenue(&self, response: &Response, prices: &Prices) -> DollarsPerSecond;

    /// Revenue less the cost of what is held and of what the response sends and receives.
    fn profit(&self, response: &Response, held: &Usage, prices: &Prices) -> DollarsPerSecond {
        let usage = Usage { network_out: response.sent, network_in: response.received, ..*held };
        self.revenue(response, prices) - prices.cost(&usage)
    }
}

impl Contract for Utility {
    fn revenue(&self, response: &Response, prices: &Prices) -> DollarsPerSecond {
        Utility::revenue(self, response, prices)
    }
}

impl Utility {
    /// One that may break the axiom: [`Self::new`] looks.
    pub(super) fn unchecked(unit: Unit, floor: Option<f64>, terms: Vec<Term>) -> Self {
        Self { unit, floor, terms }
    }

    /// That of a server without a contract: nobody pays for anything.
    #[must_use]
    pub fn none() -> Self {
        Self::unchecked(Unit::Gbit, None, Vec::new())
    }

    /// The shortest latency that a penalty promises, if any does.
    #[must_use]
    pub fn objective(&self) -> Option<Seconds> {
        let objective = |term: &Term| match term {
            Term::Penalty { penalty, .. } => Some(penalty.objective()),
            _ => None,
        };
        self.terms.iter().filter_map(objective).min_by(|a, b| a.get().total_cmp(&b.get()))
    }

    /// What is paid for.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The least that a unit brings, if there is such a limit.
    #[must_use]
    pub fn floor(&self) -> Option<f64> {
        self.floor
    }

    /// The terms.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// What comes in; a resource without a price counts as free.
    #[must_use]
    pub fn revenue(&self, response: &Response, prices: &Prices) -> DollarsPerSecond {
        let throughput = match self.unit {
            Unit::Gbit => response.answered.get(),
            Unit::Operation => response.throughput.get(),
        };
        let price = |resource| prices.quote(resource).map_or(0.0, |quote| quote.price);
        let latency = response.latency;
        let revenue = self.revenue_at(&State {
            throughput,
            mean_latency: latency.mean().get(),
            jitter: latency.jitter().get(),
            p99: latency.p99().get(),
            prices: Resource::ALL.map(price),
        });
        DollarsPerSecond::new(revenue.clamp(f64::MIN, f64::MAX)).unwrap_or(DollarsPerSecond::ZERO)
    }

    /// Revenue less the cost of what is held and of what the response sends and receives.
    #[must_use]
    pub fn profit(&self, response: &Response, held: &Usage, prices: &Prices) -> DollarsPerSecond {
        Contract::profit(self, response, held, prices)
    }

    /// The same contract for a machine on which everything takes `factor` times as long: objectives and
    /// tables over latency are stretched, refunds for a second shrink, bonuses grow, so that all keep their
    /// meaning.
    ///
    /// # Errors
    /// If the factor is so small or great that what it is applied to is no quantity any more.
    pub fn slowed(&self, factor: f64) -> Result<Self, super::BadParameter> {
        let slow = |term: &Term| -> Result<Term, super::BadParameter> {
            Ok(match term.clone() {
                Term::Penalty { alpha, penalty } => Term::Penalty { alpha, penalty: penalty.slowed(factor)? },
                Term::Refund { alpha, refund } => Term::Refund { alpha, refund: refund.slowed(factor)? },
                Term::Bonus { alpha, bonus } => Term::Bonus { alpha, bonus: bonus.slowed(factor)? },
                Term::Table { over, per, table } => match over {
                    Quantity::MeanLatency | Quantity::Jitter | Quantity::P99 => {
                        Term::Table { over, per, table: table.stretched(factor) }
                    }
                    Quantity::Throughput | Quantity::Price(_) => Term::Table { over, per, table },
                },
                Term::Value(value) => Term::Value(value),
            })
        };
        let good =
            super::published::checked("factor", factor, |f| f.is_finite() && f > 0.0, "a number above 0");
        good?;
        let terms = self.terms.iter().map(slow).collect::<Result<_, _>>()?;
        Ok(Self { unit: self.unit, floor: self.floor, terms })
    }

    /// Dollars for each unit.
    pub(super) fn per_unit(&self, state: &State) -> f64 {
        let sum = self.terms.iter().map(|term| term.per_unit(state)).sum();
        self.floor.map_or(sum, |floor| floor.max(sum))
    }

    /// Dollars for a second.
    pub(super) fn per_second(&self, state: &State) -> f64 {
        let table = |term: &Term| match term {
            Term::Table { over, per: Per::Second, table } => table.at(state.get(*over)),
            _ => 0.0,
        };
        self.terms.iter().map(table).sum()
    }

    pub(super) fn revenue_at(&self, state: &State) -> f64 {
        state.throughput * self.per_unit(state) + self.per_second(state)
    }

    /// Where the function may have a kink along a quantity.
    pub(super) fn kinks(&self, quantity: Quantity) -> Vec<f64> {
        let mut kinks: Vec<f64> = self.terms.iter().flat_map(|term| term.kinks(quantity)).collect();
        kinks.retain(|kink| kink.is_finite());
        kinks.sort_by(f64::total_cmp);
        kinks.dedup();
        kinks
    }
}

impl Term {
    fn per_unit(&self, state: &State) -> f64 {
        let Some(latency) = state.latency() else { return 0.0 };
        match self {
            Self::Value(value) => *value,
            Self::Penalty { alpha, penalty } => alpha * penalty.share(latency),
            Self::Refund { alpha, refund } => refund.value(*alpha, latency),
            Self::Bonus { alpha, bonus } => bonus.value(*alpha, latency),
            Self::Table { over, per: Per::Unit, table } => table.at(state.get(*over)),
            Self::Table { per: Per::Second, .. } => 0.0,
        }
    }

    fn kinks(&self, quantity: Quantity) -> Vec<f64> {
        match self {
            Self::Table { over, table, .. } if *over == quantity => table.0.iter().map(|(x, _)| *x).collect(),
            Self::Penalty { penalty, .. } if quantity == Quantity::MeanLatency => {
                alloc::vec![penalty.objective().get()]
            }
            Self::Refund { alpha, refund } if quantity == Quantity::MeanLatency => {
                alloc::vec![refund.all_refunded(*alpha)]
            }
            Self::Bonus { bonus, .. } if quantity == Quantity::MeanLatency => {
                alloc::vec![bonus.capped_below()]
            }
            _ => Vec::new(),
        }
    }
}
