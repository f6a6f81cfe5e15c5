//! What the machine says that it holds, from the provider that it reports to; and what the meter sees, for
//! it.

use super::Happening;
use super::holdings::Word;
use super::shares::{Claim, claims};
use crate::clock::Moment;
use anyhow::Result;
use nom_proto::meter::MeterReport;
use nom_proto::path;
use nom_proto::status::Reported;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use ureq::Agent;

/// How often the machine's word is asked for: it says it at least every second.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the provider may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A thread that asks and tells.
#[derive(Debug)]
pub struct Words(Sender<MeterReport>);

impl Words {
    /// Starts one; it ends when nobody listens any more.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn spawn(provider: &str, key: &str, happenings: Sender<Happening>) -> Result<Words> {
        let (sender, reports) = channel();
        let base = provider.trim_end_matches('/').to_owned();
        let line = Line {
            agent: Agent::config_builder().timeout_global(Some(PATIENCE)).build().into(),
            base,
            authorization: format!("Bearer {key}"),
        };
        let work = move || line.run(&reports, &happenings);
        std::thread::Builder::new().name("meter's words".to_owned()).spawn(work)?;
        Ok(Words(sender))
    }

    /// Tells the provider what the meter sees.
    pub fn tell(&self, report: MeterReport) {
        // The thread ends only after this.
        let _ = self.0.send(report);
    }
}

struct Line {
    agent: Agent,
    base: String,
    authorization: String,
}

impl Line {
    fn run(&self, reports: &Receiver<MeterReport>, happenings: &Sender<Happening>) {
        loop {
            match reports.recv_timeout(PERIOD) {
                // One that is lost is followed by another.
                Ok(report) => drop(self.tell(&report)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // A provider that is away says nothing, and the last word grows old.
            let Ok((word, claims)) = self.ask() else { continue };
            let news = word.map(Happening::Word).into_iter().chain([Happening::Claims(claims)]);
            for happening in news {
                if happenings.send(happening).is_err() {
                    return;
                }
            }
        }
    }

    fn ask(&self) -> Result<(Option<Word>, Vec<Claim>)> {
        let request = self.agent.get(format!("{}{}", self.base, path::STATUS));
        let mut answer = request.header("Authorization", &self.authorization).call()?;
        let statuses: Vec<Reported> = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
        Ok((newest(&statuses, Moment::now()), claims(&statuses)))
    }

    fn tell(&self, report: &MeterReport) -> Result<()> {
        let request = self.agent.post(format!("{}{}", self.base, path::METERS));
        let request = request.header("Content-Type", "application/json");
        request.header("Authorization", &self.authorization).send(serde_json::to_string(report)?)?;
        Ok(())
    }
}

/// The newest of what a machine's applications say of it as a whole.
fn newest(statuses: &[Reported], now: Moment) -> Option<Word> {
    let of_machine = statuses.iter().filter(|reported| reported.status.machine_memory_bytes > 0);
    let newest = of_machine.min_by(|a, b| a.age_seconds.total_cmp(&b.age_seconds))?;
    let age_ns = (newest.age_seconds.max(0.0) * 1e9) as u64;
    Some(Word {
        cores: newest.status.machine_cores,
        memory: newest.status.machine_memory_bytes,
        at_ns: now.steady_ns.saturating_sub(age_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(age_seconds: f64, machine_cores: u32, machine_memory_bytes: u64) -> Reported {
        let json = r#"{"machine":"m","application":"a","at_ns":1,"window_ns":1,"batching_delay_us":0,
            "polls":false,"cores":1,"memory_bytes":1,"requests":0,"sent_bytes":0,"received_bytes":0,
            "latency_mean_ns":0,"latency_jitter_ns":0,"latency_p99_ns":0,"price_revision":1,
            "price_network_out":1.0,"revenue_per_second":0.0,"cost_per_second":0.0,"profit":1.0}"#;
        let mut status: nom_proto::status::Status = serde_json::from_str(json).expect("an older machine's");
        (status.machine_cores, status.machine_memory_bytes) = (machine_cores, machine_memory_bytes);
        Reported { status, age_seconds }
    }

    #[test]
    fn the_newest_word_counts_and_silence_is_none() {
        let now = Moment { unix_ns: 0, steady_ns: 10_000_000_000 };
        let word = newest(&[reported(3.0, 4, 40), reported(0.5, 2, 20), reported(0.1, 0, 0)], now);
        assert_eq!(word, Some(Word { cores: 2, memory: 20, at_ns: 9_500_000_000 }));
        assert_eq!(newest(&[reported(0.1, 0, 0)], now), None);
    }
}
