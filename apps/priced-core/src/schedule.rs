//! Prices that the machine was given when it was started, for one that has no provider.

use crate::SECOND_NS;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use nom_economy::prices as economy;
use nom_proto::prices::{Price, Prices, Resource};

/// Units in which a step's time is given, with their nanoseconds.
const UNITS: [(&str, u64); 3] = [("ms", 1_000_000), ("s", SECOND_NS), ("m", 60 * SECOND_NS)];

/// A price from a time on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    at_ns: u64,
    resource: Resource,
    dollars: f64,
}

/// A text that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    /// A part of it cannot be read.
    #[error("`{0}`: expected PRICE or RESOURCE=PRICE, with or without a time such as @10s, @500ms or @2m")]
    Step(String),
    /// No such resource.
    #[error("`{0}`: expected core, memory, network_out, network_in, storage or energy")]
    Resource(String),
    /// A price that nobody would ask.
    #[error("`{0}`: {1}")]
    Absurd(String, String),
    /// A step before the one before it.
    #[error("`{0}`: expected a later time than that of the step before it")]
    Order(String),
}

/// Prices by time.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// By time.
    steps: Vec<Step>,
    /// Steps that have been taken.
    taken: usize,
    started_ns: Option<u64>,
    revision: u64,
}

impl Schedule {
    /// Reads `network_out=1,core=0.00001`, or with steps `network_out=1@0s,10@60s,core=0.00001`: a part
    /// without a resource goes on with the one before it. Times count from the start.
    ///
    /// # Errors
    /// [`BadSchedule`].
    pub fn parse(text: &str) -> Result<Schedule, BadSchedule> {
        let mut steps: Vec<Step> = Vec::new();
        let mut good = economy::Prices::default();
        for part in text.split(',').map(str::trim) {
            let step = step(part, steps.last())?;
            let offered = good.offer(step.resource, step.dollars, 0);
            let absurd = |refusal: economy::Refusal| {
                BadSchedule::Absurd(part.to_owned(), alloc::format!("{}", refusal.absurdity))
            };
            offered.map_err(absurd)?;
            let mut before = steps.iter().filter(|earlier| earlier.resource == step.resource);
            if before.any(|earlier| earlier.at_ns >= step.at_ns) {
                return Err(BadSchedule::Order(part.to_owned()));
            }
            steps.push(step);
        }
        steps.sort_unstable_by_key(|step| step.at_ns);
        Ok(Schedule { steps, taken: 0, started_ns: None, revision: 0 })
    }

    /// The prices from now on, if they have changed since the last call. The first call starts the schedule.
    pub fn tick(&mut self, now_ns: u64) -> Option<Prices> {
        let passed_ns = now_ns - *self.started_ns.get_or_insert(now_ns);
        let due = self.steps[self.taken..].iter().take_while(|step| step.at_ns <= passed_ns).count();
        self.taken += due;
        self.revision += u64::from(due > 0);
        (due > 0).then(|| self.prices())
    }

    /// When the next step is to be taken.
    pub fn due_ns(&self) -> Option<u64> {
        let step = self.steps.get(self.taken)?;
        Some(self.started_ns.map_or(0, |started_ns| started_ns.saturating_add(step.at_ns)))
    }

    fn prices(&self) -> Prices {
        let last = |resource| self.steps[..self.taken].iter().rfind(|step| step.resource == resource);
        let price = |resource| {
            let Step { dollars, .. } = last(resource)?;
            Some(Price { resource, dollars: *dollars, since_unix_ns: 0 })
        };
        let prices = Resource::ALL.into_iter().filter_map(price).collect();
        Prices {
            revision: self.revision,
            source: "schedule".to_owned(),
            age_seconds: 0.0,
            prices,
            next: Vec::new(),
        }
    }
}

fn step(part: &str, before: Option<&Step>) -> Result<Step, BadSchedule> {
    let bad = || BadSchedule::Step(part.to_owned());
    let (name, rest) = match part.split_once('=') {
        Some((name, rest)) => (Some(name.trim()), rest),
        None => (None, part),
    };
    let resource = match name {
        None => before.ok_or_else(bad)?.resource,
        Some(name) => Resource::ALL
            .into_iter()
            .find(|resource| resource.name() == name)
            .ok_or_else(|| BadSchedule::Resource(name.to_owned()))?,
    };
    let (dollars, at_ns) = match rest.split_once('@') {
        Some((dollars, time)) => (dollars, time_ns(time).ok_or_else(bad)?),
        None => (rest, 0),
    };
    Ok(Step { at_ns, resource, dollars: dollars.trim().parse().map_err(|_| bad())? })
}

fn time_ns(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (_, unit_ns) = UNITS.into_iter().find(|(unit, _)| *unit == &text[digits.len()..])?;
    digits.parse::<u32>().ok().map(|count| u64::from(count) * unit_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        Schedule::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn steps_are_taken_when_they_are_due() {
        let mut schedule =
            Schedule::parse("network_out=1@0s,10@60s, core=0.00001 ,memory=2@500ms").expect("fine");
        let named = |prices: Prices| {
            let price = |price: &Price| (price.resource.name(), price.dollars);
            (prices.revision, prices.prices.iter().map(price).collect::<Vec<_>>())
        };
        let first = schedule.tick(5 * SECOND_NS).map(named);
        assert_eq!(first, Some((1, vec![("core", 0.00001), ("network_out", 1.0)])));
        assert_eq!(schedule.due_ns(), Some(5_500_000_000));
        assert_eq!(schedule.tick(5_499_999_999), None);
        let second = schedule.tick(schedule.due_ns().expect("a step")).map(named);
        assert_eq!(second, Some((2, vec![("core", 0.00001), ("memory", 2.0), ("network_out", 1.0)])));
        let third = schedule.tick(100 * SECOND_NS).map(named).expect("the last step");
        assert_eq!((third.0, third.1[2]), (3, ("network_out", 10.0)));
        assert_eq!((schedule.due_ns(), schedule.tick(u64::MAX)), (None, None));
    }

    #[test]
    fn what_is_no_schedule_is_named() {
        assert!(problem("").contains("``: expected PRICE"));
        assert!(problem("5").contains("`5`: expected PRICE or RESOURCE=PRICE"));
        assert!(problem("network_out=").contains("`network_out=`"));
        assert!(problem("network_out=1@5h").contains("`network_out=1@5h`"));
        assert!(problem("bandwidth=1").contains("`bandwidth`: expected core, memory"));
        assert_eq!(problem("core=-1"), "`core=-1`: a price is not negative");
        assert_eq!(problem("core=nan"), "`core=nan`: a price is a finite number");
        assert!(problem("core=1,1e7@5s").starts_with("`1e7@5s`: the last one was 1"));
        assert_eq!(
            problem("core=1@5s,2@5s"),
            "`2@5s`: expected a later time than that of the step before it"
        );
    }
}
