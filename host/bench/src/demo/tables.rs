//! The tables, for the terminal and the report.

use super::agreement::{Agreement, Pair};
use super::analysis::{Account, System};
use super::contract::Function;
use super::experiment::PHASES;
use super::summary::{Findings, ratio};
use crate::record::{Unit, format_value};
use crate::statistics::Summary;
use crate::table::Table;

/// Every table: the machine's speed once, and what each application served and earned.
pub fn tables(all: &[Findings]) -> Vec<Table> {
    let speed = all.first().map(slowness);
    let of = |findings| [Some(served(findings)), Some(earned(findings)), agreement(findings)];
    speed.into_iter().chain(all.iter().flat_map(of).flatten()).collect()
}

fn slowness(findings: &Findings) -> Table {
    let title = format!("Parameters: times are {:.2} times the paper's", findings.slowness.factor());
    let head = ["parameter", "paper", "here"];
    let rows = findings.slowness.parameters();
    rows.into_iter().fold(Table::new(&title, head), Table::row)
}

fn served(findings: &Findings) -> Table {
    let columns = PHASES.iter().flat_map(|phase| {
        ["throughput", "useful data", "latency", "jitter"].map(|what| format!("{}: {what}", phase.name))
    });
    let head = ["system".to_owned()].into_iter().chain(columns);
    let title = format!("What clients of {} were served", findings.application);
    findings.accounts.iter().fold(Table::new(&title, head), |table, account| {
        table.row([label(account.system)].into_iter().chain((0..2).flat_map(|phase| cells(account, phase))))
    })
}

fn cells(account: &Account, phase: usize) -> [String; 4] {
    let Some(served) = account.served(phase) else { return std::array::from_fn(|_| "nothing".into()) };
    [
        format!("{:.0}/s", served.throughput),
        format_value(served.useful_bits, Unit::BitsPerSecond),
        format_value(served.latency_s, Unit::Seconds),
        format_value(served.jitter_s, Unit::Seconds),
    ]
}

/// A system's name for people.
pub fn label(system: System) -> String {
    match system {
        System::Linux => "Linux".into(),
        System::Fixed(us) => format!("nom, W = {us} \u{b5}s"),
        System::Adaptive(function) => format!("nom, adaptive ({})", function.name()),
    }
}

fn earned(findings: &Findings) -> Table {
    let title = format!("Profit of {}: 2 x {:.0} s", findings.application, findings.seconds);
    let head = ["system"].into_iter().chain(Function::ALL.map(Function::name));
    let rows: [(&str, &dyn Fn(Function) -> String); 11] = [
        ("Linux", &|function| {
            money(findings.profit(System::Linux, function))
                + &deviation(&findings.profits(System::Linux, function))
        }),
        ("nom, W best for throughput", &|function| {
            choice(findings.hindsight(function).map(|hindsight| hindsight.throughput))
        }),
        ("nom, W best for latency", &|function| {
            choice(findings.hindsight(function).map(|hindsight| hindsight.latency))
        }),
        ("nom, best W of all that stay", &|function| {
            let single = findings.hindsight(function).map(|hindsight| hindsight.single);
            let profits = single.map(|one| findings.profits(System::Fixed(one.delay_us), function));
            choice(single) + &deviation(&profits.unwrap_or_default())
        }),
        ("nom, best W of each phase, in hindsight", &|function| {
            let hindsight = findings.hindsight(function);
            let delays =
                hindsight.map(|found| format!(" (W {}, {})", found.oracle_us[0], found.oracle_us[1]));
            money(hindsight.map(|found| found.oracle)) + &delays.unwrap_or_default()
        }),
        ("nom, adaptive", &|function| {
            money(adaptive(findings, function))
                + &deviation(&findings.profits(System::Adaptive(function), function))
        }),
        ("adaptive over Linux", &|function| {
            quotient(adaptive(findings, function), findings.profit(System::Linux, function), "x")
        }),
        ("adaptive over the best W that stays", &|function| {
            let single = findings.hindsight(function).map(|hindsight| hindsight.single.profit);
            quotient(adaptive(findings, function), single, "")
        }),
        ("adaptive over the best W of each phase", &|function| {
            let oracle = findings.hindsight(function).map(|hindsight| hindsight.oracle);
            quotient(adaptive(findings, function), oracle, "")
        }),
        ("  while many are served", &|function| phase_share(findings, function, 0)),
        ("  while a single one is", &|function| phase_share(findings, function, 1)),
    ];
    let table = Table::new(&title, head);
    let table = rows.into_iter().fold(table, |table, (name, value)| {
        table.row([name.to_owned()].into_iter().chain(Function::ALL.map(value)))
    });
    super::summary::losses(findings).into_iter().fold(table, Table::remark).remark(noise(findings))
}

/// How far runs of one system differ, if there were several.
fn deviation(profits: &[f64]) -> String {
    let deviation = Summary::of(profits).and_then(|summary| summary.deviation);
    deviation
        .map_or_else(String::new, |deviation| format!(" \u{b1} {}", format_value(deviation, Unit::Dollars)))
}

/// What the ratios are worth.
fn noise(findings: &Findings) -> &'static str {
    let adaptive = |account: &&Account| matches!(account.system, System::Adaptive(_));
    match findings.accounts.iter().filter(adaptive).map(|account| account.runs.len()).max() {
        Some(0 | 1) | None => {
            "Adaptive ran once under each function: by how much such runs differ is not known, and hindsight \
             picks the luckiest of all fixed delays."
        }
        _ => {
            "\u{b1}: standard deviation of a system's runs. Hindsight picks the luckiest of all fixed delays."
        }
    }
}

/// What adaptive earned in a phase, over what the best delay of that phase did.
fn phase_share(findings: &Findings, function: Function, phase: usize) -> String {
    let own = findings.phase_profit(System::Adaptive(function), function, phase);
    let best = findings.hindsight(function).map(|hindsight| hindsight.oracle_phases[phase]);
    quotient(own, best, "")
}

/// A row for each question; none if nobody was asked.
fn agreement(findings: &Findings) -> Option<Table> {
    if findings.agreements.is_empty() {
        return None;
    }
    let title = format!("A check: {} as its clients and as it itself say", findings.application);
    let columns = findings.agreements.iter().map(|agreement| agreement.function.name());
    let table = Table::new(&title, ["what"].into_iter().chain(columns));
    let row = |table: Table, name: &str, unit: Unit, pair: fn(&Agreement) -> Pair| {
        let cell = |agreement: &Agreement| {
            let Pair { clients, application } = pair(agreement);
            format!("{}, {}", format_value(clients, unit), format_value(application, unit))
        };
        table.row([name.to_owned()].into_iter().chain(findings.agreements.iter().map(cell)))
    };
    let table = row(table, "profit", Unit::Dollars, |agreement| agreement.profit);
    let table = row(table, "bytes that left the machine", Unit::Bytes, |agreement| agreement.sent_bytes);
    let table = row(table, "mean latency, many", Unit::Seconds, |agreement| agreement.latency_s[0]);
    let table = row(table, "mean latency, single", Unit::Seconds, |agreement| agreement.latency_s[1]);
    let reactions = findings.reactions_s.iter().map(|seconds| format_value(*seconds, Unit::Seconds));
    let reactions: Vec<String> = reactions.collect();
    let shares = findings.governing_shares.iter().map(|share| format!("{:.2}%", 100.0 * share));
    let shares: Vec<String> = shares.collect();
    let told = [
        ("From a price to a working point chosen by it", reactions),
        ("Choosing took, of its processor", shares),
    ];
    let told = told.into_iter().filter(|(_, values)| !values.is_empty());
    let table = table
        .remark("By clients or the TAP device, and by the application, which takes all it sent for useful.");
    Some(told.fold(table, |table, (what, values)| table.remark(format!("{what}: {}.", values.join(", ")))))
}

fn adaptive(findings: &Findings, function: Function) -> Option<f64> {
    findings.profit(System::Adaptive(function), function)
}

fn money(value: Option<f64>) -> String {
    value.map_or("not measured".into(), |value| format_value(value, Unit::Dollars))
}

fn choice(choice: Option<super::analysis::Choice>) -> String {
    choice.map_or("not measured".into(), |choice| {
        format!("{} (W {})", format_value(choice.profit, Unit::Dollars), choice.delay_us)
    })
}

/// A ratio, or why there is none: a factor, or a share in per cent.
fn quotient(one: Option<f64>, other: Option<f64>, factor: &str) -> String {
    match (one, other) {
        (Some(one), Some(other)) => match ratio(one, other) {
            Some(ratio) if factor.is_empty() => format!("{:.1}%", 100.0 * ratio),
            Some(ratio) => format!("{ratio:.2}{factor}"),
            None => "no ratio".into(),
        },
        _ => "not measured".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::findings;
    use super::*;

    #[test]
    fn tables_say_who_earned_what_and_where_no_ratio_is() {
        let tables = tables(&[findings()]);
        let text = tables.iter().map(Table::to_string).collect::<String>();
        for expected in [
            "times are 1.00 times the paper's",
            "nom, W = 20 \u{b5}s",
            "many: throughput",
            "adaptive over Linux",
            "adaptive over the best W that stays",
            "Adaptive ran once under each function",
            "no ratio",
            "a ratio has no meaning",
            "(W 20, 0)",
            "%",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in {text}");
        }
    }
}
