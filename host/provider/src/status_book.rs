//! The last status of each application of each machine.

use nom_proto::status::Status;
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
    last: Mutex<BTreeMap<(String, String), Status>>,
    news: broadcast::Sender<Status>,
}

/// There is no room for one more application.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl StatusBook {
    /// An empty one.
    pub fn new() -> StatusBook {
        StatusBook { last: Mutex::default(), news: broadcast::Sender::new(BACKLOG) }
    }

    /// Takes a status in.
    ///
    /// # Errors
    /// If it is of one application too many.
    pub fn report(&self, status: Status) -> Result<(), Full> {
        let key = (status.machine.clone(), status.application.clone());
        let mut last = self.lock();
        if last.len() >= APPLICATIONS_MAX && !last.contains_key(&key) {
            return Err(Full);
        }
        last.insert(key, status.clone());
        // Under the lock, so that listeners hear in the order in which the book changes. Nobody may listen.
        let _ = self.news.send(status);
        Ok(())
    }

    /// The last status of each application, by machine and name.
    pub fn all(&self) -> Vec<Status> {
        self.lock().values().cloned().collect()
    }

    /// The present statuses, and what comes after them.
    pub fn follow(&self) -> (Vec<Status>, broadcast::Receiver<Status>) {
        let last = self.lock();
        (last.values().cloned().collect(), self.news.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Status>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
