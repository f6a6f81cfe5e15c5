//! The ledger: what was used, at which price, and what is owed for it. It only ever grows.
//!
//! One thread owns the database and is asked in turn. Records that several clients enter at the same time
//! become one transaction; they are acknowledged after it is on the disk.

mod focus;
mod query;
mod record;
pub(crate) mod schema;
mod tally;

pub(crate) use focus::Bill;
pub(crate) use query::{Filter, consumed_since, page, summary};
pub(crate) use record::BadRecord;
pub(crate) use tally::Tally;

use anyhow::{Context, Result};
use nom_proto::ledger::{Entered, NewRecord};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Batches of records that become one transaction at most.
const BATCHES_MAX: usize = 256;

/// Why records were not entered, or a question was not answered.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    /// A record cannot be entered; none of its batch was.
    #[error("{0}")]
    Bad(#[from] BadRecord),
    /// The database failed.
    #[error("the ledger: {0}")]
    Database(Arc<rusqlite::Error>),
    /// The ledger's thread has ended.
    #[error("the ledger is closed")]
    Closed,
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> LedgerError {
        LedgerError::Database(Arc::new(error))
    }
}

/// A record, and who pays for its machine, if anybody is known to.
pub(crate) type Charged = (NewRecord, Option<String>);

struct Batch {
    records: Vec<Charged>,
    answer: oneshot::Sender<Result<Entered, LedgerError>>,
}

enum Job {
    Enter(Batch),
    Ask(Box<dyn FnOnce(&Connection) + Send>),
}

/// A ledger that is open; it closes when this is dropped.
#[derive(Debug)]
pub(crate) struct Ledger {
    jobs: Sender<Job>,
}

impl Ledger {
    /// Opens the ledger in the file at `path`, or makes it; without a path it lasts as long as this.
    ///
    /// # Errors
    /// If the file cannot be opened, or is something else.
    pub fn open(path: Option<&Path>) -> Result<Ledger> {
        let connection = match path {
            Some(path) => schema::open(path).with_context(|| format!("ledger {}", path.display()))?,
            None => schema::in_memory().context("ledger in memory")?,
        };
        let (jobs, queue) = channel();
        let work = move || serve(connection, &queue);
        std::thread::Builder::new().name("ledger".to_owned()).spawn(work)?;
        Ok(Ledger { jobs })
    }

    /// Enters records: all, or none. They are on the disk when this returns.
    pub async fn enter(&self, records: Vec<Charged>) -> Result<Entered, LedgerError> {
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job::Enter(Batch { records, answer })).map_err(|_| LedgerError::Closed)?;
        answered.await.map_err(|_| LedgerError::Closed)?
    }

    /// Hands a question to the database's thread; where its answer will be.
    fn put<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<rusqlite::Result<T>>, LedgerError> {
        let (answer, answered) = oneshot::channel();
        let job = Job::Ask(Box::new(move |connection| {
            // Who asked may have gone.
            let _ = answer.send(question(connection));
        }));
        self.jobs.send(job).map_err(|_| LedgerError::Closed)?;
        Ok(answered)
    }

    /// Asks the database, on a thread that may wait for it.
    pub fn ask_and_wait<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let answered = self.put(question)?;
        Ok(answered.blocking_recv().map_err(|_| LedgerError::Closed)??)
    }

    /// Asks the database.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let answered = self.put(question)?;
        Ok(answered.await.map_err(|_| LedgerError::Closed)??)
    }
}

fn serve(mut connection: Connection, queue: &Receiver<Job>) {
    let mut next = queue.recv().ok();
    while let Some(job) = next.take() {
        match job {
            Job::Ask(question) => question(&connection),
            Job::Enter(first) => {
                let (batches, other) = gather(first, queue);
                enter(&mut connection, batches);
                next = other;
            }
        }
        next = next.or_else(|| queue.recv().ok());
    }
}

/// The batches that wait already, and what else came first.
fn gather(first: Batch, queue: &Receiver<Job>) -> (Vec<Batch>, Option<Job>) {
    let mut batches = vec![first];
    while batches.len() < BATCHES_MAX {
        match queue.try_recv() {
            Ok(Job::Enter(batch)) => batches.push(batch),
            Ok(other) => return (batches, Some(other)),
            Err(_) => break,
        }
    }
    (batches, None)
}

/// Enters each batch wholly or not at all; answers only after all is on the disk.
fn enter(connection: &mut Connection, batches: Vec<Batch>) {
    let (answers, contents): (Vec<_>, Vec<_>) =
        batches.into_iter().map(|batch| (batch.answer, batch.records)).unzip();
    let outcomes = enter_all(connection, &contents);
    for (index, answer) in answers.into_iter().enumerate() {
        let outcome = outcomes.as_ref().map_or_else(|error| Err(error.clone()), |each| each[index].clone());
        // Who entered it may have gone; the records stay.
        let _ = answer.send(outcome);
    }
}

fn enter_all(
    connection: &mut Connection,
    batches: &[Vec<Charged>],
) -> Result<Vec<Result<Entered, LedgerError>>, LedgerError> {
    let mut transaction = connection.transaction()?;
    let mut outcomes = Vec::with_capacity(batches.len());
    for batch in batches {
        let part = transaction.savepoint()?;
        let outcome = record::enter(&part, batch);
        // What is not committed goes with the savepoint.
        if outcome.is_ok() {
            part.commit()?;
        }
        outcomes.push(outcome);
    }
    transaction.commit()?;
    Ok(outcomes)
}

#[cfg(test)]
mod tests;
