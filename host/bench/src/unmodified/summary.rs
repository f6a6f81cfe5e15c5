//! What the records say together: ratios, targets, a table and a figure.

use super::{LINUX, ONE_CORE, RATIO, START, TWO_CORES, programs};
use crate::environment::Environment;
use crate::figure::{Bars, Figure, Scale};
use crate::record::{self, Record, Unit};
use crate::report::{Notes, Report};
use crate::serve::guests::NOM;
use crate::table::Table;
use crate::target::{Limit, Target};

/// Name of the bench in records.
pub const EXPERIMENT: &str = "linux";
/// Behind the name of a primitive whose instructions are counted.
pub const COUNTED: &str = "_instructions";

/// A target for nom beside Linux.
const fn beside(claim: &'static str, of: [&'static str; 2], metric: &'static str, limit: Limit) -> Target {
    Target { claim, system: RATIO, of: Some(of), metric, unit: Unit::Ratio, limit }
}

const THROUGHPUT: &str = "throughput";
const TARGETS: [Target; 9] = [
    beside(
        "memcached by TCP serves many clients at least 5 times what it does on Linux",
        ["memcached", "tcp-many"],
        THROUGHPUT,
        Limit::AtLeast(5.0),
    ),
    beside(
        "redis answers GET at least 2.5 times as often as on Linux",
        ["redis", "get"],
        THROUGHPUT,
        Limit::AtLeast(2.5),
    ),
    beside(
        "redis answers SET at least 2.5 times as often as on Linux",
        ["redis", "set"],
        THROUGHPUT,
        Limit::AtLeast(2.5),
    ),
    beside(
        "nginx serves many clients at least 2.8 times what it does on Linux",
        ["nginx", "keep-alive-many"],
        THROUGHPUT,
        Limit::AtLeast(2.8),
    ),
    beside(
        "nginx gives its first reply in at most a tenth of Linux's time",
        ["nginx", START],
        "time_to_first_reply",
        Limit::AtMost(0.1),
    ),
    beside(
        "a switch between two threads takes at most a third of Linux's time",
        [programs::PRIMITIVES, ONE_CORE],
        "context_switch",
        Limit::AtMost(1.0 / 3.0),
    ),
    beside(
        "a switch between threads of two processors takes at most a ninth of Linux's time",
        [programs::PRIMITIVES, TWO_CORES],
        "context_switch",
        Limit::AtMost(1.0 / 9.0),
    ),
    beside(
        "fork and exec take at most Linux's time",
        [programs::PRIMITIVES, ONE_CORE],
        "fork_exec",
        Limit::AtMost(1.0),
    ),
    Target {
        claim: "an image takes at most 2 MB beyond its program and libraries",
        system: NOM,
        of: Some(["nginx", START]),
        metric: "image_beyond_program",
        unit: Unit::Bytes,
        limit: Limit::AtMost(2e6),
    },
];

/// The report on what was measured.
pub fn report(environment: Environment, measured: Vec<Record>, notes: Notes) -> Report {
    let ratios = record::ratios(&measured, NOM, LINUX);
    let tables = vec![table(&measured)];
    let figures = vec![
        figure(["throughput", "Throughput of unmodified programs", "1/s"], &measured, |record| {
            record.metric == THROUGHPUT
        }),
        figure(["primitives", "What programs ask of a system", "cycles"], &measured, |record| {
            record.unit == Unit::Cycles
        }),
    ];
    let is_measured = |target: &Target| {
        target
            .of
            .is_none_or(|of| measured.iter().any(|record| of == [&*record.application, &*record.scenario]))
    };
    let targets = TARGETS.into_iter().filter(is_measured).collect();
    let figures = figures.into_iter().filter(|figure| !figure.is_empty()).collect();
    let records = measured.into_iter().chain(ratios).collect();
    let (title, notes) = ("nom bench linux".into(), notes.into_vec());
    Report { title, environment, records, tables, targets, figures, notes }
}

fn table(measured: &[Record]) -> Table {
    let head = ["program, scenario", "metric", "nom", "linux", "nom/linux"];
    let mut table = Table::new("Unmodified programs", head);
    for nom in measured.iter().filter(|record| record.system == NOM) {
        let Some(linux) = record::counterpart(measured, LINUX, nom) else { continue };
        let Some(ratio) = nom.ratio_to(linux) else { continue };
        let name = format!("{}, {}", nom.application, nom.scenario);
        let ratio = format!("{:.2}", ratio.value);
        table = table.row([name, nom.metric.clone(), nom.to_string(), linux.to_string(), ratio]);
    }
    table
}

/// Bars of those records that are `shown`, one group for each, nom's beside Linux's.
fn figure(texts: [&str; 3], records: &[Record], shown: impl Fn(&Record) -> bool) -> Figure {
    let [name, title, axis] = texts.map(String::from);
    let groups = records.iter().filter(|record| record.system == NOM && shown(record)).map(|record| {
        let label = match record.unit {
            Unit::Cycles => format!("{}, {}", record.metric.replace('_', " "), record.scenario),
            _ => format!("{} {}", record.application, record.scenario),
        };
        let linux = record::counterpart(records, LINUX, record);
        (label, vec![Some(record.value), linux.map(|linux| linux.value)])
    });
    let groups = groups.collect();
    let series = vec![NOM.to_owned(), LINUX.to_owned()];
    Figure::Bars(Bars { name, title, axis, scale: Scale::Logarithmic, series, groups })
}

#[cfg(test)]
mod tests {
    use super::super::key;
    use super::*;
    use crate::record::Samples;

    #[test]
    fn what_both_measured_is_compared_and_judged() {
        let mut samples = Samples::new(EXPERIMENT);
        for (system, rate, cycles) in [(NOM, 60.0, 2.0), (LINUX, 10.0, 4.0)] {
            samples.push(key(system, "memcached", "tcp-many", THROUGHPUT, Unit::PerSecond), rate);
            let key = key(system, programs::PRIMITIVES, ONE_CORE, "context_switch", Unit::Cycles);
            samples.push(key, cycles);
        }
        let environment = Environment::capture("none");
        let Ok(environment) = environment else { return println!("skipped: there is no QEMU") };
        let report = report(environment, samples.records(), Notes::default());
        let ratio = |metric: &str| {
            let mut ratios = report.records.iter().filter(|record| record.system == RATIO);
            ratios.find(|record| record.metric == metric).map(|record| record.value)
        };
        assert_eq!((ratio(THROUGHPUT), ratio("context_switch")), (Some(6.0), Some(0.5)));
        let judged: Vec<String> =
            report.targets.iter().map(|target| target.sentence(&report.records)).collect();
        assert_eq!(judged.len(), 3, "what was not measured at all is not judged: {judged:?}");
        assert!(
            judged[0].contains("reached (6.0000)") && judged[1].contains("missed (0.5000)"),
            "{judged:?}"
        );
        let printed = report.tables[0].to_string();
        assert!(printed.contains("memcached, tcp-many") && printed.contains("6.00"), "{printed}");
        assert_eq!(report.figures.len(), 2);
    }
}
