//! What each setting of a knob earned: records, a table, and what must be reached.

use super::{ADAPTIVE, EXPERIMENT, Knob, PHASES, Second, Trial};
use crate::record::{Key, Record, Samples, Unit, format_value};
use crate::statistics::Summary;
use crate::table::Table;
use crate::target::{Limit, Target};
use nom_proto::prices::Resource;

const BOTH: &str = "both";

/// What a phase of a trial was like.
struct Summed {
    profit: f64,
    hit_ratio: f64,
    throughput: f64,
    /// GiB or cores, on average.
    held: f64,
}

fn sum(knob: &Knob, seconds: &[Second]) -> Summed {
    let total = |value: &dyn Fn(&Second) -> f64| seconds.iter().map(value).sum::<f64>();
    let (time, requests) = (total(&|s| s.seconds), total(&|s| s.tally.requests as f64));
    let held = |s: &Second| if knob.resource == Resource::Memory { s.memory_bytes } else { s.cores };
    Summed {
        profit: total(&|s| s.profit),
        hit_ratio: total(&|s| s.tally.found as f64) / requests.max(1.0),
        throughput: requests / time.max(f64::MIN_POSITIVE),
        held: total(&|s| held(s) * s.seconds) / time.max(f64::MIN_POSITIVE),
    }
}

/// Of each setting and phase; and adaptive over each static setting, and over the best that stays.
pub fn records(trials: &[(Knob, Vec<Trial>)]) -> Vec<Record> {
    let mut samples = Samples::new(EXPERIMENT);
    for (knob, trials) in trials {
        for trial in trials {
            for (phase, seconds) in PHASES.iter().zip(&trial.phases) {
                let summed = sum(knob, seconds);
                let mut push = |metric: &str, unit, value| {
                    samples.push(key(knob, trial.setting, phase, metric, unit), value);
                };
                push("profit", Unit::Dollars, summed.profit);
                push("hit_ratio", Unit::Ratio, summed.hit_ratio);
                push("throughput", Unit::PerSecond, summed.throughput);
                let unit = if knob.resource == Resource::Memory { Unit::Bytes } else { Unit::Count };
                push("held", unit, summed.held);
            }
            samples.push(key(knob, trial.setting, BOTH, "profit", Unit::Dollars), both(knob, trial));
        }
        if let Some((_, best)) = best(knob, trials) {
            let own = trials.iter().filter(|trial| trial.setting == ADAPTIVE && best > 0.0);
            for trial in own {
                let value = both(knob, trial) / best;
                samples.push(key(knob, "adaptive/best-static", BOTH, "profit", Unit::Ratio), value);
            }
        }
    }
    samples.records()
}

fn key(knob: &Knob, system: &str, scenario: &str, metric: &str, unit: Unit) -> Key {
    let system = format!("{}: {system}", knob.name);
    Key { system, application: "memcached", scenario: scenario.into(), metric: metric.into(), unit }
}

fn both(knob: &Knob, trial: &Trial) -> f64 {
    trial.phases.iter().map(|seconds| sum(knob, seconds).profit).sum()
}

/// The static setting with the greatest mean of both phases, and that.
fn best(knob: &Knob, trials: &[Trial]) -> Option<(&'static str, f64)> {
    let mean = |setting: &'static str| {
        let of = trials.iter().filter(|trial| trial.setting == setting);
        Some((setting, Summary::of(&of.map(|trial| both(knob, trial)).collect::<Vec<_>>())?.mean))
    };
    let all = knob.settings.iter().filter_map(|(setting, _)| mean(setting));
    all.max_by(|one, other| one.1.total_cmp(&other.1))
}

/// A row for each setting.
pub fn table(knob: &Knob, trials: &[Trial]) -> Table {
    let [cheap, dear] = knob.prices;
    let title = format!("{}: at {cheap} and at {dear} $ a second for one", knob.name);
    let of_phases =
        PHASES.iter().flat_map(|phase| ["found", "held", "profit"].map(|what| format!("{phase}: {what}")));
    let head = ["setting".to_owned()].into_iter().chain(of_phases).chain(["profit".to_owned()]);
    let mut table = Table::new(&title, head);
    for trial in trials {
        let cells = trial.phases.iter().flat_map(|seconds| {
            let Summed { profit, hit_ratio, held, .. } = sum(knob, seconds);
            let unit = if knob.resource == Resource::Memory { Unit::Bytes } else { Unit::Count };
            [
                format!("{:.1}%", 100.0 * hit_ratio),
                format_value(held, unit),
                format_value(profit, Unit::Dollars),
            ]
        });
        let total = format_value(both(knob, trial), Unit::Dollars);
        table = table.row([trial.setting.to_owned()].into_iter().chain(cells).chain([total]));
    }
    let said = best(knob, trials).map(|(setting, profit)| {
        format!("The best static setting is {setting}: {}.", format_value(profit, Unit::Dollars))
    });
    said.into_iter().fold(table, Table::remark)
}

/// No static setting earns more than one that follows prices.
pub fn targets(knobs: &[Knob]) -> Vec<Target> {
    let of = |knob: &Knob| {
        let (claim, system) = match knob.resource {
            Resource::Memory => ("no amount of memory that stays earns more", "memory: adaptive/best-static"),
            _ => ("no number of cores that stays earns more", "cores: adaptive/best-static"),
        };
        let of = Some(["memcached", BOTH]);
        Target { claim, system, of, metric: "profit", unit: Unit::Ratio, limit: Limit::AtLeast(1.0) }
    };
    knobs.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::KNOBS;
    use super::*;
    use crate::target::Verdict;

    fn trial(setting: &'static str, profits: [f64; 2]) -> Trial {
        let second = |profit| vec![Second { seconds: 1.0, profit, ..Second::default() }];
        Trial { setting, phases: profits.map(second) }
    }

    #[test]
    fn adaptive_is_judged_by_the_best_setting_that_stays() {
        let trials =
            vec![trial("4 MiB", [2.0, 3.0]), trial("64 MiB", [9.0, -6.0]), trial(ADAPTIVE, [8.0, 2.0])];
        let all = [(KNOBS[0], trials)];
        let records = records(&all);
        let target = targets(&[KNOBS[0]])[0];
        assert_eq!(target.find(&records).map(|record| record.value), Some(2.0), "10 over 5");
        assert_eq!(target.judge(&records), Verdict::Reached);
        let text = table(&all[0].0, &all[0].1).to_string();
        assert!(text.contains("The best static setting is 4 MiB: $5.00"), "{text}");
    }
}
