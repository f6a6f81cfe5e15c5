//! Groups of activities: the scheduler before a resource chooses between groups, and one in each between its
//! activities. Who is in no group stands beside them.

use super::{ActivityTerms, BadGrid, FIELDS, GridPlan, GridResource, ResourcePlan, SchedulerKind};
use crate::record::SharedMetric;
use crate::scheduler::round_robin::RoundRobin;
use crate::scheduler::two_level::TwoLevel;
use crate::scheduler::{ClientParameters, ResourceScheduler};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Activities that share what the scheduler before a resource gives them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// Its name, and on what terms all of it is served.
    pub terms: ActivityTerms,
    /// Who chooses between its activities.
    pub scheduler: SchedulerKind,
    /// What is shared out between them, or limited.
    pub metric: SharedMetric,
}

impl GroupPlan {
    /// Of that name, and nothing else is said of it.
    #[must_use]
    pub fn new(name: &str, scheduler: SchedulerKind) -> GroupPlan {
        let terms = ActivityTerms { name: name.to_owned(), ..ActivityTerms::default() };
        GroupPlan { terms, scheduler, metric: SharedMetric::CoreTime }
    }

    fn has(&self, activity: &ActivityTerms) -> bool {
        activity.group.as_ref() == Some(&self.terms.name)
    }
}

impl fmt::Display for GroupPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = super::name_of(&super::METRICS, &self.metric);
        write!(out, "group {} {} metric={metric}", self.terms.name, self.scheduler.name())?;
        self.terms.write(out)
    }
}

impl GridPlan {
    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = &GroupPlan> {
        self.groups.iter()
    }

    /// Which scheduler an activity's terms are for: that of its group, or else that before the resource.
    pub fn scheduler_of(&self, own: &ActivityTerms) -> Option<SchedulerKind> {
        let group = self.groups.iter().find(|group| group.has(own)).map(|group| group.scheduler);
        group.or_else(|| self.at(GridResource::Input).map(|plan| plan.scheduler))
    }

    /// The scheduler of one core before input, and what it is told of the activities of these names, in their
    /// order; nothing, if none stands there.
    #[must_use]
    pub fn input_scheduler<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Option<(Box<dyn ResourceScheduler>, Vec<ClientParameters>)> {
        let at_input = self.at(GridResource::Input)?;
        let terms = names.map(|name| self.terms_of(name));
        if self.groups.is_empty() {
            return Some((at_input.scheduler(), terms.map(|own| own.parameters()).collect()));
        }
        let of_group = |group: &GroupPlan| {
            let within = ResourcePlan {
                metric: group.metric,
                ..ResourcePlan::new(at_input.resource, group.scheduler)
            };
            (group.terms.parameters(), within.scheduler())
        };
        let mut groups: Vec<_> = self.groups.iter().map(of_group).collect();
        let mut place = |own: ActivityTerms| {
            let place = self.groups.iter().position(|group| group.has(&own)).unwrap_or_else(|| {
                groups.push((own.parameters(), Box::new(RoundRobin::default())));
                groups.len() - 1
            });
            ClientParameters { group: place, ..own.parameters() }
        };
        let clients = terms.map(&mut place).collect();
        let levels =
            TwoLevel::new(at_input.scheduler(), groups).expect("a checked plan gives what it goes by");
        Some((Box::new(levels), clients))
    }

    /// Groups are served by what groups can have, by schedulers that go by what their activities have.
    pub(super) fn check_groups(&self) -> Result<(), BadGrid> {
        for (index, group) in self.groups.iter().enumerate() {
            let name = &group.terms.name;
            if self.groups[..index].iter().any(|other| other.terms.name == *name) {
                return Err(BadGrid::Twice(name.clone()));
            }
            if group.scheduler == SchedulerKind::Deadline {
                return Err(BadGrid::DeadlineUnderShares(name.clone()));
            }
            if !self.terms.iter().any(|own| group.has(own)) {
                return Err(BadGrid::EmptyGroup(name.clone()));
            }
        }
        let is_known = |name: &_| self.groups.iter().any(|group| group.terms.name == *name);
        let stray = self.terms.iter().find(|own| own.group.as_ref().is_some_and(|name| !is_known(name)));
        if let Some(ActivityTerms { name, group: Some(group), .. }) = stray {
            return Err(BadGrid::NoGroup { activity: name.clone(), group: group.clone() });
        }
        match self.at(GridResource::Input) {
            _ if self.groups.is_empty() => Ok(()),
            None => Err(BadGrid::NoResource),
            Some(upper) if matches!(upper.scheduler, SchedulerKind::Deadline | SchedulerKind::Profit) => {
                Err(BadGrid::AboveGroups(upper.scheduler.name()))
            }
            Some(upper) => self.check_group_terms(upper.scheduler),
        }
    }

    /// Whatever a group was given the scheduler above goes by.
    fn check_group_terms(&self, upper: SchedulerKind) -> Result<(), BadGrid> {
        for group in &self.groups {
            let unused =
                FIELDS.iter().find(|field| (field.is_given)(&group.terms) && !(field.is_used)(upper));
            if let Some(field) = unused {
                return Err(field.unused(&group.terms));
            }
        }
        Ok(())
    }
}
