//! Records, and what must be reached.

use super::analysis::{self, Account, System};
use super::contract::{Contract, Function};
use super::experiment::{Halves, PHASES};
use super::findings::Findings;
use super::money::Served;
use super::oracle::Method;
use super::shares;
use crate::record::{Key, Record, Samples, Unit};
use crate::target::{Limit, Target};
use anyhow::Result;

/// Name of the bench in records.
pub const EXPERIMENT: &str = "demo";
/// Name of the system that adapts, whichever function it does so by.
pub const ADAPTIVE: &str = "nom-adaptive";
/// Name of whoever knew the best batching delay of each phase beforehand.
pub const ORACLE: &str = "nom-oracle";
/// Name of the best batching delay that stays the same.
pub const BEST_FIXED: &str = "nom-best-fixed";
const LINUX: &str = "linux";
/// Scenario of what concerns both phases.
pub const BOTH: &str = "both";

const MEMCACHED: &str = "memcached";
/// Name of all applications together.
const ALL: &str = "all";

/// `one` over `other`, where both are gains: a ratio to a loss, or to nothing, means nothing.
pub fn ratio(one: f64, other: f64) -> Option<f64> {
    (one > 0.0 && other > 0.0).then(|| one / other)
}

/// Every record of these findings.
///
/// # Errors
/// If a contract cannot be had on a machine of this speed.
pub fn records(all: &[Findings]) -> Result<Vec<Record>> {
    let mut samples = Samples::new(EXPERIMENT);
    for findings in all {
        let mut push = |system: &str, scenario: &str, metric: &str, unit, value| {
            let (system, scenario, metric) = (system.into(), scenario.into(), metric.into());
            samples.push(Key { system, application: findings.application, scenario, metric, unit }, value);
        };
        push(LINUX, PHASES[1].name, "slowness", Unit::Ratio, findings.slowness.factor());
        for account in &findings.accounts {
            for run in &account.runs {
                served(&account.system.name(), &run.halves, &mut push);
            }
        }
        for function in Function::ALL {
            let contract = Contract::new(function, findings.slowness)?;
            for account in &findings.accounts {
                earned(findings, account, function, &contract, &mut push);
            }
            chosen(findings, function, &mut push);
            compared(findings, function, &mut push);
        }
        for &seconds in &findings.reactions_s {
            push(ADAPTIVE, BOTH, "reaction", Unit::Seconds, seconds);
        }
        for &share in &findings.governing_shares {
            push(ADAPTIVE, BOTH, "governing_share", Unit::Ratio, share);
        }
    }
    let mut records = samples.records();
    for findings in all {
        pool(findings, &mut records);
        records.extend(Function::ALL.into_iter().flat_map(|function| shares::records(findings, function)));
    }
    let applications = all.iter().map(|findings| (findings.application, Some(findings.application)));
    let least = applications.chain([(ALL, None)]).flat_map(|(name, of)| least(&records, name, of));
    let least: Vec<Record> = least.collect();
    records.extend(least);
    Ok(records)
}

/// Takes a value: system, scenario, metric, unit, value.
type Push<'a> = dyn FnMut(&str, &str, &str, Unit, f64) + 'a;

fn served(system: &str, run: &Halves, push: &mut Push<'_>) {
    for (phase, intervals) in PHASES.iter().zip(run) {
        let Some(served) = Served::of(intervals) else { continue };
        push(system, phase.name, "throughput", Unit::PerSecond, served.throughput);
        push(system, phase.name, "useful", Unit::BitsPerSecond, served.useful_bits);
        push(system, phase.name, "sent", Unit::BitsPerSecond, served.sent_bits);
        push(system, phase.name, "latency_mean", Unit::Seconds, served.latency_s);
        push(system, phase.name, "jitter", Unit::Seconds, served.jitter_s);
    }
}

/// An adaptive system earned under the one function by which it adapted, all others under every function.
fn earned(
    findings: &Findings,
    account: &Account,
    function: Function,
    contract: &Contract,
    push: &mut Push<'_>,
) {
    let name = match account.system {
        System::Adaptive(own) if own == function => ADAPTIVE.to_owned(),
        System::Adaptive(_) => return,
        other => other.name(),
    };
    for (index, phase) in PHASES.iter().enumerate() {
        let metric = format!("profit_rate_{}", function.name());
        if let Some(rate) = account.rate(contract, index) {
            push(&name, phase.name, &metric, Unit::DollarsPerSecond, rate);
        }
    }
    for profit in account.profits(contract, findings.seconds) {
        push(&name, BOTH, &format!("profit_{}", function.name()), Unit::Dollars, profit);
    }
}

/// What hindsight says of the fixed batching delays.
fn chosen(findings: &Findings, function: Function, push: &mut Push<'_>) {
    let Some(hindsight) = findings.hindsight(function) else { return };
    let (profit, delay) = (format!("profit_{}", function.name()), format!("delay_{}", function.name()));
    let fixed = [
        ("nom-best-throughput", hindsight.throughput),
        ("nom-best-latency", hindsight.latency),
        (BEST_FIXED, hindsight.single),
    ];
    for (system, choice) in fixed {
        push(system, BOTH, &profit, Unit::Dollars, choice.profit);
        push(system, BOTH, &delay, Unit::Seconds, f64::from(choice.delay_us) / 1e6);
    }
    push(ORACLE, BOTH, &profit, Unit::Dollars, hindsight.oracle);
    for (phase, us) in PHASES.iter().zip(hindsight.oracle_us) {
        push(ORACLE, phase.name, &delay, Unit::Seconds, f64::from(us) / 1e6);
    }
}

/// Names of adaptive beside others.
const OVER_LINUX: &str = "nom-adaptive/linux";
/// Adaptive over the best batching delay of each phase.
pub const OVER_ORACLE: &str = "nom-adaptive/nom-oracle";
/// Adaptive over the best batching delay that stays the same.
pub const OVER_BEST_FIXED: &str = "nom-adaptive/nom-best-fixed";
const MORE_THAN_LINUX: &str = "nom-adaptive-linux";
const OVER_TUNED: &str = "nom-adaptive/linux-tuned";
const MORE_THAN_TUNED: &str = "nom-adaptive-linux-tuned";

/// A profit of adaptive nom's beside what others earned under `function`; ratios to gains only.
fn beside(findings: &Findings, function: Function, own: f64) -> Vec<(&'static str, Unit, f64)> {
    let linux = findings.profit(analysis::LINUX, function);
    let hindsight = findings.hindsight(function);
    let tuned = findings.profit(analysis::TUNED, function);
    let others = [
        (OVER_LINUX, linux),
        (OVER_TUNED, tuned),
        (OVER_ORACLE, hindsight.map(|hindsight| hindsight.oracle)),
        (OVER_BEST_FIXED, hindsight.map(|hindsight| hindsight.single.profit)),
    ];
    let gains =
        others.into_iter().filter_map(|(system, other)| Some((system, other.filter(|one| *one > 0.0)?)));
    let ratios = gains.map(|(system, other)| (system, Unit::Ratio, own / other));
    let more = [(MORE_THAN_LINUX, linux), (MORE_THAN_TUNED, tuned)];
    let more = more.into_iter().filter_map(|(system, other)| Some((system, Unit::Dollars, own - other?)));
    ratios.chain(more).collect()
}

/// Adaptive beside others: each run, also one that lost, so that it is known by how much they differ, and
/// each phase of all runs. A loss of all runs together has no ratio.
fn compared(findings: &Findings, function: Function, push: &mut Push<'_>) {
    let metric = format!("profit_{}", function.name());
    let Some(all) = findings.profit(System::Adaptive(function), function) else { return };
    let runs = findings.profits(System::Adaptive(function), function);
    for (system, unit, value) in runs.iter().flat_map(|own| beside(findings, function, *own)) {
        if all > 0.0 || unit != Unit::Ratio {
            push(system, BOTH, &metric, unit, value);
        }
    }
    for (index, phase) in PHASES.iter().enumerate() {
        let own = findings.phase_profit(System::Adaptive(function), function, index);
        let best = findings.hindsight(function).map(|hindsight| hindsight.oracle_phases[index]);
        if let Some(ratio) = own.zip(best).and_then(|(own, best)| ratio(own, best)) {
            push(OVER_ORACLE, phase.name, &metric, Unit::Ratio, ratio);
        }
    }
}

/// Has comparisons, and profits of fixed delays, say what all runs together say, as tables do, and not what
/// the run in the middle does.
fn pool(findings: &Findings, records: &mut [Record]) {
    for function in Function::ALL {
        let Some(all) = findings.profit(System::Adaptive(function), function) else { continue };
        let metric = format!("profit_{}", function.name());
        for (system, unit, value) in beside(findings, function, all) {
            say(records, [system, findings.application, &metric], unit, value);
        }
    }
    // What a fixed delay earned by turns, a second each, is what it earned in all.
    for (account, function) in
        findings.accounts.iter().flat_map(|account| Function::ALL.map(|function| (account, function)))
    {
        let profit =
            findings.profit(account.system, function).filter(|_| account.system.delay_us().is_some());
        let Some(profit) = profit else { continue };
        let (system, metric) = (account.system.name(), format!("profit_{}", function.name()));
        say(records, [&system, findings.application, &metric], Unit::Dollars, profit);
    }
}

/// Has the record of both phases of this system, application and metric say `value`.
fn say(records: &mut [Record], [system, application, metric]: [&str; 3], unit: Unit, value: f64) {
    let is_it = |record: &&mut Record| {
        (&*record.system, &*record.application, &*record.scenario, &*record.metric, record.unit)
            == (system, application, BOTH, metric, unit)
    };
    records.iter_mut().filter(is_it).for_each(|record| record.value = value);
}

/// What the names of metrics end in: what hindsight says, luck included, and what is found without.
const METHODS: [Option<Method>; 4] =
    [None, Some(Method::ByTurns), Some(Method::CrossValidated), Some(Method::Smoothed)];

/// The least of the records of all functions: what a target asks for. Of the application `of` alone, or of
/// all; its record has `name`.
fn least(records: &[Record], name: &str, of: Option<&str>) -> Vec<Record> {
    let profit = |what: &str, method: Option<Method>| {
        format!("profit_{what}{}", method.map(|method| format!("_{}", method.name())).unwrap_or_default())
    };
    let least = |(system, method): (&str, Option<Method>)| {
        let metrics = Function::ALL.map(|function| profit(function.name(), method));
        let values = records.iter().filter(|record| {
            record.system == system
                && record.scenario == BOTH
                && metrics.contains(&record.metric)
                && of.is_none_or(|application| record.application == application)
        });
        let least = values.min_by(|one, other| one.value.total_cmp(&other.value))?;
        Some(Record { application: name.into(), metric: profit("least", method), ..least.clone() })
    };
    let systems = [OVER_ORACLE, OVER_BEST_FIXED, MORE_THAN_LINUX, MORE_THAN_TUNED];
    systems.into_iter().flat_map(|system| METHODS.map(|method| (system, method))).filter_map(least).collect()
}

const fn target(claim: &'static str, system: &'static str, metric: &'static str, limit: Limit) -> Target {
    let of = Some([MEMCACHED, BOTH]);
    Target { claim, system, of, metric, unit: Unit::Ratio, limit }
}

/// What nom must reach with memcached. The best batching delays are those that are found without luck.
pub fn targets(records: &[Record]) -> Vec<Target> {
    const CROSS_VALIDATED: &str = "profit_least_cross_validated";
    let methods = ["profit_least_by_turns", "profit_least_smoothed"];
    let is_known = |metric: &&str| {
        records.iter().any(|record| record.application == MEMCACHED && record.metric == *metric)
    };
    let least = methods.into_iter().find(is_known).unwrap_or(CROSS_VALIDATED);
    vec![
        target(
            "at least 11.1 times Linux's profit under the penalty function, where Linux has one",
            OVER_LINUX,
            "profit_penalty",
            Limit::AtLeast(11.1),
        ),
        Target {
            unit: Unit::Dollars,
            of: Some([ALL, BOTH]),
            ..target(
                "more profit than Linux with every application under every function",
                MORE_THAN_LINUX,
                "profit_least",
                Limit::AtLeast(0.0),
            )
        },
        Target {
            unit: Unit::Dollars,
            of: Some([ALL, BOTH]),
            ..target(
                "more profit than tuned Linux with every application under every function",
                MORE_THAN_TUNED,
                "profit_least",
                Limit::AtLeast(0.0),
            )
        },
        target(
            "at least 97% of what the best batching delay of each phase earns",
            OVER_ORACLE,
            least,
            Limit::AtLeast(0.97),
        ),
        target(
            "no less than the best batching delay that stays the same",
            OVER_BEST_FIXED,
            least,
            Limit::AtLeast(1.0),
        ),
        Target {
            unit: Unit::Seconds,
            ..target("a new working point within 0.1 s of a price", ADAPTIVE, "reaction", Limit::AtMost(0.1))
        },
        target(
            "choosing takes at most 1% of the processor",
            ADAPTIVE,
            "governing_share",
            Limit::AtMost(0.01),
        ),
    ]
}

/// Sentences about what has no ratio.
pub fn losses(findings: &Findings) -> Vec<String> {
    let loss = |function: Function| {
        let linux = findings.profit(analysis::LINUX, function).filter(|profit| *profit <= 0.0)?;
        let dollars = |value| crate::record::format_value(value, Unit::Dollars);
        let own = findings.profit(System::Adaptive(function), function);
        let own = own.map(|own| format!("; nom's is {}", dollars(own))).unwrap_or_default();
        Some(format!(
            "{}, {}: Linux's profit is {}{own}: a ratio has no meaning.",
            findings.application,
            function.name(),
            dollars(linux)
        ))
    };
    Function::ALL.into_iter().filter_map(loss).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::analysis::Run;
    use super::super::contract::{PAPER_LATENCY_S, Slowness};
    use super::super::money::tests::second;
    use super::*;
    use crate::target::Verdict;

    /// Linux late with everything while many are served, nom with two delays, and nom adapting.
    pub(in super::super) fn findings() -> Findings {
        let account = |system, [many, single]: [(f64, f64); 2]| {
            let halves = [vec![second(many.0, many.1, 1.0)], vec![second(single.0, single.1, 10.0)]];
            Account { system, runs: vec![Run { repetition: 0, halves }] }
        };
        let mut accounts = vec![
            account(analysis::LINUX, [(1.0, 1e-3), (0.1, 1e-4)]),
            account(System::Fixed(0), [(4.0, 5e-4), (0.2, 5e-5)]),
            account(System::Fixed(20), [(5.0, 6e-4), (0.1, 9e-5)]),
        ];
        let adaptive = |function| account(System::Adaptive(function), [(4.98, 6e-4), (0.2, 5e-5)]);
        accounts.extend(Function::ALL.map(adaptive));
        Findings {
            application: "memcached",
            slowness: Slowness::of(PAPER_LATENCY_S).unwrap(),
            seconds: 10.0,
            accounts,
            turned: vec![],
            agreements: vec![],
            reactions_s: vec![0.02],
            governing_shares: vec![],
        }
    }

    #[test]
    fn targets_find_their_records() {
        let findings = findings();
        let records = records(std::slice::from_ref(&findings)).unwrap();
        let verdicts: Vec<_> = targets(&records).iter().map(|target| target.judge(&records)).collect();
        use Verdict::*;
        assert_eq!(verdicts, [NotMeasured, Reached, NotMeasured, Reached, Reached, Reached, NotMeasured]);
        let losses = losses(&findings);
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert!(losses[0].contains("memcached, penalty: Linux's profit is -$"), "{losses:?}");
    }

    #[test]
    fn runs_tell_how_far_they_differ() {
        let mut findings = findings();
        let adaptive = System::Adaptive(Function::Refund);
        let account = findings.accounts.iter_mut().find(|account| account.system == adaptive).unwrap();
        let mut poorer = account.runs[0].clone();
        poorer.repetition = 1;
        poorer.halves[0][0].useful_bytes /= 2.0;
        account.runs.push(poorer);
        let records = records(&[findings]).unwrap();
        let of = |application: &str, scenario: &str, metric: &str| {
            let says = |record: &&Record| {
                (&*record.application, &*record.scenario, &*record.metric) == (application, scenario, metric)
                    && record.system == OVER_ORACLE
            };
            records.iter().find(says).cloned().unwrap()
        };
        let both = of("memcached", BOTH, "profit_refund");
        assert_eq!(both.repetitions, 2);
        assert!(both.deviation.unwrap() > 0.1 && both.value < 1.0, "{both:?}");
        assert_eq!(of("memcached", BOTH, "profit_bonus").deviation, None);
        assert_eq!(of("memcached", "single", "profit_refund").value, 1.0);
        assert_eq!(
            of("all", BOTH, "profit_least"),
            Record { application: "all".into(), ..of("memcached", BOTH, "profit_least") }
        );
    }

    #[test]
    fn a_run_that_lost_counts_like_one_that_gained() {
        let mut findings = findings();
        let adaptive = System::Adaptive(Function::Penalty);
        let account = findings.accounts.iter_mut().find(|account| account.system == adaptive).unwrap();
        let mut late = account.runs[0].clone();
        late.halves[0][0].latency_s = 1.0;
        account.runs.push(late);
        let records = records(std::slice::from_ref(&findings)).unwrap();
        let share =
            records.iter().find(|record| record.system == OVER_ORACLE && record.metric == "profit_penalty");
        let own = findings.profit(adaptive, Function::Penalty).unwrap();
        let oracle = findings.hindsight(Function::Penalty).unwrap().oracle;
        let share = share.unwrap();
        assert!((share.value - own / oracle).abs() < 1e-12 && share.value < 0.6, "{share:?}");
        assert_eq!(share.repetitions, 2);
    }

    #[test]
    fn a_loss_where_a_gain_was_possible_misses_its_target() {
        let mut findings = findings();
        let adaptive = System::Adaptive(Function::Penalty);
        let account = findings.accounts.iter_mut().find(|account| account.system == adaptive).unwrap();
        account.runs[0].halves.iter_mut().flatten().for_each(|interval| interval.latency_s = 1.0);
        let records = records(&[findings]).unwrap();
        let target = targets(&records).into_iter().find(|target| target.system == OVER_ORACLE).unwrap();
        assert_eq!(target.judge(&records), Verdict::Missed);
        assert!(target.find(&records).unwrap().value < 0.0);
    }

    #[test]
    fn an_adaptive_run_counts_under_its_own_function_only() {
        let records = records(&[findings()]).unwrap();
        let of = |system: &str, metric: &str| {
            records.iter().filter(|record| record.system == system && record.metric == metric).count()
        };
        assert_eq!((of(ADAPTIVE, "profit_refund"), of(ORACLE, "profit_refund")), (1, 1));
        assert_eq!(of("nom-adaptive-bonus", "throughput"), 2);
        assert_eq!(of("nom-adaptive-bonus", "profit_refund"), 0);
    }

    #[test]
    fn a_loss_has_no_ratio() {
        assert_eq!(ratio(1.0, 2.0), Some(0.5));
        for (one, other) in [(1.0, 0.0), (1.0, -1.0), (-1.0, -1.0), (-1.0, 2.0)] {
            assert_eq!(ratio(one, other), None);
        }
    }
}
