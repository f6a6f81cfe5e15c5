//! What adaptive nom earned of what the best fixed batching delays earn, luck kept out.

use super::analysis::System;
use super::contract::Function;
use super::experiment::PHASES;
use super::findings::Findings;
use super::oracle::{Fold, Oracle};
use super::summary::{BEST_FIXED, BOTH, EXPERIMENT, ORACLE, OVER_BEST_FIXED, OVER_ORACLE};
use crate::record::{Record, Unit};
use crate::statistics::{Quotient, Summary};

/// Adaptive nom over the best fixed delays: negative where it lost what could be gained, and no quotient
/// where nothing could be, or where it did not run.
#[derive(Clone, Debug)]
pub struct Shares {
    /// What the best delays earn.
    pub oracle: Oracle,
    /// Over the best of each phase, both phases together.
    pub both: Option<Quotient>,
    /// The same of each phase by itself.
    pub phases: [Option<Quotient>; 2],
    /// Over the best that stays the same.
    pub stays: Option<Quotient>,
}

impl Shares {
    /// Under `function`; none unless a fixed delay served in both phases.
    pub fn of(findings: &Findings, function: Function) -> Option<Shares> {
        let (oracle, contract) = (findings.oracle(function)?, findings.contract(function)?);
        let (accounts, _) = findings.compared(function);
        let account = accounts.iter().find(|account| account.system == System::Adaptive(function));
        let own = account.map(|account| account.phase_profits(&contract, findings.seconds));
        let own = own.unwrap_or_default();
        let over = |own_value: &dyn Fn(&[f64; 2]) -> f64, value: &dyn Fn(&Fold) -> f64| {
            let own: Vec<_> = own.iter().map(|(run, profits)| (*run, own_value(profits))).collect();
            Quotient::of_means(&own, &oracle.by_repetition(value))
        };
        let sum = |[many, single]: &[f64; 2]| many + single;
        let phase = |at: usize| over(&|own| own[at], &|fold| fold.phases[at].profit);
        Some(Shares {
            both: over(&sum, &Fold::both),
            phases: [phase(0), phase(1)],
            stays: over(&sum, &|fold| fold.stays.profit),
            oracle,
        })
    }
}

/// What the best delays earn under `function`, and adaptive nom's shares, as records whose metrics end in the
/// name of the method. Values are means, deviations those of one repetition.
pub fn records(findings: &Findings, function: Function) -> Vec<Record> {
    let Some(Shares { oracle, both, phases, stays }) = Shares::of(findings, function) else {
        return Vec::new();
    };
    let metric = format!("profit_{}_{}", function.name(), oracle.method.name());
    let record = |system: &str, scenario: &str, metric: &str, unit, value, (repetitions, deviation)| Record {
        experiment: EXPERIMENT.into(),
        system: system.into(),
        application: findings.application.into(),
        scenario: scenario.into(),
        metric: metric.into(),
        unit,
        value,
        repetitions,
        deviation,
    };
    let mut records = Vec::new();
    let earned = |value: fn(&Fold) -> f64| oracle.folds.iter().map(value).collect::<Vec<f64>>();
    let profits = [
        (ORACLE, BOTH, earned(Fold::both)),
        (ORACLE, PHASES[0].name, earned(|fold| fold.phases[0].profit)),
        (ORACLE, PHASES[1].name, earned(|fold| fold.phases[1].profit)),
        (BEST_FIXED, BOTH, earned(|fold| fold.stays.profit)),
    ];
    for (system, scenario, values) in profits {
        let Some(of) = Summary::of(&values) else { continue };
        let spread = (of.count, of.deviation);
        records.push(record(system, scenario, &metric, Unit::Dollars, of.mean, spread));
    }
    let quotients = [
        (OVER_ORACLE, BOTH, both),
        (OVER_ORACLE, PHASES[0].name, phases[0]),
        (OVER_ORACLE, PHASES[1].name, phases[1]),
        (OVER_BEST_FIXED, BOTH, stays),
    ];
    for (system, scenario, quotient) in quotients {
        let Some(quotient) = quotient else { continue };
        let of = (quotient.pairs.max(1), quotient.deviation);
        records.push(record(system, scenario, &metric, Unit::Ratio, quotient.value, of));
        if let Some(error) = quotient.error() {
            let metric = format!("{metric}_error");
            records.push(record(system, scenario, &metric, Unit::Ratio, error, (quotient.pairs, None)));
        }
    }
    records
}
