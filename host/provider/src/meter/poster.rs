//! Entering records in the ledger, however long that takes.

use super::{Charge, Happening};
use anyhow::Result;
use nom_proto::ledger::{NewRecord, NewRecords};
use nom_proto::path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use ureq::Agent;

/// How long the provider may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between tries, from the first to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A thread that enters records.
#[derive(Debug)]
pub struct Poster {
    batches: Sender<Vec<NewRecord>>,
}

impl Poster {
    /// Starts one; it says what has been entered.
    ///
    /// # Errors
    /// If the provider refuses records, or the system a thread.
    pub fn spawn(charge: &Charge, happenings: Sender<Happening>) -> Result<Poster> {
        let (batches, received) = channel();
        let url = format!("{}{}", charge.provider.trim_end_matches('/'), path::LEDGER_RECORDS);
        let authorization = format!("Bearer {}", charge.key);
        // No record at all, to see whether the provider would take one.
        let nothing = serde_json::to_string(&NewRecords { records: Vec::new() })?;
        enter(&agent(), &url, &authorization, &nothing)?;
        let work = move || enter_all(&received, &url, &authorization, &happenings);
        std::thread::Builder::new().name("meter's records".to_owned()).spawn(work)?;
        Ok(Poster { batches })
    }

    /// Has records entered.
    pub fn post(&self, records: Vec<NewRecord>) {
        // The thread ends only after this.
        let _ = self.batches.send(records);
    }
}

fn enter_all(
    batches: &Receiver<Vec<NewRecord>>,
    url: &str,
    authorization: &str,
    happenings: &Sender<Happening>,
) {
    let agent = agent();
    for records in batches {
        let count = records.len() as u64;
        let body = serde_json::to_string(&NewRecords { records }).expect("records are finite numbers");
        let mut pause = PAUSE_MIN;
        // Records that are entered twice are known by their ids, so whatever went wrong, once more is right.
        while enter(&agent, url, authorization, &body).is_err() {
            // Nobody waits for this any more.
            if happenings.send(Happening::Entered(0)).is_err() {
                return;
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSE_MAX);
        }
        if happenings.send(Happening::Entered(count)).is_err() {
            return;
        }
    }
}

fn agent() -> Agent {
    Agent::config_builder().timeout_global(Some(PATIENCE)).build().into()
}

fn enter(agent: &Agent, url: &str, authorization: &str, body: &str) -> Result<(), ureq::Error> {
    let request = agent.post(url).header("Content-Type", "application/json");
    request.header("Authorization", authorization).send(body).map(drop)
}
