//! The section `[utility]` of an application's `app.toml`.
//!
//! ```toml
//! [utility]
//! unit = "Gbit"              # or "operation": what is paid for
//! floor = 0.0                # may be left out: the least that a unit brings
//!
//! [[utility.term]]           # the published functions, as many as wanted; latencies in seconds
//! function = "penalty"       # or value (alpha), refund (alpha, slope), bonus (alpha, extent, cap)
//! alpha = 20.0
//! factor = 100.0
//! objective = 750e-6
//!
//! [[utility.term]]           # and tables: (quantity, dollars), linear between points, constant beyond
//! function = "table"
//! over = "p99"               # or throughput, mean-latency, jitter, price-core, price-network-out, ...
//! per = "unit"               # or "second"
//! points = [[0.001, 0.0], [0.002, -5.0]]
//! ```

use super::composed::{BadTable, Per, Quantity, Table, Term, Unit, Utility};
use super::published::{at_least_zero, checked};
use super::{BadParameter, Bonus, Penalty, Refund, Violation};
use crate::units::Seconds;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::Deserialize;

/// Why a utility function could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadFile {
    /// Not TOML, or a field is missing, unknown or of another kind; the text shows the line.
    #[error("{0}")]
    Syntax(String),
    /// A field of the section itself has a value that it cannot have.
    #[error("utility.{0}")]
    Section(BadParameter),
    /// A field of a term has a value that it cannot have.
    #[error("utility.term[{term}].{error}")]
    Term {
        /// Index of the term, from 0.
        term: usize,
        /// What is wrong.
        error: BadTerm,
    },
    /// The function breaks the axiom.
    #[error("utility: {0}")]
    Axiom(Box<Violation>),
}

/// Why a table of the file is no term.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadTerm {
    /// A field has a value that it cannot have.
    #[error("{0}")]
    Parameter(#[from] BadParameter),
    /// The points make no table.
    #[error("{0}")]
    Table(#[from] BadTable),
}

#[derive(Deserialize)]
struct File {
    utility: Option<Section>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    unit: UnitName,
    floor: Option<f64>,
    term: Vec<TermTable>,
}

#[derive(Deserialize)]
enum UnitName {
    Gbit,
    #[serde(rename = "operation")]
    Operation,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PerName {
    Unit,
    Second,
}

#[derive(Deserialize)]
#[serde(tag = "function", rename_all = "kebab-case", deny_unknown_fields)]
enum TermTable {
    Value { alpha: f64 },
    Penalty { alpha: f64, factor: f64, objective: f64 },
    Refund { alpha: f64, slope: f64 },
    Bonus { alpha: f64, extent: f64, cap: Option<f64> },
    Table { over: QuantityName, per: PerName, points: Vec<(f64, f64)> },
}

struct QuantityName(Quantity);

impl<'de> Deserialize<'de> for QuantityName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Quantity::all().find(|quantity| quantity.name() == name);
        found.map(Self).ok_or_else(|| {
            let names: Vec<_> = Quantity::all().map(Quantity::name).collect();
            serde::de::Error::custom(alloc::format!("over is `{name}`: expected one of {}", names.join(", ")))
        })
    }
}

/// Reads the utility function of an `app.toml`; nothing if it has none. The file's other sections are not
/// looked at.
///
/// # Errors
/// If the section is not as the module says, a number is none that it can be, or the whole breaks the utility
/// function axiom.
pub fn from_toml(text: &str) -> Result<Option<Utility>, BadFile> {
    let file: File = toml::from_str(text).map_err(|error| BadFile::Syntax(error.to_string()))?;
    file.utility.map(lowered).transpose()
}

fn lowered(section: Section) -> Result<Utility, BadFile> {
    let unit = match section.unit {
        UnitName::Gbit => Unit::Gbit,
        UnitName::Operation => Unit::Operation,
    };
    if let Some(floor) = section.floor {
        at_least_zero("floor", floor).map_err(BadFile::Section)?;
    }
    let lower = |(term, table)| lowered_term(table).map_err(|error| BadFile::Term { term, error });
    let terms = section.term.into_iter().enumerate().map(lower).collect::<Result<_, _>>()?;
    Utility::new(unit, section.floor, terms).map_err(BadFile::Axiom)
}

fn lowered_term(table: TermTable) -> Result<Term, BadTerm> {
    let money = |value| at_least_zero("alpha", value);
    Ok(match table {
        TermTable::Value { alpha } => Term::Value(money(alpha)?),
        TermTable::Penalty { alpha, factor, objective } => {
            let is_time = |value: f64| value.is_finite() && value > 0.0;
            let objective = checked("objective", objective, is_time, "seconds, above 0")?;
            let objective = Seconds::new(objective).expect("checked");
            Term::Penalty { alpha: money(alpha)?, penalty: Penalty::new(factor, objective)? }
        }
        TermTable::Refund { alpha, slope } => {
            Term::Refund { alpha: money(alpha)?, refund: Refund::new(slope)? }
        }
        TermTable::Bonus { alpha, extent, cap } => {
            let bonus = Bonus::new(extent, cap.unwrap_or(f64::INFINITY))?;
            Term::Bonus { alpha: money(alpha)?, bonus }
        }
        TermTable::Table { over: QuantityName(Quantity::Throughput), per: PerName::Unit, .. } => {
            return Err(BadTable::ThroughputPerUnit.into());
        }
        TermTable::Table { over, per, points } => {
            let per = match per {
                PerName::Unit => Per::Unit,
                PerName::Second => Per::Second,
            };
            Term::Table { over: over.0, per, table: Table::new(points)? }
        }
    })
}

#[cfg(test)]
mod tests;
