//! What a measured value must reach.

use crate::others::disturbed;
use crate::record::{Record, Unit, format_value};
use std::fmt;

/// So many standard errors from a value is surely another.
pub(crate) const SURE: f64 = 2.0;

/// One value that must be reached.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What must hold, in words.
    pub claim: &'static str,
    /// [`Record::system`] of the record that is judged.
    pub system: &'static str,
    /// [`Record::application`] and [`Record::scenario`] of the record that is judged; none if only one record
    /// has the metric.
    pub of: Option<[&'static str; 2]>,
    /// [`Record::metric`] of the record that is judged.
    pub metric: &'static str,
    /// [`Record::unit`] of the record that is judged.
    pub unit: Unit,
    /// On which side of it the value must be.
    pub limit: Limit,
}

/// On which side of a number a value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The value is this or less.
    AtMost(f64),
    /// The value is this or more.
    AtLeast(f64),
}

/// How a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Reached.
    Reached,
    /// Measured and not reached.
    Missed,
    /// Measured and not reached, but the limit is within two standard errors, or other work took so much of
    /// the computer that nothing follows from it.
    TooNoisy,
    /// No such record.
    NotMeasured,
}

impl Target {
    /// The record that this target judges.
    pub fn find<'a>(&self, records: &'a [Record]) -> Option<&'a Record> {
        records.iter().find(|record| {
            record.system == self.system
                && record.metric == self.metric
                && record.unit == self.unit
                && self.of.is_none_or(|of| of == [&*record.application, &*record.scenario])
        })
    }

    /// How the target stands after `records`.
    pub fn judge(&self, records: &[Record]) -> Verdict {
        let reached = |record: &Record| match self.limit {
            Limit::AtMost(limit) => record.value <= limit,
            Limit::AtLeast(limit) => record.value >= limit,
        };
        match self.find(records) {
            Some(record) if reached(record) => Verdict::Reached,
            Some(record) if self.is_uncertain(record, records) => Verdict::TooNoisy,
            Some(_) => Verdict::Missed,
            None => Verdict::NotMeasured,
        }
    }

    /// Whether a miss may be the computer's doing.
    fn is_uncertain(&self, record: &Record, records: &[Record]) -> bool {
        let (Limit::AtMost(limit) | Limit::AtLeast(limit)) = self.limit;
        let is_near = |error: f64| (record.value - limit).abs() <= SURE * error;
        !self.unit.is_exact() && (record.standard_error().is_some_and(is_near) || disturbed(records))
    }

    /// Claim, verdict and measured value in one line.
    pub fn sentence(&self, records: &[Record]) -> String {
        let measured = self.find(records).map(|record| format!(" ({record})")).unwrap_or_default();
        format!("{}: {}{measured}", self.claim, self.judge(records))
    }

    /// The limit for a person.
    pub fn limit_text(&self) -> String {
        match self.limit {
            Limit::AtMost(limit) => format!("at most {}", format_value(limit, self.unit)),
            Limit::AtLeast(limit) => format!("at least {}", format_value(limit, self.unit)),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Reached => "reached",
            Verdict::Missed => "missed",
            Verdict::TooNoisy => "too noisy to judge",
            Verdict::NotMeasured => "not measured",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::others::Watch;
    use crate::record::{Key, Samples};

    const TARGET: Target = Target {
        claim: "the image is small",
        system: "nom",
        of: None,
        metric: "image_size",
        unit: Unit::Bytes,
        limit: Limit::AtMost(100.0),
    };

    fn records(system: &str, value: f64) -> Vec<Record> {
        let (application, scenario, metric) = ("hello", "tcg".into(), "image_size".into());
        let mut samples = Samples::new("boot");
        samples.push(Key { system: system.into(), application, scenario, metric, unit: Unit::Bytes }, value);
        samples.records()
    }

    #[test]
    fn limit_itself_is_reached_from_either_side() {
        let at_least = Target { limit: Limit::AtLeast(100.0), ..TARGET };
        assert_eq!(TARGET.judge(&records("nom", 100.0)), Verdict::Reached);
        assert_eq!(at_least.judge(&records("nom", 100.0)), Verdict::Reached);
        assert_eq!(TARGET.judge(&records("nom", 101.0)), Verdict::Missed);
        assert_eq!(at_least.judge(&records("nom", 99.0)), Verdict::Missed);
    }

    #[test]
    fn a_miss_that_may_be_noise_is_not_judged() {
        let share = Target { unit: Unit::Ratio, limit: Limit::AtLeast(0.97), ..TARGET };
        let record = |value, deviation| {
            let record = Record { unit: Unit::Ratio, repetitions: 4, ..records("nom", 0.0).remove(0) };
            vec![Record { value, deviation: Some(deviation), ..record }]
        };
        assert_eq!(share.judge(&record(0.83, 0.15)), Verdict::TooNoisy);
        assert_eq!(share.judge(&record(0.83, 0.13)), Verdict::Missed);
        assert_eq!(share.judge(&record(0.98, 0.15)), Verdict::Reached);
        let others = Watch::begin().unwrap().record("boot").unwrap();
        let beside = |value, records: Vec<Record>| {
            records.into_iter().chain([Record { value, ..others.clone() }]).collect::<Vec<_>>()
        };
        assert_eq!(share.judge(&beside(0.3, record(0.83, 0.0))), Verdict::TooNoisy);
        assert_eq!(share.judge(&beside(0.01, record(0.83, 0.0))), Verdict::Missed);
        assert_eq!(TARGET.judge(&beside(0.3, records("nom", 101.0))), Verdict::Missed, "bytes are bytes");
    }

    #[test]
    fn only_the_named_application_and_scenario_count() {
        let named = |of| Target { of: Some(of), ..TARGET }.judge(&records("nom", 1.0));
        assert_eq!(named(["hello", "tcg"]), Verdict::Reached);
        assert_eq!(named(["hello", "kvm"]), Verdict::NotMeasured);
        assert_eq!(named(["measure", "tcg"]), Verdict::NotMeasured);
    }

    #[test]
    fn another_systems_record_does_not_count() {
        assert_eq!(TARGET.judge(&records("linux", 1.0)), Verdict::NotMeasured);
        assert_eq!(TARGET.sentence(&records("linux", 1.0)), "the image is small: not measured");
        assert_eq!(TARGET.sentence(&records("nom", 1.0)), "the image is small: reached (1 B)");
    }
}
