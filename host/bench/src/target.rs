//! What a measured value must reach.

use crate::record::{Record, Unit, format_value};
use std::fmt;

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
        match self.find(records).map(reached) {
            Some(true) => Verdict::Reached,
            Some(false) => Verdict::Missed,
            None => Verdict::NotMeasured,
        }
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
            Verdict::NotMeasured => "not measured",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
