//! The table `grid`, and on what terms each activity is served.

use super::fields::{RawActivity, RawGrid, RawResource};
use super::layers::{Given, Layers};
use super::resolve::not_by_hand;
use super::values::Count;
use crate::error::Result;
use nom_grid::plan::{metric_named, scheduler_named};
use nom_grid::{ActivityTerms, BadGrid, Earnings, GridPlan, GridResource, ResourcePlan, SchedulerKind};
use nom_service::{Activity, GOVERNING, INFRASTRUCTURE, Rules};
use std::num::{NonZeroU32, NonZeroU64};
use toml::Spanned;

/// The variable of the environment in which the application reads it.
pub(super) const VARIABLE: &str = "grid";

/// What a manifest asks of the grid.
pub(super) fn plan(layers: &Layers, rules: Option<&Rules>) -> Result<GridPlan> {
    let (grid, activities) = (layers.find(|raw| &raw.grid), layers.find(|raw| &raw.activity));
    let resources = match &grid {
        Some(given) => {
            not_by_hand(layers, VARIABLE)?;
            resources(given)?
        }
        None => Vec::new(),
    };
    let mut terms = activities.as_ref().map_or_else(|| Ok(Vec::new()), terms)?;
    if let (Some(given), true) =
        (&activities, resources.iter().any(|at| at.scheduler == SchedulerKind::Profit))
    {
        let has_contract = layers.find(|raw| &raw.utility).is_some();
        earn_by_contracts(&mut terms, given, rules.unwrap_or(&Rules::default()), has_contract);
    }
    let has_rules = rules.is_some_and(|rules| !rules.is_empty());
    if let Some(given) = grid.as_ref().filter(|_| !has_rules) {
        return Err(given.error("`grid`: nobody is told apart, expected entries of `activity`, too"));
    }
    GridPlan::checked(resources, terms).map_err(|why| match (&why, &grid, &activities) {
        // What an activity was given is said where it was given.
        (BadGrid::Unused { .. } | BadGrid::NoResource, _, Some(given)) => {
            given.error(format!("`activity`: {why}"))
        }
        (_, Some(given), _) => given.error(format!("`grid`: {why}")),
        (_, None, Some(given)) => given.error(format!("`activity`: {why}")),
        (_, None, None) => unreachable!("of nothing there is nothing to complain"),
    })
}

fn resources(given: &Given<'_, RawGrid>) -> Result<Vec<ResourcePlan>> {
    let RawGrid { input, cpu } = given.value();
    let tables = [(GridResource::Input, input), (GridResource::Cpu, cpu)];
    let tables = tables.into_iter().filter_map(|(resource, table)| Some((resource, table.as_ref()?)));
    tables.map(|(resource, table)| self::resource(given, resource, table)).collect()
}

fn resource(
    given: &Given<'_, RawGrid>,
    resource: GridResource,
    table: &Spanned<RawResource>,
) -> Result<ResourcePlan> {
    let name = resource.name();
    let wrong = |place: std::ops::Range<usize>, why: String| {
        given.source.error(Some(place), format!("`grid.{name}`: {why}"))
    };
    let RawResource { scheduler, metric, batching, queue } = table.get_ref();
    let Some(scheduler) = scheduler else {
        return Err(wrong(table.span(), "no `scheduler`, expected one".to_owned()));
    };
    let kind =
        scheduler_named(&scheduler.get_ref().0).map_err(|why| wrong(scheduler.span(), why.to_string()))?;
    let mut plan = ResourcePlan::new(resource, kind);
    if let Some(metric) = metric {
        plan.metric =
            metric_named(&metric.get_ref().0).map_err(|why| wrong(metric.span(), why.to_string()))?;
    }
    plan.batching = number(batching).unwrap_or(plan.batching);
    plan.queue = number(queue).unwrap_or(plan.queue);
    Ok(plan)
}

fn number(given: &Option<Spanned<Count>>) -> Option<NonZeroU32> {
    given.as_ref().map(|count| count.get_ref().0)
}

/// On what terms activities are served: each says it once, in any of its entries.
fn terms(given: &Given<'_, Vec<RawActivity>>) -> Result<Vec<ActivityTerms>> {
    let mut all: Vec<ActivityTerms> = Vec::new();
    for raw in given.value() {
        let name = raw.name.as_ref().map(|name| name.get_ref().0.clone()).unwrap_or_default();
        let own = ActivityTerms {
            name,
            weight: number(&raw.weight),
            deadline_us: number(&raw.deadline).map(Into::into),
            rate: number(&raw.rate).map(Into::into),
            earns: number(&raw.earns).map(|earns| Earnings::Stated(earns.into())),
            connections: number(&raw.connections),
            memory: raw.memory.as_ref().and_then(|size| NonZeroU64::new(size.get_ref().0)),
        };
        if own == (ActivityTerms { name: own.name.clone(), ..ActivityTerms::default() }) {
            continue;
        }
        if all.iter().any(|other| other.name == own.name) {
            let problem = "terms in two of its entries, expected them in one";
            return Err(given.error(format!("`activity`: `{}` has {problem}", own.name)));
        }
        all.push(own);
    }
    Ok(all)
}

/// Has everybody earn by the contract of his users, his own or the application's, who does not say what he
/// earns.
fn earn_by_contracts(
    terms: &mut Vec<ActivityTerms>,
    given: &Given<'_, Vec<RawActivity>>,
    rules: &Rules,
    has_contract: bool,
) {
    let named = |raw: &RawActivity| raw.name.as_ref().map(|name| name.get_ref().0.clone());
    let of_own = given.value().iter().filter(|raw| raw.utility.is_some()).filter_map(named);
    let asked_for = (0..).map(Activity).zip(rules.names()).filter(|(own, _)| {
        // For those two nobody asks anything.
        has_contract && ![INFRASTRUCTURE, GOVERNING].contains(own)
    });
    let of_all = asked_for.map(|(_, name)| name.to_owned());
    for name in of_own.chain(of_all) {
        match terms.iter_mut().find(|own| own.name == name) {
            Some(own) => own.earns = own.earns.or(Some(Earnings::ByContract)),
            None => {
                let earns = Some(Earnings::ByContract);
                terms.push(ActivityTerms { name, earns, ..ActivityTerms::default() });
            }
        }
    }
}
