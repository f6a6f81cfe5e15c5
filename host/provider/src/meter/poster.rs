//! Entering records in the ledger, however long that takes.
//!
//! A record that the provider refuses for what is in it would be refused for ever, and whatever waits behind
//! it would never be charged. So it is found, by halves of what it was refused with, and told of as lost.

use super::{Charge, Happening};
use crate::http::BODY_MAX;
use anyhow::{Result, ensure};
use nom_proto::ledger::{NewRecord, NewRecords};
use nom_proto::path;
use nom_proto::problem::Problem;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use ureq::Agent;

/// How long the provider may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between tries, from the first to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Bytes of records in a request: far below what a provider takes, and entered far within its patience.
const PART_BYTES: usize = BODY_MAX / 4;
/// Answers that are about the records of a request and will be the same whenever it is made again. What is
/// said of a key, or of too many requests, may change.
const REFUSALS: [u16; 4] = [400, 409, 413, 422];
/// Most characters of a reason that are kept: a provider may be anybody.
const REASON_MAX: usize = 300;

/// A thread that enters records.
#[derive(Debug)]
pub struct Poster {
    batches: Sender<Vec<NewRecord>>,
}

impl Poster {
    /// Starts one; it says what has been entered, and what is refused.
    ///
    /// # Errors
    /// If the provider refuses records, or the system a thread.
    pub fn spawn(charge: &Charge, happenings: Sender<Happening>) -> Result<Poster> {
        let (batches, received) = channel();
        let desk = Desk {
            agent: agent(),
            url: format!("{}{}", charge.provider.trim_end_matches('/'), path::LEDGER_RECORDS),
            authorization: format!("Bearer {}", charge.key),
            happenings,
        };
        // No record at all, to see whether the provider would take one.
        let (status, reason) = desk.ask(&[])?;
        ensure!(is_success(status), "{status}: {reason}");
        std::thread::Builder::new().name("meter's records".to_owned()).spawn(move || desk.run(&received))?;
        Ok(Poster { batches })
    }

    /// Has records entered.
    pub fn post(&self, records: Vec<NewRecord>) {
        // The thread ends only after this.
        let _ = self.batches.send(records);
    }
}

/// Nobody waits for what is entered any more.
struct NobodyWaits;

struct Desk {
    agent: Agent,
    url: String,
    authorization: String,
    happenings: Sender<Happening>,
}

impl Desk {
    fn run(&self, batches: &Receiver<Vec<NewRecord>>) {
        for records in batches {
            for part in parts(records) {
                if self.enter(part).is_err() {
                    return;
                }
            }
        }
    }

    /// Enters all records but those that are refused by themselves.
    fn enter(&self, records: Vec<NewRecord>) -> Result<(), NobodyWaits> {
        let mut waiting = vec![records];
        while let Some(mut records) = waiting.pop() {
            match self.insist(&records)? {
                None => self.say(Happening::Entered(records.len() as u64))?,
                Some(_) if records.len() > 1 => {
                    let second = records.split_off(records.len() / 2);
                    waiting.extend([second, records]);
                }
                Some(reason) => {
                    for record in &records {
                        self.say(Happening::Refused(lost(record, &reason)))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks until the provider enters the records, or refuses them for good: why.
    fn insist(&self, records: &[NewRecord]) -> Result<Option<String>, NobodyWaits> {
        let mut pause = PAUSE_MIN;
        loop {
            // Records that are entered twice are known by their ids, so whatever went wrong, once more is
            // right.
            match self.ask(records) {
                Ok((status, _)) if is_success(status) => return Ok(None),
                Ok((status, reason)) if REFUSALS.contains(&status) => {
                    return Ok(Some(format!("{status}: {reason}")));
                }
                Ok(_) | Err(_) => {}
            }
            self.say(Happening::Entered(0))?;
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Status of the provider's answer, and its reason if it refuses.
    fn ask(&self, records: &[NewRecord]) -> Result<(u16, String)> {
        let body = serde_json::to_string(&NewRecords { records: records.to_vec() })?;
        let request = self.agent.post(&self.url).header("Content-Type", "application/json");
        let mut answer = request.header("Authorization", &self.authorization).send(body)?;
        let status = answer.status().as_u16();
        if is_success(status) {
            return Ok((status, String::new()));
        }
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        let reason = serde_json::from_str(&text).map_or(text, |problem: Problem| problem.detail);
        Ok((status, reason.chars().take(REASON_MAX).collect()))
    }

    fn say(&self, happening: Happening) -> Result<(), NobodyWaits> {
        self.happenings.send(happening).map_err(|_| NobodyWaits)
    }
}

fn agent() -> Agent {
    Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false).build().into()
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// The records in their order, in parts of [`PART_BYTES`] at most, but for a record that alone is more.
fn parts(records: Vec<NewRecord>) -> Vec<Vec<NewRecord>> {
    let mut parts: Vec<Vec<NewRecord>> = Vec::new();
    let mut bytes = 0;
    for record in records {
        let own = serde_json::to_string(&record).map_or(0, |text| text.len() + 1);
        bytes += own;
        match parts.last_mut() {
            Some(part) if bytes <= PART_BYTES => part.push(record),
            _ => {
                parts.push(vec![record]);
                bytes = own;
            }
        }
    }
    parts
}

/// What is said of a record that the ledger will not have.
fn lost(record: &NewRecord, reason: &str) -> String {
    let NewRecord { id, activity, quantity, unit, unit_price, .. } = record;
    let price = format!("{unit_price} $/{}", record.resource.unit());
    format!("record {id:?}, {quantity} {unit} of {activity:?} at {price}, is refused ({reason})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Provider};
    use nom_proto::ledger::Summary;
    use nom_proto::prices::Resource;
    use std::time::Instant;

    /// Far longer than anything takes.
    const LONG: Duration = Duration::from_secs(60);

    struct Place {
        provider: Provider,
        poster: Poster,
        happenings: Receiver<Happening>,
    }

    impl Place {
        fn new() -> Place {
            let provider = Provider::start(Config::default()).expect("it starts");
            let keys = provider.register("web-1", None).expect("registered");
            let (machine, activity) = (keys.name, "memcached".to_owned());
            let charge = Charge { provider: provider.url(), key: keys.meter_key, machine, activity };
            let (sender, happenings) = channel();
            let poster = Poster::spawn(&charge, sender).expect("it takes records");
            Place { provider, poster, happenings }
        }

        /// Has records entered; how many were, and what is said of each that was not.
        fn post(&self, records: Vec<NewRecord>) -> (u64, Vec<String>) {
            let (all, mut entered, mut refused) = (records.len(), 0, Vec::new());
            self.poster.post(records);
            let deadline = Instant::now() + LONG;
            while entered as usize + refused.len() < all {
                assert!(Instant::now() < deadline, "{entered} of {all} are entered, {refused:?}");
                match self.happenings.recv_timeout(LONG).expect("it goes on") {
                    Happening::Entered(count) => entered += count,
                    Happening::Refused(line) => refused.push(line),
                    _ => panic!("something else"),
                }
            }
            (entered, refused)
        }

        fn in_the_ledger(&self) -> u64 {
            let url = format!("{}/v1/ledger/summary", self.provider.url());
            let request =
                agent().get(url).header("Authorization", format!("Bearer {}", self.provider.token()));
            let text = request.call().expect("an answer").body_mut().read_to_string().expect("a body");
            let summary: Summary = serde_json::from_str(&text).expect("sums");
            summary.sums.iter().map(|sum| sum.records).sum()
        }
    }

    fn record(number: usize) -> NewRecord {
        NewRecord {
            id: format!("web-1/1/n/{number}"),
            machine: "web-1".into(),
            activity: "memcached".into(),
            resource: Resource::NetworkOut,
            quantity: 1000,
            unit: "byte".into(),
            unit_price: 10.0,
            from_unix_ns: 1_700_000_000_000_000_000,
            to_unix_ns: 1_700_000_001_000_000_000,
        }
    }

    #[test]
    fn a_record_that_is_refused_is_told_of_and_holds_up_no_other() {
        let place = Place::new();
        let mut records: Vec<NewRecord> = (0..20).map(record).collect();
        records[7].activity = "\n".into();
        records[8].quantity = u64::MAX;
        let (entered, refused) = place.post(records);
        assert_eq!((entered, refused.len()), (18, 2), "{refused:?}");
        for part in ["web-1/1/n/7", "1000 byte", r#""\n""#, "422", "control character"] {
            assert!(refused[0].contains(part), "{part} in {}", refused[0]);
        }
        let mut other = record(3);
        other.quantity += 1;
        let (entered, refused) = place.post(vec![record(20), other]);
        assert!(entered == 1 && refused[0].contains("409"), "{refused:?}");
        assert_eq!(place.in_the_ledger(), 19);
    }

    #[test]
    fn more_than_a_request_may_hold_is_entered_in_parts() {
        let place = Place::new();
        let records: Vec<NewRecord> = (0..6000).map(record).collect();
        let body = serde_json::to_string(&records).expect("plain data");
        assert!(body.len() > BODY_MAX, "{} bytes", body.len());
        assert_eq!(place.post(records), (6000, Vec::new()));
        assert_eq!(place.in_the_ledger(), 6000);
    }
}
