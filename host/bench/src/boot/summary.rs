//! What the boot bench's records say together: times, ratios, targets, figures.

use super::runs::{HELLO, MEASURE};
use super::system;
use crate::figure::{Bars, Figure};
use crate::record::{Record, Unit, distinct};
use crate::target::{Limit, Target};

/// What nom must reach.
pub const TARGETS: &[Target] = &[
    Target {
        claim: "the hello image takes at most 200 KB",
        system: system::NOM,
        of: None,
        metric: "image_size",
        unit: Unit::Bytes,
        limit: Limit::AtMost(200_000.0),
    },
    Target {
        claim: "hello boots in 2 MiB of memory",
        system: system::NOM,
        of: None,
        metric: "smallest_memory",
        unit: Unit::Bytes,
        limit: Limit::AtMost(2.0 * 1024.0 * 1024.0),
    },
    Target {
        claim: "at most 1/20 of Linux's time to the first user instruction",
        system: "nom/linux",
        of: None,
        metric: "time_to_first_user_instruction",
        unit: Unit::Ratio,
        limit: Limit::AtMost(0.05),
    },
    Target {
        claim: "at most 1/20 of Linux's instructions to the first user instruction",
        system: "nom/linux",
        of: None,
        metric: "instructions_to_first_user_instruction",
        unit: Unit::Ratio,
        limit: Limit::AtMost(0.05),
    },
];

/// `measured` with the times that follow from cycles, and nom's ratio to every other system.
pub fn complete(mut measured: Vec<Record>) -> Vec<Record> {
    measured.extend(times(&measured));
    measured.extend(ratios(&measured));
    measured
}

/// Whether nom got as far as its application's end at least once.
pub fn nom_booted(records: &[Record]) -> bool {
    records.iter().any(|record| record.system == system::NOM && record.metric.ends_with("_to_exit"))
}

/// Cycles of booting as seconds, all by one frequency, so that the ratio of two times is that of their
/// cycles: nom's if it said one, else Linux's.
fn times(records: &[Record]) -> Vec<Record> {
    let Some(frequency) = records.iter().find(|record| record.metric == "tsc_frequency") else {
        return Vec::new();
    };
    let time = |record: &Record| {
        let metric = format!("time_{}", record.metric.strip_prefix("cycles_")?);
        Some(Record {
            metric,
            unit: Unit::Seconds,
            value: record.value / frequency.value,
            deviation: record.deviation.map(|deviation| deviation / frequency.value),
            ..record.clone()
        })
    };
    records.iter().filter(|record| record.application == HELLO).filter_map(time).collect()
}

/// nom over every other system, for each metric that both have; not for cycles of booting, whose ratio is
/// that of the times.
fn ratios(records: &[Record]) -> Vec<Record> {
    let compared = |record: &&Record| {
        record.system == system::NOM && record.unit != Unit::Hertz && !record.metric.starts_with("cycles_")
    };
    let others = |nom: &Record| {
        let others =
            records.iter().filter(|other| other.system != system::NOM && nom.is_comparable_to(other));
        others.filter_map(|other| nom.ratio_to(other)).collect::<Vec<_>>()
    };
    records.iter().filter(compared).flat_map(others).collect()
}

/// The figures: time, instructions, sizes, costs.
pub fn figures(records: &[Record]) -> Vec<Figure> {
    const MARKS: [&str; 3] = ["to_kernel_entry", "to_first_user_instruction", "to_exit"];
    const LABELS: [&str; 3] = ["firmware", "kernel to first user instruction", "kernel to exit"];
    let marks = |kind: &str| MARKS.map(|mark| format!("{kind}_{mark}"));
    let labelled = |metrics: &[String; 3]| -> Vec<(String, String)> {
        metrics.iter().cloned().zip(LABELS.map(String::from)).collect()
    };
    let sizes = [("image_size", "image"), ("smallest_memory", "smallest memory")];
    let sizes = sizes.map(|(metric, label)| (metric.to_owned(), label.to_owned()));
    let costs = records.iter().filter(|record| record.application == MEASURE && record.unit == Unit::Cycles);
    let costs = distinct(costs.map(|record| &record.metric)).into_iter();
    let costs: Vec<_> = costs.map(|metric| (metric.clone(), metric.replace('_', " "))).collect();
    [
        Bars::of_records(
            ["boot_time", "Time to boot", "seconds"],
            records,
            Unit::Seconds,
            &labelled(&marks("time")),
        ),
        Bars::of_records(
            ["boot_instructions", "Instructions to boot", "instructions"],
            records,
            Unit::Instructions,
            &labelled(&marks("instructions")),
        ),
        Bars::of_records(["size", "Size", "bytes"], records, Unit::Bytes, &sizes),
        Bars::of_records(["costs", "Cost of crossing borders", "cycles"], records, Unit::Cycles, &costs),
    ]
    .map(Figure::Bars)
    .into_iter()
    .filter(|figure| !figure.is_empty())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Key, Samples};
    use crate::target::Verdict;

    fn measured() -> Vec<Record> {
        let mut samples = Samples::new("boot");
        for (system, application, metric, unit, value) in [
            ("nom", HELLO, "cycles_to_first_user_instruction", Unit::Cycles, 2e6),
            ("nom", MEASURE, "tsc_frequency", Unit::Hertz, 1e9),
            ("nom", MEASURE, "null_syscall", Unit::Cycles, 100.0),
            ("linux", HELLO, "cycles_to_first_user_instruction", Unit::Cycles, 1e9),
            ("linux", MEASURE, "tsc_frequency", Unit::Hertz, 2e9),
        ] {
            let (system, scenario, metric) = (system.into(), "tcg".into(), metric.into());
            samples.push(Key { system, application, scenario, metric, unit }, value);
        }
        samples.records()
    }

    #[test]
    fn times_share_one_frequency_and_only_they_have_ratios() {
        let records = complete(measured());
        let derived: Vec<_> = records[5..]
            .iter()
            .map(|record| (record.system.as_str(), record.metric.as_str(), record.value, record.unit))
            .collect();
        let metric = "time_to_first_user_instruction";
        assert_eq!(
            derived,
            [
                ("nom", metric, 0.002, Unit::Seconds),
                ("linux", metric, 1.0, Unit::Seconds),
                ("nom/linux", metric, 0.002, Unit::Ratio),
            ]
        );
    }

    #[test]
    fn targets_find_their_records() {
        let verdicts: Vec<_> = TARGETS.iter().map(|target| target.judge(&complete(measured()))).collect();
        assert_eq!(
            verdicts,
            [Verdict::NotMeasured, Verdict::NotMeasured, Verdict::Reached, Verdict::NotMeasured]
        );
    }

    #[test]
    fn figures_without_a_value_are_left_out() {
        let names: Vec<_> =
            figures(&complete(measured())).iter().map(|figure| figure.name().to_owned()).collect();
        assert_eq!(names, ["boot_time", "costs"]);
    }
}
