//! The paper's figures (5, 8, 11 and 14, and their like for the other applications), and one more: an
//! adaptive run over time.

use super::analysis::{Account, LINUX, System, is_on_frontier};
use super::contract::{Contract, Function};
use super::experiment::{PHASES, Phase};
use super::findings::Findings;
use super::money::{Interval, Served};
use super::oracle::Fold;
use super::runner::Adaptation;
use super::tables::label;
use crate::figure::{Bars, Figure, Line, Lines, Panels, Scale};
use nom_proto::status::Status;

/// The figures of one application.
pub fn figures(findings: &Findings) -> Vec<Figure> {
    let bars = [
        performance(findings, ["throughput", "Throughput", "replies a second"], |served| served.throughput),
        performance(findings, ["latency", "Mean latency", "seconds"], |served| served.latency_s),
        profit(findings),
        strategies(findings),
    ];
    let lines = [
        sweep(findings, 0, ["sweep-throughput", "throughput", "replies a second"], |served| {
            served.throughput
        }),
        sweep(findings, 1, ["sweep-latency", "latency", "seconds"], |served| served.latency_s),
        frontier(findings),
    ];
    let figures = bars.map(Figure::Bars).into_iter().chain(lines.map(Figure::Lines));
    figures.filter(|figure| !figure.is_empty()).collect()
}

fn name(findings: &Findings, figure: &str) -> String {
    format!("{}-{figure}", findings.application)
}

/// Systems whose figures do not depend on a function: Linux, and nom with the batching delays between which
/// it chooses.
fn compared(findings: &Findings) -> Vec<&Account> {
    let fixed = findings.accounts.iter().filter(|account| account.system.delay_us().is_some());
    let by = |key: &dyn Fn(&&Account) -> Option<f64>| {
        let known = fixed.clone().filter(|account| key(account).is_some());
        known.max_by(|one, other| key(one).unwrap_or(f64::MIN).total_cmp(&key(other).unwrap_or(f64::MIN)))
    };
    let fastest = by(&|account| account.served(0).map(|served| served.throughput));
    let soonest = by(&|account| account.served(1).map(|served| -served.latency_s));
    let mut shown: Vec<&Account> = findings.account(LINUX).into_iter().chain(soonest).collect();
    shown.extend(fastest.filter(|fastest| shown.iter().all(|known| known.system != fastest.system)));
    shown
}

/// Figures 2 to 4.
fn performance(findings: &Findings, [file, what, axis]: [&str; 3], value: fn(&Served) -> f64) -> Bars {
    let shown = compared(findings);
    let group = |(index, phase): (usize, &Phase)| {
        let values = shown.iter().map(|account| account.served(index).as_ref().map(value)).collect();
        (phase.name.to_owned(), values)
    };
    Bars {
        name: name(findings, file),
        title: format!("{what} of {}", findings.application),
        axis: axis.into(),
        scale: Scale::Linear,
        series: shown.iter().map(|account| label(account.system)).collect(),
        groups: PHASES.iter().enumerate().map(group).collect(),
    }
}

/// Figures 5 to 7.
fn profit(findings: &Findings) -> Bars {
    let group = |function: Function| {
        let values = [LINUX, System::Adaptive(function)].map(|who| findings.profit(who, function));
        (function.name().to_owned(), values.to_vec())
    };
    let groups = Function::ALL.map(group);
    // A loss has no place on a logarithmic scale, and a small gain none on a linear one.
    let is_gain = groups.iter().flat_map(|(_, values)| values).flatten().all(|profit| *profit > 0.0);
    Bars {
        name: name(findings, "profit"),
        title: format!("Profit of {} in 2 x {:.0} s", findings.application, findings.seconds),
        axis: "dollars".into(),
        scale: if is_gain { Scale::Logarithmic } else { Scale::Linear },
        series: ["Linux", "nom, adaptive"].map(String::from).into(),
        groups: groups.into(),
    }
}

/// Figures 8 to 10, with what hindsight would have chosen, over what the best delays of each phase earn when
/// luck is kept out.
fn strategies(findings: &Findings) -> Bars {
    let group = |function: Function| {
        let hindsight = findings.hindsight(function);
        let values = [
            hindsight.map(|found| found.throughput.profit),
            hindsight.map(|found| found.latency.profit),
            hindsight.map(|found| found.single.profit),
            findings.profit(System::Adaptive(function), function),
        ];
        let oracle = findings.oracle(function).map(|oracle| oracle.mean(Fold::both));
        let oracle = oracle.filter(|profit| *profit > 0.0);
        (function.name().to_owned(), values.map(|profit| Some(100.0 * profit? / oracle?)).to_vec())
    };
    let series = ["W best for throughput", "W best for latency", "best W that stays", "adaptive"];
    Bars {
        name: name(findings, "strategies"),
        title: format!("Profit of nom's {}: batching delay fixed or adaptive", findings.application),
        axis: "per cent of the best W of each phase".into(),
        scale: Scale::Linear,
        series: series.map(String::from).into(),
        groups: Function::ALL.map(group).into(),
    }
}

/// The points of all fixed batching delays, in their order.
fn fixed(findings: &Findings) -> impl Iterator<Item = (u32, &Account)> {
    findings.accounts.iter().filter_map(|account| Some((account.system.delay_us()?, account)))
}

/// Figures 11 to 13.
fn sweep(
    findings: &Findings,
    phase: usize,
    [file, what, axis]: [&str; 3],
    value: fn(&Served) -> f64,
) -> Lines {
    let point = |(us, account): (u32, &Account)| Some((f64::from(us), value(&account.served(phase)?)));
    let points = fixed(findings).filter_map(point).collect();
    let name_of_phase = PHASES[phase].name;
    Lines {
        name: name(findings, file),
        title: format!("Batching delay and {what} of {}: {name_of_phase}", findings.application),
        axes: ["batching delay W, microseconds".into(), axis.into()],
        scale: Scale::Linear,
        lines: vec![Line::plain(name_of_phase, points)],
    }
}

/// Figures 14 to 16.
fn frontier(findings: &Findings) -> Lines {
    let point = |(us, account): (u32, &Account)| {
        Some((us, (account.served(1)?.latency_s, account.served(0)?.throughput)))
    };
    let all: Vec<(u32, (f64, f64))> = fixed(findings).filter_map(point).collect();
    let points: Vec<(f64, f64)> = all.iter().map(|(_, point)| *point).collect();
    let mut best: Vec<_> = all.iter().copied().filter(|(_, point)| is_on_frontier(*point, &points)).collect();
    best.sort_by(|one, other| one.1.0.total_cmp(&other.1.0));
    let labels = all.iter().map(|(us, _)| format!("{us} \u{b5}s")).collect();
    let every = Line { name: "every W".into(), points, labels, is_joined: false };
    let best = Line::plain("Pareto frontier", best.into_iter().map(|(_, point)| point).collect());
    Lines {
        name: name(findings, "frontier"),
        title: format!("{}: throughput (many) over latency (single), for each W", findings.application),
        axes: ["mean latency of a single client, seconds".into(), "replies a second to many".into()],
        scale: Scale::Linear,
        lines: vec![best, every],
    }
}

/// An adaptive run over time, the first of each function: the price and the batching delay as the application
/// reported them, and the profit by what its clients were served.
pub fn timelines(all: &[Findings], adaptations: &[Vec<Adaptation>]) -> Vec<Figure> {
    let of = |(findings, runs): (&Findings, &Vec<Adaptation>)| -> Vec<Figure> {
        let first = |function| runs.iter().find(|run| run.function == function);
        Function::ALL.into_iter().filter_map(first).filter_map(|run| timeline(findings, run)).collect()
    };
    all.iter().zip(adaptations).flat_map(of).collect()
}

fn timeline(findings: &Findings, run: &Adaptation) -> Option<Figure> {
    let contract = findings.contract(run.function)?;
    let begin_s = run.set.first()?.at_s;
    let said = |value: fn(&Status) -> f64| -> Vec<(f64, f64)> {
        run.heard.iter().map(|heard| (heard.at_s - begin_s, value(&heard.status))).collect()
    };
    let panel = |title: &str, axis: &str, lines| Lines {
        name: String::new(),
        title: title.into(),
        axes: ["seconds".into(), axis.into()],
        scale: Scale::Linear,
        lines,
    };
    let intervals: Vec<Interval> = run.halves.concat();
    let earned = earned_so_far(&intervals, &contract);
    let earned = earned.into_iter().map(|(at_s, sum)| (at_s - begin_s, sum)).collect();
    let name_of_run = format!("{} ({})", findings.application, run.function.name());
    let panels = vec![
        panel(
            &format!("{name_of_run}: price that the application reckons with"),
            "$/Gbit",
            vec![Line::plain("price", said(|status| status.price_network_out))],
        ),
        panel(
            "batching delay W that it chose",
            "microseconds",
            vec![Line::plain("W", said(|status| f64::from(status.batching_delay_us)))],
        ),
        panel(
            "profit so far",
            "dollars",
            vec![
                Line::plain("by what clients were served", earned),
                Line::plain("as the application says", said(|status| status.profit)),
            ],
        ),
    ];
    let name = name(findings, &format!("timeline-{}", run.function.name()));
    Some(Figure::Panels(Panels { name, panels }))
}

/// Profit so far at the end of each interval.
fn earned_so_far(intervals: &[Interval], contract: &Contract) -> Vec<(f64, f64)> {
    let mut sum = 0.0;
    let point = |interval: &Interval| {
        sum += interval.money(contract).profit();
        (interval.end_s, sum)
    };
    intervals.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::findings;
    use super::*;

    #[test]
    fn every_figure_of_the_paper_is_drawn() {
        let figures = figures(&findings());
        let names: Vec<_> = figures.iter().map(Figure::name).collect();
        let expected = [
            "memcached-throughput",
            "memcached-latency",
            "memcached-profit",
            "memcached-strategies",
            "memcached-sweep-throughput",
            "memcached-sweep-latency",
            "memcached-frontier",
        ];
        assert_eq!(names, expected);
        for figure in &figures {
            let svg = figure.to_svg().unwrap();
            assert!(roxmltree::Document::parse(&svg).is_ok(), "{}", figure.name());
        }
    }
}
