//! The last status of each application of each machine.

use crate::clock::Moment;
use nom_proto::status::{Reported, Status};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;

/// Applications of one machine that are remembered at most: more do not fit into a bundle.
pub(crate) const APPLICATIONS_MAX: usize = nom_abi::layout::APPLICATIONS_MAX;
/// Statuses that a slow listener may be behind before it is told the present ones instead.
const BACKLOG: usize = 1024;

/// What machines report.
#[derive(Debug)]
pub(crate) struct StatusBook {
    /// By machine and application.
    last: Mutex<BTreeMap<(String, String), Heard>>,
    /// Who has not reported for longer is forgotten.
    forget_after: Duration,
    news: broadcast::Sender<Status>,
}

/// A status, and when it came.
#[derive(Clone, Debug)]
struct Heard {
    status: Status,
    at: Moment,
}

impl Heard {
    fn age(&self, now: Moment) -> Duration {
        Duration::from_nanos(now.steady_ns.saturating_sub(self.at.steady_ns))
    }

    fn reported(&self, now: Moment) -> Reported {
        Reported { status: self.status.clone(), age_seconds: self.age(now).as_secs_f64() }
    }
}

/// There is no room for one more application of the machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl StatusBook {
    /// An empty one, which forgets who has not reported for so long.
    pub fn new(forget_after: Duration) -> StatusBook {
        StatusBook { last: Mutex::default(), forget_after, news: broadcast::Sender::new(BACKLOG) }
    }

    /// Takes in a status that came just now.
    ///
    /// # Errors
    /// If it is of one application too many.
    pub fn report(&self, status: Status, now: Moment) -> Result<(), Full> {
        let key = (status.machine.clone(), status.application.clone());
        let mut last = self.present(now);
        // Names begin with the machine's, so that its applications stand together.
        let own =
            last.range((key.0.clone(), String::new())..).take_while(|((machine, _), _)| *machine == key.0);
        if own.count() >= APPLICATIONS_MAX && !last.contains_key(&key) {
            return Err(Full);
        }
        last.insert(key, Heard { status: status.clone(), at: now });
        // Under the lock, so that listeners hear in the order in which the book changes. Nobody may listen.
        let _ = self.news.send(status);
        Ok(())
    }

    /// The last status of each application with its age, by machine and name.
    pub fn reported(&self, now: Moment) -> Vec<Reported> {
        self.present(now).values().map(|heard| heard.reported(now)).collect()
    }

    /// The present statuses, and what comes after them.
    pub fn follow(&self, now: Moment) -> (Vec<Reported>, broadcast::Receiver<Status>) {
        let last = self.present(now);
        (last.values().map(|heard| heard.reported(now)).collect(), self.news.subscribe())
    }

    /// All that are not forgotten by now. Time does nothing by itself here: whoever looks finds what is left.
    fn present(&self, now: Moment) -> MutexGuard<'_, BTreeMap<(String, String), Heard>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|_, heard| heard.age(now) <= self.forget_after);
        last
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
        let book = StatusBook::new(Duration::from_secs(600));
        let ages = |now| book.reported(at(now)).iter().map(|one| one.age_seconds).collect::<Vec<_>>();
        book.report(status(), at(10)).expect("room");
        assert_eq!((ages(10), ages(17)), (vec![0.0], vec![7.0]));
        assert_eq!(book.follow(at(12)).0[0].age_seconds, 2.0);
        book.report(status(), at(20)).expect("room");
        assert_eq!((ages(21), ages(19)), (vec![1.0], vec![0.0]));
    }

    #[test]
    fn who_does_not_report_any_more_is_down_and_then_forgotten() {
        let book = StatusBook::new(Duration::from_secs(60));
        let named = |name: &str| Status { application: name.to_owned(), ..status() };
        let up = |seconds| -> Vec<(String, bool)> {
            let reported = book.reported(at(seconds));
            reported.into_iter().map(|one| (one.status.application.clone(), one.is_up())).collect()
        };
        let is = |name: &str, up| (name.to_owned(), up);
        book.report(named("dies"), at(0)).expect("room");
        book.report(named("lives"), at(0)).expect("room");
        assert_eq!(up(5), [is("dies", true), is("lives", true)]);
        book.report(named("lives"), at(50)).expect("room");
        assert_eq!(up(55), [is("dies", false), is("lives", true)]);
        assert_eq!(up(60), [is("dies", false), is("lives", false)]);
        assert_eq!(up(61), [is("lives", false)], "forgotten after a minute");
        assert_eq!(book.follow(at(61)).0.len(), 1);
        assert_eq!(up(111), []);
        book.report(named("dies"), at(200)).expect("room");
        assert_eq!(up(200), [is("dies", true)], "and welcome again");
    }

    #[test]
    fn the_dead_leave_their_places_to_the_living() {
        let book = StatusBook::new(Duration::from_secs(60));
        let named = |number: usize| Status { application: number.to_string(), ..status() };
        (0..APPLICATIONS_MAX).for_each(|number| book.report(named(number), at(0)).expect("room"));
        assert_eq!(book.report(named(APPLICATIONS_MAX), at(60)), Err(Full));
        assert_eq!(book.report(named(APPLICATIONS_MAX), at(61)), Ok(()));
    }
}
