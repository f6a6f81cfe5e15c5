//! How the sources fare, for people who ask.

use super::Source;
use crate::clock::Moment;
use nom_proto::prices as proto;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How each source fares.
#[derive(Debug)]
pub(crate) struct Journal(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    name: String,
    resources: Vec<proto::Resource>,
    failures: u64,
    answered_ns: Option<u64>,
    problem: Option<String>,
}

impl Journal {
    /// One for sources that have not been asked yet.
    pub fn new(sources: &[Source]) -> Journal {
        let entry = |source: &Source| Entry {
            name: source.name.clone(),
            resources: source.resources(),
            failures: 0,
            answered_ns: None,
            problem: None,
        };
        Journal(Mutex::new(sources.iter().map(entry).collect()))
    }

    /// Notes an answer of the source at `index`; one with a problem counts as a failure. Returns whether the
    /// problem is news.
    pub fn note(&self, index: usize, answered: bool, problem: Option<String>, now: Moment) -> bool {
        let entry = &mut self.lock()[index];
        if answered {
            entry.answered_ns = Some(now.steady_ns);
        }
        entry.failures += u64::from(problem.is_some());
        let is_news = problem.is_some() && problem != entry.problem;
        entry.problem = problem;
        is_news
    }

    /// How all fare.
    pub fn sources(&self, now: Moment) -> Vec<proto::Source> {
        let source = |entry: &Entry| proto::Source {
            name: entry.name.clone(),
            resources: entry.resources.clone(),
            failures: entry.failures,
            answered_seconds_ago: entry
                .answered_ns
                .map(|answered_ns| now.steady_ns.saturating_sub(answered_ns) as f64 / 1e9),
            problem: entry.problem.clone(),
        };
        self.lock().iter().map(source).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
