//! The table `utility`: what the application's owner is paid.

use super::fields::Field;
use nom_economy::utility::{BadTerm, BadUtility, Per, Quantity, Term, Unit, Utility};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::fmt::Write;

/// The variable of the environment in which the application reads it, as `nom_economy` writes it on one line.
pub(super) const VARIABLE: &str = "utility";
/// What the field must be.
pub(super) const UTILITY: &str = "a table";

/// Documentation of the table's fields.
pub(super) const FIELDS: &[Field] = &[
    Field {
        name: "unit",
        expected: "`\"Gbit\"` or `\"operation\"`",
        default: "required",
        text: "What users pay for: data sent, with its headers, or requests answered.",
    },
    Field {
        name: "floor",
        expected: "dollars, at least 0",
        default: "none",
        text: "The least that a unit brings, whatever the terms say.",
    },
    Field {
        name: "term",
        expected: "a list of tables",
        default: "required",
        text: "The summands, see below.",
    },
];

/// Documentation of the functions, with their parameters.
const FUNCTIONS: &[(&str, &str, &str)] = &[
    ("value", "`alpha`: $ for a unit", "`alpha`"),
    (
        "penalty",
        "`alpha`; `factor` X: 0, or at least 2; `objective` L0: seconds",
        "`alpha * (1 - min(1, X * N))`, N the share of requests that take longer than L0 if latencies are \
         normally distributed",
    ),
    (
        "refund",
        "`alpha`; `slope` beta: $ for a unit and second",
        "`max(0, alpha - beta * L)`, L mean latency",
    ),
    (
        "bonus",
        "`alpha`; `extent` gamma: $ seconds for a unit; `cap` delta: $ for a unit",
        "`alpha + min(gamma / L, delta)`",
    ),
    (
        "table",
        "`over`: a quantity; `per`: `\"unit\"` or `\"second\"`; `points`: pairs of quantity and $",
        "linear between the points, constant beyond them",
    ),
];

/// The documentation of `term`.
pub(super) fn terms() -> String {
    let mut page = String::from("| function | parameters | dollars |\n|---|---|---|");
    for (name, parameters, meaning) in FUNCTIONS {
        write!(page, "\n| `{name}` | {parameters} | {meaning} |").expect("a String takes everything");
    }
    let quantities: Vec<_> = Quantity::all().map(|quantity| format!("`{}`", quantity.name())).collect();
    write!(page, "\n\nQuantities are {}; times are in seconds.", quantities.join(", "))
        .expect("a String takes everything");
    page
}

/// The table as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with `unit` and `term`")]
pub(super) struct RawUtility {
    unit: Named<Unit>,
    floor: Option<f64>,
    term: Vec<RawTerm>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "function", rename_all = "kebab-case", deny_unknown_fields)]
enum RawTerm {
    Value { alpha: f64 },
    Penalty { alpha: f64, factor: f64, objective: f64 },
    Refund { alpha: f64, slope: f64 },
    Bonus { alpha: f64, extent: f64, cap: Option<f64> },
    Table { over: Named<Quantity>, per: Named<Per>, points: Vec<(f64, f64)> },
}

impl RawUtility {
    /// The function.
    ///
    /// # Errors
    /// If a number is none that it can be, or the whole breaks the utility function axiom.
    pub fn utility(&self) -> Result<Utility, BadUtility> {
        Utility::checked(self.unit.0, self.floor, self.term.iter().map(RawTerm::term))
    }
}

impl RawTerm {
    fn term(&self) -> Result<Term, BadTerm> {
        match self {
            Self::Value { alpha } => Term::value(*alpha),
            Self::Penalty { alpha, factor, objective } => Term::penalty(*alpha, *factor, *objective),
            Self::Refund { alpha, slope } => Term::refund(*alpha, *slope),
            Self::Bonus { alpha, extent, cap } => Term::bonus(*alpha, *extent, *cap),
            Self::Table { over, per, points } => Term::table(over.0, per.0, points.clone()),
        }
    }
}

/// One of several things that have names.
#[derive(Clone, Debug)]
struct Named<T>(T);

trait Names: Sized {
    fn all() -> impl Iterator<Item = (&'static str, Self)>;
}

impl Names for Unit {
    fn all() -> impl Iterator<Item = (&'static str, Self)> {
        Unit::ALL.into_iter().map(|unit| (unit.name(), unit))
    }
}

impl Names for Per {
    fn all() -> impl Iterator<Item = (&'static str, Self)> {
        Per::ALL.into_iter().map(|per| (per.name(), per))
    }
}

impl Names for Quantity {
    fn all() -> impl Iterator<Item = (&'static str, Self)> {
        Quantity::all().map(|quantity| (quantity.name(), quantity))
    }
}

impl<'de, T: Names> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let found = T::all().find(|(name, _)| *name == text);
        found.map(|(_, value)| Self(value)).ok_or_else(|| {
            let names: Vec<_> = T::all().map(|(name, _)| format!("`{name}`")).collect();
            Error::custom(format!("`{text}` is unknown, expected one of {}", names.join(", ")))
        })
    }
}
