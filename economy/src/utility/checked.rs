//! Utility functions from numbers that anybody may have written.

use super::axiom::Violation;
use super::composed::{BadTable, Per, Quantity, Table, Term, Unit, Utility};
use super::published::{BadParameter, Bonus, Penalty, Refund, at_least_zero, checked};
use crate::units::Seconds;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Why numbers make no term.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadTerm {
    /// A parameter has a value that it cannot have.
    #[error("{0}")]
    Parameter(#[from] BadParameter),
    /// The points make no table.
    #[error("{0}")]
    Table(#[from] BadTable),
}

/// Why numbers make no utility function.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadUtility {
    /// A parameter of the whole has a value that it cannot have.
    #[error("{0}")]
    Parameter(BadParameter),
    /// One of the terms is none.
    #[error("term[{term}].{error}")]
    Term {
        /// Its index, from 0.
        term: usize,
        /// What is wrong.
        error: BadTerm,
    },
    /// It breaks the axiom.
    #[error("{0}")]
    Axiom(Box<Violation>),
}

fn dollars(value: f64) -> Result<f64, BadParameter> {
    at_least_zero("alpha", value)
}

impl Term {
    /// `alpha` dollars for each unit.
    ///
    /// # Errors
    /// If it is negative or not finite.
    pub fn value(alpha: f64) -> Result<Self, BadTerm> {
        Ok(Self::Value(dollars(alpha)?))
    }

    /// `alpha` dollars for each unit, less the published penalty: `factor` is X, `objective` L0 in seconds.
    ///
    /// # Errors
    /// If `alpha` is negative, `objective` not above 0, `factor` none that [`Penalty`] takes, or one not
    /// finite.
    pub fn penalty(alpha: f64, factor: f64, objective: f64) -> Result<Self, BadTerm> {
        let is_time = |value: f64| value.is_finite() && value > 0.0;
        let objective = checked("objective", objective, is_time, "seconds, above 0")?;
        let objective = Seconds::new(objective).expect("checked");
        Ok(Self::Penalty { alpha: dollars(alpha)?, penalty: Penalty::new(factor, objective)? })
    }

    /// `alpha` dollars for each unit, less the published refund: `slope` is beta.
    ///
    /// # Errors
    /// If one is negative or not finite.
    pub fn refund(alpha: f64, slope: f64) -> Result<Self, BadTerm> {
        Ok(Self::Refund { alpha: dollars(alpha)?, refund: Refund::new(slope)? })
    }

    /// `alpha` dollars for each unit, and the published bonus: `extent` is gamma, `cap` delta, without limit
    /// if there is none.
    ///
    /// # Errors
    /// If one is negative or not finite.
    pub fn bonus(alpha: f64, extent: f64, cap: Option<f64>) -> Result<Self, BadTerm> {
        let cap = cap.map(|cap| at_least_zero("cap", cap)).transpose()?;
        let bonus = Bonus::new(extent, cap.unwrap_or(f64::INFINITY))?;
        Ok(Self::Bonus { alpha: dollars(alpha)?, bonus })
    }

    /// What a table over a quantity says, through points of (quantity, dollars).
    ///
    /// # Errors
    /// If the points make no table, or units are discounted by their number.
    pub fn table(over: Quantity, per: Per, points: Vec<(f64, f64)>) -> Result<Self, BadTerm> {
        if (over, per) == (Quantity::Throughput, Per::Unit) {
            return Err(BadTable::ThroughputPerUnit.into());
        }
        Ok(Self::Table { over, per, table: Table::new(points)? })
    }
}

impl Utility {
    /// [`Utility::new`] of what was read somewhere.
    ///
    /// # Errors
    /// The first thing that is wrong, floor, terms and the axiom, in this order.
    pub fn checked(
        unit: Unit,
        floor: Option<f64>,
        terms: impl IntoIterator<Item = Result<Term, BadTerm>>,
    ) -> Result<Self, BadUtility> {
        let Self { unit, floor, terms } = Self::of_good_numbers(unit, floor, terms)?;
        Self::new(unit, floor, terms).map_err(BadUtility::Axiom)
    }

    /// The same of what has been seen to keep the axiom.
    pub(super) fn of_good_numbers(
        unit: Unit,
        floor: Option<f64>,
        terms: impl IntoIterator<Item = Result<Term, BadTerm>>,
    ) -> Result<Self, BadUtility> {
        if let Some(floor) = floor {
            at_least_zero("floor", floor).map_err(BadUtility::Parameter)?;
        }
        let named =
            |(term, result): (usize, Result<_, _>)| result.map_err(|error| BadUtility::Term { term, error });
        let terms = terms.into_iter().enumerate().map(named).collect::<Result<_, _>>()?;
        Ok(Self::unchecked(unit, floor, terms))
    }
}
