//! What an owner asks of a grid: which scheduler stands before which resource, and on what terms each
//! activity is served. As text it is one line, which `host/image` writes and a program reads:
//!
//! ```text
//! at input fair metric=time batching=8 queue=128; for gold weight=50; for silver weight=33 connections=4
//! at input fair; group paying profit weight=70; for gold group=paying earns=9; for silver weight=30
//! ```

mod groups;

use crate::record::SharedMetric;
use crate::scheduler::deadline::EarliestDeadline;
use crate::scheduler::fair::FairQueueing;
use crate::scheduler::profit::{EarningStep, MarginalProfit};
use crate::scheduler::rate::RateLimiter;
use crate::scheduler::round_robin::RoundRobin;
use crate::scheduler::{ClientParameters, RateLimit, ResourceScheduler};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::num::{NonZeroU32, NonZeroU64};
use core::str::FromStr;
pub use groups::GroupPlan;

/// A resource that a scheduler can stand before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridResource {
    /// Frames that came, once it is known for whom: TCP, UDP, and what the application does with them.
    Input,
    /// A core, which tasks and threads share.
    Cpu,
}

/// Which scheduler stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerKind {
    /// Each in its turn.
    RoundRobin,
    /// By weight.
    Fair,
    /// Whoever is due first.
    Deadline,
    /// No faster than a rate.
    Rate,
    /// Whoever earns most by what is served next.
    Profit,
}

/// All resources, by name.
pub const RESOURCES: [(&str, GridResource); 2] = [("input", GridResource::Input), ("cpu", GridResource::Cpu)];

/// All schedulers, by name.
pub const SCHEDULERS: [(&str, SchedulerKind); 5] = [
    ("round-robin", SchedulerKind::RoundRobin),
    ("fair", SchedulerKind::Fair),
    ("deadline", SchedulerKind::Deadline),
    ("rate", SchedulerKind::Rate),
    ("profit", SchedulerKind::Profit),
];

/// All metrics, by name.
pub const METRICS: [(&str, SharedMetric); 4] = [
    ("time", SharedMetric::CoreTime),
    ("bytes", SharedMetric::Bytes),
    ("sent", SharedMetric::SentBytes),
    ("messages", SharedMetric::Messages),
];

/// Their names, in their order.
const fn names<T, const N: usize>(all: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = all[at].0;
        at += 1;
    }
    names
}

/// What has this name.
fn named<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    all.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
}

/// The name of this.
fn name_of<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> &'static str {
    all.iter().find(|(_, other)| other == value).map_or("?", |(name, _)| name)
}

impl GridResource {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&RESOURCES, &self)
    }
}

impl SchedulerKind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&SCHEDULERS, &self)
    }
}

/// How [`Earnings::ByContract`] is written.
const BY_CONTRACT: &str = "contract";

/// What stands before a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePlan {
    /// Which resource.
    pub resource: GridResource,
    /// Who chooses.
    pub scheduler: SchedulerKind,
    /// What is shared out, or limited.
    pub metric: SharedMetric,
    /// Messages that one decision is for.
    pub batching: NonZeroU32,
    /// Messages that may wait for each activity.
    pub queue: NonZeroU32,
}

impl ResourcePlan {
    /// A scheduler before a resource, and what nothing else is said of.
    #[must_use]
    pub fn new(resource: GridResource, scheduler: SchedulerKind) -> ResourcePlan {
        const BATCHING: NonZeroU32 = NonZeroU32::new(4).expect("four");
        const QUEUE: NonZeroU32 = NonZeroU32::new(128).expect("a power of two");
        ResourcePlan { resource, scheduler, metric: SharedMetric::CoreTime, batching: BATCHING, queue: QUEUE }
    }

    /// The scheduler of one core.
    #[must_use]
    pub fn scheduler(&self) -> Box<dyn ResourceScheduler> {
        match self.scheduler {
            SchedulerKind::RoundRobin => Box::new(RoundRobin::default()),
            SchedulerKind::Fair => Box::new(FairQueueing::new(self.metric)),
            SchedulerKind::Deadline => Box::new(EarliestDeadline::default()),
            SchedulerKind::Rate => Box::new(RateLimiter::new(self.metric)),
            SchedulerKind::Profit => Box::new(MarginalProfit::new(self.metric)),
        }
    }
}

/// What an activity earns by what it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earnings {
    /// So much by a million units of the metric, in billionths of a dollar.
    Stated(NonZeroU64),
    /// What its users' contract pays, as measured: nothing, before it is.
    ByContract,
}

/// On what terms an activity is served. What is not said is as for everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityTerms {
    /// The activity's name.
    pub name: String,
    /// Its share is its weight over those of all that want something; 100, if it is not said.
    pub weight: Option<NonZeroU32>,
    /// How long what comes may wait, in microseconds; a second, if it is not said.
    pub deadline_us: Option<NonZeroU64>,
    /// How much it may get a second, in units of the metric; as much as can be, if it is not said.
    pub rate: Option<NonZeroU64>,
    /// What it earns; nothing, if it is not said.
    pub earns: Option<Earnings>,
    /// The group that it is in; none, if it is not said.
    pub group: Option<String>,
    /// How many connections it may have at a time, on each core; as many as there is room for, if it is not
    /// said.
    pub connections: Option<NonZeroU32>,
    /// How many bytes of memory its connections may hold, on each core; as many as there are, if it is not
    /// said.
    pub memory: Option<NonZeroU64>,
    /// How long its packets may be held to batch them, in microseconds; for the batching delay W, if it is
    /// not said or that is less.
    pub delay_us: Option<u32>,
}

/// The longest batching delay that there is.
const DELAY_MAX_US: u32 = 10_000;
/// The weight of whoever is given none.
const WEIGHT: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
/// When whoever is given no deadline is due.
const DEADLINE_US: NonZeroU64 = NonZeroU64::new(1_000_000).expect("not zero");

impl ActivityTerms {
    /// Whether nothing is said but what a scheduler would go by.
    fn needs_resource(&self) -> bool {
        self.connections.is_none() && self.memory.is_none() && self.delay_us.is_none()
    }

    /// Writes what is said, behind what it is said of.
    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ActivityTerms { name: _, weight, deadline_us, rate, earns, group, .. } = self;
        let ActivityTerms { connections, memory, delay_us, .. } = self;
        if let Some(group) = group {
            write!(out, " group={group}")?;
        }
        weight.map_or(Ok(()), |weight| write!(out, " weight={weight}"))?;
        deadline_us.map_or(Ok(()), |deadline| write!(out, " deadline={deadline}"))?;
        rate.map_or(Ok(()), |rate| write!(out, " rate={rate}"))?;
        match earns {
            Some(Earnings::Stated(earns)) => write!(out, " earns={earns}")?,
            Some(Earnings::ByContract) => write!(out, " earns={BY_CONTRACT}")?,
            None => {}
        }
        connections.map_or(Ok(()), |most| write!(out, " connections={most}"))?;
        memory.map_or(Ok(()), |most| write!(out, " memory={most}"))?;
        delay_us.map_or(Ok(()), |most| write!(out, " delay={most}"))
    }

    /// What schedulers are told.
    #[must_use]
    pub fn parameters(&self) -> ClientParameters {
        let deadline_ns =
            self.deadline_us.unwrap_or(DEADLINE_US).saturating_mul(NonZeroU64::new(1000).expect("not zero"));
        // A tenth of a second's worth may come at once.
        let burst = |rate: NonZeroU64| NonZeroU64::new(rate.get() / 10).unwrap_or(NonZeroU64::MIN);
        let stated = match self.earns {
            Some(Earnings::Stated(earns)) => Some(earns.get().try_into().unwrap_or(i64::MAX)),
            Some(Earnings::ByContract) | None => None,
        };
        ClientParameters {
            weight: self.weight.unwrap_or(WEIGHT),
            deadline_ns: Some(deadline_ns),
            rate: self.rate.map(|rate| RateLimit { per_second: rate, burst: burst(rate) }),
            earns: stated.into_iter().map(EarningStep::always).collect(),
            ..ClientParameters::default()
        }
    }
}

/// Terms that some schedulers go by.
struct Field {
    name: &'static str,
    is_given: fn(&ActivityTerms) -> bool,
    is_used: fn(SchedulerKind) -> bool,
    schedulers: &'static [&'static str],
}

impl Field {
    /// That nobody goes by it who was given it.
    fn unused(&self, own: &ActivityTerms) -> BadGrid {
        BadGrid::Unused { activity: own.name.clone(), field: self.name, schedulers: self.schedulers }
    }
}

const FIELDS: [Field; 4] = [
    Field {
        name: "weight",
        is_given: |own| own.weight.is_some(),
        is_used: |kind| matches!(kind, SchedulerKind::Fair | SchedulerKind::Profit),
        schedulers: &["fair", "profit"],
    },
    Field {
        name: "deadline",
        is_given: |own| own.deadline_us.is_some(),
        is_used: |kind| kind == SchedulerKind::Deadline,
        schedulers: &["deadline"],
    },
    Field {
        name: "rate",
        is_given: |own| own.rate.is_some(),
        is_used: |kind| kind == SchedulerKind::Rate,
        schedulers: &["rate"],
    },
    Field {
        name: "earns",
        is_given: |own| own.earns.is_some(),
        is_used: |kind| kind == SchedulerKind::Profit,
        schedulers: &["profit"],
    },
];

/// Why a grid cannot be as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadGrid {
    /// Something that nothing has the name of.
    #[error("{what} `{given}`: expected {}", Names(expected))]
    Unknown {
        /// What it should be.
        what: &'static str,
        /// What it is.
        given: String,
        /// What it can be.
        expected: &'static [&'static str],
    },
    /// A word that is not what it must be.
    #[error("`{given}`: expected {expected}")]
    Word {
        /// What it is.
        given: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A resource, or an activity, of which something is said twice.
    #[error("`{0}` is there twice, expected once")]
    Twice(String),
    /// Terms of an activity that nobody goes by.
    #[error("`{field}` of `{activity}`: no scheduler goes by it, expected one of {}", Names(schedulers))]
    Unused {
        /// Whose.
        activity: String,
        /// What.
        field: &'static str,
        /// Who would.
        schedulers: &'static [&'static str],
    },
    /// A scheduler that goes by what nobody was given.
    #[error(
        "the scheduler `{scheduler}` of `{resource}`: no activity has a `{field}`, expected one that has{or}"
    )]
    Needs {
        /// Where.
        resource: String,
        /// Who.
        scheduler: &'static str,
        /// What it goes by.
        field: &'static str,
        /// What would do as well, behind a comma.
        or: &'static str,
    },
    /// Deadlines that a scheduler above does not know of.
    #[error(
        "`{0}` goes by deadlines, and gets its core's time by weight: what is due would wait for its share, \
         expected another scheduler, or none above it"
    )]
    DeadlineUnderShares(String),
    /// Another scheduler at the CPU than there is.
    #[error("the scheduler `{0}` of `cpu`: expected fair")]
    Cpu(&'static str),
    /// An activity that earns by a contract which there is not.
    #[error("`{0}` earns by its contract, and its users pay by none, expected a `utility`, or a number")]
    NoContract(String),
    /// An activity in a group that there is not.
    #[error("`{activity}` is in the group `{group}`: expected one that a `group` of `grid` names")]
    NoGroup {
        /// Who.
        activity: String,
        /// In what.
        group: String,
    },
    /// A group of nobody.
    #[error("the group `{0}`: nobody is in it, expected an activity that is")]
    EmptyGroup(String),
    /// A scheduler that goes by what a group cannot have.
    #[error(
        "the scheduler `{0}` above groups: no group has a deadline or a contract of its own, expected fair, \
         round-robin or rate"
    )]
    AboveGroups(&'static str),
    /// Terms of an activity that there is not.
    #[error("`{0}`: expected an activity that an entry of `activity` names, or others or infrastructure")]
    NoActivity(String),
    /// Everything that is said of activities, with no resource that it would matter to.
    #[error("terms of activities, and no resource with a scheduler, expected `at RESOURCE SCHEDULER`")]
    NoResource,
}

/// Names, with commas between them.
struct Names(&'static [&'static str]);

impl fmt::Display for Names {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, name)| {
            let comma = if index == 0 { "" } else { ", " };
            write!(out, "{comma}{name}")
        })
    }
}

/// What an owner asks of a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GridPlan {
    resources: Vec<ResourcePlan>,
    groups: Vec<GroupPlan>,
    terms: Vec<ActivityTerms>,
}

impl GridPlan {
    /// A plan that can be followed.
    ///
    /// # Errors
    /// [`BadGrid`], which says what was expected.
    pub fn checked(
        resources: Vec<ResourcePlan>,
        groups: Vec<GroupPlan>,
        terms: Vec<ActivityTerms>,
    ) -> Result<GridPlan, BadGrid> {
        for (index, plan) in resources.iter().enumerate() {
            if resources[..index].iter().any(|other| other.resource == plan.resource) {
                return Err(BadGrid::Twice(plan.resource.name().to_owned()));
            }
            if plan.resource == GridResource::Cpu && plan.scheduler != SchedulerKind::Fair {
                return Err(BadGrid::Cpu(plan.scheduler.name()));
            }
        }
        for (index, own) in terms.iter().enumerate() {
            if terms[..index].iter().any(|other| other.name == own.name) {
                return Err(BadGrid::Twice(own.name.clone()));
            }
        }
        let plan = GridPlan { resources, groups, terms };
        plan.check_groups()?;
        plan.check_use()?;
        plan.check_levels()?;
        Ok(plan)
    }

    /// Whatever an activity was given somebody goes by, and whatever a scheduler goes by somebody was given.
    fn check_use(&self) -> Result<(), BadGrid> {
        if self.resources.is_empty() && self.terms.iter().any(ActivityTerms::needs_resource) {
            return Err(BadGrid::NoResource);
        }
        let cpu = self.at(GridResource::Cpu).map(|plan| plan.scheduler);
        for own in &self.terms {
            let schedulers = self.scheduler_of(own).into_iter().chain(cpu);
            let is_used = |field: &Field| schedulers.clone().any(field.is_used);
            if let Some(field) = FIELDS.iter().find(|field| (field.is_given)(own) && !is_used(field)) {
                return Err(field.unused(own));
            }
        }
        self.check_needs()
    }

    /// Whatever a scheduler goes by somebody was given whom it serves.
    fn check_needs(&self) -> Result<(), BadGrid> {
        let upper = self.resources.iter().map(|plan| (plan.resource.name(), None, plan.scheduler));
        let within =
            self.groups.iter().map(|group| (&*group.terms.name, Some(&group.terms.name), group.scheduler));
        for (place, group, scheduler) in upper.chain(within) {
            let needed = match scheduler {
                SchedulerKind::Deadline => &FIELDS[1],
                SchedulerKind::Rate => &FIELDS[2],
                SchedulerKind::Profit => &FIELDS[3],
                _ => continue,
            };
            let activities = self.terms.iter().filter(|own| own.group.as_ref() == group);
            let groups = self.groups.iter().map(|group| &group.terms).filter(|_| group.is_none());
            if !activities.chain(groups).any(needed.is_given) {
                let (resource, scheduler) = (place.to_owned(), scheduler.name());
                let or = match needed.name {
                    "earns" => ", or whose users have a contract (`utility`)",
                    _ => "",
                };
                return Err(BadGrid::Needs { resource, scheduler, field: needed.name, or });
            }
        }
        Ok(())
    }

    fn check_levels(&self) -> Result<(), BadGrid> {
        let by_deadline = self.resources.iter().find(|plan| plan.scheduler == SchedulerKind::Deadline);
        match by_deadline {
            Some(plan) if self.at(GridResource::Cpu).is_some() => {
                Err(BadGrid::DeadlineUnderShares(plan.resource.name().to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Checks that there are the activities that it names.
    ///
    /// # Errors
    /// [`BadGrid::NoActivity`].
    pub fn check_names<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> Result<(), BadGrid> {
        let unknown = self.terms.iter().find(|own| !names.clone().any(|name| name == own.name));
        unknown.map_or(Ok(()), |own| Err(BadGrid::NoActivity(own.name.clone())))
    }

    /// Checks that whoever earns by a contract has one, by what `has_contract` says of a name.
    ///
    /// # Errors
    /// [`BadGrid::NoContract`].
    pub fn check_contracts(&self, has_contract: impl Fn(&str) -> bool) -> Result<(), BadGrid> {
        let mut by_contract = self.terms.iter().filter(|own| own.earns == Some(Earnings::ByContract));
        let without = by_contract.find(|own| !has_contract(&own.name));
        without.map_or(Ok(()), |own| Err(BadGrid::NoContract(own.name.clone())))
    }

    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.groups.is_empty() && self.terms.is_empty()
    }

    /// What stands before a resource.
    #[must_use]
    pub fn at(&self, resource: GridResource) -> Option<&ResourcePlan> {
        self.resources.iter().find(|plan| plan.resource == resource)
    }

    /// All activities that something is said of.
    pub fn terms(&self) -> impl Iterator<Item = &ActivityTerms> {
        self.terms.iter()
    }

    /// On what terms an activity is served.
    #[must_use]
    pub fn terms_of(&self, name: &str) -> ActivityTerms {
        let own = self.terms.iter().find(|own| own.name == name).cloned();
        own.unwrap_or_else(|| ActivityTerms { name: name.to_owned(), ..ActivityTerms::default() })
    }

    /// The same with what `change` says, in the form of a plan, in place of what was said of the same
    /// resources and activities.
    ///
    /// # Errors
    /// [`BadGrid`]; a plan is one, or none.
    pub fn changed(&self, change: &str) -> Result<GridPlan, BadGrid> {
        let new = Said::read(change)?;
        let GridPlan { mut resources, mut groups, mut terms } = self.clone();
        resources.retain(|old| new.resources.iter().all(|new| new.resource != old.resource));
        groups.retain(|old| new.groups.iter().all(|new| new.terms.name != old.terms.name));
        terms.retain(|old| new.terms.iter().all(|new| new.name != old.name));
        resources.extend(new.resources);
        groups.extend(new.groups);
        terms.extend(new.terms);
        GridPlan::checked(resources, groups, terms)
    }
}

impl fmt::Display for GridPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for ResourcePlan { resource, scheduler, metric, batching, queue } in &self.resources {
            let (resource, scheduler) = (resource.name(), scheduler.name());
            let metric = name_of(&METRICS, metric);
            write!(
                out,
                "{separator}at {resource} {scheduler} metric={metric} batching={batching} queue={queue}"
            )?;
            separator = "; ";
        }
        for group in &self.groups {
            write!(out, "{separator}{group}")?;
            separator = "; ";
        }
        for own in &self.terms {
            write!(out, "{separator}for {}", own.name)?;
            own.write(out)?;
            separator = "; ";
        }
        Ok(())
    }
}

impl FromStr for GridPlan {
    type Err = BadGrid;

    fn from_str(text: &str) -> Result<GridPlan, BadGrid> {
        let Said { resources, groups, terms } = Said::read(text)?;
        GridPlan::checked(resources, groups, terms)
    }
}

/// What a text says, whether it can be or not.
#[derive(Default)]
struct Said {
    resources: Vec<ResourcePlan>,
    groups: Vec<GroupPlan>,
    terms: Vec<ActivityTerms>,
}

impl Said {
    fn read(text: &str) -> Result<Said, BadGrid> {
        let mut said = Said::default();
        for sentence in text.split(';').filter(|sentence| !sentence.trim().is_empty()) {
            let mut words = sentence.split_whitespace();
            let first = words.next().unwrap_or_default();
            match first {
                "at" => said.resources.push(resource(words)?),
                "group" => said.groups.push(group(words)?),
                "for" => said.terms.push(activity(words)?),
                _ => return Err(word(first, "at RESOURCE SCHEDULER, group NAME SCHEDULER, or for ACTIVITY")),
            }
        }
        Ok(said)
    }
}

fn word(given: &str, expected: &'static str) -> BadGrid {
    BadGrid::Word { given: given.to_owned(), expected }
}

/// The resource of this name.
///
/// # Errors
/// If there is none.
pub fn resource_named(name: &str) -> Result<GridResource, BadGrid> {
    const EXPECTED: &[&str] = &names(&RESOURCES);
    let unknown = || BadGrid::Unknown { what: "resource", given: name.to_owned(), expected: EXPECTED };
    named(&RESOURCES, name).ok_or_else(unknown)
}

/// The scheduler of this name.
///
/// # Errors
/// If there is none.
pub fn scheduler_named(name: &str) -> Result<SchedulerKind, BadGrid> {
    const EXPECTED: &[&str] = &names(&SCHEDULERS);
    let unknown = || BadGrid::Unknown { what: "scheduler", given: name.to_owned(), expected: EXPECTED };
    named(&SCHEDULERS, name).ok_or_else(unknown)
}

/// The metric of this name.
///
/// # Errors
/// If there is none.
pub fn metric_named(name: &str) -> Result<SharedMetric, BadGrid> {
    const EXPECTED: &[&str] = &names(&METRICS);
    let unknown = || BadGrid::Unknown { what: "metric", given: name.to_owned(), expected: EXPECTED };
    named(&METRICS, name).ok_or_else(unknown)
}

fn resource<'t>(mut words: impl Iterator<Item = &'t str>) -> Result<ResourcePlan, BadGrid> {
    let resource = resource_named(words.next().unwrap_or_default())?;
    let mut plan = ResourcePlan::new(resource, scheduler_named(words.next().unwrap_or_default())?);
    for given in words {
        match given.split_once('=') {
            Some(("metric", name)) => plan.metric = metric_named(name)?,
            Some(("batching", number)) => plan.batching = count(given, number)?,
            Some(("queue", number)) => plan.queue = count(given, number)?,
            _ => return Err(word(given, "metric=, batching= or queue=")),
        }
    }
    Ok(plan)
}

fn group<'t>(mut words: impl Iterator<Item = &'t str>) -> Result<GroupPlan, BadGrid> {
    let name = words.next().ok_or_else(|| word("group", "group NAME SCHEDULER"))?;
    let mut plan = GroupPlan::new(name, scheduler_named(words.next().unwrap_or_default())?);
    for given in words {
        match given.split_once('=') {
            Some(("metric", name)) => plan.metric = metric_named(name)?,
            Some(("weight", number)) => plan.terms.weight = Some(count(given, number)?),
            Some(("rate", number)) => plan.terms.rate = Some(amount(given, number)?),
            _ => return Err(word(given, "metric=, weight= or rate=")),
        }
    }
    Ok(plan)
}

fn activity<'t>(mut words: impl Iterator<Item = &'t str>) -> Result<ActivityTerms, BadGrid> {
    let name = words.next().ok_or_else(|| word("for", "for ACTIVITY"))?.to_owned();
    let mut own = ActivityTerms { name, ..ActivityTerms::default() };
    for given in words {
        match given.split_once('=') {
            Some(("weight", number)) => own.weight = Some(count(given, number)?),
            Some(("deadline", number)) => own.deadline_us = Some(amount(given, number)?),
            Some(("rate", number)) => own.rate = Some(amount(given, number)?),
            Some(("earns", number)) => own.earns = Some(earnings(given, number)?),
            Some(("group", name)) if !name.is_empty() => own.group = Some(name.to_owned()),
            Some(("connections", number)) => own.connections = Some(count(given, number)?),
            Some(("memory", number)) => own.memory = Some(amount(given, number)?),
            Some(("delay", number)) => own.delay_us = Some(delay(given, number)?),
            _ => {
                return Err(word(
                    given,
                    "weight=, deadline=, rate=, earns=, group=, connections=, memory= or delay=",
                ));
            }
        }
    }
    Ok(own)
}

fn count(given: &str, number: &str) -> Result<NonZeroU32, BadGrid> {
    number.parse().map_err(|_| word(given, "a whole number from 1 to 4294967295"))
}

fn delay(given: &str, number: &str) -> Result<u32, BadGrid> {
    let delay = number.parse().ok().filter(|delay| *delay <= DELAY_MAX_US);
    delay.ok_or_else(|| word(given, "a whole number from 0 to 10000"))
}

fn earnings(given: &str, value: &str) -> Result<Earnings, BadGrid> {
    if value == BY_CONTRACT {
        return Ok(Earnings::ByContract);
    }
    let stated = value.parse().map(Earnings::Stated);
    stated.map_err(|_| word(given, "a whole number from 1 on, or contract"))
}

fn amount(given: &str, number: &str) -> Result<NonZeroU64, BadGrid> {
    number.parse().map_err(|_| word(given, "a whole number from 1 on"))
}

#[cfg(test)]
mod tests;
