//! `nom grid`: who is served before whom, drawn; and changed while a server runs.

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use nom_build::Project;
use nom_grid::plan::METRICS;
use nom_grid::{ActivityTerms, Earnings, GridPlan, GridResource, ResourcePlan, SchedulerKind, SharedMetric};
use nom_service::Rules;
use std::fmt::Write as _;
use std::time::Duration;
use ureq::Agent;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// `nom grid`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without an application it asks the control port of a server that runs (docs/control.md).

Examples:
  nom grid apps/memcached/shares.toml           what the manifest asks for
  nom grid                                      what the server at 127.0.0.1:9999 does
  nom grid set 'for gold weight=70'             changes it while it runs
  nom grid set 'at input fair metric=bytes' --address 10.0.2.15:9999"
)]
pub struct Grid {
    #[command(subcommand)]
    command: Option<Change>,
    /// Application in `apps/`, or path of an app.toml or bundle.toml.
    app: Option<String>,
    /// The server's control port, as ADDRESS:PORT.
    #[arg(long, default_value = ADDRESS)]
    address: String,
}

/// What is done about a grid but to look at it.
#[derive(Debug, Subcommand)]
enum Change {
    /// Change what is said of a resource, or of an activity.
    Set {
        /// `at RESOURCE SCHEDULER [metric=] [batching=] [queue=]`,
        /// `group NAME SCHEDULER [metric=] [weight=] [rate=]`, or
        /// `for ACTIVITY [group=] [weight=] [deadline=] [rate=] [earns=NUMBER|contract] [connections=]
        /// [memory=BYTES] [delay=MICROSECONDS]`; several with `;` between.
        change: String,
        /// The server's control port, as ADDRESS:PORT.
        #[arg(long, default_value = ADDRESS)]
        address: String,
    },
}

const ADDRESS: &str = "127.0.0.1:9999";

/// `nom grid`.
///
/// # Errors
/// If there is no such application or server, or it cannot be as it is asked to.
pub fn grid(options: &Grid) -> Result<u8> {
    match (&options.command, &options.app) {
        (Some(Change::Set { change, address }), _) => {
            let plan = answer(address, Some(change))?;
            print!("{}", drawn(&plan, &[]));
        }
        (None, Some(app)) => {
            let manifest = Project::find()?.manifest_path(app)?;
            for application in nom_image::manifest::load(&manifest)?.applications {
                let variable = |name| application.environment.get(name).map_or("", String::as_str);
                let plan: GridPlan = variable("grid").parse()?;
                let rules: Rules = variable("activity").parse()?;
                let names: Vec<_> = rules.names().filter(|name| *name != "governing").collect();
                println!("{}", application.name);
                print!("{}", drawn(&plan, &names));
            }
        }
        (None, None) => print!("{}", drawn(&answer(&options.address, None)?, &[])),
    }
    Ok(0)
}

/// What a server says of its grid, after a change if there is one.
fn answer(address: &str, change: Option<&str>) -> Result<GridPlan> {
    let url = format!("http://{address}/grid");
    let agent: Agent =
        Agent::config_builder().timeout_global(Some(ANSWER)).http_status_as_error(false).build().into();
    let answer = match change {
        Some(change) => agent.put(&url).send(change),
        None => agent.get(&url).call(),
    };
    let mut answer = answer.with_context(|| {
        format!(
            "{url}: expected a server's control port: `control = \"9999\"` in its environment, and \
             -p 9999:9999 (docs/control.md)"
        )
    })?;
    let text = answer.body_mut().read_to_string().with_context(|| url.clone())?;
    if !answer.status().is_success() {
        bail!("{}", text.trim());
    }
    text.trim().parse().with_context(|| format!("{url}: what it says"))
}

/// The figure: queues on the left, the scheduler, and what it stands before. Of activities those of `names`
/// are shown, and those that the plan has terms for.
fn drawn(plan: &GridPlan, names: &[&str]) -> String {
    let Some(input) = plan.at(GridResource::Input) else {
        return "frames ──► input\n\nNobody is served before another.\n".to_owned();
    };
    let own = plan.terms().map(|terms| terms.name.as_str()).filter(|name| !names.contains(name));
    let all: Vec<ActivityTerms> = names.iter().copied().chain(own).map(|name| plan.terms_of(name)).collect();
    let width = all.iter().map(|terms| terms.name.len()).max().unwrap_or_default();
    let labels: Vec<String> =
        all.iter().map(|own| format!("{:width$}  {}", own.name, said(own, plan.scheduler_of(own)))).collect();
    let width = labels.iter().map(String::len).max().unwrap_or_default();
    let middle = labels.len() / 2;
    let mut figure = String::new();
    for (row, label) in labels.iter().enumerate() {
        let (left, right) = match (row, labels.len()) {
            (_, 1) => ('─', '─'),
            (0, _) => ('┌', '┐'),
            (row, count) if row + 1 == count => ('└', '┘'),
            _ => ('├', '┤'),
        };
        let (before, left) = match row == middle {
            true => ("frames ──", if labels.len() == 1 { '─' } else { '┼' }),
            false => ("         ", left),
        };
        let arrow = if labels.len() == 1 { '─' } else { '├' };
        let after = if row == middle { format!("{arrow}─► {}", told(input)) } else { right.to_string() };
        writeln!(figure, "{before}{left}─ {label:width$} ─{after}").expect("a String takes everything");
    }
    let cpu = match plan.at(GridResource::Cpu) {
        Some(_) => "tasks and threads share the core by the same weights",
        None => "tasks and threads share the core alike",
    };
    for group in plan.groups() {
        let (name, within) = (&group.terms.name, by(group.scheduler, group.metric));
        let of_all = terms_said(&group.terms, Some(input.scheduler));
        writeln!(figure, "{name}, {of_all}: {within}").expect("a String takes everything");
    }
    let queue = input.queue;
    writeln!(figure, "\nAt most {queue} frames of each wait; {cpu}.").expect("a String takes everything");
    figure
}

fn told(input: &ResourcePlan) -> String {
    format!("{}, {} at once ──► input", by(input.scheduler, input.metric), input.batching)
}

/// How it is chosen.
fn by(scheduler: SchedulerKind, metric: SharedMetric) -> String {
    let metric = METRICS.iter().find(|(_, named)| *named == metric).map_or("", |(name, _)| *name);
    match scheduler {
        SchedulerKind::RoundRobin => "in turn".to_owned(),
        SchedulerKind::Fair => format!("fair, by {metric}"),
        SchedulerKind::Deadline => "by deadline".to_owned(),
        SchedulerKind::Rate => format!("at a rate of {metric}"),
        SchedulerKind::Profit => format!("by profit of {metric}"),
    }
}

/// What matters of an activity's terms to the scheduler that chooses it.
fn terms_said(terms: &ActivityTerms, scheduler: Option<SchedulerKind>) -> String {
    let Some(scheduler) = scheduler else { return String::new() };
    match scheduler {
        SchedulerKind::RoundRobin => "in turn".to_owned(),
        SchedulerKind::Fair => format!("weight {}", terms.parameters().weight),
        SchedulerKind::Deadline => {
            let due_us = terms.parameters().deadline_ns.map_or(0, |ns| ns.get() / 1000);
            format!("due in {due_us} us")
        }
        SchedulerKind::Rate => terms.rate.map_or("any rate".to_owned(), |rate| format!("{rate} a second")),
        SchedulerKind::Profit => match terms.earns {
            Some(Earnings::Stated(earns)) => format!("earns {earns} n$ a million"),
            Some(Earnings::ByContract) => "earns by its contract".to_owned(),
            None => "earns nothing".to_owned(),
        },
    }
}

/// What matters of an activity.
fn said(terms: &ActivityTerms, scheduler: Option<SchedulerKind>) -> String {
    let mut said = terms_said(terms, scheduler);
    if let Some(group) = &terms.group {
        said.insert_str(0, &format!("in {group}, "));
    }
    if let Some(most) = terms.connections {
        write!(said, ", {most} clients").expect("a String takes everything");
    }
    if let Some(most) = terms.memory {
        write!(said, ", {} KiB", most.get() >> 10).expect("a String takes everything");
    }
    if let Some(most) = terms.delay_us {
        write!(said, ", held {most} us").expect("a String takes everything");
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_grid_is_drawn_with_its_queues_and_its_scheduler() {
        let plan: GridPlan =
            "at input fair metric=bytes; at cpu fair; for gold weight=50 delay=9; for silver weight=33 \
             connections=7"
                .parse()
                .unwrap();
        expect![[r#"
                     ┌─ infrastructure  weight 100           ─┐
                     ├─ others          weight 100           ─┤
            frames ──┼─ gold            weight 50, held 9 us ─├─► fair, by bytes, 4 at once ──► input
                     └─ silver          weight 33, 7 clients ─┘

            At most 128 frames of each wait; tasks and threads share the core by the same weights.
        "#]]
        .assert_eq(&drawn(&plan, &["infrastructure", "others", "gold"]));
        let plan: GridPlan = "at input deadline; for gold deadline=200".parse().unwrap();
        expect![[r#"
              frames ──── gold  due in 200 us ───► by deadline, 4 at once ──► input

              At most 128 frames of each wait; tasks and threads share the core alike.
        "#]]
        .assert_eq(&drawn(&plan, &[]));
        let plan: GridPlan = "at input fair; group team profit weight=70; for gold group=team earns=9; \
                              for silver group=team earns=3; for bronze weight=30"
            .parse()
            .unwrap();
        expect![[r#"
                     ┌─ gold    in team, earns 9 n$ a million ─┐
            frames ──┼─ silver  in team, earns 3 n$ a million ─├─► fair, by time, 4 at once ──► input
                     └─ bronze  weight 30                     ─┘
            team, weight 70: by profit of time

            At most 128 frames of each wait; tasks and threads share the core alike.
        "#]]
        .assert_eq(&drawn(&plan, &[]));
        assert!(drawn(&GridPlan::default(), &[]).contains("Nobody"));
    }
}
