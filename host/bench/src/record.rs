//! One measured figure, tidy: one row, one value.

use crate::statistics::Summary;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One figure of one system; `results.json` is an array of these and `results.csv` a row for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The bench, for example `boot`.
    pub experiment: String,
    /// What was measured, for example `nom` or `linux`; `nom/linux` for a ratio of the two.
    pub system: String,
    /// The program that ran in it.
    pub application: String,
    /// Under which conditions, for example `tcg` or `tcg-icount`.
    pub scenario: String,
    /// What the value says.
    pub metric: String,
    /// What the value counts.
    pub unit: Unit,
    /// The median of all repetitions.
    pub value: f64,
    /// How many runs the value was taken from.
    pub repetitions: u32,
    /// Sample standard deviation of the runs; absent for a single run.
    pub deviation: Option<f64>,
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Ticks of the processor's time-stamp counter.
    Cycles,
    /// Instructions that the guest executed.
    Instructions,
    /// Bytes.
    Bytes,
    /// Ticks per second.
    #[serde(rename = "Hz")]
    Hertz,
    /// How often a second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Bits per second.
    #[serde(rename = "bit/s")]
    BitsPerSecond,
    /// Money; negative is a loss.
    #[serde(rename = "$")]
    Dollars,
    /// Money for a time.
    #[serde(rename = "$/s")]
    DollarsPerSecond,
    /// How many.
    Count,
    /// A quotient of two values of one unit.
    Ratio,
}

impl Unit {
    /// Whether two runs count the same of it, whatever else the computer does.
    pub fn is_exact(self) -> bool {
        matches!(self, Unit::Instructions | Unit::Bytes | Unit::Count)
    }

    /// The unit as records write it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Cycles => "cycles",
            Unit::Instructions => "instructions",
            Unit::Bytes => "bytes",
            Unit::Hertz => "Hz",
            Unit::PerSecond => "1/s",
            Unit::BitsPerSecond => "bit/s",
            Unit::Dollars => "$",
            Unit::DollarsPerSecond => "$/s",
            Unit::Count => "count",
            Unit::Ratio => "ratio",
        }
    }
}

/// Values as they come in, from which records are made: one for each system, application, scenario, metric
/// and unit, in order of first appearance.
#[derive(Clone, Debug)]
pub struct Samples {
    experiment: &'static str,
    series: Vec<(Key, Vec<f64>)>,
}

/// What the samples of one record have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// See [`Record::system`].
    pub system: String,
    /// See [`Record::application`].
    pub application: &'static str,
    /// See [`Record::scenario`].
    pub scenario: String,
    /// See [`Record::metric`].
    pub metric: String,
    /// See [`Record::unit`].
    pub unit: Unit,
}

impl Samples {
    /// No samples yet of this experiment.
    pub fn new(experiment: &'static str) -> Samples {
        Samples { experiment, series: Vec::new() }
    }

    /// Adds one value.
    pub fn push(&mut self, key: Key, value: f64) {
        match self.series.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => self.series.push((key, vec![value])),
        }
    }

    /// A record of each series: its median and deviation.
    pub fn records(&self) -> Vec<Record> {
        self.series.iter().filter_map(|(key, values)| self.record(key, values)).collect()
    }

    fn record(&self, key: &Key, values: &[f64]) -> Option<Record> {
        let summary = Summary::of(values)?;
        Some(Record::of(self.experiment, key.clone(), summary.median, (summary.count, summary.deviation)))
    }
}

impl Record {
    /// A value of an experiment, of so many repetitions that deviated so much.
    pub fn of(
        experiment: &str,
        key: Key,
        value: f64,
        (repetitions, deviation): (u32, Option<f64>),
    ) -> Record {
        let Key { system, application, scenario, metric, unit } = key;
        let (experiment, application) = (experiment.into(), application.into());
        Record { experiment, system, application, scenario, metric, unit, value, repetitions, deviation }
    }

    /// This record's value over `other`'s, as a record of its own; none if there is no finite one.
    pub fn ratio_to(&self, other: &Record) -> Option<Record> {
        let value = self.value / other.value;
        value.is_finite().then(|| Record {
            system: format!("{}/{}", self.system, other.system),
            unit: Unit::Ratio,
            value,
            repetitions: self.repetitions.min(other.repetitions),
            deviation: None,
            ..self.clone()
        })
    }

    /// Standard error of the value, if it was taken from several runs.
    pub fn standard_error(&self) -> Option<f64> {
        self.deviation.map(|deviation| deviation / f64::from(self.repetitions).sqrt())
    }

    /// Whether two records say the same thing of two systems.
    pub fn is_comparable_to(&self, other: &Record) -> bool {
        let key = |record: &Record| {
            let Record { experiment, application, scenario, metric, .. } = record.clone();
            (experiment, application, scenario, metric, record.unit)
        };
        key(self) == key(other)
    }
}

/// What `system` has over what `of` has, of everything that both were measured at.
pub fn ratios(records: &[Record], system: &str, of: &str) -> Vec<Record> {
    let numerators = records.iter().filter(|record| record.system == system);
    numerators.filter_map(|record| record.ratio_to(counterpart(records, of, record)?)).collect()
}

/// What `system` has where `record` was measured of another.
pub fn counterpart<'r>(records: &'r [Record], system: &str, record: &Record) -> Option<&'r Record> {
    records.iter().find(|other| other.system == system && other.is_comparable_to(record))
}

/// What a table shows of `metric` of a system where `at` was measured; nothing if it was not.
pub fn cell(records: &[Record], system: &str, metric: &str, at: &Record) -> String {
    let found = records
        .iter()
        .find(|record| record.system == system && record.scenario == at.scenario && record.metric == metric);
    found.map(Record::to_string).unwrap_or_default()
}

/// The records as CSV, with a header.
pub fn to_csv(records: &[Record]) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.serialize(record)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Each of `names` once, in order of first appearance.
pub(crate) fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

impl fmt::Display for Record {
    /// The value for a person: scaled, with its unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_value(self.value, self.unit))
    }
}

/// A value for a person: scaled to a fitting prefix, with its unit.
pub fn format_value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => scaled(value, 1024.0, &[(0, "B"), (1, "KiB"), (2, "MiB"), (3, "GiB")]),
        Unit::Seconds => scaled(value, 1000.0, &[(-3, "ns"), (-2, "\u{b5}s"), (-1, "ms"), (0, "s")]),
        Unit::Hertz => scaled(value, 1000.0, &[(0, "Hz"), (1, "kHz"), (2, "MHz"), (3, "GHz")]),
        Unit::PerSecond => format!("{} a second", scaled_count(value)),
        Unit::BitsPerSecond => {
            scaled(value, 1000.0, &[(0, "bit/s"), (1, "kbit/s"), (2, "Mbit/s"), (3, "Gbit/s")])
        }
        Unit::Dollars => dollars(value),
        Unit::DollarsPerSecond => format!("{} a second", dollars(value)),
        Unit::Count => format!("{value:.2}"),
        Unit::Ratio => format!("{value:.4}"),
        Unit::Cycles => format!("{} cycles", scaled_count(value)),
        Unit::Instructions => format!("{} instructions", scaled_count(value)),
    }
}

/// Money in whole cents, or with as many digits as show that it is not nothing.
fn dollars(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    let digits = if value != 0.0 && value.abs() < 0.1 { 4 } else { 2 };
    format!("{sign}${:.digits$}", value.abs())
}

fn scaled_count(value: f64) -> String {
    scaled(value, 1000.0, &[(0, ""), (1, "thousand"), (2, "million"), (3, "billion")]).trim_end().into()
}

/// `value` in the largest step of `names` that leaves at least 1 before the point.
fn scaled(value: f64, base: f64, names: &[(i32, &str)]) -> String {
    let fits = |&&(power, _): &&(i32, &str)| value.abs() >= base.powi(power);
    let (power, name) = names.iter().rev().find(fits).unwrap_or(&names[0]);
    let number = value / base.powi(*power);
    let digits = if number == number.round() { 0 } else { 2 };
    format!("{number:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(system: &str, unit: Unit, values: &[f64]) -> Record {
        let mut samples = Samples::new("boot");
        for &value in values {
            let (application, scenario, metric) = ("hello", "tcg".into(), "exit".into());
            samples.push(Key { system: system.into(), application, scenario, metric, unit }, value);
        }
        samples.records().remove(0)
    }

    #[test]
    fn value_is_the_median_and_one_run_has_no_deviation() {
        let three = record("nom", Unit::Seconds, &[3.0, 1.0, 2.0]);
        assert_eq!((three.value, three.repetitions, three.deviation), (2.0, 3, Some(1.0)));
        assert_eq!(record("nom", Unit::Seconds, &[3.0]).deviation, None);
        assert_eq!(Samples::new("boot").records(), []);
    }

    #[test]
    fn json_names_units_as_the_field_does() {
        assert_eq!(
            serde_json::to_string(&record("nom", Unit::Seconds, &[0.5])).unwrap(),
            concat!(
                r#"{"experiment":"boot","system":"nom","application":"hello","scenario":"tcg","#,
                r#""metric":"exit","unit":"s","value":0.5,"repetitions":1,"deviation":null}"#
            )
        );
    }

    #[test]
    fn units_are_written_by_their_names() {
        use Unit::*;
        let money = [Dollars, DollarsPerSecond];
        let others = [Seconds, Cycles, Instructions, Bytes, Hertz, PerSecond, BitsPerSecond, Count, Ratio];
        for unit in others.into_iter().chain(money) {
            assert_eq!(serde_json::to_string(&unit).unwrap(), format!("\"{}\"", unit.name()));
        }
    }

    #[test]
    fn ratio_names_both_systems() {
        let (nom, linux) = (record("nom", Unit::Seconds, &[1.0]), record("linux", Unit::Seconds, &[20.0]));
        assert!(nom.is_comparable_to(&linux));
        let ratio = nom.ratio_to(&linux).unwrap();
        assert_eq!((ratio.system.as_str(), ratio.value, ratio.unit), ("nom/linux", 0.05, Unit::Ratio));
        assert!(!ratio.is_comparable_to(&nom));
        assert_eq!(nom.ratio_to(&Record { value: 0.0, ..linux }), None);
    }

    #[test]
    fn csv_quotes_what_would_break_a_row() {
        let csv = to_csv(&[record("a, \"b\"\nc", Unit::Cycles, &[7.0])]).unwrap();
        assert_eq!(
            csv,
            "experiment,system,application,scenario,metric,unit,value,repetitions,deviation\n\
             boot,\"a, \"\"b\"\"\nc\",hello,tcg,exit,cycles,7.0,1,\n"
        );
    }

    #[test]
    fn values_read_well() {
        let cases = [
            (204_800.0, Unit::Bytes, "200 KiB"),
            (0.000_050_4, Unit::Seconds, "50.40 \u{b5}s"),
            (0.0, Unit::Seconds, "0 ns"),
            (999.0, Unit::Cycles, "999 cycles"),
            (1_562_508_794.0, Unit::Instructions, "1.56 billion instructions"),
            (2_600_647_916.0, Unit::Hertz, "2.60 GHz"),
            (4_700.0, Unit::PerSecond, "4.70 thousand a second"),
            (1_254_902.0, Unit::BitsPerSecond, "1.25 Mbit/s"),
            (-12.345, Unit::Dollars, "-$12.35"),
            (0.004, Unit::DollarsPerSecond, "$0.0040 a second"),
            (1.5, Unit::Count, "1.50"),
            (0.05, Unit::Ratio, "0.0500"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(format_value(value, unit), expected);
        }
    }

    proptest! {
        #[test]
        fn any_record_survives_json_and_csv(
            texts in prop::array::uniform5(".*"),
            value in prop::num::f64::NORMAL,
            repetitions: u32,
            deviation in prop::option::of(prop::num::f64::NORMAL),
        ) {
            let [experiment, system, application, scenario, metric] = texts;
            let unit = Unit::Bytes;
            let record = Record {
                experiment,
                system,
                application,
                scenario,
                metric,
                unit,
                value,
                repetitions,
                deviation,
            };
            let json = serde_json::to_string(&record).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Record>(&json).unwrap(), &record);
            let csv = to_csv(std::slice::from_ref(&record)).unwrap();
            let mut reader = csv::Reader::from_reader(csv.as_bytes());
            let back: Record = reader.deserialize().next().unwrap().unwrap();
            prop_assert_eq!(back, record);
        }
    }
}
