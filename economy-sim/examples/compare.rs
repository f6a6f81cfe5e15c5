//! Compares controllers over seeded servers, loads and prices, against who knew the best point of each phase
//! beforehand and against the best point that never changes.
//!
//! `cargo run --release -p nom-economy-sim --example compare -- --seeds 400 --json`

use clap::Parser;
use nom_economy::controller::{Controller, Parameters};
use nom_economy_sim::{
    Bandit, Climb, Informed, Outcome, Scenario, Spectator, measured, run_taught, run_with,
};
use serde::Serialize;
use std::io::Write;

/// Compares working-point controllers in simulation.
#[derive(Parser)]
struct Arguments {
    /// Scenarios of each kind.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only these scenarios.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only the controller's own strategy.
    #[arg(long)]
    alone: bool,
    /// And only without a table.
    #[arg(long)]
    untaught: bool,
    /// Parameters of the controller, as NAME=VALUE.
    #[arg(long, value_parser = setting)]
    set: Vec<(String, f64)>,
    /// Instead, halves and doubles each parameter, or only these, and says what the shares change by.
    #[arg(long, num_args = 0.., value_delimiter = ',')]
    ablate: Option<Vec<String>>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print, or add to the JSON, the outcome of each scenario.
    #[arg(long)]
    each: bool,
}

/// Quantiles of a figure.
#[derive(Serialize)]
struct Spread {
    least: f64,
    p5: f64,
    median: f64,
    p95: f64,
    most: f64,
    mean: f64,
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Self { least: at(0.0), p5: at(0.05), median: at(0.5), p95: at(0.95), most: at(1.0), mean }
    }
}

/// What came of one scenario.
#[derive(Serialize)]
struct Each {
    seed: u64,
    utility: &'static str,
    profit: f64,
    share_of_oracle: f64,
    share_of_best_static: f64,
    found_seconds: Vec<f64>,
    loads: usize,
}

/// What came of a strategy.
#[derive(Serialize)]
struct Summary {
    scenarios: &'static str,
    strategy: &'static str,
    seeds: u64,
    /// Profit over that of the best point of each phase, known beforehand.
    share_of_oracle: Spread,
    /// Scenarios in which this is at least 97%.
    at_least_97_percent: usize,
    /// The same of the first second of each phase.
    early_share_of_oracle: Spread,
    /// Profit over that of the best point that never changes.
    share_of_best_static: Spread,
    /// Scenarios in which some fixed point is no more than 99% of the oracle, so that adapting can pay; and
    /// those of them in which it did not.
    adapting_can_pay: usize,
    adapting_did_not_pay: usize,
    /// From the beginning of a phase to the first point within 3% of its best.
    found_seconds: Spread,
    /// Changes of the point in a second, in the second half of phases.
    changes_per_second: Spread,
    /// Share of intervals that made a loss where a profit was possible.
    losses: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    each: Vec<Each>,
}

fn each(seed: u64, scenario: &Scenario, outcome: &Outcome) -> Each {
    Each {
        seed,
        utility: scenario.contract.name(),
        profit: outcome.profit,
        share_of_oracle: outcome.profit / outcome.oracle,
        share_of_best_static: outcome.profit / outcome.best_static,
        found_seconds: outcome.found_seconds.clone(),
        loads: outcome.loads,
    }
}

/// A controller that was taught what was measured of the same server beforehand, with other noise.
fn taught(scenario: &Scenario, seed: u64) -> Outcome {
    run_taught(scenario, seed, &measured(scenario, !seed))
}

fn setting(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Parameters::DEFAULT.clone().named(name).ok_or_else(|| format!("no parameter is called `{name}`"))?;
    let value = value.parse().map_err(|_| format!("`{value}` is no number"))?;
    Ok((name.to_owned(), value))
}

/// The default parameters, but for these.
fn parameters(settings: &[(String, f64)]) -> &'static Parameters {
    let mut parameters = Parameters::DEFAULT;
    for (name, value) in settings {
        *parameters.named(name).expect("the command line was checked") = *value;
    }
    Box::leak(Box::new(parameters))
}

/// A controller that knows nothing.
fn learned(scenario: &Scenario, seed: u64, parameters: &'static Parameters) -> Outcome {
    run_with(scenario, seed, Controller::with_parameters(&scenario.points, 0, parameters))
}

/// Halves and doubles each parameter, and prints by how much the mean share of the oracle changes in each
/// kind of scenario, in hundredths of a percent, with its standard error.
fn ablate(arguments: &Arguments, only: &[String], output: &mut impl Write) -> std::io::Result<()> {
    let kinds: Vec<_> = arguments.kinds().map(|(kind, make)| (kind, arguments.given(make))).collect();
    let shares = |settings: &[(String, f64)]| -> Vec<Vec<f64>> {
        let parameters = parameters(&[&arguments.set[..], settings].concat());
        let share = |(seed, scenario): &(u64, Scenario)| {
            let outcome = learned(scenario, *seed, parameters);
            outcome.profit / outcome.oracle
        };
        kinds.iter().map(|(_, given)| given.iter().map(share).collect()).collect()
    };
    let before = shares(&[]);
    write!(output, "{:<24} {:>9}", "parameter", "all")?;
    kinds.iter().try_for_each(|(kind, _)| write!(output, " {kind:>11}"))?;
    writeln!(output)?;
    for name in
        Parameters::NAMES.iter().filter(|name| only.is_empty() || only.iter().any(|only| only == *name))
    {
        let value = *Parameters::DEFAULT.clone().named(name).expect("it has a name");
        for (how, value) in [("/2", 0.5 * value), ("x2", 2.0 * value)] {
            let after = shares(&[((*name).to_owned(), value)]);
            let changes: Vec<(f64, f64)> =
                before.iter().zip(&after).map(|(one, other)| change(one, other)).collect();
            let mean = changes.iter().map(|change| change.0).sum::<f64>() / changes.len() as f64;
            let square: f64 = changes.iter().map(|change| change.1 * change.1).sum();
            write!(output, "{name:<21} {how} {mean:>4.0} ±{:>3.0}", square.sqrt() / changes.len() as f64)?;
            changes.iter().try_for_each(|(mean, error)| write!(output, " {mean:>6.0} ±{error:>3.0}"))?;
            writeln!(output)?;
            output.flush()?;
        }
    }
    Ok(())
}

/// Mean change in hundredths of a percent and its standard error, each change bounded to 10%, lest one
/// scenario decide.
fn change(before: &[f64], after: &[f64]) -> (f64, f64) {
    let changes: Vec<f64> = before.iter().zip(after).map(|(a, b)| 1e4 * (b - a).clamp(-0.1, 0.1)).collect();
    let count = changes.len() as f64;
    let mean = changes.iter().sum::<f64>() / count;
    let variance = changes.iter().map(|change| (change - mean) * (change - mean)).sum::<f64>() / count;
    (mean, (variance / count).sqrt())
}

fn summary(
    (scenarios, strategy): (&'static str, &'static str),
    run: impl Fn(&Scenario, u64) -> Outcome,
    given: &[(u64, Scenario)],
    has_each: bool,
) -> Summary {
    let outcomes: Vec<Outcome> = given.iter().map(|(seed, scenario)| run(scenario, *seed)).collect();
    let share = |outcome: &Outcome| outcome.profit / outcome.oracle;
    let pays: Vec<&Outcome> =
        outcomes.iter().filter(|outcome| outcome.best_static <= 0.99 * outcome.oracle).collect();
    let rows = given.iter().zip(&outcomes).filter(|_| has_each);
    Summary {
        scenarios,
        strategy,
        seeds: given.len() as u64,
        share_of_oracle: Spread::of(outcomes.iter().map(share)),
        at_least_97_percent: outcomes.iter().filter(|outcome| share(outcome) >= 0.97).count(),
        early_share_of_oracle: Spread::of(outcomes.iter().map(|outcome| outcome.early[0] / outcome.early[1])),
        share_of_best_static: Spread::of(outcomes.iter().map(|outcome| outcome.profit / outcome.best_static)),
        adapting_can_pay: pays.len(),
        adapting_did_not_pay: pays.iter().filter(|outcome| outcome.profit < outcome.best_static).count(),
        found_seconds: Spread::of(outcomes.iter().flat_map(|outcome| outcome.found_seconds.iter().copied())),
        changes_per_second: Spread::of(outcomes.iter().flat_map(|outcome| outcome.restless.iter().copied())),
        losses: outcomes.iter().map(|outcome| outcome.losses).sum::<f64>() / outcomes.len() as f64,
        each: rows.map(|((seed, scenario), outcome)| each(*seed, scenario, outcome)).collect(),
    }
}

fn print(output: &mut impl Write, summary: &Summary) -> std::io::Result<()> {
    let Summary { share_of_oracle: oracle, share_of_best_static: fixed, found_seconds: found, .. } = summary;
    let percent = |share: f64| format!("{:.2}%", 100.0 * share);
    let shares = [oracle.mean, oracle.p5, oracle.least, summary.early_share_of_oracle.mean].map(percent);
    write!(output, "{:<11} {:<7}", summary.scenarios, summary.strategy)?;
    shares.iter().try_for_each(|share| write!(output, " {share:>7}"))?;
    writeln!(
        output,
        " {:>7} {:>7} {:>6} {:>5.2} s {:>5.2} s {:>6.2} {:>6.3}%",
        format!("{}/{}", summary.at_least_97_percent, summary.seeds),
        percent(fixed.p5),
        format!("{}/{}", summary.adapting_did_not_pay, summary.adapting_can_pay),
        found.median,
        found.p95,
        summary.changes_per_second.p95,
        summary.losses * 100.0,
    )?;
    for each in &summary.each {
        let Each { seed, utility, share_of_oracle, found_seconds, .. } = each;
        writeln!(output, "  seed {seed} {utility:<8} {:.2}% {found_seconds:.2?}", share_of_oracle * 100.0)?;
    }
    Ok(())
}

const HEADING: [&str; 2] = [
    "                    share of oracle         first  97% or   best  below  time to within 3%:     losing",
    "scenarios            mean      5%   least  second    more fixed 5% fixed    half     95% changes/s  all",
];

/// Makes a scenario of a seed.
type Maker = fn(u64) -> Scenario;

const KINDS: [(&str, Maker); 12] = [
    ("published", Scenario::published),
    ("emulated", Scenario::emulated),
    ("host", Scenario::host),
    ("turning", Scenario::turning),
    ("random", Scenario::random),
    ("wandering", Scenario::wandering),
    ("cliff", Scenario::cliff),
    ("drifting", Scenario::drifting),
    ("alternating", Scenario::alternating),
    ("open", Scenario::open),
    ("bursts", Scenario::bursts),
    ("losing", Scenario::losing),
];

impl Arguments {
    fn kinds(&self) -> impl Iterator<Item = (&'static str, Maker)> {
        KINDS
            .into_iter()
            .filter(|(kind, _)| self.only.is_empty() || self.only.iter().any(|only| only == kind))
    }

    fn given(&self, make: Maker) -> Vec<(u64, Scenario)> {
        let seeds = self.first..self.first + self.seeds.max(1);
        let given: Vec<_> = seeds.map(|seed| (seed, make(seed))).collect();
        assert!(given.iter().all(|(_, scenario)| scenario.count() > 1), "there is something to choose");
        given
    }
}

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    let mut output = std::io::stdout().lock();
    if let Some(only) = &arguments.ablate {
        return ablate(&arguments, only, &mut output);
    }
    let parameters = parameters(&arguments.set);
    let mut summaries = Vec::new();
    for (kind, make) in arguments.kinds() {
        let given = arguments.given(make);
        let mut add = |name, run: &dyn Fn(&Scenario, u64) -> Outcome| {
            summaries.push(summary((kind, name), run, &given, arguments.each));
        };
        add("learned", &|scenario, seed| learned(scenario, seed, parameters));
        if arguments.untaught {
            continue;
        }
        add("taught", &taught);
        if arguments.alone {
            continue;
        }
        add("climb", &|scenario, seed| run_with(scenario, seed, Climb::new(scenario.count())));
        add("informed", &|scenario, seed| run_with(scenario, seed, Informed::new(scenario)));
        add("spectator", &|scenario, seed| Spectator::run(scenario, seed));
        add("bandit", &|scenario, seed| run_with(scenario, seed, Bandit::new(scenario.count())));
    }
    if arguments.json {
        serde_json::to_writer_pretty(&mut output, &summaries)?;
        return writeln!(output);
    }
    HEADING.iter().try_for_each(|line| writeln!(output, "{line}"))?;
    summaries.iter().try_for_each(|summary| print(&mut output, summary))
}
