//! The tables, for the terminal and the report.

use super::agreement::{Agreement, Pair};
use super::analysis::{Account, LINUX, System};
use super::experiment::PHASES;
use super::findings::Findings;
use super::{profits, scan};
use crate::linux::Tuning;
use crate::record::{Unit, format_value};
use crate::table::Table;

/// Every table: the machine's speed once, and what each application served and earned.
pub fn tables(all: &[Findings]) -> Vec<Table> {
    let speed = all.first().map(slowness);
    let of = |findings| [Some(served(findings)), Some(profits::table(findings)), agreement(findings)];
    speed.into_iter().chain(all.iter().flat_map(of).flatten()).collect()
}

fn slowness(findings: &Findings) -> Table {
    let title = format!("Parameters: times are {:.2} times the paper's", findings.slowness.factor());
    let head = ["parameter", "paper", "here"];
    let rows = findings.slowness.parameters().into_iter().chain(crowding(findings));
    rows.fold(Table::new(&title, head), Table::row)
}

/// By how much Linux is slower with many clients than with a single one: what the number of clients means on
/// a machine of another speed.
fn crowding(findings: &Findings) -> Option<[String; 3]> {
    let linux = findings.account(LINUX)?;
    let [many, single] = [0, 1].map(|phase| Some(linux.served(phase)?.latency_s));
    let name = "latency of Linux with many clients over that with one".to_owned();
    Some([name, format!("{:.1}", scan::PAPER), format!("{:.1}", many? / single?)])
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
        System::Linux(Tuning::Shipped) => "Linux".into(),
        System::Linux(Tuning::Tuned) => "Linux, tuned".into(),
        System::Peer(name) => name.into(),
        System::Fixed(us) => format!("nom, W = {us} \u{b5}s"),
        System::Adaptive(function) => format!("nom, adaptive ({})", function.name()),
    }
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
            "over that with one",
            "nom, W = 20 \u{b5}s",
            "many: throughput",
            "adaptive over Linux",
            "adaptive over the best W that stays",
            "without luck (smoothed)",
            "in hindsight, luck included",
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
