//! Responses measured beforehand, for a controller that shall not begin from nothing.
//!
//! A [`ResponseTable`] has two forms. In a file it is TOML, through serde; of each load at least one:
//!
//! ```toml
//! [[load]]
//!
//! [[load.response]]
//! batching_delay = 0
//! throughput = 44200.0
//! sent = 0.362
//! received = 0.041
//! latency = 1.45e-3
//! jitter = 3e-4
//! p99 = 2.4e-3
//! ```
//!
//! An application reads it on one line, loads separated by semicolons, their responses by commas, with the
//! numbers in the same order: `0 44200 0.362 0.041 0.00145 0.0003 0.0024, 32 39800 ...; 0 ...`.

use crate::controller::BatchingDelays;
use crate::decimal;
use crate::response::Response;
use crate::units::{GbitPerSecond, OperationsPerSecond, Seconds};
use crate::utility::Latency;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// Responses under some loads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseTable {
    /// The loads; which of them is present, is told by what is measured.
    pub load: Vec<Load>,
}

/// Responses under one load.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// One for each batching delay that was measured.
    pub response: Vec<Row>,
}

/// What was measured at one batching delay.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The batching delay, in microseconds.
    pub batching_delay: u32,
    /// Requests answered in a second.
    pub throughput: f64,
    /// Gbit that left the machine in a second, headers included.
    pub sent: f64,
    /// Gbit that came in a second.
    pub received: f64,
    /// Mean latency, in seconds.
    pub latency: f64,
    /// Its standard deviation, in seconds.
    pub jitter: f64,
    /// Its 99th percentile, in seconds.
    pub p99: f64,
}

/// Why numbers are no table.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadResponseTable {
    /// There are too many loads, or none.
    #[error("{0} loads: expected 1 to {LOADS_MAX}")]
    Loads(usize),
    /// A load without responses.
    #[error("load[{0}].response is empty: expected at least one")]
    Empty(usize),
    /// A number that cannot be.
    #[error("load[{load}].response[{row}].{field} is {value}: expected {expected}")]
    Number {
        /// Index of the load, from 0.
        load: usize,
        /// Index of the response, from 0.
        row: usize,
        /// Which number.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it could have been.
        expected: &'static str,
    },
    /// The same batching delay twice.
    #[error("load[{load}].response[{row}].batching_delay is {micros}, as before: expected each only once")]
    Twice {
        /// Index of the load, from 0.
        load: usize,
        /// Index of the second response.
        row: usize,
        /// The batching delay.
        micros: u32,
    },
    /// A part of a line that is no response.
    #[error("`{0}`: expected a batching delay in microseconds and six numbers")]
    Part(String),
}

/// A controller remembers one more.
pub const LOADS_MAX: usize = 7;

impl ResponseTable {
    /// Whether it can be: every number finite, latency and throughput above 0, no batching delay twice.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn check(&self) -> Result<(), BadResponseTable> {
        if !(1..=LOADS_MAX).contains(&self.load.len()) {
            return Err(BadResponseTable::Loads(self.load.len()));
        }
        self.load.iter().enumerate().try_for_each(|(index, load)| load.check(index))
    }
}

impl Load {
    fn check(&self, load: usize) -> Result<(), BadResponseTable> {
        if self.response.is_empty() {
            return Err(BadResponseTable::Empty(load));
        }
        for (row, response) in self.response.iter().enumerate() {
            let number =
                |(field, value, expected)| BadResponseTable::Number { load, row, field, value, expected };
            response.check().map_err(number)?;
            let micros = response.batching_delay;
            if self.response[..row].iter().any(|other| other.batching_delay == micros) {
                return Err(BadResponseTable::Twice { load, row, micros });
            }
        }
        Ok(())
    }
}

impl Row {
    fn check(&self) -> Result<(), (&'static str, f64, &'static str)> {
        if self.batching_delay > BatchingDelays::MAX_MICROS {
            let micros = f64::from(self.batching_delay);
            return Err(("batching_delay", micros, "microseconds from 0 to 10000"));
        }
        let above = "a finite number above 0";
        let from = "a finite number, at least 0";
        let numbers = [
            ("throughput", self.throughput, above),
            ("sent", self.sent, from),
            ("received", self.received, from),
            ("latency", self.latency, above),
            ("jitter", self.jitter, from),
            ("p99", self.p99, from),
        ];
        let is_bad =
            |value: f64, expected| !value.is_finite() || value < 0.0 || (value == 0.0 && expected == above);
        numbers.into_iter().find(|(_, value, expected)| is_bad(*value, *expected)).map_or(Ok(()), Err)
    }

    /// The response, if the numbers can be one, as [`ResponseTable::check`] makes sure.
    #[must_use]
    pub fn response(&self) -> Option<Response> {
        let seconds = |value| Seconds::new(value).ok();
        let data = |value| GbitPerSecond::new(value).ok();
        let (mean, jitter, p99) = (seconds(self.latency)?, seconds(self.jitter)?, seconds(self.p99)?);
        Some(Response {
            throughput: OperationsPerSecond::new(self.throughput).ok()?,
            // A table does not tell them apart; the first measurement does.
            answered: data(self.sent)?,
            sent: data(self.sent)?,
            received: data(self.received)?,
            latency: Latency::new(mean, jitter, p99).ok()?,
        })
    }
}

impl fmt::Display for ResponseTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, load) in self.load.iter().enumerate() {
            out.write_str(if index == 0 { "" } else { "; " })?;
            for (index, row) in load.response.iter().enumerate() {
                out.write_str(if index == 0 { "" } else { ", " })?;
                row.fmt(out)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.batching_delay)?;
        let numbers = [self.throughput, self.sent, self.received, self.latency, self.jitter, self.p99];
        numbers.into_iter().try_for_each(|number| write!(out, " {number}"))
    }
}

impl FromStr for ResponseTable {
    type Err = BadResponseTable;

    fn from_str(line: &str) -> Result<Self, BadResponseTable> {
        let rows = |load: &str| load.split(',').map(str::parse).collect::<Result<Vec<Row>, _>>();
        let load = |text| rows(text).map(|response| Load { response });
        let table = Self { load: line.split(';').map(load).collect::<Result<_, _>>()? };
        table.check().map(|()| table)
    }
}

impl FromStr for Row {
    type Err = BadResponseTable;

    fn from_str(text: &str) -> Result<Self, BadResponseTable> {
        let bad = || BadResponseTable::Part(text.trim().to_string());
        let mut words = text.split_whitespace();
        let batching_delay = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
        let numbers: Option<Vec<f64>> = words.map(decimal::parse).collect();
        let Some([throughput, sent, received, latency, jitter, p99]) = numbers.as_deref() else {
            return Err(bad());
        };
        let [throughput, sent, received] = [*throughput, *sent, *received];
        Ok(Self { batching_delay, throughput, sent, received, latency: *latency, jitter: *jitter, p99: *p99 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(batching_delay: u32) -> Row {
        let (throughput, sent, received) = (44200.0, 0.362, 0.0);
        Row { batching_delay, throughput, sent, received, latency: 1.45e-3, jitter: 3e-4, p99: 2.4e-3 }
    }

    fn table(rows: Vec<Row>) -> ResponseTable {
        ResponseTable {
            load: alloc::vec![Load { response: alloc::vec![row(0), row(7)] }, Load { response: rows }],
        }
    }

    #[test]
    fn a_line_leads_back_to_the_table() {
        let table = table(alloc::vec![row(32)]);
        assert_eq!(
            table.to_string(),
            "0 44200 0.362 0 0.00145 0.0003 0.0024, 7 44200 0.362 0 0.00145 0.0003 0.0024; \
             32 44200 0.362 0 0.00145 0.0003 0.0024"
        );
        assert_eq!(table.to_string().parse(), Ok(table));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let refusal = |rows| table(rows).check().expect_err("should be refused").to_string();
        assert_eq!(ResponseTable::default().check(), Err(BadResponseTable::Loads(0)));
        assert_eq!(refusal(Vec::new()), "load[1].response is empty: expected at least one");
        assert_eq!(
            refusal(alloc::vec![row(1), row(1)]),
            "load[1].response[1].batching_delay is 1, as before: expected each only once"
        );
        assert_eq!(
            refusal(alloc::vec![row(1), Row { latency: f64::NAN, ..row(2) }]),
            "load[1].response[1].latency is NaN: expected a finite number above 0"
        );
        assert!(refusal(alloc::vec![row(10_001)]).contains("batching_delay is 10001: expected microseconds"));
        for (field, bad) in [
            ("throughput", Row { throughput: 0.0, ..row(0) }),
            ("sent", Row { sent: -1.0, ..row(0) }),
            ("p99", Row { p99: f64::INFINITY, ..row(0) }),
        ] {
            assert!(
                refusal(alloc::vec![bad]).starts_with(&alloc::format!("load[1].response[0].{field} is "))
            );
        }
    }

    #[test]
    fn a_line_that_is_no_table_is_refused() {
        for line in ["", "0", "0 1 1 1 1 1", "0 1 1 1 1 1 1 1", "x 1 1 1 1 1 1", "0 1 1 1 1 1 1;"] {
            assert!(matches!(line.parse::<ResponseTable>(), Err(BadResponseTable::Part(_))), "{line}");
        }
        assert!(matches!("0 0 1 1 1 1 1".parse::<ResponseTable>(), Err(BadResponseTable::Number { .. })));
    }
}
