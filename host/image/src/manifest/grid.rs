//! The table `grid`, and on what terms each activity is served.

use super::fields::{RawActivity, RawGrid, RawGroup, RawResource};
use super::layers::{Given, Layers};
use super::resolve::not_by_hand;
use super::values::Count;
use crate::error::Result;
use nom_grid::plan::{metric_named, scheduler_named};
use nom_grid::{
    ActivityTerms, BadGrid, Earnings, GridPlan, GridResource, GroupPlan, ResourcePlan, SchedulerKind,
};
use nom_service::{Activity, GOVERNING, INFRASTRUCTURE, Rules};
use std::num::{NonZeroU32, NonZeroU64};
use toml::Spanned;

/// The variable of the environment in which the application reads it.
pub(super) const VARIABLE: &str = "grid";

/// What a manifest asks of the grid.
pub(super) fn plan(layers: &Layers, rules: Option<&Rules>) -> Result<GridPlan> {
    let (grid, activities) = (layers.find(|raw| &raw.grid), layers.find(|raw| &raw.activity));
    let (resources, groups) = match &grid {
        Some(given) => {
            not_by_hand(layers, VARIABLE)?;
            (resources(given)?, groups(given)?)
        }
        None => Default::default(),
    };
    let mut terms = activities.as_ref().map_or_else(|| Ok(Vec::new()), terms)?;
    if let Some(given) = &activities {
        let upper = resources.iter().find(|at| at.resource == GridResource::Input).map(|at| at.scheduler);
        let goes_by_profit = |group: Option<&String>| {
            let of =
                |name: &String| groups.iter().find(|own| own.terms.name == *name).map(|own| own.scheduler);
            group.map_or(upper, of) == Some(SchedulerKind::Profit)
        };
        let all_pay = layers.find(|raw| &raw.utility).is_some();
        let paid = paid(given, rules.unwrap_or(&Rules::default()), all_pay);
        earn_by_contracts(&mut terms, paid, goes_by_profit);
    }
    let has_rules = rules.is_some_and(|rules| !rules.is_empty());
    if let Some(given) = grid.as_ref().filter(|_| !has_rules) {
        return Err(given.error("`grid`: nobody is told apart, expected entries of `activity`, too"));
    }
    let names: Vec<String> = groups.iter().map(|group| group.terms.name.clone()).collect();
    GridPlan::checked(resources, groups, terms).map_err(|why| match (&why, &grid, &activities) {
        (BadGrid::Unused { activity, .. }, Some(given), _) if names.contains(activity) => {
            given.error(format!("`grid`: {why}"))
        }
        // What an activity was given is said where it was given.
        (BadGrid::Unused { .. } | BadGrid::NoGroup { .. } | BadGrid::NoResource, _, Some(given)) => {
            given.error(format!("`activity`: {why}"))
        }
        (_, Some(given), _) => given.error(format!("`grid`: {why}")),
        (_, None, Some(given)) => given.error(format!("`activity`: {why}")),
        (_, None, None) => unreachable!("of nothing there is nothing to complain"),
    })
}

fn resources(given: &Given<'_, RawGrid>) -> Result<Vec<ResourcePlan>> {
    let RawGrid { input, cpu, group: _ } = given.value();
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

fn groups(given: &Given<'_, RawGrid>) -> Result<Vec<GroupPlan>> {
    given.value().group.iter().flat_map(Spanned::get_ref).map(|raw| group(given, raw)).collect()
}

fn group(given: &Given<'_, RawGrid>, raw: &RawGroup) -> Result<GroupPlan> {
    let RawGroup { name, scheduler, metric, weight, rate } = raw;
    let (Some(name), Some(scheduler)) = (name, scheduler) else {
        return Err(given.error("`grid`: a `group` has no `name` or no `scheduler`, expected both"));
    };
    let text = &name.get_ref().0;
    let is_word = |byte: u8| byte.is_ascii_graphic() && !b";\"=\\".contains(&byte);
    if text.is_empty() || !text.bytes().all(is_word) {
        let expected = "expected printable ASCII characters without spaces, `;`, `\"`, `=` and `\\`";
        return Err(given
            .source
            .error(Some(name.span()), format!("`grid.group`: name `{text}`: {expected}")));
    }
    let wrong = |place: std::ops::Range<usize>, why: BadGrid| {
        given.source.error(Some(place), format!("`grid.group`: `{text}`: {why}"))
    };
    let kind = scheduler_named(&scheduler.get_ref().0).map_err(|why| wrong(scheduler.span(), why))?;
    let mut plan = GroupPlan::new(text, kind);
    if let Some(metric) = metric {
        plan.metric = metric_named(&metric.get_ref().0).map_err(|why| wrong(metric.span(), why))?;
    }
    plan.terms.weight = number(weight);
    plan.terms.rate = number(rate).map(Into::into);
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
            group: raw.group.as_ref().map(|group| group.get_ref().0.clone()),
            connections: number(&raw.connections),
            memory: raw.memory.as_ref().and_then(|size| NonZeroU64::new(size.get_ref().0)),
            delay_us: raw.batching_delay.as_ref().map(|micros| micros.get_ref().0),
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

/// Activities whose users have a contract, their own or, if there is one that `all_pay` by, that of the
/// application.
fn paid(given: &Given<'_, Vec<RawActivity>>, rules: &Rules, all_pay: bool) -> Vec<String> {
    let own = given.value().iter().filter(|raw| raw.utility.is_some());
    let own = own.filter_map(|raw| raw.name.as_ref().map(|name| name.get_ref().0.clone()));
    let asked_for = (0..).map(Activity).zip(rules.names()).filter(|(own, _)| {
        // For those two nobody asks anything.
        all_pay && ![INFRASTRUCTURE, GOVERNING].contains(own)
    });
    own.chain(asked_for.map(|(_, name)| name.to_owned())).collect()
}

/// Has those earn by their contracts who do not say what they earn, where a scheduler wants to know it: that
/// of an activity's group, or that of all who are in none.
fn earn_by_contracts(
    terms: &mut Vec<ActivityTerms>,
    paid: Vec<String>,
    goes_by_profit: impl Fn(Option<&String>) -> bool,
) {
    for name in paid {
        let earns = Some(Earnings::ByContract);
        match terms.iter_mut().find(|own| own.name == name) {
            Some(own) if goes_by_profit(own.group.as_ref()) => own.earns = own.earns.or(earns),
            None if goes_by_profit(None) => {
                terms.push(ActivityTerms { name, earns, ..ActivityTerms::default() })
            }
            _ => {}
        }
    }
}
