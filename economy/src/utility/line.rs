//! A utility function on one line: how an application is told its contract, without a parser of files.
//!
//! ```text
//! Gbit; floor 0; penalty 20 100 0.00075; table p99 unit 0.001:0 0.002:-5
//! ```
//! Parts are separated by semicolons: the unit that is paid for, the floor if there is one, and the terms:
//! `value ALPHA`, `penalty ALPHA FACTOR OBJECTIVE`, `refund ALPHA SLOPE`, `bonus ALPHA EXTENT [CAP]`,
//! `table QUANTITY unit|second X:Y ...`. Numbers are written so that the same double is read back.

use super::checked::{BadTerm, BadUtility};
use super::composed::{Per, Quantity, Term, Unit, Utility};
use crate::decimal;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Why a line is no utility function.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadLine {
    /// A part of it cannot be read.
    #[error("`{part}`: expected {expected}")]
    Part {
        /// The part.
        part: String,
        /// What it could have been.
        expected: &'static str,
    },
    /// It can be read, but is no utility function.
    #[error("{0}")]
    Utility(#[from] BadUtility),
}

const TERM: &str = "`value`, `penalty`, `refund`, `bonus` or `table` with its numbers";

impl Unit {
    /// All that there are.
    pub const ALL: [Self; 2] = [Self::Gbit, Self::Operation];

    /// Its name in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gbit => "Gbit",
            Self::Operation => "operation",
        }
    }
}

impl Per {
    /// All that there are.
    pub const ALL: [Self; 2] = [Self::Unit, Self::Second];

    /// Its name in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Second => "second",
        }
    }
}

impl fmt::Display for Utility {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.unit().name())?;
        if let Some(floor) = self.floor() {
            write!(out, "; floor {floor}")?;
        }
        self.terms().iter().try_for_each(|term| write!(out, "; {term}"))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(alpha) => write!(out, "value {alpha}"),
            Self::Penalty { alpha, penalty } => {
                write!(out, "penalty {alpha} {} {}", penalty.factor(), penalty.objective().get())
            }
            Self::Refund { alpha, refund } => write!(out, "refund {alpha} {}", refund.slope()),
            Self::Bonus { alpha, bonus } => {
                write!(out, "bonus {alpha} {}", bonus.extent())?;
                if bonus.cap().is_finite() { write!(out, " {}", bonus.cap()) } else { Ok(()) }
            }
            Self::Table { over, per, table } => {
                write!(out, "table {} {}", over.name(), per.name())?;
                table.points().iter().try_for_each(|(x, y)| write!(out, " {x}:{y}"))
            }
        }
    }
}

impl FromStr for Utility {
    type Err = BadLine;

    fn from_str(line: &str) -> Result<Self, BadLine> {
        let Parts { unit, floor, terms } = Parts::read(line)?;
        Ok(Self::checked(unit, floor, terms)?)
    }
}

impl Utility {
    /// From a line that was made of a utility function. Its numbers are checked, the axiom is not again: that
    /// was done when the manifest was loaded, and a guest has no room to do it twice.
    ///
    /// # Errors
    /// As [`Utility::from_str`], but for the axiom.
    pub fn from_checked_line(line: &str) -> Result<Self, BadLine> {
        let Parts { unit, floor, terms } = Parts::read(line)?;
        Ok(Self::of_good_numbers(unit, floor, terms)?)
    }
}

/// What a line says.
struct Parts {
    unit: Unit,
    floor: Option<f64>,
    terms: Vec<Result<Term, BadTerm>>,
}

impl Parts {
    fn read(line: &str) -> Result<Parts, BadLine> {
        let mut parts = line.split(';').map(str::trim).peekable();
        let part = parts.next().unwrap_or_default();
        let unit = Unit::ALL.into_iter().find(|unit| unit.name() == part);
        let unit = unit.ok_or_else(|| bad(part, "`Gbit` or `operation`"))?;
        let mut floor = None;
        if let Some((part, text)) = parts.peek().and_then(|part| Some((*part, part.strip_prefix("floor ")?)))
        {
            floor = Some(decimal::parse(text.trim()).ok_or_else(|| bad(part, "`floor` with a number"))?);
            parts.next();
        }
        let terms = parts.map(term).collect::<Result<_, _>>()?;
        Ok(Parts { unit, floor, terms })
    }
}

fn bad(part: &str, expected: &'static str) -> BadLine {
    BadLine::Part { part: part.to_string(), expected }
}

/// A term, if the part can be read; whether it is a good one is another question.
fn term(part: &str) -> Result<Result<Term, BadTerm>, BadLine> {
    let mut words = part.split_whitespace();
    let name = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    if let ("table", [over, per, points @ ..]) = (name, &words[..]) {
        return table(over, per, points).ok_or_else(|| bad(part, "`table QUANTITY unit|second X:Y ...`"));
    }
    let numbers: Option<Vec<f64>> = words.iter().map(|word| decimal::parse(word)).collect();
    Ok(match (name, numbers.as_deref()) {
        ("value", Some(&[alpha])) => Term::value(alpha),
        ("penalty", Some(&[alpha, factor, objective])) => Term::penalty(alpha, factor, objective),
        ("refund", Some(&[alpha, slope])) => Term::refund(alpha, slope),
        ("bonus", Some(&[alpha, extent])) => Term::bonus(alpha, extent, None),
        ("bonus", Some(&[alpha, extent, cap])) => Term::bonus(alpha, extent, Some(cap)),
        _ => return Err(bad(part, TERM)),
    })
}

fn table(over: &str, per: &str, points: &[&str]) -> Option<Result<Term, BadTerm>> {
    let over = Quantity::named(over)?;
    let per = Per::ALL.into_iter().find(|known| known.name() == per)?;
    let point = |word: &&str| {
        let (x, y) = word.split_once(':')?;
        Some((decimal::parse(x)?, decimal::parse(y)?))
    };
    Some(Term::table(over, per, points.iter().map(point).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: &str = "operation; floor 0; value 0.5; penalty 20 100 0.00075; refund 20 10; bonus 0 0.01; \
                       bonus 3 0.01 5; table p99 unit 0.001:0 0.002:-5; table price-core second 1:-1";

    fn refusal(line: &str) -> String {
        line.parse::<Utility>().expect_err(line).to_string()
    }

    #[test]
    fn every_form_is_written_as_it_is_read() {
        let utility: Utility = ALL.parse().expect("good");
        assert_eq!(utility.terms().len(), 7);
        assert_eq!(utility.to_string(), ALL);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert_eq!(refusal(""), "``: expected `Gbit` or `operation`");
        assert_eq!(refusal("Gbit; floor x"), "`floor x`: expected `floor` with a number");
        for part in [
            "",
            "penalty",
            "penalty 20 100",
            "value 1 2",
            "value NaN",
            "table p98 unit 1:1",
            "table p99 unit 1,1",
        ] {
            let text = refusal(&alloc::format!("Gbit; {part}"));
            assert!(text.starts_with(&alloc::format!("`{part}`: expected")), "{text}");
        }
    }

    #[test]
    fn what_is_no_utility_function_is_refused_too() {
        let negative = "term[1].alpha is -1: expected a finite number, at least 0";
        assert_eq!(refusal("Gbit; value 1; value -1"), negative);
        assert!(refusal("Gbit; floor -1").starts_with("floor is -1: expected"));
        assert!(refusal("Gbit; table p99 unit 0:1 1:2").starts_with("utility function axiom broken"));
    }

    proptest! {
        #[test]
        fn any_number_comes_back(
            alpha in 0.0..f64::MAX, factor in 2.0..1e300, objective in f64::MIN_POSITIVE..1e300,
            floor in prop::option::of(0.0..1e9), cap in prop::option::of(0.0..f64::MAX),
            points in prop::collection::btree_map(any::<u64>(), any::<u32>(), 1..6),
        ) {
            // A table that falls keeps the axiom.
            let falling = points.iter().map(|(x, y)| f64::from(*y) / (*x as f64 + 1.0)).rev();
            let mut dollars: Vec<f64> = falling.collect();
            dollars.sort_by(|a, b| b.total_cmp(a));
            let points: Vec<_> = points.keys().map(|x| *x as f64 / 7.0).zip(dollars).collect();
            prop_assume!(points.is_sorted_by(|a, b| a.0 < b.0));
            let terms = [
                Term::penalty(alpha, factor, objective),
                Term::bonus(alpha / 2.0, objective, cap),
                Term::table(Quantity::P99, Per::Unit, points),
            ];
            let Ok(utility) = Utility::checked(Unit::Gbit, floor, terms) else { return Ok(()) };
            prop_assert_eq!(utility.to_string().parse(), Ok(utility));
        }

        #[test]
        fn no_line_makes_it_panic(
            line in "[A-Za-z0-9;:. -]{0,60}", words in "(value|bonus|table p99 unit) [0-9e:. -]{0,20}",
        ) {
            let _ = line.parse::<Utility>();
            let _ = alloc::format!("Gbit; {words}").parse::<Utility>();
        }
    }
}
