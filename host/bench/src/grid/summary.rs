//! What came out, for a person.

use super::hostile::Habit;
use super::tenants::TENANTS;
use super::transmit::{ALIKE, BY_BYTES, SITES, TRANSMIT};
use super::{APPLICATION, BYPASSED, FAIR, Options, TOLD_APART};
use crate::Outcome;
use crate::environment::Environment;
use crate::figure::{Bars, Figure, Scale};
use crate::record::{Record, Unit};
use crate::report::{Notes, Report};
use crate::table::Table;
use crate::target::{Limit, Target};
use anyhow::Result;

/// Systems that are counted, against the one without a grid.
const COSTS: &str = "grid_instructions";
/// The least that somebody kept beside a hostile tenant, and the longest that its p99 became.
const WORST_KEPT: &str = "worst_kept";
const WORST_P99: &str = "worst_p99";

pub fn conclude(options: &Options, environment: Environment, mut records: Vec<Record>) -> Result<Outcome> {
    records.extend(costs(&records));
    records.extend(worst(&records, "kept_", WORST_KEPT, |a, b| a < b));
    records.extend(worst(&records, "p99_", WORST_P99, |a, b| a > b));
    let mut notes = Notes::default();
    notes.add(format!(
        "Three tenants of weights 50, 33 and 17, told apart by their keys, each with more on its way than \
         the core can serve; {} times {:?}.",
        options.turns, options.duration
    ));
    let report = Report {
        title: "nom bench grid".into(),
        environment,
        tables: vec![
            shares_table(&records),
            transmit_table(&records),
            hostile_table(&records),
            costs_table(&records),
        ],
        targets: targets(),
        figures: vec![Figure::Bars(shares_figure(&records))],
        records,
        notes: notes.into_vec(),
    };
    report.conclude(&options.out)
}

fn targets() -> Vec<Target> {
    let target = |claim, scenario, metric, unit, limit| Target {
        claim,
        system: FAIR.system,
        of: Some([APPLICATION, scenario]),
        metric,
        unit,
        limit,
    };
    let error = "worst_share_error";
    vec![
        target("shares are the weights", "equal", error, Unit::Ratio, Limit::AtMost(0.01)),
        target(
            "whoever has more connections has no more",
            "unequal",
            error,
            Unit::Ratio,
            Limit::AtMost(0.01),
        ),
        Target {
            of: Some([SITES, TRANSMIT]),
            ..target("bytes at transmit are the weights", TRANSMIT, error, Unit::Ratio, Limit::AtMost(0.01))
        },
        target("time that nobody pays for", "equal", "unaccounted", Unit::Ratio, Limit::AtMost(0.001)),
        target("others keep their throughput", "hostile", WORST_KEPT, Unit::Ratio, Limit::AtLeast(0.99)),
        target("others keep their p99", "hostile", WORST_P99, Unit::Ratio, Limit::AtMost(1.10)),
        target("cost where one asks alone", "alone", COSTS, Unit::Instructions, Limit::AtMost(100.0)),
        target("cost where three ask", "contended", COSTS, Unit::Instructions, Limit::AtMost(100.0)),
    ]
}

/// What a request costs more than where nobody is told apart.
fn costs(records: &[Record]) -> Vec<Record> {
    let counted = |record: &&Record| record.metric == "instructions_per_request";
    let bypassed = |scenario: &str| {
        let found = records.iter().filter(counted);
        found.clone().find(|record| record.system == BYPASSED.system && record.scenario == scenario)
    };
    let cost = |record: &Record| {
        let without = bypassed(&record.scenario)?;
        let value = record.value - without.value;
        Some(Record { metric: COSTS.into(), value, ..record.clone() })
    };
    records
        .iter()
        .filter(counted)
        .filter(|record| record.system != BYPASSED.system)
        .filter_map(cost)
        .collect()
}

/// Of gold's and silver's records whose metric begins so beside hostile tenants, the worst of each system.
fn worst(records: &[Record], metric: &str, name: &str, is_worse: fn(f64, f64) -> bool) -> Vec<Record> {
    let of = |system: &str| {
        let hostile = |record: &&Record| Habit::HOSTILE.iter().any(|habit| habit.name() == record.scenario);
        let others = |record: &&Record| {
            TENANTS[..2].iter().any(|(tenant, _)| record.metric == format!("{metric}{tenant}"))
        };
        let all = records.iter().filter(|record| record.system == system).filter(hostile).filter(others);
        let worst =
            all.reduce(|worst, other| if is_worse(other.value, worst.value) { other } else { worst })?;
        Some(Record { scenario: "hostile".into(), metric: name.into(), ..worst.clone() })
    };
    [TOLD_APART.system, FAIR.system].into_iter().filter_map(of).collect()
}

fn value(records: &[Record], system: &str, scenario: &str, metric: &str) -> Option<f64> {
    let is =
        |record: &&Record| record.system == system && record.scenario == scenario && record.metric == metric;
    records.iter().find(is).map(|record| record.value)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.3}"))
}

fn shares_table(records: &[Record]) -> Table {
    let heads = ["tenant", "weight", "connections", "alike", "by weight", "waiting"];
    let mut table = Table::new("Shares of the core's time", heads);
    for scenario in ["equal", "unequal"] {
        for (tenant, weight) in TENANTS {
            let of = |system| number(value(records, system, scenario, &format!("share_{tenant}")));
            let (alike, fair) = (of(TOLD_APART.system), of(FAIR.system));
            let waiting = number(value(records, FAIR.system, scenario, &format!("waiting_{tenant}")));
            table = table.row([tenant.into(), format!("{weight:.2}"), scenario.into(), alike, fair, waiting]);
        }
    }
    table
}

fn transmit_table(records: &[Record]) -> Table {
    let heads = ["site", "weight", "alike", "by weight", "waiting"];
    let mut table = Table::new("Shares of the bytes that leave", heads);
    for (tenant, weight) in TENANTS {
        let of = |system| number(value(records, system, TRANSMIT, &format!("share_{tenant}")));
        let waiting = number(value(records, BY_BYTES.system, TRANSMIT, &format!("waiting_{tenant}")));
        table = table.row([
            tenant.into(),
            format!("{weight:.2}"),
            of(ALIKE.system),
            of(BY_BYTES.system),
            waiting,
        ]);
    }
    table
}

fn hostile_table(records: &[Record]) -> Table {
    let heads = ["bronze", "tenant", "kept, alike", "p99, alike", "kept, by weight", "p99, by weight"];
    let mut table = Table::new("What others keep beside a hostile tenant", heads);
    for habit in Habit::HOSTILE {
        for (tenant, _) in &TENANTS[..2] {
            let of = |system, metric: &str| {
                number(value(records, system, habit.name(), &format!("{metric}_{tenant}")))
            };
            table = table.row([
                habit.name().into(),
                (*tenant).into(),
                of(TOLD_APART.system, "kept"),
                of(TOLD_APART.system, "p99"),
                of(FAIR.system, "kept"),
                of(FAIR.system, "p99"),
            ]);
        }
    }
    table
}

fn costs_table(records: &[Record]) -> Table {
    let mut table = Table::new("Instructions a request", ["system", "scenario", "all", "for the grid"]);
    for record in records.iter().filter(|record| record.metric == "instructions_per_request") {
        let more = value(records, &record.system, &record.scenario, COSTS);
        let more = more.map_or_else(|| "-".into(), |more| format!("{more:.0}"));
        table =
            table.row([record.system.clone(), record.scenario.clone(), format!("{:.0}", record.value), more]);
    }
    table
}

fn shares_figure(records: &[Record]) -> Bars {
    let groups = ["equal", "unequal"].into_iter().flat_map(|scenario| {
        TENANTS.into_iter().map(move |(tenant, weight)| {
            let of = |system| value(records, system, scenario, &format!("share_{tenant}"));
            (format!("{tenant}, {scenario}"), vec![Some(weight), of(TOLD_APART.system), of(FAIR.system)])
        })
    });
    Bars {
        name: "shares".into(),
        title: "Shares of the core's time, by weight and without".into(),
        axis: "share".into(),
        scale: Scale::Linear,
        series: vec!["weight".into(), TOLD_APART.system.into(), FAIR.system.into()],
        groups: groups.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Key, Samples};

    fn records() -> Vec<Record> {
        let mut samples = Samples::new(super::super::EXPERIMENT);
        let mut push = |system: &str, scenario: &str, metric: &str, value: f64| {
            let (system, scenario, metric) = (system.into(), scenario.into(), metric.into());
            let unit = if metric == "instructions_per_request" { Unit::Instructions } else { Unit::Ratio };
            samples.push(Key { system, application: APPLICATION, scenario, metric, unit }, value);
        };
        push(BYPASSED.system, "alone", "instructions_per_request", 4000.0);
        push(FAIR.system, "alone", "instructions_per_request", 4090.0);
        push(FAIR.system, "flood", "kept_gold", 1.01);
        push(FAIR.system, "crowd", "kept_silver", 0.97);
        push(FAIR.system, "crowd", "kept_bronze", 0.1);
        push(FAIR.system, "crowd", "p99_gold", 1.2);
        samples.records()
    }

    #[test]
    fn the_worst_of_the_others_is_judged_and_the_cost_is_a_difference() {
        let records = records();
        assert_eq!(costs(&records)[0].value, 90.0);
        assert_eq!(
            worst(&records, "kept_", WORST_KEPT, |a, b| a < b)[0].value,
            0.97,
            "bronze is the hostile"
        );
        assert_eq!(worst(&records, "p99_", WORST_P99, |a, b| a > b)[0].value, 1.2);
    }

    #[test]
    fn tables_have_what_was_measured() {
        let printed = hostile_table(&records()).to_string();
        assert!(printed.contains("crowd") && printed.contains("0.970"), "{printed}");
        assert!(costs_table(&records()).to_string().contains("90"));
    }
}
