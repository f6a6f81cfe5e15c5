//! The table of what everybody earned.

use super::analysis::{Account, Choice, Hindsight, LINUX, System, TUNED};
use super::contract::Function;
use super::findings::Findings;
use super::oracle::{Fold, Method, Oracle};
use super::shares::Shares;
use super::summary::{losses, ratio};
use crate::record::{Unit, format_value};
use crate::statistics::{Quotient, Summary};
use crate::table::Table;

/// A column for each function.
pub fn table(findings: &Findings) -> Table {
    let columns = Function::ALL.map(|function| Column::of(findings, function));
    let method = columns.iter().find_map(|column| Some(column.shares.as_ref()?.oracle.method));
    let title = format!("Profit of {}: 2 x {:.0} s", findings.application, findings.seconds);
    let table = Table::new(&title, ["system"].into_iter().chain(Function::ALL.map(Function::name)));
    let rows = |table: Table, rows: &[Row]| {
        rows.iter().fold(table, |table, (name, cell)| {
            table.row([(*name).to_owned()].into_iter().chain(columns.iter().map(cell)))
        })
    };
    let mut table = rows(table, &SYSTEMS);
    if let Some(method) = method {
        table = rows(table.row([format!("without luck ({})", method.label())]), &WITHOUT_LUCK);
        table = rows(table.row(["in hindsight, luck included"]), &LUCKY);
    }
    let table = losses(findings).into_iter().fold(table, Table::remark);
    remarks(findings, method).into_iter().fold(table, Table::remark)
}

/// A row: its name, and what it says under a function.
type Row = (&'static str, fn(&Column) -> String);

const SYSTEMS: [Row; 5] = [
    ("Linux", |column| column.earned(LINUX)),
    ("Linux, tuned", |column| column.earned(TUNED)),
    ("nom, adaptive", |column| column.earned(column.adaptive())),
    ("adaptive over Linux", |column| column.over(column.findings.profit(LINUX, column.function), "x")),
    ("adaptive over tuned Linux", |column| column.over(column.findings.profit(TUNED, column.function), "x")),
];

/// What the best fixed delays earn, luck kept out, and what adaptive nom earned of that.
const WITHOUT_LUCK: [Row; 6] = [
    ("  nom, best W that stays", |column| {
        column.best(|oracle| named(oracle, |fold| fold.stays.profit, &[|fold| fold.stays]))
    }),
    ("  nom, best W of each phase", |column| {
        column.best(|oracle| named(oracle, Fold::both, &[|fold| fold.phases[0], |fold| fold.phases[1]]))
    }),
    ("  adaptive over the best W that stays", |column| column.share(|shares| shares.stays)),
    ("  adaptive over the best W of each phase", |column| column.share(|shares| shares.both)),
    ("    while many are served", |column| column.share(|shares| shares.phases[0])),
    ("    while a single one is", |column| column.share(|shares| shares.phases[1])),
];

/// What hindsight says, which takes the luckiest runs for the best.
const LUCKY: [Row; 6] = [
    ("  nom, W best for throughput", |column| column.lucky(|found| choice(found.throughput))),
    ("  nom, W best for latency", |column| column.lucky(|found| choice(found.latency))),
    ("  nom, best W that stays", |column| {
        column.lucky(|found| {
            let fixed = System::Fixed(found.single.delay_us);
            choice(found.single) + &deviation(&column.findings.profits(fixed, column.function))
        })
    }),
    ("  nom, best W of each phase", |column| {
        column.lucky(|found| money(found.oracle, &found.oracle_us.map(|us| us.to_string())))
    }),
    ("  adaptive over the best W that stays", |column| {
        column.over(column.hindsight.map(|found| found.single.profit), "")
    }),
    ("  adaptive over the best W of each phase", |column| {
        column.over(column.hindsight.map(|found| found.oracle), "")
    }),
];

const MISSING: &str = "not measured";

/// What is known under a function.
struct Column<'a> {
    findings: &'a Findings,
    function: Function,
    hindsight: Option<Hindsight>,
    shares: Option<Shares>,
}

impl Column<'_> {
    fn of(findings: &Findings, function: Function) -> Column<'_> {
        let (hindsight, shares) = (findings.hindsight(function), Shares::of(findings, function));
        Column { findings, function, hindsight, shares }
    }

    fn adaptive(&self) -> System {
        System::Adaptive(self.function)
    }

    fn earned(&self, system: System) -> String {
        let profit = self.findings.profit(system, self.function);
        let profit = profit.map_or(MISSING.into(), |profit| format_value(profit, Unit::Dollars));
        profit + &deviation(&self.findings.profits(system, self.function))
    }

    /// Adaptive over `other`, or why there is no ratio: a factor, or a share in per cent.
    fn over(&self, other: Option<f64>, factor: &str) -> String {
        let own = self.findings.profit(self.adaptive(), self.function);
        let Some((own, other)) = own.zip(other) else { return MISSING.into() };
        match ratio(own, other) {
            Some(ratio) if factor.is_empty() => format!("{:.1}%", 100.0 * ratio),
            Some(ratio) => format!("{ratio:.2}{factor}"),
            None => "no ratio".into(),
        }
    }

    fn best(&self, text: impl Fn(&Oracle) -> String) -> String {
        self.shares.as_ref().map_or(MISSING.into(), |shares| text(&shares.oracle))
    }

    fn lucky(&self, text: impl Fn(&Hindsight) -> String) -> String {
        self.hindsight.as_ref().map_or(MISSING.into(), text)
    }

    /// A share in per cent, and its standard error.
    fn share(&self, of: fn(&Shares) -> Option<Quotient>) -> String {
        let (accounts, _) = self.findings.compared(self.function);
        let account = accounts.iter().find(|account| account.system == self.adaptive());
        let Some((shares, _)) = self.shares.as_ref().zip(account) else { return MISSING.into() };
        let Some(quotient) = of(shares) else { return "no ratio".into() };
        let error = quotient.error().map(|error| format!(" \u{b1} {:.1}%", 100.0 * error));
        format!("{:.1}%{}", 100.0 * quotient.value, error.unwrap_or_default())
    }
}

/// What `value` is on average, and the delays that were chosen for it.
fn named(oracle: &Oracle, value: fn(&Fold) -> f64, choices: &[fn(&Fold) -> Choice]) -> String {
    let each = |choice: &fn(&Fold) -> Choice| {
        let delays = oracle.delays_us(choice).into_iter().map(|us| us.to_string());
        delays.collect::<Vec<_>>().join("/")
    };
    money(oracle.mean(value), &choices.iter().map(each).collect::<Vec<_>>())
}

fn choice(choice: Choice) -> String {
    money(choice.profit, &[choice.delay_us.to_string()])
}

fn money(profit: f64, delays: &[String]) -> String {
    format!("{} (W {})", format_value(profit, Unit::Dollars), delays.join(", "))
}
/// How far runs of one system differ, if there were several.
fn deviation(profits: &[f64]) -> String {
    let deviation = Summary::of(profits).and_then(|summary| summary.deviation);
    deviation
        .map_or_else(String::new, |deviation| format!(" \u{b1} {}", format_value(deviation, Unit::Dollars)))
}

/// What the figures are worth.
fn remarks(findings: &Findings, method: Option<Method>) -> Vec<&'static str> {
    let adaptive = |account: &&Account| matches!(account.system, System::Adaptive(_));
    let runs = findings.accounts.iter().filter(adaptive).map(|account| account.runs.len()).max();
    let noise = match runs {
        Some(0 | 1) | None => {
            "Adaptive ran once under each function: by how much such runs differ is not known."
        }
        _ => "\u{b1} after a sum: standard deviation of a system's runs; after a share: its standard error.",
    };
    let Some(method) = method else { return vec![noise] };
    let without_luck = match method {
        Method::ByTurns => {
            "By turns in one machine, a second each: W is chosen by all other rounds than that by which it \
             is judged. On average that earns a little too little, for the choice may be wrong."
        }
        Method::CrossValidated => {
            "Cross-validated: W is chosen by all other repetitions than that by which it is judged. On \
             average that earns a little too little, for the choice may be wrong."
        }
        Method::Smoothed => {
            "Smoothed: each W ran once, and is chosen and judged together with its neighbours, which keeps \
             some of the luck out; --repetitions 2 or more keep out all of it."
        }
    };
    let lucky =
        "In hindsight the luckiest runs pass for the best, so that its profits are too high on average.";
    vec![noise, without_luck, lucky]
}

#[cfg(test)]
mod tests {
    use super::super::analysis::Run;
    use super::super::summary::tests::findings;
    use super::*;

    #[test]
    fn repeated_runs_are_cross_validated_and_have_errors() {
        let mut findings = findings();
        for account in &mut findings.accounts {
            let again = Run { repetition: 1, ..account.runs[0].clone() };
            account.runs.push(again);
        }
        findings.accounts.retain(|account| account.system != System::Adaptive(Function::Bonus));
        let text = table(&findings).to_string();
        let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        assert!(text.contains("without luck (cross-validated)"), "{text}");
        assert!(row("while a single one is").contains("100.0% \u{b1} 0.0%"), "{text}");
        assert!(row("while a single one is").contains("not measured"), "{text}");
        assert!(row("best W of each phase").contains("(W 20, 0)"), "{text}");
        assert!(text.contains("its standard error") && text.contains("too high"), "{text}");
    }
}
