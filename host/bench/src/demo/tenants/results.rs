//! What each scheduler earned: records, a row for each turn, a table, a figure, and what must be reached.

use super::super::rows::save;
use super::{EXPERIMENT, Scheduler, TENANTS, Taken, Turn};
use crate::figure::{Bars, Figure, Scale};
use crate::record::{Key, Record, Samples, Unit, format_value};
use crate::statistics::{Quotient, Summary};
use crate::table::Table;
use crate::target::{Limit, Target};
use anyhow::Result;
use serde::Serialize;
use std::path::Path;

const APPLICATION: &str = "memcached";
/// All tenants together.
const ALL: &str = "all";
const PROFIT: &str = "profit";
const QUOTIENT: &str = "profit/fair";

impl Taken {
    fn profit(&self) -> f64 {
        self.revenue - self.cost
    }
}

impl Turn {
    /// Dollars a second.
    fn rate(&self, of: impl Fn(&Taken) -> f64) -> f64 {
        self.taken.iter().map(of).sum::<f64>() / self.seconds
    }
}

/// A tenant's turn as a row of `turns.csv`.
#[derive(Serialize)]
struct Row<'a> {
    round: u32,
    scheduler: &'a str,
    tenant: &'a str,
    seconds: f64,
    requests: f64,
    latency_s: f64,
    jitter_s: f64,
    p99_s: f64,
    answered_bytes: f64,
    sent_bytes: f64,
    core_share: f64,
    revenue: f64,
    cost: f64,
    profit: f64,
    told_profit: f64,
}

/// Writes what all sums are made of.
pub fn save_turns(turns: &[Turn], out: &Path) -> Result<()> {
    let rows = turns.iter().flat_map(|turn| {
        let taken = TENANTS.iter().zip(&turn.taken);
        taken.map(move |((tenant, _), taken)| row(turn, tenant, taken))
    });
    save(&out.join("turns.csv"), rows)
}

fn row<'a>(turn: &'a Turn, tenant: &'a str, taken: &Taken) -> Row<'a> {
    let [latency_s, jitter_s, p99_s] = taken.latency_s;
    let Taken { requests, answered_bytes, sent_bytes, core_share, revenue, cost, told_profit, .. } = *taken;
    Row {
        round: turn.round,
        scheduler: turn.scheduler.name(),
        tenant,
        seconds: turn.seconds,
        requests,
        latency_s,
        jitter_s,
        p99_s,
        answered_bytes,
        sent_bytes,
        core_share,
        revenue,
        cost,
        profit: taken.profit(),
        told_profit,
    }
}

/// Of each scheduler and tenant; and `profit` over `fair`, with its standard error.
pub fn records(turns: &[Turn]) -> Vec<Record> {
    let mut samples = Samples::new(EXPERIMENT);
    let mut push = |system: &str, tenant: &str, metric: &str, unit, value| {
        let (system, scenario, metric) = (system.to_owned(), tenant.to_owned(), metric.to_owned());
        samples.push(Key { system, application: APPLICATION, scenario, metric, unit }, value);
    };
    for turn in turns {
        let system = turn.scheduler.name();
        for ((tenant, _), taken) in TENANTS.iter().zip(&turn.taken) {
            push(system, tenant, PROFIT, Unit::DollarsPerSecond, taken.profit() / turn.seconds);
            push(system, tenant, "throughput", Unit::PerSecond, taken.requests / turn.seconds);
            push(system, tenant, "core_share", Unit::Ratio, taken.core_share);
            push(system, tenant, "latency_mean", Unit::Seconds, taken.latency_s[0]);
            push(system, tenant, "latency_p99", Unit::Seconds, taken.latency_s[2]);
        }
        push(system, ALL, PROFIT, Unit::DollarsPerSecond, turn.rate(Taken::profit));
        push(system, ALL, "told_profit", Unit::DollarsPerSecond, turn.rate(|taken| taken.told_profit));
    }
    if let Some(quotient) = quotient(turns) {
        push(QUOTIENT, ALL, PROFIT, Unit::Ratio, quotient.value);
        quotient
            .error()
            .into_iter()
            .for_each(|error| push(QUOTIENT, ALL, "profit_error", Unit::Ratio, error));
    }
    samples.records()
}

fn quotient(turns: &[Turn]) -> Option<Quotient> {
    let of = |scheduler| -> Vec<(u32, f64)> {
        let own = turns.iter().filter(|turn| turn.scheduler == scheduler);
        own.map(|turn| (turn.round, turn.rate(Taken::profit))).collect()
    };
    Quotient::of_means(&of(Scheduler::Profit), &of(Scheduler::Fair))
}

/// The mean of what a tenant, or all together, had under a scheduler.
fn mean(
    turns: &[Turn],
    scheduler: Scheduler,
    tenant: Option<usize>,
    of: impl Fn(&Taken) -> f64,
) -> Option<f64> {
    let own = turns.iter().filter(|turn| turn.scheduler == scheduler);
    let values: Vec<f64> = own
        .map(|turn| tenant.map_or_else(|| turn.taken.iter().map(&of).sum(), |tenant| of(&turn.taken[tenant])))
        .collect();
    Some(Summary::of(&values)?.mean)
}

/// How long a turn took.
fn mean_seconds(turns: &[Turn]) -> Option<f64> {
    Some(Summary::of(&turns.iter().map(|turn| turn.seconds).collect::<Vec<_>>())?.mean)
}

/// A row for each tenant and scheduler.
pub fn table(turns: &[Turn]) -> Table {
    let heads = ["tenant", "scheduler", "core", "requests/s", "mean latency", "pays, $/s", "profit, $/s"];
    let mut table = Table::new("What tenants were served and pay", heads);
    let seconds = mean_seconds(turns).unwrap_or(1.0);
    let names = TENANTS.iter().map(|(name, _)| *name).enumerate().map(|(index, name)| (Some(index), name));
    for (tenant, name) in names.chain([(None, ALL)]) {
        for scheduler in Scheduler::ALL {
            let of = |of: fn(&Taken) -> f64| mean(turns, scheduler, tenant, of).unwrap_or_default();
            let latency = match tenant {
                Some(_) => format_value(of(|taken| taken.latency_s[0]), Unit::Seconds),
                None => "-".into(),
            };
            table = table.row([
                name.to_owned(),
                scheduler.name().to_owned(),
                format!("{:.3}", of(|taken| taken.core_share)),
                format!("{:.0}", of(|taken| taken.requests) / seconds),
                latency,
                format!("{:.4}", of(|taken| taken.revenue) / seconds),
                format!("{:.4}", of(Taken::profit) / seconds),
            ]);
        }
    }
    let said = quotient(turns).map(|quotient| match quotient.error() {
        Some(error) => format!("Under `profit` all pay {:.3} ± {error:.3} times as much.", quotient.value),
        None => format!("Under `profit` all pay {:.3} times as much.", quotient.value),
    });
    said.into_iter().fold(table, Table::remark)
}

/// What each tenant earns under either scheduler, and all together.
pub fn figure(turns: &[Turn]) -> Figure {
    let seconds = mean_seconds(turns);
    let rate = |tenant, scheduler| Some(mean(turns, scheduler, tenant, Taken::profit)? / seconds?);
    let group = |name: &str, tenant| {
        (name.to_owned(), Scheduler::ALL.map(|scheduler| rate(tenant, scheduler)).to_vec())
    };
    let groups = TENANTS.iter().enumerate().map(|(index, (name, _))| group(name, Some(index)));
    Figure::Bars(Bars {
        name: "tenants".into(),
        title: "What tenants of one server earn, by turns: fair shares, and whoever earns most first".into(),
        axis: "profit, $/s".into(),
        scale: Scale::Linear,
        series: Scheduler::ALL.map(|scheduler| scheduler.name().to_owned()).to_vec(),
        groups: groups.chain([group(ALL, None)]).collect(),
    })
}

/// More is earned where whoever earns most is served first.
pub fn targets() -> Vec<Target> {
    vec![Target {
        claim: "serving whoever earns most first earns more than fair shares",
        system: QUOTIENT,
        of: Some([APPLICATION, ALL]),
        metric: PROFIT,
        unit: Unit::Ratio,
        limit: Limit::AtLeast(1.0),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Verdict;

    fn turn(round: u32, scheduler: Scheduler, revenues: [f64; 3]) -> Turn {
        let taken = revenues.map(|revenue| Taken { revenue, cost: 1.0, ..Taken::default() });
        Turn { round, scheduler, seconds: 2.0, taken }
    }

    fn turns(best: f64) -> Vec<Turn> {
        let of = |round, scale| {
            [
                turn(round, Scheduler::Fair, [3.0 * scale, 2.0 * scale, scale]),
                turn(round, Scheduler::Profit, [best * scale, 2.0 * scale, scale]),
            ]
        };
        [of(0, 2.0), of(1, 3.0)].concat()
    }

    #[test]
    fn the_schedulers_are_compared_by_what_all_tenants_leave() {
        let records = records(&turns(6.0));
        let of = |system: &str, scenario: &str, metric: &str| {
            let is = |record: &&Record| {
                record.system == system && record.scenario == scenario && record.metric == metric
            };
            records.iter().find(is).map(|record| record.value).expect("a record")
        };
        // Revenues of 12 and 18 against 18 and 27 in two seconds each, with costs of 3.
        assert_eq!(of("fair", ALL, PROFIT), (4.5 + 7.5) / 2.0);
        assert!((of(QUOTIENT, ALL, PROFIT) - 39.0 / 24.0).abs() < 1e-9);
        assert!(of(QUOTIENT, ALL, "profit_error") < 0.1);
        assert_eq!(of("profit", "gold", PROFIT), (5.5 + 8.5) / 2.0);
        assert_eq!(targets()[0].judge(&records), Verdict::Reached);
    }

    #[test]
    fn a_scheduler_that_earns_less_is_seen() {
        let records = records(&turns(1.0));
        assert_eq!(targets()[0].judge(&records), Verdict::Missed);
    }

    #[test]
    fn the_table_and_the_figure_have_every_tenant_and_all() {
        let text = table(&turns(6.0)).to_string();
        assert!(text.contains("bronze") && text.contains("times as much"), "{text}");
        let Figure::Bars(bars) = figure(&turns(6.0)) else { panic!("bars") };
        assert_eq!(bars.groups.last(), Some(&(ALL.to_owned(), vec![Some(6.0), Some(9.75)])));
    }
}
