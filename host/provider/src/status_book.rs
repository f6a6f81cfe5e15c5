//! The last status of each application of each machine.

use crate::clock::Moment;
use nom_proto::status::{Reported, Status};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Applications that are remembered at most.
pub(crate) const APPLICATIONS_MAX: usize = 10_000;
/// Statuses that a slow listener may be behind before it is told the present ones instead.
const BACKLOG: usize = 1024;

/// What machines report.
#[derive(Debug)]
pub(crate) struct StatusBook {
    /// By machine and application.
    last: Mutex<BTreeMap<(String, String), Heard>>,
    news: broadcast::Sender<Status>,
}

/// A status, and when it came.
#[derive(Clone, Debug)]
struct Heard {
    status: Status,
    at: Moment,
}

impl Heard {
    fn reported(&self, now: Moment) -> Reported {
        let age_ns = now.steady_ns.saturating_sub(self.at.steady_ns);
        Reported { status: self.status.clone(), age_seconds: age_ns as f64 / 1e9 }
    }
}

/// There is no room for one more application.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl StatusBook {
    /// An empty one.
    pub fn new() -> StatusBook {
        StatusBook { last: Mutex::default(), news: broadcast::Sender::new(BACKLOG) }
    }

    /// Takes in a status that came just now.
    ///
    /// # Errors
    /// If it is of one application too many.
    pub fn report(&self, status: Status, now: Moment) -> Result<(), Full> {
        let key = (status.machine.clone(), status.application.clone());
        let mut last = self.lock();
        if last.len() >= APPLICATIONS_MAX && !last.contains_key(&key) {
            return Err(Full);
        }
        last.insert(key, Heard { status: status.clone(), at: now });
        // Under the lock, so that listeners hear in the order in which the book changes. Nobody may listen.
        let _ = self.news.send(status);
        Ok(())
    }

    /// The last status of each application, by machine and name.
    pub fn all(&self) -> Vec<Status> {
        self.lock().values().map(|heard| heard.status.clone()).collect()
    }

    /// The same, each with its age.
    pub fn reported(&self, now: Moment) -> Vec<Reported> {
        self.lock().values().map(|heard| heard.reported(now)).collect()
    }

    /// The present statuses, and what comes after them.
    pub fn follow(&self, now: Moment) -> (Vec<Reported>, broadcast::Receiver<Status>) {
        let last = self.lock();
        (last.values().map(|heard| heard.reported(now)).collect(), self.news.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Heard>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment { unix_ns: 0, steady_ns: seconds * 1_000_000_000 }
    }

    fn status() -> Status {
        let json = r#"{"machine":"m","application":"a","at_ns":1,"window_ns":1,"batching_delay_us":0,
            "polls":false,"cores":1,"memory_bytes":1,"requests":0,"sent_bytes":0,"received_bytes":0,
            "latency_mean_ns":0,"latency_jitter_ns":0,"latency_p99_ns":0,"price_revision":1,
            "price_network_out":1.0,"revenue_per_second":0.0,"cost_per_second":0.0,"profit":1.0}"#;
        serde_json::from_str(json).expect("a status")
    }

    #[test]
    fn statuses_grow_old_and_are_young_again_with_the_next() {
        let book = StatusBook::new();
        let ages = |now| book.reported(at(now)).iter().map(|one| one.age_seconds).collect::<Vec<_>>();
        book.report(status(), at(10)).expect("room");
        assert_eq!((ages(10), ages(17)), (vec![0.0], vec![7.0]));
        assert_eq!(book.follow(at(12)).0[0].age_seconds, 2.0);
        book.report(status(), at(20)).expect("room");
        assert_eq!((ages(21), ages(19)), (vec![1.0], vec![0.0]));
    }
}
